"""Ranks, and how far two rankings agree: Spearman's ρ and Kendall's τ-b, with ties."""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid.attribution.trials.measures import rank_correlation
from pellucid.attribution.trials.measures import ranks as ascending

Array = np.ndarray[Any, Any]


def ranks(values: Array) -> Array:
    """The rank [n] of each value, 1 for the largest; equal values share the mean of their ranks."""
    return ascending(-values)


def spearman(one: Array, other: Array) -> float:
    """ρ, the correlation of two rankings: 1 the same order, 0 what chance gives, −1 the opposite; 0 where all tie."""
    return 0.0 if np.ptp(one) == 0 or np.ptp(other) == 0 else rank_correlation(one, other)


def kendall(one: Array, other: Array) -> float:
    """τ-b, the pairs in the same order less those in the opposite one, over pairs that are no ties; 0 where all tie.

    τ-b = Σ sign(x_i − x_j)·sign(y_i − y_j) / √(Σ sign(x_i − x_j)² · Σ sign(y_i − y_j)²).
    """
    first, second = (np.sign(values[:, None] - values[None, :]) for values in (one, other))
    spread = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / spread if spread > 0 else 0.0
