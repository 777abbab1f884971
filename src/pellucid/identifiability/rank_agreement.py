"""Rank correlation of maps over source tokens, with what permuted tokens and maps without any weights give.

Over all permutations of n tokens, Spearman's correlation with a map that ranks them has the mean 0 and the variance
1/(n − 1), with ties or without: chance needs no draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BASELINES = {
    "own token": "one for a token itself, zero for all others",
    "nearness": "the nearer a token, the more",
    "equal": "the same for all tokens, which ranks none of them",
}
"""Maps that look at no weights."""
LEAST = 3
"""Fewest tokens in sight whose ranks are compared."""
SUMS = ("correlation", "positions", "without ranks", "variance")
"""What is summed over positions: correlations, positions where a map says anything, those of them where it ranks
nothing, and the variance of a correlation by chance."""


def agreement(maps: Array, hidden: Array, positions: Sequence[int], *, causal: bool) -> Array:
    """Sums over positions [map, layer, `SUMS`].

    Takes maps [map, layer, position, source] and what they are held against, [layer, position, source]. At each
    position Spearman's correlation is taken over the sources in sight. A map that is zero on all of them says nothing,
    and the position does not count for it; one that is equal on all ranks nothing: its correlation is 0, and counted.
    """
    sums = np.zeros((*maps.shape[:2], len(SUMS)))
    for row, position in enumerate(positions):
        sees = position + 1 if causal else maps.shape[-1]
        given = maps[:, :, row, :sees]
        says = (given != 0).any(-1)
        ours, theirs = ranked(given), ranked(hidden[:, row, :sees])
        ranks = ours.any(-1) & theirs.any(-1)
        sums[..., 0] += np.einsum("mln,ln->ml", ours, theirs)
        sums[..., 1] += says
        sums[..., 2] += says & ~ranks
        sums[..., 3] += (says & ranks) / (sees - 1)
    return sums


def ceiling(correlation: Array) -> Array:
    """The most that a noisy map can correlate with, from the correlation of its halves: √(2r/(1 + r)), or 0.

    2r/(1 + r) is the reliability of both halves together (Spearman–Brown), and its root the correlation with the map
    without noise.
    """
    held = np.clip(correlation, 0, 1)
    return np.sqrt(2 * held / (1 + held))


def baseline_maps(positions: Sequence[int], sources: int, *, layers: int) -> Array:
    """`BASELINES` as maps [baseline, layer, position, source], the same at every layer."""
    away = np.abs(np.asarray(positions)[:, None] - np.arange(sources)[None, :])
    found = np.stack([(away == 0).astype(float), 1 / (1 + away), np.ones(away.shape)])
    return np.repeat(found[:, None], layers, axis=1)


def ranked(values: Array) -> Array:
    """Ranks over the last axis (equal ones share theirs), centred and of length one; 0 where all are equal."""
    from scipy.stats import rankdata

    ranks = rankdata(values, axis=-1)
    centred = ranks - ranks.mean(-1, keepdims=True)
    length = np.linalg.norm(centred, axis=-1, keepdims=True)
    return np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
