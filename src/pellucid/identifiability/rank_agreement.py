"""Rank correlation of maps over source tokens, with what permuted tokens and maps without any weights give."""

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
DRAWS = 20
"""Permutations of each position's tokens."""


def agreement(maps: Array, hidden: Array, positions: Sequence[int], *, causal: bool, seed: int = 0) -> Array:
    """Sums over positions [maps and baselines, layer, (correlation, positions, by chance)].

    Takes maps [map, layer, position, source] and what they are held against, [layer, position, source]. At each
    position Spearman's correlation is taken over the sources in sight. A map that is zero on all of them says nothing,
    and the position does not count for it; one that is equal on all ranks nothing, and its correlation is 0.
    """
    everything = np.concatenate([maps, baseline_maps(positions, maps.shape[-1], layers=maps.shape[1])])
    dice = np.random.default_rng(seed)
    sums = np.zeros((*everything.shape[:2], 3))
    for row, position in enumerate(positions):
        sees = position + 1 if causal else maps.shape[-1]
        given = everything[:, :, row, :sees]
        says = (given != 0).any(-1)
        ours, theirs = ranked(given), ranked(hidden[:, row, :sees])
        others = np.mean([theirs[:, dice.permutation(sees)] for _ in range(DRAWS)], axis=0)
        sums[..., 0] += np.where(says, np.einsum("mln,ln->ml", ours, theirs), 0)
        sums[..., 1] += says
        sums[..., 2] += np.where(says, np.einsum("mln,ln->ml", ours, others), 0)
    return sums


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
