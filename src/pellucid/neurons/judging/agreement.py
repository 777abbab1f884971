"""Agreement of rankings: how far their first neurons are the same, and a vote among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.judging.apart import texts_of, warn_of_several_models
from pellucid.neurons.judging.equals import equals_at_cut, overlaps
from pellucid.neurons.judging.redrawn import BOUNDS, NORMAL, deviations, redrawn
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.results import Array, Provenance, Result, ResultError, Table

_DRAWS = 200
_VOTES = 40
"""Votes of scores that are drawn again, for the interval."""


@dataclass(frozen=True, eq=False)
class Agreement(Result):
    """The overlap of the first neurons of two rankings, |A ∩ B| / |A ∪ B|, [first, second].

    Equals come in any order, each ranking's its own: where the cut goes through them (`equal at the cut` among the
    arguments tells how many), the overlap is the mean over orders. Where all rankings have intervals, that of the
    overlap comes from drawing every score within its own. Table `neurons` has the place of every neuron in each
    ranking, the best by `vote` first.
    """

    kind: ClassVar[str] = "neurons.agreement"
    title: ClassVar[str] = "How far rankings agree on their first neurons"
    chance: ClassVar[str] = "two random orders"


def expected_jaccard(total: int, k: int) -> float:
    """The mean of Jaccard for two random sets of k out of `total`: over the hypergeometric law of their overlap."""
    from math import comb

    shared = np.arange(max(0, 2 * k - total), k + 1)
    chance = np.array([comb(k, int(m)) * comb(total - k, k - int(m)) / comb(total, k) for m in shared])
    return float((chance * shared / (2 * k - shared)).sum())


def agreement(rankings: Mapping[str, Ranking], *, k: int = 50, cls: str | None = None, seed: int = 0) -> Agreement:
    """The overlap of the first `k` neurons of every two of several rankings of the same neurons.

    A method that chose fewer than `k` neurons says nothing of the others, whose order is then random (mean of 200
    draws): such rankings are better compared with a `k` up to the number that they chose.
    """
    rankings = _aligned(rankings)
    names = next(iter(rankings.values())).neurons
    if not 1 <= k <= len(names):
        raise ResultError(f"There are {len(names)} neurons, so rankings have no first {k}; use 1 to {len(names)}.")
    scores = np.stack([each.scores(cls) for each in rankings.values()])
    values = overlaps(scores, k, _DRAWS, np.random.default_rng([seed, 15]))
    null = np.full_like(values, expected_jaccard(len(names), k))
    np.fill_diagonal(null, 1.0)
    best = np.argsort(-_voted(list(rankings.values()), cls, None), kind="stable")
    places = {name: _places(each.scores(cls))[best] for name, each in rankings.items()}
    low, high, unit = _overlaps_again(list(rankings.values()), values, k, cls, seed)
    first = next(iter(rankings.values())).provenance
    told: dict[str, Any] = {
        "k": k,
        "class": cls,
        "rankings": {name: each.provenance.function for name, each in rankings.items()},
    }
    equal = {name: equals_at_cut(row, k) for name, row in zip(rankings, scores, strict=True)}
    if any(equal.values()):
        told["equal at the cut"] = equal
    return Agreement(
        axes={"first": tuple(rankings), "second": tuple(rankings)},
        values=values,
        null=null,
        low=low,
        high=high,
        resampled=unit,
        provenance=replace(first, function="neurons.agreement", arguments=told, seed=seed),
        tables={"neurons": Table({"neuron": tuple(names[at] for at in best)}, places)},
    )


def _overlaps_again(
    rankings: Sequence[Ranking], whole: Array, k: int, cls: str | None, seed: int
) -> tuple[Array | None, Array | None, str]:
    """Both ends of the overlaps [first, second] when every score is drawn within its interval, and what that is.

    Scores that stay equal come in another order in every draw.
    """
    spread = [deviations(each, cls) for each in rankings]
    if any(each is None for each in spread):
        return None, None, "no interval: a ranking has none; `neurons.resampled_stability` remakes one"
    dice, orders = np.random.default_rng([seed, 13]), np.random.default_rng([seed, 16])
    found: list[Array] = []
    for _ in range(_DRAWS):
        drawn = [redrawn(each.scores(cls), own, dice) for each, own in zip(rankings, spread, strict=True)
                 if own is not None]  # fmt: skip
        found.append(overlaps(np.stack(drawn), k, 1, orders))
    low, high = np.quantile(found, [0.025, 0.975], axis=0)
    return np.minimum(low, whole), np.maximum(high, whole), f"{BOUNDS} {rankings[0].resampled}"


def vote(rankings: Mapping[str, Ranking], *, cls: str | None = None, seed: int = 0) -> Ranking:
    """One ranking of several by Borda's count: a neuron scores the mean share of neurons that it stands before.

    In a class those vote that have an order of the class, and where none has, all by their overall order; the sign is
    that of most rankings that have the class. Classes are those of the first ranking. The interval, where all rankings
    have one, is ± 1.96 sd of votes of scores that are drawn within their own.
    """
    rankings = _aligned(rankings)
    first = next(iter(rankings.values()))
    names = first.neurons
    classes = first.classes if cls is None else (cls,)
    asked = [*classes, cls]  # the last is the overall vote
    whole = np.stack([_voted(list(rankings.values()), name, None) for name in asked])
    sign = np.stack([_sign(rankings.values(), name) for name in classes])
    bounded = all(each.low is not None and "low" in each.overall.columns for each in rankings.values())
    ends: list[Array] = []
    if bounded:
        dice = np.random.default_rng([seed, 14])
        drawn = [[_voted(list(rankings.values()), name, dice) for name in asked] for _ in range(_VOTES)]
        reach = NORMAL * np.std(drawn, axis=0, ddof=1)
        ends = [np.clip(whole - reach, 0.0, 1.0), np.clip(whole + reach, 0.0, 1.0)]
    signed = np.sort(np.stack([sign * end[:-1] for end in ends]), axis=0) if bounded else None
    half = np.full(len(names), 0.5)
    told = {"method": "vote", "concept": first.concept, "class": cls, "rankings": list(rankings)}
    outer = [end[-1] for end in ends] if bounded else [None, None]
    return Ranking(
        axes={"class": classes, "neuron": tuple(names)},
        values=sign * whole[:-1],
        null=np.tile(half, (len(classes), 1)),
        low=None if signed is None else signed[0],
        high=None if signed is None else signed[1],
        resampled=f"{BOUNDS} {first.resampled}" if bounded else "no interval: a ranking has none",
        provenance=_origin(rankings, told, seed),
        tables={"overall": overall_table(names, whole[-1], null=half, low=outer[0], high=outer[1])},
    )


def _voted(rankings: Sequence[Ranking], cls: str | None, dice: np.random.Generator | None) -> Array:
    """The mean share of neurons that each neuron stands before, of scores as they are or as they are drawn again."""
    able = [(each, cls) for each in rankings if cls is not None and cls in each.classes_apart]
    found: list[Array] = []
    for each, own in able or [(each, None) for each in rankings]:
        scores, spread = each.scores(own), None if dice is None else deviations(each, own)
        found.append(_places(scores if dice is None or spread is None else redrawn(scores, spread, dice)))
    return 1 - (np.mean(found, axis=0) - 1) / max(1, len(found[0]) - 1)


@dataclass(frozen=True, eq=False)
class Stability(Result):
    """How far rankings made of different documents agree: mean Jaccard of their first k neurons, [neurons]."""

    kind: ClassVar[str] = "neurons.stability"
    title: ClassVar[str] = "How stable a ranking is when documents change"
    chance: ClassVar[str] = "two random orders"


def stability(again: Sequence[Ranking], *, counts: Sequence[int] = (5, 10, 20, 50), seed: int = 0) -> Stability:
    """The mean Jaccard of the first k neurons of every two of several rankings, each made of other documents.

    Equals come in any order, each ranking's its own, as in `agreement`.
    The interval is a bootstrap over the rankings, 95%: a draw takes as many as there are, with replacement, and the
    pairs of different ones. Two rankings make one pair, and have none.
    """
    if len(again) < 2:
        raise ResultError("Stability compares two or more rankings of the same neurons; make them of other documents.")
    aligned = _aligned({str(place): each for place, each in enumerate(again)})
    names, scores = aligned["0"].neurons, np.stack([each.scores() for each in aligned.values()])
    sizes = tuple(sorted({count for count in counts if 1 <= count <= len(names)}))
    if not sizes:
        raise ResultError(f"There are {len(names)} neurons; give counts from 1 to {len(names)}.")
    orders = np.random.default_rng([seed, 15])
    pairs = np.stack([overlaps(scores, k, _DRAWS, orders) for k in sizes])  # [k, R, R]

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


def _places(scores: Array) -> Array:
    """The place of every neuron, 1 for the first; equals share the mean of theirs."""
    order = np.argsort(-scores, kind="stable")
    place = np.empty(len(scores))
    place[order] = np.arange(1, len(scores) + 1)
    _, group = np.unique(scores, return_inverse=True)
    return (np.bincount(group, weights=place) / np.bincount(group))[group]


def _sign(rankings: Any, cls: str) -> Array:
    """The sign of most rankings that have a class; + where they are even."""
    votes = [np.sign(each.values[each.place("class", cls)]) for each in rankings if cls in each.classes]
    return np.where(np.sum(votes, axis=0) < 0, -1.0, 1.0)


def _origin(rankings: Mapping[str, Ranking], told: dict[str, Any], seed: int) -> Provenance:
    """Where a vote comes from: the text of the first ranking, and among the arguments what all were made of.

    Judging knows from these whether any has seen the documents that a vote is tested on.
    """
    first = next(iter(rankings.values())).provenance
    texts = [text for each in rankings.values() for text in texts_of(each)]
    made_of = [text for place, text in enumerate(texts) if text not in texts[:place]]
    corpora = [each.provenance.corpus for each in rankings.values()]
    shared = all(each.get("held out") == corpora[0].get("held out") for each in corpora)
    corpus = {name: value for name, value in first.corpus.items() if shared or name != "held out"}
    return replace(first, function="neurons.vote", arguments={**told, "made of": made_of}, corpus=corpus, seed=seed)


def _aligned(rankings: Mapping[str, Ranking]) -> dict[str, Ranking]:
    """Rankings of the same neurons, all written in the order of the first: a store has another than a sweep."""
    if not rankings:
        raise ResultError("No ranking was given; give at least one.")
    (one, first), *rest = rankings.items()
    for other, each in rest:
        apart = sorted(set(each.neurons) ^ set(first.neurons))
        if apart:
            raise ResultError(
                f"The rankings {one!r} and {other!r} are not of the same neurons (they differ in "
                f"{listing(apart, most=3)}); rank the same sites with both."
            )
    warn_of_several_models(rankings)
    return {name: each.in_order(first.neurons) for name, each in rankings.items()}
