"""Bit masks: yes-or-no answers for many words packed 64 to a number, and how many two masks have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np

from pellucid.results import Array, ResultError

_AT_ONCE = 1 << 15
"""64-bit numbers compared at a time, so that they stay in a CPU's cache."""


def packed(mask: Array) -> Array:
    """Masks [units, words] of booleans as 64-bit numbers, [units, ⌈words / 64⌉]; what is missing at the end is 0."""
    if mask.ndim != 2 or mask.dtype != np.bool_:
        raise ResultError(f"Masks are booleans [units, words], and not {mask.dtype} {list(mask.shape)}.")
    bits = np.packbits(mask, axis=1, bitorder="little")
    room = np.zeros((len(mask), -(-mask.shape[1] // 64) * 8), np.uint8)
    room[:, : bits.shape[1]] = bits
    return room.view(np.uint64)


def sizes(masks: Array) -> Array:
    """How many words are in each packed mask, [units]."""
    return np.array([int(_bits()(mask).sum(dtype=np.int64)) for mask in masks], dtype=np.int64)


def shared(left: Array, right: Array) -> Array:
    """How many words two packed masks have in common, [left masks, right masks]."""
    if left.shape[1] != right.shape[1]:
        raise ResultError(f"Masks of {left.shape[1]} and of {right.shape[1]} numbers are not of the same words.")
    count = _bits()
    found = np.zeros((len(left), len(right)), np.int64)
    few = max(1, _AT_ONCE // max(1, left.shape[1]))
    for start in range(0, len(left), few):
        some = left[start : start + few]
        for place, other in enumerate(right):
            found[start : start + few, place] = count(some & other).sum(axis=1, dtype=np.int64)
    return found


def overlap(both: Array, left: Array, right: Array) -> Array:
    """Intersection over union from the words that masks share and their sizes; 0 where both are empty."""
    union = left + right - both
    return np.where(union > 0, both / np.maximum(union, 1), 0.0)


def iou_table(fires: Array, concepts: Array) -> Array:
    """Intersection over union of every neuron and concept, [neurons, concepts], from booleans [neurons or concepts,
    words]."""
    if fires.shape[1:] != concepts.shape[1:]:
        raise ResultError(f"Neurons are known for {fires.shape[1]} words and concepts for {concepts.shape[1]}.")
    left, right = packed(fires), packed(concepts)
    return overlap(shared(left, right), sizes(left)[:, None], sizes(right)[None])


@cache
def _bits() -> Callable[[Array], Array]:
    """Counts the ones of every number: NumPy's own way, or before version 2 a table of all 16-bit numbers."""
    own = getattr(np, "bitwise_count", None)
    if own is not None:
        return cast("Callable[[Array], Array]", own)
    table = np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2), axis=1).sum(1)
    small = table.astype(np.uint8)

    def counted(numbers: Array) -> Any:
        parts = numbers.view(np.uint16).reshape(*numbers.shape, 4)
        return small[parts].sum(axis=-1, dtype=np.uint8)

    return counted
