"""Units of two sides: correlations, linear maps and one-to-one partners, and what unrelated units give for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from pellucid.similarity.pair import Array, Pair, Side

MATCHINGS = 3
"""Matchings of unrelated units that are drawn for chance; each is a mean over all units."""


def correlations(pair: Pair) -> Array:
    """The correlation of every unit of the left side with every unit of the right one, [left, right]; 0 for constants.

    r = C / √(diag S_x · diag S_y).
    """
    scale = np.sqrt(np.outer(variances(pair.left), variances(pair.right)))
    found = np.divide(pair.cross, scale, out=np.zeros_like(scale), where=scale > 0)
    return np.clip(found, -1.0, 1.0)


def explained(pair: Pair) -> Array:
    """R² of every unit of the left side given all units of the right one, [left]: diag(C·S_y⁻¹·Cᵀ)/diag S_x."""
    rank, own = pair.right.rank, variances(pair.left)
    if not rank:
        return np.zeros(len(own))
    fitted = pair.cross @ pair.right.whitening(rank)  # [left, rank]
    found = np.divide((fitted**2).sum(1), own, out=np.zeros(len(own)), where=own > 0)
    return np.clip(found, 0.0, 1.0)


def matched(strength: Array) -> Array:
    """The partner of every row [left] among columns, one for each, so that their sum is largest; −1 without one.

    `strength` [left, right] is not negative; a row without strength has no partner (Kuhn 1955).
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(strength, maximize=True)
    found = np.full(len(strength), -1)
    found[rows] = np.where(strength[rows, columns] > 0, columns, -1)
    return found


def variances(side: Side) -> Array:
    """The summed squares of every unit about its mean, [units]."""
    return np.maximum(np.diagonal(side.scatter), 0.0)


@lru_cache(maxsize=512)
def chance_correlation(n: int, units: tuple[int, ...], *, least: bool = False) -> float:
    """The mean of the largest |r| of a unit with unrelated ones, so many `units` in each of several models, n words.

    For independent normal words r² ~ Beta(½, (n−2)/2). With F its distribution, the largest of q has F^q, as if the q
    were unrelated among themselves (where they are not, chance gives less). Over models the largest of all or, with
    `least`, the smallest of the models' largest. A token null: words of a text hang together, so it is a scale.
    """
    from scipy.special import betainc

    def within(size: Array) -> list[Array]:
        return [betainc(0.5, (n - 2) / 2, size**2) ** count for count in units]

    return _mean_extreme(within, least=least)


@lru_cache(maxsize=512)
def chance_explained(n: int, ranks: tuple[int, ...]) -> float:
    """The mean of the largest R² of a unit given unrelated sites of these ranks: p/(n−1) for one site.

    R² ~ Beta(p/2, (n−1−p)/2) for independent normal words; a token null, as above.
    """
    from scipy.special import betainc

    ranks = tuple(rank for rank in ranks if rank > 0)
    if not ranks or max(ranks) >= n - 1:
        return 1.0 if ranks else 0.0
    if len(ranks) == 1:
        return ranks[0] / (n - 1)
    return _mean_extreme(lambda size: [betainc(rank / 2, (n - 1 - rank) / 2, size) for rank in ranks], least=False)


def _mean_extreme(within: Callable[[Array], list[Array]], *, least: bool) -> float:
    """The mean of the largest (or smallest) of independent variables on [0, 1] with these distributions, by parts."""
    size = np.linspace(0, 1, 200_001)
    each = np.stack(within(size))
    above = np.prod(1 - each, axis=0) if least else 1 - np.prod(each, axis=0)
    return float((above[:-1] + above[1:]).mean() / 2)


@lru_cache(maxsize=64)
def chance_matching(n: int, left: int, right: int, *, seed: int = 0) -> float:
    """The mean |r| of matched pairs of unrelated units, `left` and `right` of them, over n words, from draws."""
    found: list[float] = []
    for draw in range(MATCHINGS if left and right else 0):
        generator = np.random.default_rng([seed, draw])
        strength = np.sqrt(generator.beta(0.5, (n - 2) / 2, size=(left, right)))
        partner = matched(strength)
        found.append(float(strength[partner >= 0, partner[partner >= 0]].sum() / left))
    return float(np.mean(found)) if found else 0.0
