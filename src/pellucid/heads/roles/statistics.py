"""Head statistics: how sharply every attention head looks, how far, and at what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.effective_weights import RAW
from pellucid.collect.head_links import FOLLOWED, RARE, SAME
from pellucid.heads.roles.layers import stacked
from pellucid.heads.roles.sweeping import phrases_of
from pellucid.reading import control, layers, view_with
from pellucid.results import Array, Coordinate, Result, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.counts import HeadCountsView
    from pellucid.collect.found import Found
    from pellucid.collect.head_targets import HeadTargetsView

MEASURES = {
    "confidence": "largest weight on a word, mean over query words",
    "entropy": "of the attention over words and special tokens, in nats",
    "distance": "words between query and key, weighted by attention; 0 where a head looks at no word",
    "first token": "share of the attention on the first token of the text, whatever it is",
    "first special": "share on the first special token, such as [CLS] or <s>",
    "other specials": "share on all other tokens that belong to no word",
    "self": "share on the word itself",
    "previous": "share on the word before",
    "next": "share on the word after",
}
LINKED = {
    "rare words": "share on the least frequent word in sight, mean over words that see another",
    "same word": "share on the same word elsewhere, mean over words that see it",
    "followed before": "share on what followed the same word before (induction), mean over words that see it",
}
"""Measures of attention on links, where `HeadTargets` were swept too; see `HeadTargets`."""
_KINDS = {"rare words": RARE, "same word": SAME, "followed before": FOLLOWED}
_SUMMED = {"first token": "sink", "first special": "first", "other specials": "other"}
"""Measures that the collector calls otherwise."""


@dataclass(frozen=True, eq=False)
class HeadStatistics(Result):
    """Confidence, entropy, distance and targets of every head, [measure, layer, head]; NaN where a layer has fewer.

    The table `skipped` names measures that the text or the sweep cannot tell about, and why.
    """

    kind: ClassVar[str] = "heads.statistics"
    gaps: ClassVar[bool] = True
    title: ClassVar[str] = "What attention heads look at"
    chance: ClassVar[str] = "uniform attention over all that a query may see"

    @property
    def measures(self) -> Mapping[str, str]:
        every = {**MEASURES, **LINKED}
        return phrases_of(self, {name: every[name] for name in map(str, self.axes["measure"])})

    @property
    def offsets(self) -> Table:
        """How often the largest weight stands at an offset (key − query, in words), as a share of query words.

        Its column `chance`, where there is one, holds the same of the randomly initialised model.
        """
        return self.table("offsets")


def statistics(found: Found, *, weights: str = RAW) -> HeadStatistics:
    """Statistics of every head from `HeadCounts()`, with what uniform attention gives and a jackknife interval.

    Confidence is the mean over words of the largest weight, special tokens left out as query and key and nothing
    renormalised (Voita et al. 2019); sub-words are summed as keys and averaged as queries (Clark et al. 2019). With
    `HeadTargets()` in the sweep, attention on rare and on repeated words comes along; with a randomly initialised
    model, its values are the table `random model`. `weights="effective"` reads `HeadCounts(weights="effective")`:
    offsets are those of the largest signed number, all else is of absolute values.
    """
    from pellucid.collect.counts import HeadCounts

    chosen, mine = view_with(found, HeadCounts, "pattern", ask="HeadCounts()", weights=weights)
    view: HeadCountsView = chosen
    keys = list(mine.values())
    linked, skipped = _links(found, view, mine, weights)
    names = [name for name in LINKED if name not in skipped]
    values = _both(_measured(view, keys), linked, keys, names)
    interval = over_groups(view, partial(_measured, keys=keys), lambda part: part.n(keys[0]))
    low, high = interval.low, interval.high
    if linked is not None:
        other = over_groups(linked, lambda part: _on_links(part, keys, names)[0], lambda part: part.n(keys[0]))
        low, high = (_joined(*ends) for ends in ((low, other.low), (high, other.high)))
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": (*MEASURES, *names),
        "layer": tuple(mine),
        "head": tuple(range(values.shape[2])),
    }
    twin = control(found.models)
    drawn = [] if twin is None else list(layers(found.models, view.keys, "pattern", model=twin).values())
    tables = {"offsets": _offsets(view, keys, drawn, axes)}
    tables["skipped"] = Table.of_rows({"measure": list(skipped), "why": list(skipped.values())})
    if drawn:
        tables["random model"] = Table(
            axes, {"value": np.nan_to_num(_both(_measured(view, drawn), linked, drawn, names))}
        )
    even = _chance(view, keys, values.shape[2])
    return HeadStatistics(
        axes=axes,
        values=values,
        null=even if linked is None else _joined(even, _on_links(linked, keys, names)[1]),
        low=low,
        high=high,
        resampled=interval.resampled,
        provenance=found.provenance("heads.statistics", {"weights": weights}),
        tables=tables,
    )


def _links(
    found: Found, view: HeadCountsView, mine: Mapping[Coordinate, str], weights: str
) -> tuple[HeadTargetsView | None, dict[str, str]]:
    """The sums of attention on links for the same heads and words, and why some of them cannot be told."""
    from pellucid.collect.head_targets import HeadTargets

    swept = any(isinstance(each, HeadTargets) and each.weights == weights for each in found.collectors.values())
    if swept:
        linked, others = view_with(found, HeadTargets, "pattern", ask="HeadTargets()", weights=weights)
        if tuple(others) == tuple(mine) and set(view.keys) <= set(linked.keys) and linked.groups == view.groups:
            key = next(iter(mine.values()))
            n = {name: linked.cases(key)[linked.kinds.index(kind), 0] for name, kind in _KINDS.items()}
            skipped = {name: "no word of the text sees one" for name, count in n.items() if not count}
            if "rare words" in skipped and not linked.facts["counted"]:
                skipped["rare words"] = "the words of the text were not counted before the sweep"
            return linked, skipped
    return None, dict.fromkeys(LINKED, "the sweep has no HeadTargets() of the same heads")


def _on_links(view: HeadTargetsView, keys: Sequence[str], names: Sequence[str]) -> tuple[Array, Array]:
    """Attention on links of some names, and that of uniform attention, both [measure, layer, head]."""
    places = [view.kinds.index(_KINDS[name]) for name in names]
    n = [np.maximum(view.cases(key)[places, 0], 1) for key in keys]
    found = stacked([view.links(key)[places, 1] / each[:, None] for key, each in zip(keys, n, strict=True)], axis=1)
    even = np.stack([view.cases(key)[places, 3] / each for key, each in zip(keys, n, strict=True)], axis=1)
    return found, np.broadcast_to(even[..., None], found.shape)


def _both(counted: Array, linked: HeadTargetsView | None, keys: Sequence[str], names: Sequence[str]) -> Array:
    return counted if linked is None else np.concatenate([counted, _on_links(linked, keys, names)[0]])


def _joined(one: Array | None, other: Array | None) -> Array | None:
    return None if one is None or other is None else np.concatenate([one, other])


def _measured(view: HeadCountsView, keys: Sequence[str]) -> Array:
    """Every measure, [measure, layer, head]."""
    return np.stack([stacked([view.mean(_SUMMED.get(name, name), key) for key in keys]) for name in MEASURES])


def _chance(view: HeadCountsView, keys: Sequence[str], heads: int) -> Array:
    """What uniform attention gives, [measure, layer, head]: the same for all heads of a layer."""
    found = np.array([[view.chance(_SUMMED.get(name, name), key) for key in keys] for name in MEASURES])
    return np.repeat(found[..., None], heads, axis=2)


def _offsets(
    view: HeadCountsView, keys: Sequence[str], twin: Sequence[str], axes: Mapping[str, tuple[Coordinate, ...]]
) -> Table:
    near = range(-view.furthest, view.furthest + 1)
    offsets: tuple[Coordinate, ...] = (f"< {near[0]}", *near, f"> {near[-1]}")
    columns = {"share": _shares(view, keys)}
    if twin:
        columns["chance"] = _shares(view, twin)
    return Table({"offset": offsets, "layer": axes["layer"], "head": axes["head"]}, columns)


def _shares(view: HeadCountsView, keys: Sequence[str]) -> Array:
    """Counts of each offset over the number of queries, [offset, layer, head]; 0 where a layer has fewer heads."""
    return np.nan_to_num(stacked([view.offsets(key).T / view.n(key) for key in keys], axis=1))
