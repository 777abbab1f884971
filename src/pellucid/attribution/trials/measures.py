"""Measures of whether attributions tell the truth, as functions of numbers: no model is needed here."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def infidelity(explained: Array, changes: Array, *, scaled: bool = False) -> Array:
    """How far attributions miss what perturbations do, [B], from K perturbations of each of B texts.

    `explained` [K, B] is Σ attribution · perturbation, `changes` [K, B] the target's score before less that after:
    mean over k of (β·explained − changes)², with β = 1, or with `scaled` the β that makes it smallest for each text
    (Yeh et al. 2019). Lower is better, 0 is perfect; the unit is the square of the score's.
    """
    if scaled:
        explained = explained * _ratio((explained * changes).sum(axis=0), (explained**2).sum(axis=0))
    return ((explained - changes) ** 2).mean(axis=0)


def unexplained(explained: Array, changes: Array) -> Array:
    """The share of what perturbations do that attributions of any positive scale leave unexplained, [B].

    Σ (β·explained − changes)² / Σ changes² with the best β ≥ 0: between 0 and 1, and the same for attributions in any
    unit. Attributions that point the wrong way have β = 0, and explain nothing.
    """
    along = np.maximum((explained * changes).sum(axis=0), 0.0)
    size, whole = (explained**2).sum(axis=0), (changes**2).sum(axis=0)
    share = np.clip(1 - _ratio(along**2, size * whole), 0.0, 1.0)
    return np.where((size == 0) & (whole == 0), 0.0, share)


def sensitivity_max(attributions: Array, perturbed: Array) -> Array:
    """The largest relative change of attributions [B, …] among those of K slightly changed inputs [K, B, …], as [B].

    max over k of ‖Φ(x + δ_k) − Φ(x)‖ / ‖Φ(x)‖ (Yeh et al. 2019); where all attributions are 0, not divided. Lower is
    better, 0 says that nothing moved.
    """
    count = attributions.shape[0]
    length = np.linalg.norm(attributions.reshape(count, -1), axis=1)
    moved = np.linalg.norm((perturbed - attributions).reshape(len(perturbed), count, -1), axis=2)
    return (moved / np.where(length == 0, 1.0, length)).max(axis=0)


def rank_correlation(one: Array, other: Array) -> float:
    """Spearman's rank correlation of two vectors, equal values sharing their mean rank.

    Where a vector is constant it has no order: 1 for two vectors that are both constant, 0 for one.
    """
    ranked = [ranks(vector) for vector in (one, other)]
    left, right = (each - each.mean() for each in ranked)
    sizes = float(left @ left), float(right @ right)
    if 0.0 in sizes:
        return 1.0 if sizes == (0.0, 0.0) else 0.0
    return float(left @ right / np.sqrt(sizes[0] * sizes[1]))


def ranks(values: Array) -> Array:
    """Ranks from 1 of a vector's values; equal ones share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    return (last - (counts - 1) / 2)[which]


def area(shares: Array, scores: Array) -> float:
    """The area under a curve over shares from 0 to 1, by the trapezoid rule."""
    return float(((scores[1:] + scores[:-1]) / 2 * np.diff(shares)).sum())


def counts(tokens: int, points: int) -> Array:
    """How many of the tokens are in place at the points of a curve: all numbers of them, or `points` + 1 even ones."""
    if tokens <= points:
        return np.arange(tokens + 1)
    return np.unique(np.round(np.linspace(0, tokens, points + 1)).astype(np.int64))


def first(order: Array, count: int, size: int) -> Array:
    """A mask [size] of the first `count` places of an order."""
    mask = np.zeros(size, dtype=bool)
    mask[order[:count]] = True
    return mask


def descending(values: Array, places: Array) -> Array:
    """The given places in the order of their values, the largest first; equal ones as they stand."""
    return places[np.argsort(-values[places], kind="stable")]


def _ratio(above: Array, below: Array) -> Array:
    """A ratio, 0 where nothing stands below."""
    return np.divide(above, below, out=np.zeros_like(above, dtype=np.float64), where=below != 0)
