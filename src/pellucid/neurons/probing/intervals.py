"""Intervals of probes: of accuracies over the documents tested, of weights over the documents learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pellucid.results import Array
from pellucid.uncertainty import GROUPS, Interval, jackknife, t_quantile

SHARES = ("accuracy", "random model", "control task")
"""Measures that are shares of words, and so lie in 0 to 1."""


def accuracies(
    hits: Array, counts: Array, combine: Callable[[Array], Array] | None = None, *, unit: str = "document"
) -> tuple[Array, Interval]:
    """Accuracies and their interval over groups of documents: `hits` [..., groups, classes] of `counts` [groups,
    classes].

    The first class of the answer is all classes together. `combine` makes other numbers of the accuracies [..., 1 +
    classes], such as differences; the interval is of these. A class that stands in one group alone keeps its accuracy
    when that group is left out.
    """
    together = combine if combine is not None else _same

    def shares(kept: Array) -> Array:
        right, out_of = hits[..., kept, :].sum(axis=-2), counts[kept].sum(axis=0)
        every = right.sum(axis=-1, keepdims=True) / max(1, out_of.sum())
        return np.concatenate([every, right / np.maximum(1, out_of)], axis=-1)

    groups = np.flatnonzero(counts.sum(axis=1) > 0)
    whole = shares(groups)
    without: list[Array] = []
    for group in groups:
        kept = groups[groups != group]
        gone = np.concatenate([[False], counts[kept].sum(axis=0) == 0])
        without.append(together(np.where(gone, whole, shares(kept))) if len(kept) else together(whole))
    interval = jackknife(together(whole), without, counts[groups].sum(axis=1).tolist())
    return together(whole), Interval(interval.low, interval.high, interval.resampled.replace("document", unit))


def in_range(interval: Interval, names: Sequence[str]) -> Interval:
    """The interval [measure, …] with the ends of shares kept in 0 to 1; other measures stay as they are."""
    if interval.low is None:
        return interval
    shares = np.array([name in SHARES for name in names]).reshape(-1, *[1] * (interval.low.ndim - 1))
    return interval.within(np.where(shares, 0.0, -np.inf), np.where(shares, 1.0, np.inf))


def _same(accuracy: Array) -> Array:
    return accuracy


def over_folds(found: Array, *, unit: str = "document", level: float = 0.95) -> Interval:
    """The interval of the mean of estimates [folds, …], each made without another of ten equal groups of documents.

    The delete-one-group jackknife has the variance (G−1)/G·Σ_j(θ_j − θ̄)²; from K of its G groups it is
    (G−1)²/G times the sample variance of the θ_j, and t has K−1 degrees of freedom.
    """
    count = len(found)
    if count < 2:
        return Interval(None, None, "no interval: a single probe was trained; use seeds=2 or more")
    mean = found.mean(axis=0)
    reach = t_quantile((1 + level) / 2, count - 1) * (GROUPS - 1) / GROUPS**0.5 * found.std(axis=0, ddof=1)
    told = f"{count} of {GROUPS} {unit} groups, each left out in turn (jackknife, {level:.0%})"
    return Interval(mean - reach, mean + reach, told)
