"""Average precision: neurons ranked by how well their raw activation alone finds the words of a class."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.chance import precision_chance
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

PRESETS = {"neurox": "upper"}
"""The ends that a preset looks at."""
_BINS = 512
"""Bins of equal size by rank, from which the jackknife of exact scores is worked out."""


def precision(
    source: Found | Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    ends: str = "both",
    exact: bool = False,
    preset: str | None = None,
    control: bool = True,
    pooling: str | None = None,
    seed: int = 0,
) -> Ranking:
    """Average precision of every neuron as a detector of a class: Σ (R_k − R_{k−1})·P_k over its values, largest first.

    With both `ends`, a neuron that is low for the class is scored by its negated values, with a negative sign. From
    `ClassHistograms`, values of one bin count as equal, and the table `error` bounds what that hides; `exact` reads a
    store (equal values are taken together, as scikit-learn does). Overall is the best class. Chance is what labels
    dealt out at random among words give at the better end, and overall for the best class. `preset="neurox"` takes the
    upper end alone, as that library's `iou_probe` does.
    """
    asked = as_concept(concept)
    if preset is not None and preset not in PRESETS:
        raise ResultError(f"There is no preset {preset!r}; there is {listing(PRESETS)}.")
    if preset is not None:
        ends = PRESETS[preset]
    if ends not in ENDS:
        raise ResultError(f"There are no ends {ends!r}; use {listing(ENDS)}.")
    arguments: dict[str, object] = {"exact": exact, "ends": ends, "preset": preset}
    if exact:
        from pellucid.neurons.store_rows import exact_store

        return _exact(exact_store(source, corpus, pooling), asked, sites=sites, arguments=arguments, seed=seed)
    found = found_in(
        source, corpus, asked, histogram_collectors, sites=sites, control=control, seed=seed, pooling=pooling
    )
    return ranking_from_histograms(
        found,
        asked,
        partial(binned_precision, ends=ends),
        partial(precision_doubt, ends=ends),
        partial(binned_chance, ends=ends),
        method="precision",
        sites=sites,
        arguments=arguments,
        seed=seed,
    )


def average_precision(values: Array, codes: Array, classes: int) -> Array:
    """The average precision of one neuron [words] for every class, [class]; 0 for one without words.

    `codes` [words] are the numbers of classes. Equal values are one step.
    """
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    ends = np.flatnonzero(np.concatenate([ordered[1:] != ordered[:-1], [True]]))  # the last word of equal ones
    hits = (codes[order][None] == np.arange(classes)[:, None]).cumsum(1)[:, ends]  # [class, steps]
    steps = np.diff(hits, axis=1, prepend=0)
    return (steps * (hits / (ends + 1))).sum(1) / np.maximum(hits[:, -1], 1)


def binned_precision(data: Binned, side: Array | None = None, *, ends: str = "both") -> Scores:
    """Average precision of one site's neurons from histograms."""
    sides = [from_bins(data.hist[:, :, ::step], data.places) for step in _steps(ends)]
    return best_side(sides[0], sides[1] if len(sides) > 1 else None, side)


def precision_doubt(data: Binned, scores: Scores, *, ends: str = "both") -> Array:
    """How far average precision from histograms may be off, [class, neuron]."""
    bounds = np.array([_bounds(data.hist[:, :, ::step], data.places) for step in _steps(ends)])
    most, least = bounds.max(0)  # of [end, 2, class, neuron]
    best = np.abs(scores.signed)
    return np.where(data.moves, np.maximum(np.maximum(most - best, best - least), 0.0), 0.0)


def binned_chance(data: Binned, seed: int, *, ends: str = "both") -> tuple[Array, Array]:
    """What average precision is by chance, for one site's neurons."""
    ties = np.array([_ties(data.hist.sum(0)[:, ::step]) for step in _steps(ends)])
    return precision_chance(ties, data.counts, data.places, seed)


def _steps(ends: str) -> tuple[int, ...]:
    """How bins are gone through so that they begin with the largest values, or with the smallest."""
    return (-1, 1) if ends == "both" else (-1,)


def _ties(total: Array) -> Array:
    """Σ_b n_b/N_b [neuron] of the words [neuron, bin] in bins from the largest values on."""
    return (total / np.maximum(total.cumsum(1), 1)).sum(1)


def from_bins(hist: Array, places: list[int]) -> Array:
    """Average precision [class, neuron] from histograms [class, neuron, bin] that begin with the largest values."""
    own = hist[places]
    hits, words = own.cumsum(2), np.maximum(hist.sum(0).cumsum(1), 1)
    return (own * (hits / words)).sum(2) / np.maximum(hits[..., -1], 1)


def _bounds(hist: Array, places: list[int]) -> Array:
    """The most and the least that the exact average precision can be, [2, class, neuron].

    With t hits and w words before a bin that holds p hits and q others, its sum of precisions is largest when hits come
    first, Σ_{i≤p} (t+i)/(w+i), and smallest when they come last, with w + q for w: p + (t−w)·(H(w+p) − H(w)).
    """
    own, total = hist[places].astype(np.float64), hist.sum(0).astype(np.float64)
    hits, words = own.cumsum(2) - own, total.cumsum(1) - total
    first, last = _harmonic(words), _harmonic(words + total)  # of all classes
    most = own + (hits - words) * (_harmonic(words + own) - first)
    others = words + total - own
    least = own + (hits - others) * (last - _harmonic(others))
    return np.array([most.sum(2), least.sum(2)]) / np.maximum(own.sum(2), 1)


def _harmonic(n: Array) -> Array:
    """H(n) less Euler's constant: from its series for n ≥ 8, and by stepping up to there below; wrong by under 1e-9."""
    small = np.array([0.0, *np.cumsum(1 / np.arange(1, 8))]) - np.euler_gamma
    large = np.maximum(n, 8.0)
    series = np.log(large) + 1 / (2 * large) - 1 / (12 * large**2) + 1 / (120 * large**4)
    return np.where(n < 8, small[np.minimum(n, 7).astype(np.int64)], series)


def _exact(source: Store, concept: Concept, *, sites: Sites, arguments: dict[str, object], seed: int) -> Ranking:
    from pellucid.neurons.store_rows import columns, provenance_of, row_classes, store_keys

    rows = row_classes(source, concept)
    keys = store_keys(source, sites)
    order = rows.labelled
    codes = rows.codes[order]
    groups = np.unique(rows.groups[order], return_inverse=True)[1]
    places = [rows.classes.index(name) for name in scored(dict.fromkeys(rows.classes))]
    ends = len(_steps(str(arguments["ends"])))
    rest = (groups, len(rows.classes), places, ends)
    made = [_neuron(values, codes, *rest) for key in keys for _, some in columns(source, key, order) for values in some]
    parts, ties = [part for part, _ in made], np.stack([each for _, each in made], axis=1)
    counts = np.bincount(codes, minlength=len(rows.classes))
    null, overall = precision_chance(ties, counts, places, seed)
    whole = [joined([part[number] for part in parts]) for number in range(len(parts[0]))]
    again = [Again(scores, float(size)) for scores, size in zip(whole[1:], np.bincount(groups).tolist(), strict=True)]
    told: dict[str, object] = {"method": "precision", "concept": concept.name, **arguments}
    return ranking_of(
        replace(whole[0], null=null, overall_null=overall),
        again,
        classes=scored(dict.fromkeys(rows.classes)),
        neurons=[name for key in keys for name in neuron_names(site_of(key), source.width(key))],
        provenance=provenance_of(source, told, seed, keys),
        tables={"classes": class_table(rows.classes, counts)},
        shares=True,
    )


def _neuron(
    values: Array, codes: Array, groups: Array, classes: int, places: list[int], ends: int
) -> tuple[list[Scores], Array]:
    """One neuron's scores over all words, then without each document group, and its Σ_b n_b/N_b [end].

    What leaving a group out changes is found on bins of about equal size by rank, equal values in one, and added to the
    exact score.
    """
    exact = [average_precision(side, codes, classes)[places][:, None] for side in (values, -values)[:ends]]
    _, which, equal = np.unique(values, return_inverse=True, return_counts=True)
    rank = (np.cumsum(equal) - equal)[which]
    place = ((groups * classes + codes) * _BINS) + rank * _BINS // len(values)
    count = int(groups.max()) + 1
    hist = np.bincount(place, minlength=count * classes * _BINS).reshape(count, classes, 1, _BINS)
    total = hist.sum(0)
    found: list[Scores] = []
    for left_out in (None, *range(count)):
        rest = total if left_out is None else total - hist[left_out]
        sides = [
            one + from_bins(rest[:, :, ::step], places) - from_bins(total[:, :, ::step], places)
            for one, step in zip(exact, (-1, 1)[:ends], strict=True)
        ]
        found.append(best_side(sides[0], sides[1] if ends > 1 else None, found[0].signed if found else None))
    return found, np.array([_ties(each[None])[0] for each in (equal[::-1], equal)[:ends]])
