"""Chance: whether heads hit more than random positions would, and the correction for looking at many heads."""

from __future__ import annotations

import math

import numpy as np
import torch

from pellucid.results import Array

_FLOOR = 1e-5
"""Differences per query that are rounding, not attention."""


def upper_tail(z: Array) -> Array:
    """The chance that a standard normal number is at least z."""
    return 0.5 * torch.special.erfc(torch.from_numpy(np.asarray(z, np.float64)) / math.sqrt(2)).numpy()


def p_values(found: Array, expected: Array, variance: Array, n: Array) -> Array:
    """One-sided p-values of sums over n queries each, against what random positions give; all broadcast.

    z = (found − expected)/√variance. Where sentences were kept apart, the variance is the larger of the shuffled
    positions' own and Σ over sentences of (found − expected)², since the queries of a sentence are not independent.
    """
    floor = (_FLOOR * n) ** 2
    deviation = np.sqrt(np.maximum(variance, np.maximum(floor, 1e-12)))
    return np.where((n > 0) | np.isnan(found), upper_tail((found - expected) / deviation), 1.0)


def holm(p: Array) -> Array:
    """p-values corrected for all tests at once (Holm 1979): the chance of even one false finding stays at the level.

    NaN stands for no test, and stays.
    """
    flat = p.ravel()
    order = np.argsort(flat, kind="stable")  # NaN comes last
    left = np.maximum(1, np.isfinite(flat).sum() - np.arange(len(flat)))
    raised = np.maximum.accumulate(flat[order] * left)
    corrected = np.empty_like(flat)
    corrected[order] = np.minimum(1.0, raised)
    return corrected.reshape(p.shape)
