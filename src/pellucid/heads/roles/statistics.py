"""Head statistics: how sharply every attention head looks, how far, and at what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.effective_weights import RAW
from pellucid.heads.roles.layers import stacked
from pellucid.heads.roles.sweeping import phrases_of
from pellucid.reading import control, layers, view_with
from pellucid.results import Array, Coordinate, Result, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.counts import HeadCountsView
    from pellucid.collect.found import Found

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
_SUMMED = {"first token": "sink", "first special": "first", "other specials": "other"}
"""Measures that the collector calls otherwise."""


@dataclass(frozen=True, eq=False)
class HeadStatistics(Result):
    """Confidence, entropy, distance and targets of every head, [measure, layer, head]; NaN where a layer has fewer."""

    kind: ClassVar[str] = "heads.statistics"
    gaps: ClassVar[bool] = True
    title: ClassVar[str] = "What attention heads look at"
    chance: ClassVar[str] = "uniform attention over all that a query may see"

    @property
    def measures(self) -> Mapping[str, str]:
        return phrases_of(self, MEASURES)

    @property
    def offsets(self) -> Table:
        """How often the largest weight stands at an offset (key − query, in words), as a share of query words.

        Its column `chance`, where there is one, holds the same of the randomly initialised model.
        """
        return self.table("offsets")


def statistics(found: Found, *, weights: str = RAW) -> HeadStatistics:
    """Statistics of every head from `HeadCounts()`, with what uniform attention gives and a jackknife interval.

    Confidence is the mean over words of the largest weight, special tokens left out as query and key and nothing
    renormalised (Voita et al. 2019); sub-words are summed as keys and averaged as queries (Clark et al. 2019). With a
    randomly initialised model in the sweep, its values are the table `random model`. `weights="effective"` reads
    `HeadCounts(weights="effective")`: offsets are those of the largest signed number, all else is of absolute values.
    """
    from pellucid.collect.counts import HeadCounts

    chosen, mine = view_with(found, HeadCounts, "pattern", ask="HeadCounts()", weights=weights)
    view: HeadCountsView = chosen
    keys = list(mine.values())
    values = _measured(view, keys)
    interval = over_groups(view, partial(_measured, keys=keys), lambda part: part.n(keys[0]))
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": tuple(MEASURES),
        "layer": tuple(mine),
        "head": tuple(range(values.shape[2])),
    }
    twin = control(found.models)
    other = [] if twin is None else list(layers(found.models, view.keys, "pattern", model=twin).values())
    tables = {"offsets": _offsets(view, keys, other, axes)}
    if other:
        tables["random model"] = Table(axes, {"value": np.nan_to_num(_measured(view, other))})
    return HeadStatistics(
        axes=axes,
        values=values,
        null=_chance(view, keys, values.shape[2]),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("heads.statistics", {"weights": weights}),
        tables=tables,
    )


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
