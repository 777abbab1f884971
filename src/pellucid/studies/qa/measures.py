"""Measures of the question-answering study: how spread out attributions are, where they lie, and how alike two are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.uncertainty import over_documents

Array = np.ndarray[Any, Any]
BINS = 100
"""Bins of the histogram of a token's attributions over the features of a layer."""


def spread(values: Array) -> Array:
    """Entropy of the shares |a_i| / Σ|a| over the last axis, as a share of the most it can be, log n: [...].

    0 is all on one token, 1 equal shares. Where there is no attribution at all, nothing is known: it counts as 1.
    """
    sizes = np.abs(values)
    totals = sizes.sum(axis=-1, keepdims=True)
    count = values.shape[-1]
    shares = np.where(totals > 0, sizes / np.where(totals > 0, totals, 1.0), 1.0 / count)
    return _entropy(shares) / np.log2(count) if count > 1 else np.zeros(values.shape[:-1])


def pmf(features: Array, bins: int = BINS) -> Array:
    """The share of a token's features [d] whose attribution falls in each of `bins` equal parts of its range."""
    counts, _ = np.histogram(features, bins=bins)
    return counts / counts.sum()


def pmf_entropy(features: Array, bins: int = BINS) -> Array:
    """The entropy in bits of `pmf` for attributions [..., d] of a token's features."""
    flat = features.reshape(-1, features.shape[-1])
    found = [float(_entropy(pmf(row, bins))) for row in flat]
    return np.array(found).reshape(features.shape[:-1])


def normal_entropy(features: int, bins: int = BINS, *, draws: int = 200, seed: int = 0) -> float:
    """The mean of `pmf_entropy` for as many independent normal numbers as there are features."""
    dice = np.random.default_rng(seed)
    return float(pmf_entropy(dice.normal(size=(draws, features)), bins).mean())


def overlap(first: Array, second: Array) -> Array:
    """What two attributions [..., n] have in common: Σ_i min(p_i, q_i) of their shares, from 0 to 1, [...]."""
    p, q = (np.abs(each) for each in (first, second))
    totals = p.sum(axis=-1, keepdims=True), q.sum(axis=-1, keepdims=True)
    p, q = (each / np.where(total > 0, total, 1.0) for each, total in zip((p, q), totals, strict=True))
    return np.minimum(p, q).sum(axis=-1)


def part_shares(values: Array, parts: Array, count: int) -> Array:
    """The share of attributions [..., n] that falls to each of `count` parts, numbered by `parts` [n]."""
    sizes = np.abs(values)
    totals = sizes.sum(axis=-1, keepdims=True)
    belongs = np.eye(count)[parts]
    return sizes @ belongs / np.where(totals > 0, totals, 1.0)


def _entropy(shares: Array) -> Array:
    """Entropy in bits over the last axis."""
    return -(shares * np.log2(np.where(shares > 0, shares, 1.0))).sum(axis=-1)


@dataclass(frozen=True, eq=False)
class Mean:
    """A mean over questions with its interval over stories, each [...]; without an interval, `low` is None."""

    value: Array
    low: Array | None
    high: Array | None
    resampled: str

    def sign(self) -> Array:
        """1 where the interval lies above zero, −1 where below, 0 where it holds zero or there is none."""
        if self.low is None or self.high is None:
            return np.zeros(np.shape(self.value))
        return np.where(self.low > 0, 1, np.where(self.high < 0, -1, 0))


def mean_over(values: Array, documents: Sequence[str]) -> Mean:
    """The mean of numbers [Q, ...] of questions; the interval leaves out one group of whole stories at a time."""
    whole, found = over_documents(values, documents)
    return Mean(whole, found.low, found.high, found.resampled.replace("document", "story"))
