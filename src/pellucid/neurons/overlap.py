"""Overlap: neurons ranked by how well the words that they fire on are the words of a class (IoU)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.bitmasks import overlap, packed, shared, sizes
from pellucid.neurons.chance import overlap_chance
from pellucid.neurons.concepts import Concept, as_concept, scored
from pellucid.neurons.histograms import ENDS, Binned, best_side, histogram_collectors, joined, ranking_from_histograms
from pellucid.neurons.ranking import neuron_names
from pellucid.neurons.scores import Again, Scores, class_table, ranking_of
from pellucid.neurons.sources import Sites, found_in, site_of
from pellucid.results import Array, ResultError

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.neurons.ranking import Ranking
    from pellucid.neurons.store_rows import RowClasses


@dataclass(frozen=True)
class Cut:
    """Where a neuron begins to fire: strictly above its `quantile`, or above one `threshold` for all neurons.

    With both `ends`, strictly below the quantile 1 − q (or the threshold) counts too, as a negative score.
    """

    quantile: float | None
    threshold: float | None
    ends: str

    def __post_init__(self) -> None:
        if (self.quantile is None) == (self.threshold is None):
            raise ResultError(
                "Neurons fire above a quantile or above a threshold: give one of the two, the other None."
            )
        if self.quantile is not None and not 0 <= self.quantile < 1:
            raise ResultError(f"quantile={self.quantile} must be at least 0 and less than 1, such as 0.95.")
        if self.ends not in ENDS:
            raise ResultError(f"There are no ends {self.ends!r}; use {listing(ENDS)}.")

    def rank(self, n: int) -> int:
        """The place (from 0, the smallest first) of the value that a neuron must exceed."""
        assert self.quantile is not None
        return int(np.floor(self.quantile * (n - 1)))


def iou(
    source: Found | Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    quantile: float | None = 0.95,
    threshold: float | None = None,
    ends: str = "both",
    exact: bool = False,
    control: bool = True,
    pooling: str | None = None,
    seed: int = 0,
) -> Ranking:
    """Intersection over union of the words a neuron fires on and the words of a class (Bau et al. 2017; Mu & Andreas).

    A neuron fires strictly above its `quantile`, or above a `threshold`; with both `ends` also strictly below, with a
    negative score, whichever fits better. From `ClassHistograms` the threshold lies somewhere in a bin: the table
    `error` bounds what that hides, equal values included. `exact` reads a store instead; its intervals keep the
    quantile of all words. Overall is the best class. Chance is what labels dealt out at random among words give at the
    better end, and overall for the best class.
    """
    asked, cut = as_concept(concept), Cut(quantile, threshold, ends)
    arguments = {"quantile": quantile, "threshold": threshold, "ends": ends, "exact": exact}
    if exact:
        from pellucid.neurons.store_rows import exact_store

        return _exact(exact_store(source, corpus, pooling), asked, cut, sites=sites, arguments=arguments, seed=seed)
    found = found_in(
        source, corpus, asked, histogram_collectors, sites=sites, control=control, seed=seed, pooling=pooling
    )
    return ranking_from_histograms(
        found,
        asked,
        partial(binned_overlap, cut=cut),
        partial(overlap_doubt, cut=cut),
        partial(binned_chance, cut=cut),
        method="iou",
        sites=sites,
        arguments=arguments,
        seed=seed,
    )


def binned_overlap(data: Binned, side: Array | None = None, *, cut: Cut) -> Scores:
    """IoU of one site's neurons from histograms."""
    upper = _end(data, cut, lower=False).value
    return best_side(upper, _end(data, cut, lower=True).value if cut.ends == "both" else None, side)


def overlap_doubt(data: Binned, scores: Scores, *, cut: Cut) -> Array:
    """How far IoU from histograms may be off, [class, neuron]."""
    ends = [_end(data, cut, lower=lower).reach for lower in (False, True)[: 2 if cut.ends == "both" else 1]]
    most, least = np.max(ends, axis=0)
    return np.maximum(most - np.abs(scores.signed), np.abs(scores.signed) - least)


def binned_chance(data: Binned, seed: int, *, cut: Cut) -> tuple[Array, Array]:
    """What IoU is by chance, for one site's neurons."""
    upper = _fired_on(data, cut, lower=False).size
    lower = _fired_on(data, cut, lower=True).size if cut.ends == "both" else None
    return overlap_chance(upper, lower, data.counts, data.places, seed)


@dataclass(frozen=True, eq=False)
class _Fired:
    """Where neurons begin to fire, [neuron] each: the bin, the part of its words above, the words in the bins above it
    and in itself, the most words in it that can be above, and whether the part is known, as all values are equal."""

    place: Array
    part: Array
    above: Array
    inside: Array
    most: Array
    sure: Array

    @property
    def size(self) -> Array:
        """Words that neurons fire on, [neuron]."""
        return self.above + self.part * self.inside


def _fired_on(data: Binned, cut: Cut, *, lower: bool) -> _Fired:
    """The end is that of the last bins; for the lower one, bins are turned around.

    The grid is as wide as values are away from their median, so a bin that holds half of all words is taken to hold
    equal values: none is above a quantile among them. This is sure for constant neurons alone.
    """
    total = data.total[:, ::-1] if lower else data.total
    above = np.cumsum(total[:, ::-1], axis=1)[:, ::-1] - total  # words in the bins after each, [neuron, bin]
    units, n = np.arange(total.shape[0]), int(data.counts.sum())
    if cut.quantile is not None:
        wanted = n - 1 - cut.rank(n)
        place = (above > wanted).sum(1)  # the first bin with no more words above: it holds the value to exceed
        inside = total[units, place]
        most = (wanted - above[units, place]).clip(0, inside)  # and fewer where values are equal
        part, equal = most / np.maximum(inside, 1), np.zeros(len(units))
    else:
        place, part, equal = _around(data.edges, float(cut.threshold or 0.0), lower=lower)
        if lower:
            place = total.shape[1] - 1 - place
        most = inside = total[units, place]
    tied = (2 * inside >= n) & ~np.isnan(equal)
    return _Fired(place, np.where(tied, equal, part), above[units, place], inside, most, tied & ~data.moves)


@dataclass(frozen=True, eq=False)
class _End:
    """One end of the values: where neurons fire, the words of each class in bins after the cut and in its bin,
    [class, neuron], and the words of each class, [class, 1]."""

    fired: _Fired
    known: Array
    doubt: Array
    counts: Array

    @property
    def value(self) -> Array:
        """IoU, [class, neuron]."""
        return overlap(self.known + self.fired.part * self.doubt, self.fired.size, self.counts)

    @property
    def reach(self) -> Array:
        """The most and the least that IoU can be, [2, class, neuron]."""
        fired, value = self.fired, self.value
        hits, others = np.minimum(self.doubt, fired.most), np.minimum(fired.inside - self.doubt, fired.most)
        most = overlap(self.known + hits, fired.above + hits, self.counts)
        least = overlap(self.known, fired.above + others, self.counts)
        return np.where(fired.sure, value, np.stack([most, least]))


def _end(data: Binned, cut: Cut, *, lower: bool) -> _End:
    fired = _fired_on(data, cut, lower=lower)
    hist = data.hist[..., ::-1] if lower else data.hist  # [class, neuron, bin]
    units, after = np.arange(hist.shape[1]), np.arange(hist.shape[2]) > fired.place[:, None]
    known = np.einsum("cub,ub->cu", hist, after.astype(hist.dtype))[data.places]
    return _End(fired, known, hist[:, units, fired.place][data.places], data.counts[data.places][:, None])


def _around(edges: Array, threshold: float, *, lower: bool) -> tuple[Array, Array, Array]:
    """The bin in which a threshold lies, for every neuron, the part of it beyond, and that part if values are equal.

    The part is half in the open end bins. Equal values are those of the median, where the middle bins meet; NaN in
    other bins.
    """
    place = (edges <= threshold).sum(1)
    units = np.arange(len(edges))
    inner = (place > 0) & (place < edges.shape[1])
    low = edges[units, np.maximum(place - 1, 0)]
    high = edges[units, np.minimum(place, edges.shape[1] - 1)]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(inner, (high - threshold) / np.where(high > low, high - low, 1.0), 0.5)
    median = np.median(edges, axis=1)
    fires = (median < threshold if lower else median > threshold).astype(np.float64)
    equal = np.where((low <= median) & (median <= high), fires, np.nan)
    return place, 1 - part if lower else part, equal


def _exact(
    source: Store, concept: Concept, cut: Cut, *, sites: Sites, arguments: Mapping[str, object], seed: int
) -> Ranking:
    from pellucid.neurons.store_rows import columns, provenance_of, row_classes, store_keys

    rows = row_classes(source, concept)
    keys = store_keys(source, sites)
    order = rows.labelled
    masks = _class_masks(rows, order)
    counts = masks.counts.sum(0)
    parts: list[list[Scores]] = []
    for key in keys:
        for _, values in columns(source, key, order):
            made = _fired(values, cut, masks)
            sizes_of = [size.sum(0) for size, _ in made]
            chance = overlap_chance(sizes_of[0], sizes_of[1] if len(made) > 1 else None, counts, masks.places, seed)
            first, *others = _scores_without(made, masks)
            parts.append([replace(first, null=chance[0], overall_null=chance[1]), *others])
    whole = [joined([part[number] for part in parts]) for number in range(len(parts[0]))]
    words = [int(masks.counts[number].sum()) for number in range(len(masks.counts))]
    kept = [Again(scores, float(size)) for scores, size in zip(whole[1:], words, strict=True) if size]
    return ranking_of(
        whole[0],
        kept,
        classes=scored(dict.fromkeys(rows.classes)),
        neurons=[name for key in keys for name in neuron_names(site_of(key), source.width(key))],
        provenance=provenance_of(source, {"method": "iou", "concept": concept.name, **arguments}, seed, keys),
        tables={"classes": class_table(rows.classes, counts)},
        shares=True,
    )


@dataclass(frozen=True, eq=False)
class _Masks:
    """The words of every class in every document group: packed masks, and `counts` [group, class] of all classes."""

    stretches: list[slice]
    packed: list[Array]
    counts: Array
    places: list[int]


def _class_masks(rows: RowClasses, order: Array) -> _Masks:
    codes, groups = rows.codes[order], rows.groups[order]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(groups)) + 1, [len(groups)]])
    stretches = [slice(start, stop) for start, stop in pairwise(starts.tolist())]
    every = np.arange(len(rows.classes))[:, None]
    masks = [packed(codes[place][None] == every) for place in stretches]
    counts = np.array([np.bincount(codes[place], minlength=len(rows.classes)) for place in stretches])
    places = [rows.classes.index(name) for name in scored(dict.fromkeys(rows.classes))]
    return _Masks(stretches, masks, counts, places)


def _fired(values: Array, cut: Cut, masks: _Masks) -> list[tuple[Array, Array]]:
    """At each end, the words that neurons [neuron, word] fire on, [group, neuron], and those of each class among them,
    [group, class, neuron]; the threshold is that of all words."""
    made: list[tuple[Array, Array]] = []
    for lower in (False, True) if cut.ends == "both" else (False,):
        fires = _fires(-values if lower else values, cut, lower=lower)
        sizes_of: list[Array] = []
        both_of: list[Array] = []
        for place, own in zip(masks.stretches, masks.packed, strict=True):
            mask = packed(fires[:, place])
            sizes_of.append(sizes(mask))
            both_of.append(shared(mask, own).T)
        made.append((np.array(sizes_of), np.array(both_of)))
    return made


def _scores_without(made: list[tuple[Array, Array]], masks: _Masks) -> list[Scores]:
    """Scores over all words, then without each document group in turn, at the ends that count for all words."""
    found: list[Scores] = []
    for left_out in (None, *range(len(masks.counts))):
        kept = [group for group in range(len(masks.counts)) if group != left_out]
        own = masks.counts[kept].sum(0)[masks.places][:, None]
        ends = [overlap(both[kept].sum(0)[masks.places], size[kept].sum(0), own) for size, both in made]
        side = found[0].signed if found else None
        found.append(best_side(ends[0], ends[1] if len(ends) > 1 else None, side))
    return found


def _fires(values: Array, cut: Cut, *, lower: bool) -> Array:
    """Where neurons fire, [neuron, word]; `values` are turned around for the lower end."""
    if cut.threshold is not None:
        return values > (-cut.threshold if lower else cut.threshold)
    rank = cut.rank(values.shape[1])
    return values > np.partition(values, rank, axis=1)[:, rank : rank + 1]
