"""Words of a unit's strongest contexts: which one is most frequent, and how frequent it would be by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np

from pellucid.results import Array, ResultError


def most_frequent(words: Array) -> tuple[Array, Array]:
    """The most frequent word number of each row of `words` [units, k] (the smallest of several), and its share of k."""
    ordered = np.sort(words, axis=1)
    run = np.ones(len(ordered), dtype=np.int64)
    best, count = ordered[:, 0].copy(), run.copy()
    for place in range(1, ordered.shape[1]):
        run = np.where(ordered[:, place] == ordered[:, place - 1], run + 1, 1)
        longer = run > count
        best[longer], count[longer] = ordered[longer, place], run[longer]
    return best, count / ordered.shape[1]


def chance_shares(counts: Mapping[str, int], total: int, k: int, *, ends: int, seed: int, draws: int = 10_000) -> Array:
    """Largest shares [draws] of one word among `k` words drawn by their corpus frequencies, the better of `ends` draws.

    `counts` are those of the most frequent words among `total`; all other words count as different from each other,
    which they nearly are.
    """
    listed = np.array([count for _, count in sorted(counts.items())], dtype=np.float64)
    if not len(listed) or listed.sum() > total:
        raise ResultError(f"The counts of {len(listed)} words do not fit a corpus of {total} words.")
    edges = np.cumsum(listed) / total
    drawn = np.searchsorted(edges, np.random.default_rng(seed).random((draws * ends, k)), side="right")
    rare = drawn == len(listed)
    drawn[rare] = len(listed) + np.arange(int(rare.sum()))
    return most_frequent(drawn)[1].reshape(draws, ends).max(axis=1)


def normal_height(k: int, n: int) -> float:
    """How many sds the mean of the `k` largest of `n` normal values lies above their mean: n/k·φ(Φ⁻¹(1−k/n))."""
    if k >= n:
        return 0.0
    normal = NormalDist()
    return n / k * normal.pdf(normal.inv_cdf(1 - k / n))


def document_bootstrap(
    hits: Array,
    activations: Array,
    documents: Array,
    *,
    seed: int | Sequence[int],
    draws: int = 2_000,
    level: float = 0.95,
) -> tuple[Array, Array]:
    """Interval ends [2] of a word's share and of the mean activation over one unit's contexts, by resampling documents.

    `hits` [k] marks the contexts with the word, `documents` [k] are numbers; whole documents are drawn with
    replacement, with all of their contexts.
    """
    numbers, member = np.unique(documents, return_inverse=True)
    count = len(numbers)
    sums = np.stack(
        [np.bincount(member, weights=part, minlength=count) for part in (hits, activations, np.ones(len(hits)))]
    )
    times = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=draws)  # [draws, documents]
    drawn = times @ sums.T  # [draws, 3]
    means = drawn[:, :2] / drawn[:, 2:]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high
