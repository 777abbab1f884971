"""Head alignment: how much attention goes to each part of speech and to syntactic neighbours, by head and layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.effective_weights import RAW
from pellucid.collect.head_links import FIXED
from pellucid.heads.roles.layers import stacked
from pellucid.heads.roles.sweeping import swept, targets
from pellucid.reading import view_with
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.head_targets import HeadTargetsView
    from pellucid.corpus import Corpus
    from pellucid.model import Model

OF = ("tags", "relations")
_OVER_HEADS = {"mean": "mean", "smallest": "min", "largest": "max"}


@dataclass(frozen=True, eq=False)
class HeadAlignment(Result):
    """Attention on every target, a tag or a relation with a direction, [target, layer, head].

    Tables: `layers` (mean over the heads of a layer, beside chance), `peaks` (the layer where each target gets most
    above chance) and `distance` (words between query and key by layer, where `HeadCounts` were swept too).
    Where a layer has fewer heads than others, the values of those it has not are NaN, and means are over the others.
    """

    kind: ClassVar[str] = "heads.alignment"
    gaps: ClassVar[bool] = True
    title: ClassVar[str] = "Where attention goes"
    chance: ClassVar[str] = "uniform attention over all that a query may see"


def alignment(
    source: Found | Model, corpus: Corpus | None = None, *, of: str = "tags", least: int = 20, weights: str = RAW
) -> HeadAlignment:
    """Shares of attention by target, from `HeadTargets()` of a sweep, or a model and a corpus (Vig & Belinkov 2019).

    Of `tags`: the share of the attention on words that goes to words of a tag. Of `relations`: the attention that goes
    to syntactic neighbours, mean over words that have one in sight; relations with fewer than `least` are left out.
    `weights` are raw or effective (absolute values, each row summing to one).
    """
    if of not in OF:
        raise ResultError(f"There is no alignment of {of!r}; there are {' and '.join(OF)}.")
    found = swept(source, corpus, weights=weights)
    view, mine = targets(found, weights)
    keys = list(mine.values())
    names = _names(view, keys, of, least)
    values, even = _aligned(view, keys, of, names)
    axes: dict[str, tuple[Coordinate, ...]] = {
        "target": tuple(names),
        "layer": tuple(mine),
        "head": tuple(range(values.shape[2])),
    }
    interval = over_groups(view, lambda part: _aligned(part, keys, of, names)[0], lambda part: part.n(keys[0]))
    return HeadAlignment(
        axes=axes,
        values=values,
        null=np.broadcast_to(even, values.shape),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("heads.alignment", {"of": of, "least": least, "weights": weights}),
        tables=_by_layer(values, even[..., 0], axes) | _distance(found, mine, weights),
    )


def _names(view: HeadTargetsView, keys: Sequence[str], of: str, least: int) -> list[str]:
    if of == "tags":
        if not view.tags:
            raise ResultError(
                f"No word of the corpus has the label {view.facts['label']!r}, so there is no attention by tag; give a "
                "corpus with it, such as CoNLL-U or grammar, or HeadTargets(label=…)."
            )
        return list(view.tags)
    n = np.stack([view.cases(key)[:, 0] for key in keys]).max(0)
    names = [name for name, count in zip(view.kinds, n, strict=True) if name not in FIXED and count >= least]
    if not names:
        raise ResultError(
            f"The corpus has no dependency relation that {least} words have; give a corpus with arcs, such as CoNLL-U "
            "or grammar, or more of it."
        )
    return names


def _aligned(view: HeadTargetsView, keys: Sequence[str], of: str, names: Sequence[str]) -> tuple[Array, Array]:
    """Shares [target, layer, head], and those of uniform attention, [target, layer, 1]."""
    found: list[Array] = []
    even: list[Array] = []
    for key in keys:
        if of == "tags":
            mass, chance = view.on_tags(key)
            places = [view.tags.index(name) for name in names]
            words, words_even = view.rows("words", key)
            found.append(mass[places] / np.maximum(words, 1e-12))
            even.append(chance[places] / max(words_even, 1e-12))
        else:
            places = [view.kinds.index(name) for name in names]
            cases = view.cases(key)[places]
            n = np.maximum(cases[:, 0], 1)
            found.append(view.links(key)[places, 1] / n[:, None])
            even.append(cases[:, 3] / n)
    return stacked(found, axis=1), np.stack(even, axis=1)[..., None]


def _by_layer(values: Array, even: Array, axes: Mapping[str, tuple[Coordinate, ...]]) -> dict[str, Table]:
    """Means over the heads of a layer, and where each target has its peak."""
    mean = np.nanmean(values, axis=2)  # every layer that was read has a head
    peak = (mean - even).argmax(1)
    rows = np.arange(len(mean))
    layers = np.array([str(layer) for layer in axes["layer"]])
    return {
        "layers": Table(
            {"target": axes["target"], "layer": axes["layer"]},
            {"share": mean, "chance": even, "largest": np.nanmax(values, axis=2), "head": np.nanargmax(values, axis=2)},
        ),
        "peaks": Table(
            {"target": axes["target"]},
            {"layer": layers[peak], "share": mean[rows, peak], "chance": even[rows, peak]},
        ),
    }


def _distance(found: Found, mine: Mapping[Coordinate, str], weights: str) -> dict[str, Table]:
    """The mean distance of attention by layer, where it was counted."""
    from pellucid.collect.counts import HeadCounts

    if not any(isinstance(each, HeadCounts) and each.weights == weights for each in found.collectors.values()):
        return {}
    view, others = view_with(found, HeadCounts, "pattern", ask="HeadCounts()", weights=weights)
    if tuple(others) != tuple(mine):
        return {}
    values = [view.mean("distance", key) for key in others.values()]
    even = np.array([view.chance("distance", key) for key in others.values()])
    columns = {name: np.array([getattr(each, of)() for each in values]) for name, of in _OVER_HEADS.items()}
    columns["chance"] = even
    return {"distance": Table({"layer": tuple(mine)}, columns)}
