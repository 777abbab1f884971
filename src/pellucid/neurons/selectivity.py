"""Selectivity: neurons ranked by how far a class's mean lies from the rest, in units of the spread inside classes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pellucid.neurons.chance import distance_chance
from pellucid.neurons.class_sums import ClassSums, class_collectors, ranking_from_sums
from pellucid.neurons.concepts import Concept, as_concept, scored_places
from pellucid.neurons.scores import Scores
from pellucid.neurons.sources import Sites, found_in
from pellucid.results import Array, ResultError, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pellucid.collect.found import Found
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.neurons.ranking import Ranking

_TINY = 1e-6
"""A spread inside classes below so small a part of the means is rounding: the neuron is constant inside classes."""


def selectivity(
    source: Found | Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    control: bool = True,
    pooling: str | None = None,
    seed: int = 0,
) -> Ranking:
    """How well a neuron tells a class from all other words: d′ = (μ_z − μ_rest) / σ, from `ClassMoments`.

    σ² is the variance inside z and inside the rest, half of each. Overall is the largest |d′|. Chance is
    E|d′| = √(2/π·(1/n_z + 1/n_rest)) for labels dealt out at random, and overall that of the largest of all classes.
    The table `index` holds the class selectivity index (μ_max − μ_others)/(μ_max + μ_others) (Morcos et al. 2018) of
    neurons whose class means are all at least 0.
    """
    asked = as_concept(concept)
    found = found_in(source, corpus, asked, class_collectors, sites=sites, control=control, seed=seed, pooling=pooling)
    statistic = partial(d_prime, seed=seed)
    return ranking_from_sums(found, asked, statistic, method="selectivity", sites=sites, seed=seed, tables=_tables)


def d_prime(sums: ClassSums, *, seed: int = 0) -> Scores:
    """d′ of every class against all other words."""
    if sums.variances is None:
        raise ResultError("Selectivity needs variances: collect ClassMoments with covariance='diagonal'.")
    places = scored_places(sums.classes)
    made = [against_rest(sums, place) for place in places]
    signed = np.stack([score for score, _ in made])
    null = np.repeat(np.array([[chance] for _, chance in made]), signed.shape[1], axis=1)
    best = np.full(signed.shape[1], distance_chance(sums.counts, places, seed))
    return Scores(signed, np.abs(signed).max(axis=0), null, best)


def against_rest(sums: ClassSums, place: int) -> tuple[Array, float]:
    """d′ of one class [neuron], and what it is by chance."""
    assert sums.variances is not None
    rest = [other for other in range(len(sums.classes)) if other != place]
    own, others = float(sums.counts[place]), float(sums.counts[rest].sum())
    if not own or not others:
        return np.zeros(sums.means.shape[1]), 0.0
    shares = (sums.counts[rest] / others)[:, None]
    centre = (shares * sums.means[rest]).sum(0)
    inside = (shares * (sums.variances[rest] + (sums.means[rest] - centre) ** 2)).sum(0)
    spread = np.sqrt((sums.variances[place] + inside) / 2)
    away = sums.means[place] - centre
    least = _TINY * np.maximum(np.abs(sums.means).max(0), 1e-12)
    score = away / np.maximum(spread, least)
    return np.where(np.abs(away) <= least, 0.0, score), float(np.sqrt(2 / np.pi * (1 / own + 1 / others)))


def class_index(means: Array, counts: Array) -> tuple[Array, Array]:
    """Morcos's index [neuron] and the place of the class with the largest mean; −1 and 0 where a mean is negative.

    The other classes' mean is that of their means, each class counting once.
    """
    there = means[counts > 0]
    best = there.argmax(0)
    units = np.arange(means.shape[1])
    top = there[best, units]
    others = (there.sum(0) - top) / max(1, len(there) - 1)
    defined = (there >= 0).all(0)
    index = np.where(top + others > 0, (top - others) / np.maximum(top + others, 1e-300), 0.0)
    return np.where(defined, index, 0.0), np.where(defined, np.flatnonzero(counts > 0)[best], -1)


def _tables(sums: ClassSums, neurons: Sequence[str]) -> dict[str, Table]:
    index, best = class_index(sums.means, sums.counts)
    names = np.array([*sums.classes, "undefined: a class mean is negative"])
    return {"index": Table({"neuron": tuple(neurons)}, {"index": index, "class": names[best]})}
