"""Effective attention query by query, from the left singular vectors of the values in sight: an oracle in float64."""

from __future__ import annotations

import numpy as np
import torch


def effective_by_svd(pattern: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> np.ndarray:
    """Of a pattern [heads, T, T] over values [key–value heads, T, d], where query i sees the keys in mask[i]."""
    weights, found = pattern.double().numpy(), np.zeros(pattern.shape)
    shared = len(pattern) // len(values)
    for head in range(len(pattern)):
        own = values[head // shared].double().numpy()
        for query, sight in enumerate(mask.numpy()):
            keys = np.flatnonzero(sight)
            if len(keys):
                left, sizes, _ = np.linalg.svd(own[keys], full_matrices=False)
                basis = left[:, sizes > 1e-7 * sizes[0]]
                found[head, query, keys] = weights[head, query, keys] @ basis @ basis.T
    return found


def rows_of_one(signed: np.ndarray) -> np.ndarray:
    """Absolute values, each row over its sum."""
    size = np.abs(signed)
    return size / np.maximum(size.sum(-1, keepdims=True), 1e-300)
