"""Packing: which sentences go through the models together, so that little is padding and batches are few."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_MORE = 16
"""A batch more costs what so small a part of the budget costs: it is begun where it spares more padding than that."""


def packed(rows: Sequence[int], lengths: Sequence[int], budget: int) -> list[slice]:
    """Cuts sentences of rising length into batches of at most `budget` padded tokens; one may be larger by itself.

    Sentence i has `rows[i]` rows of `lengths[i]` tokens at most. Of all ways to cut, this one has the least Σ over
    batches of (rows · longest + budget/16): the best way to cut the first j sentences is found for one j after another.
    """
    long = np.asarray(lengths, np.int64)
    before = np.concatenate([[0], np.cumsum(np.asarray(rows, np.int64))])
    first = np.searchsorted(before, before[1:] - budget // np.maximum(long, 1))  # the longest batch that ends here
    least = np.zeros(len(long) + 1)
    begins = np.zeros(len(long) + 1, np.int64)
    for end, (start, top) in enumerate(zip(first.tolist(), long.tolist(), strict=True), start=1):
        start = min(start, end - 1)
        cost = least[start:end] - top * before[start:end]
        place = int(cost.argmin())
        least[end] = cost[place] + top * before[end] + budget / _MORE
        begins[end] = start + place
    found: list[slice] = []
    end = len(long)
    while end:
        found.append(slice(int(begins[end]), end))
        end = int(begins[end])
    return found[::-1]
