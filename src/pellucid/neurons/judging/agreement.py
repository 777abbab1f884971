"""Agreement of rankings: how far their first neurons are the same, and a vote among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.results import Result, ResultError, Table

Array = np.ndarray[Any, Any]
_DRAWS = 200


@dataclass(frozen=True, eq=False)
class Agreement(Result):
    """The overlap of the first neurons of two rankings, |A ∩ B| / |A ∪ B|, [first, second].

    The rankings are compared as they are, so there is no interval. Table `neurons` has the place of every neuron in
    each ranking.
    """

    kind: ClassVar[str] = "neurons.agreement"
    title: ClassVar[str] = "How far rankings agree on their first neurons"
    chance: ClassVar[str] = "two random orders"


def jaccard(one: Sequence[str], other: Sequence[str]) -> float:
    """|A ∩ B| / |A ∪ B| of two sets of names."""
    first, second = set(one), set(other)
    return len(first & second) / len(first | second)


def expected_jaccard(total: int, k: int) -> float:
    """The mean of Jaccard for two random sets of k out of `total`: over the hypergeometric law of their overlap."""
    from math import comb

    shared = np.arange(max(0, 2 * k - total), k + 1)
    chance = np.array([comb(k, int(m)) * comb(total - k, k - int(m)) / comb(total, k) for m in shared])
    return float((chance * shared / (2 * k - shared)).sum())


def agreement(rankings: Mapping[str, Ranking], *, k: int = 50, cls: str | None = None) -> Agreement:
    """The overlap of the first `k` neurons of every two of several rankings of the same neurons."""
    names = _same_neurons(rankings)
    if not 1 <= k <= len(names):
        raise ResultError(f"There are {len(names)} neurons, so rankings have no first {k}; use 1 to {len(names)}.")
    tops = {name: each.top(k, cls) for name, each in rankings.items()}
    values = np.array([[jaccard(one, other) for other in tops.values()] for one in tops.values()])
    null = np.full_like(values, expected_jaccard(len(names), k))
    np.fill_diagonal(null, 1.0)
    places = {name: _places(each, cls) for name, each in rankings.items()}
    first = next(iter(rankings.values())).provenance
    told = {"k": k, "class": cls, "rankings": {name: each.provenance.function for name, each in rankings.items()}}
    return Agreement(
        axes={"first": tuple(rankings), "second": tuple(rankings)},
        values=values,
        null=null,
        low=None,
        high=None,
        resampled="no interval: the rankings are compared as they are; `neurons.stability` remakes one",
        provenance=replace(first, function="neurons.agreement", arguments=told),
        tables={"neurons": Table({"neuron": tuple(names)}, places)},
    )


def vote(rankings: Mapping[str, Ranking], *, cls: str | None = None) -> Ranking:
    """One ranking of several by Borda's count: a neuron scores the mean share of neurons that it stands before.

    Its sign in a class is that of most rankings that have the class; classes are those of the first ranking.
    """
    names = _same_neurons(rankings)
    score = 1 - (np.mean([_places(each, cls) for each in rankings.values()], axis=0) - 1) / max(1, len(names) - 1)
    first = next(iter(rankings.values()))
    classes = first.classes if cls is None else (cls,)
    signed = np.stack([score * _sign(rankings.values(), name) for name in classes])
    half = np.full(len(names), 0.5)
    told = {"method": "vote", "concept": first.concept, "class": cls, "rankings": list(rankings)}
    return Ranking(
        axes={"class": classes, "neuron": tuple(names)},
        values=signed,
        null=np.tile(half, (len(classes), 1)),
        low=None,
        high=None,
        resampled="no interval: the rankings vote as they are",
        provenance=replace(first.provenance, function="neurons.vote", arguments=told),
        tables={"overall": overall_table(names, score, null=half)},
    )


@dataclass(frozen=True, eq=False)
class Stability(Result):
    """How far rankings made of different documents agree: mean Jaccard of their first k neurons, [neurons]."""

    kind: ClassVar[str] = "neurons.stability"
    title: ClassVar[str] = "How stable a ranking is when documents change"
    chance: ClassVar[str] = "two random orders"


def stability(again: Sequence[Ranking], *, counts: Sequence[int] = (5, 10, 20, 50), seed: int = 0) -> Stability:
    """The mean Jaccard of the first k neurons of every two of several rankings, each made of other documents.

    The interval is a bootstrap over the rankings, 95%: a draw takes as many as there are, with replacement, and the
    pairs of different ones. Two rankings make one pair, and have none.
    """
    if len(again) < 2:
        raise ResultError("Stability compares two or more rankings of the same neurons; make them of other documents.")
    names = _same_neurons({str(place): each for place, each in enumerate(again)})
    sizes = tuple(sorted({count for count in counts if 1 <= count <= len(names)}))
    if not sizes:
        raise ResultError(f"There are {len(names)} neurons; give counts from 1 to {len(names)}.")
    tops = [[each.top(k) for each in again] for k in sizes]
    pairs = np.array([[[jaccard(one, other) for other in top] for one in top] for top in tops])  # [k, R, R]

    def mean(chosen: Array) -> Array:
        kept = [(one, other) for one, other in combinations(chosen.tolist(), 2) if one != other]
        return np.mean([pairs[:, one, other] for one, other in kept], axis=0) if kept else pairs[:, 0, 1]

    whole, dice = mean(np.arange(len(again))), np.random.default_rng(seed)
    drawn = np.stack([mean(dice.integers(0, len(again), len(again))) for _ in range(_DRAWS)])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    one = len(again) == 2  # a single pair has no spread
    unit = f"{len(again)} rankings of other documents (bootstrap, 95%)"
    first = again[0].provenance
    told = {"method": again[0].method, "concept": again[0].concept, "rankings": len(again)}
    return Stability(
        axes={"neurons": sizes},
        values=whole,
        null=np.array([expected_jaccard(len(names), k) for k in sizes]),
        low=None if one else np.minimum(low, whole),
        high=None if one else np.maximum(high, whole),
        resampled="no interval: two rankings make one pair" if one else unit,
        provenance=replace(first, function="neurons.stability", arguments=told, seed=seed),
    )


def _places(ranking: Ranking, cls: str | None) -> Array:
    """The place of every neuron, 1 for the first; equals share the mean of theirs."""
    scores = ranking.scores(cls)
    order = np.argsort(-scores, kind="stable")
    place = np.empty(len(scores))
    place[order] = np.arange(1, len(scores) + 1)
    _, group = np.unique(scores, return_inverse=True)
    return (np.bincount(group, weights=place) / np.bincount(group))[group]


def _sign(rankings: Any, cls: str) -> Array:
    """The sign of most rankings that have a class; + where they are even."""
    votes = [np.sign(each.values[each.place("class", cls)]) for each in rankings if cls in each.classes]
    return np.where(np.sum(votes, axis=0) < 0, -1.0, 1.0)


def _same_neurons(rankings: Mapping[str, Ranking]) -> tuple[str, ...]:
    if not rankings:
        raise ResultError("No ranking was given; give at least one.")
    (one, first), *rest = rankings.items()
    for other, each in rest:
        if each.neurons != first.neurons:
            apart = sorted(set(each.neurons) ^ set(first.neurons))
            raise ResultError(
                f"The rankings {one!r} and {other!r} are not of the same neurons in the same order"
                f"{f' (they differ in {listing(apart, most=3)})' if apart else ''}; rank the same sites with both."
            )
    return first.neurons
