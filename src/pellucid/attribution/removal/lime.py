"""LIME: a weighted linear fit of the target on which groups of tokens are present, with its sampling error."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np

from pellucid.attribution.removal.shapley import subsets
from pellucid.errors import AttributionError

Array = np.ndarray[Any, Any]
WIDTH = 0.25
"""Of the kernel, in cosine distance: that of the authors' program for text."""


def masks(players: int, count: int, seed: int) -> Array:
    """Random coalitions [count, players]: how many players are taken away is uniform over 0 to all."""
    generator = np.random.default_rng(seed)
    away = generator.integers(0, players + 1, size=count)
    rank = np.argsort(generator.random((count, players)), axis=1)
    return rank >= away[:, None]


def nearness(there: Array) -> Array:
    """The weight of every coalition [K, players]: exp(−½·(d/0.25)²) with its cosine distance d = 1 − √share present."""
    distance = 1 - np.sqrt(there.mean(axis=1))
    return np.exp(-0.5 * (distance / WIDTH) ** 2)


def everything(players: int) -> tuple[Array, Array]:
    """All coalitions, and the weights with which endless draws would count them."""
    there = subsets(players)
    chance = np.array([1 / ((players + 1) * comb(players, int(size))) for size in there.sum(axis=1)])
    return there, chance * nearness(there)


def fitted(there: Array, weights: Array, values: Array) -> Array:
    """What each player adds, [players, …], by weighted least squares with an intercept on values [K, …].

    min Σ_k w_k·(v_k − a − Σ_i b_i·z_ki)² (Ribeiro, Singh & Guestrin 2016, without its ridge: an additive game gives its
    own terms).
    """
    gram, product = _moments(there, weights, values)
    return _solved(gram, product, len(there)).reshape(-1, *values.shape[1:])[1:]


def drawn(there: Array, values: Array, rounds: int) -> tuple[Array, Array]:
    """The fit to random coalitions in `rounds` equal parts, and its standard error by leaving out one part at a time.

    For R parts the variance is (R−1)/R · Σ_r (b_(r) − mean)², with b_(r) the fit without part r.
    """
    weights = nearness(there)
    parts = [
        _moments(*each) for each in zip(*(np.split(array, rounds) for array in (there, weights, values)), strict=True)
    ]
    gram, product = (np.sum([part[at] for part in parts], axis=0) for at in (0, 1))
    found = _solved(gram, product, len(there))
    without = np.stack([_solved(gram - one, product - two, len(there)) for one, two in parts])
    error = np.sqrt((rounds - 1) / rounds * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
    shape = (-1, *values.shape[1:])
    return found.reshape(shape)[1:], error.reshape(shape)[1:]


def _moments(there: Array, weights: Array, values: Array) -> tuple[Array, Array]:
    rows = np.concatenate([np.ones((len(there), 1)), there.astype(np.float64)], axis=1)
    heavy = rows * weights[:, None]
    return heavy.T @ rows, heavy.T @ values.reshape(len(values), -1)


def _solved(gram: Array, product: Array, count: int) -> Array:
    if np.linalg.cond(gram) > 1e12:
        raise AttributionError(
            f"{count} random copies of the text do not tell its {len(gram) - 1} groups apart; raise samples."
        )
    return np.linalg.solve(gram, product)
