"""Layers side by side: arrays of layers with different numbers of heads, as pruned models have them, as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.results import Array

NO_HEAD = "no such head"
"""The label of a head that a layer does not have."""


def stacked(parts: Sequence[Array], *, axis: int = 0) -> Array:
    """Arrays [..., heads] of every layer as one, with a new axis for layers; NaN for heads that a layer has not."""
    most = max(part.shape[-1] for part in parts)
    whole = [np.full((*part.shape[:-1], most), np.nan) if part.shape[-1] < most else part for part in parts]
    for wide, part in zip(whole, parts, strict=True):
        if wide is not part:
            wide[..., : part.shape[-1]] = part
    return np.stack(whole, axis=axis)
