"""Probeless: neurons ranked by how far the mean activations of classes lie apart, with nothing trained."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pellucid.neurons.class_sums import ClassSums, class_collectors, ranking_from_sums
from pellucid.neurons.concepts import Concept, as_concept, scored_places
from pellucid.neurons.scores import Scores
from pellucid.neurons.sources import Sites, found_in
from pellucid.results import Array, ResultError

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.neurons.ranking import Ranking


def probeless(
    source: Found | Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    standardise: bool = False,
    control: bool = True,
    pooling: str | None = None,
    seed: int = 0,
) -> Ranking:
    """Every neuron's summed distance between class means (Antverg & Belinkov 2022), from `ClassMoments`.

    Class z scores Σ_z' |μ_z − μ_z'|, with the sign of μ_z less the mean of the other means; overall is the sum over all
    pairs. `standardise` divides by the neuron's standard deviation (raw activations as published otherwise). Chance is
    E|μ_z − μ_z'| = σ·√(2/π·(1/n_z + 1/n_z')) for labels dealt out at random among words.
    """
    asked = as_concept(concept)
    found = found_in(source, corpus, asked, class_collectors, sites=sites, control=control, seed=seed, pooling=pooling)
    statistic = partial(mean_distances, standardise=standardise)
    return ranking_from_sums(
        found, asked, statistic, method="probeless", sites=sites, arguments={"standardise": standardise}, seed=seed
    )


def mean_distances(sums: ClassSums, *, standardise: bool = False) -> Scores:
    """Probeless scores of class means."""
    there = np.flatnonzero(sums.counts > 0)
    if standardise and sums.variances is None:
        raise ResultError("Standardised scores need variances: collect ClassMoments with covariance='diagonal'.")
    scale = np.sqrt(sums.total) if sums.variances is not None else None
    unit = 1.0 if scale is None or not standardise else np.where(scale > 0, scale, 1.0)
    means = sums.means / unit
    places = scored_places(sums.classes)
    signed = np.stack([_signed(means, place, there) for place in places])
    pairs = [(int(one), int(two)) for at, one in enumerate(there) for two in there[at + 1 :]]
    overall = sum((np.abs(means[one] - means[two]) for one, two in pairs), np.zeros(means.shape[1]))
    if scale is None:
        return Scores(signed, overall)
    spread = (scale > 0).astype(np.float64) if standardise else scale
    expected = _expected(sums.counts)
    null = np.stack([expected[place].sum() * spread for place in places])
    return Scores(signed, overall, null, expected.sum() / 2 * spread)


def _signed(means: Array, place: int, there: Array) -> Array:
    """The summed distances of one class's mean from the others', [neuron], with the side on which it lies."""
    others = means[[other for other in there.tolist() if other != place]]
    if place not in there or not len(others):
        return np.zeros(means.shape[1])
    side = np.where(means[place] >= others.mean(0), 1.0, -1.0)
    return side * np.abs(means[place] - others).sum(0)


def _expected(counts: Array) -> Array:
    """E|μ_z − μ_z'| of a neuron with variance 1 for every pair of classes, [class, class]; 0 where one has no rows."""
    with np.errstate(divide="ignore"):
        inverse = np.where(counts > 0, 1 / counts, np.nan)
    expected = np.sqrt(2 / np.pi * (inverse[:, None] + inverse[None]))
    np.fill_diagonal(expected, 0.0)
    return np.nan_to_num(expected)
