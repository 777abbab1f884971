"""Directions that other models have too: SVCCA as a ranking (Raghu et al. 2017; Bau et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from pellucid.collect.collector import split_key
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.results import Array, ResultError, Table
from pellucid.similarity.cca import kept
from pellucid.similarity.neurons import sides_of, twins_of
from pellucid.similarity.sources import Gathered, MomentPairs
from pellucid.uncertainty import Interval, jackknife

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.similarity.pair import Pair

CLASS = "other models"
"""The one class of a ranking by other models."""
_DRAWS = 3


@dataclass(frozen=True, eq=False)
class Shared:
    """Directions of one site by their likeness in another: `rho` [directions] from the largest down, and `weights`
    [units, directions], which give each the variance 1. `sizes` are the directions kept on both sides."""

    key: str
    other: str
    rho: Array
    weights: Array
    sizes: tuple[int, int]


def shared(pair: Pair, sizes: tuple[int, int] | None = None) -> Shared:
    """The canonical directions of a pair whose sides are cut to the directions that hold 99% of the variance.

    With T = W_xᵀ C W_y = U·ρ·Vᵀ, direction i of the left side is column i of √n·W_x·U.
    """
    left, right = kept(pair) if sizes is None else sizes
    left, right = min(left, pair.left.rank), min(right, pair.right.rank)
    if not left or not right:
        raise ResultError(f"{pair.left.name!r} or {pair.right.name!r} never changes, so it has no direction to share.")
    turned, rho, _ = torch.linalg.svd(torch.from_numpy(pair.whitened(left, right)), full_matrices=False)
    weights = pair.left.whitening(left) @ turned.numpy() * np.sqrt(pair.n)
    lead = np.abs(weights).argmax(0)
    weights *= np.where(weights[lead, np.arange(weights.shape[1])] < 0, -1.0, 1.0)  # one sign, whatever the solver took
    return Shared(pair.left.name, pair.right.name, rho.clamp(0.0, 1.0).numpy(), weights, (left, right))


def chance(n: int, left: int, right: int, seed: int) -> Array:
    """The mean canonical correlations [min(left, right)] of unrelated normal sides over n words, from a few draws.

    ρ² are the eigenvalues of G (G + H)⁻¹ with Wishart matrices G of q and H of n − 1 − q degrees, p ≤ q the sizes.
    """
    p, q = sorted((left, right))
    if p + q >= n - 1:
        return np.ones(p)
    dice = np.random.default_rng([seed, 17])
    drawn: list[Array] = []
    for _ in range(_DRAWS):
        between, rest = (_wishart(p, freedom, dice) for freedom in (q, n - 1 - q))
        factor = np.linalg.cholesky(between + rest)
        half = np.linalg.solve(factor, between)
        drawn.append(np.sqrt(np.clip(np.linalg.eigvalsh(np.linalg.solve(factor, half.T))[::-1], 0.0, 1.0)))
    return np.mean(drawn, axis=0)


def _wishart(p: int, freedom: int, dice: np.random.Generator) -> Array:
    """A Wishart matrix [p, p] by Bartlett's triangle."""
    root = np.tril(dice.normal(size=(p, p)), -1)
    root[np.arange(p), np.arange(p)] = np.sqrt(dice.chisquare(freedom - np.arange(p)))
    return root @ root.T


def directions(found: Found, *, left: str | None, right: str | None, seed: int) -> Ranking:
    """The first model's directions ranked by their canonical correlation with the other models' best site."""
    sides = sides_of(found, None, left, right)
    pairs = Gathered(found).moment_pairs(sides)
    best = [_best(pairs, key, sides[1]) for key in sides[0]]
    rho = np.concatenate([each.rho for each in best])
    null = np.concatenate([chance(pairs.n, *each.sizes, seed) for each in best])
    names = tuple(name for each in best for name in _names(each))
    interval = _interval(pairs, best, rho)
    axes = {"class": (CLASS,), "neuron": names}
    ends = {"low": interval.low, "high": interval.high}
    units = {len(each.weights) for each in best}
    if len(units) > 1:
        raise ResultError(f"The sites have {sorted(units)} units; rank those with the same number at a time (left=).")
    tables = {
        "overall": overall_table(names, rho, null=null, **ends),
        "directions": Table(
            {"neuron": names, "unit": tuple(range(units.pop()))},
            {"weight": np.concatenate([each.weights for each in best], axis=1).T},
        ),
        "matches": _matches(found, best),
    }
    twins = twins_of(found, pairs.view, sides)
    if twins is not None:
        others = [_padded(_best(pairs, each.key, twins[1]).rho, len(each.rho)) for each in best]
        tables["random model"] = Table(axes, {"value": np.concatenate(others)[None]})
    return Ranking(
        axes=axes,
        values=rho[None],
        null=null[None],
        low=None if interval.low is None else interval.low[None],
        high=None if interval.high is None else interval.high[None],
        resampled=interval.resampled,
        provenance=found.provenance(
            "neurons.ranking", {"method": "svcca", "concept": "", "left": left, "right": right}, seed=seed
        ),
        tables=tables,
    )


def _best(pairs: MomentPairs, key: str, others: tuple[str, ...]) -> Shared:
    """The directions that a site shares with the other site that it shares most with, by the mean correlation."""
    return max((shared(pairs.pair(key, other)) for other in others), key=lambda each: float(each.rho.mean()))


def _interval(pairs: MomentPairs, best: list[Shared], rho: Array) -> Interval:
    """Each document group left out in turn: the correlations of the same two sites, place by place."""
    view = pairs.view
    if len(view.groups) < 2:
        kept_apart = (
            "all of the text lies in one document group" if view.groups else "sweep with Moments(…, groups=True)"
        )
        return Interval(None, None, f"no interval: {kept_apart}")
    without: list[Array] = []
    for group in view.groups:
        rest = MomentPairs(view.without(group), pairs.precision)
        again = [shared(rest.pair(each.key, each.other), each.sizes).rho for each in best]
        without.append(np.concatenate([_padded(one, len(each.rho)) for one, each in zip(again, best, strict=True)]))
    return jackknife(rho, without, [view.group(group).n for group in view.groups]).within(0.0, 1.0)


def _padded(rho: Array, count: int) -> Array:
    return np.concatenate([rho[:count], np.zeros(max(0, count - len(rho)))])


def _names(each: Shared) -> list[str]:
    return [f"{split_key(each.key)[1]}:direction {place}" for place in range(len(each.rho))]


def _matches(found: Found, best: list[Shared]) -> Table:
    """The model and site whose directions they are like."""
    others = [split_key(each.other) for each in best for _ in each.rho]
    columns = {
        "other model": np.array([found.models[number].name for number, _ in others]),
        "other site": np.array([site for _, site in others]),
    }
    return Table({"neuron": tuple(name for each in best for name in _names(each))}, columns)
