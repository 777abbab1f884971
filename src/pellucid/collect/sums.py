"""Sums over rows: the buffer in which shifted rows gather, float32 products, and arrays that merge by addition."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.state import Array, Deferred, Later, State, later, under
from pellucid.errors import SweepError

if TYPE_CHECKING:
    from pellucid.collect.collector import Setting
    from pellucid.collect.words import WordBatch

BLOCK = 8192
"""Rows that gather before they are multiplied."""

_AT_ONCE = 160_000
"""Numbers widened from float32 to float64 at a time on a CPU, so that they stay in its cache (3 times faster)."""

_TALL, _STRIPE = 2048, 192
"""Rows and columns of the float64 products that make a square: three quarters of the time of whole ones."""


class Columns:
    """Where each key's columns lie when the rows of all keys stand side by side, [rows, total]."""

    def __init__(self, keys: Sequence[str], widths: Sequence[int]) -> None:
        self.keys = tuple(keys)
        self.widths = tuple(widths)
        edges = np.concatenate([[0], np.cumsum(self.widths)]).astype(int).tolist()
        self.slices = tuple(slice(start, stop) for start, stop in pairwise(edges))
        self.total = int(edges[-1])


class RowBuffer:
    """Rows of all keys side by side with the shift taken away, until a block is full."""

    def __init__(
        self, columns: Columns, shift: Array, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        self.columns = columns
        self._shift = torch.from_numpy(np.array(shift)).to(device, dtype)
        self._rows: Tensor | None = None
        self._device, self._dtype = device, dtype
        self.filled = 0

    @property
    def rows(self) -> Tensor:
        """The rows gathered so far, [filled, total]."""
        if self._rows is None:
            self._rows = torch.empty(BLOCK, self.columns.total, device=self._device, dtype=self._dtype)
        return self._rows[: self.filled]

    def take(self, rows: Mapping[str, Tensor], start: int) -> int:
        """Copies rows from number `start` on, as many as find room, and gives the number of the first left over."""
        count = min(len(rows[self.columns.keys[0]]) - start, BLOCK - self.filled)
        self.filled += count
        room = self.rows[self.filled - count :]
        for key, place in zip(self.columns.keys, self.columns.slices, strict=True):
            torch.sub(rows[key][start : start + count], self._shift[place], out=room[:, place])
        return start + count

    def clear(self) -> None:
        """Forgets the rows."""
        self.filled = 0


def pilot_mean(batch: WordBatch, keys: Sequence[str]) -> State:
    """The mean row of a pilot batch as `shift` [total], float32, coarsely rounded; zero where the batch is empty.

    It is rounded to a multiple of 2⁻⁸ of each unit's standard deviation (a power of two): finer digits of c would be
    lost in the float32 difference x − c in the same direction for all rows, and the mean would be off by 1e-7.
    """
    shifts: list[Array] = []
    for key in keys:
        rows = batch.rows[key].double()
        if not batch.size:
            shifts.append(np.zeros(rows.shape[1], np.float32))
            continue
        mean, deviation = rows.mean(0).cpu().numpy(), rows.std(0, correction=0).cpu().numpy()
        grid = 2.0 ** (np.floor(np.log2(np.maximum(deviation, 2.0**-60))) - 8)
        shifts.append((np.round(mean / grid) * grid).astype(np.float32))
    shift = np.concatenate(shifts)
    if not np.isfinite(shift).all():
        columns = Columns(keys, [batch.rows[key].shape[1] for key in keys])
        column = int(np.flatnonzero(~np.isfinite(shift))[0])
        whole = torch.cat([batch.rows[key] for key in keys], dim=1)
        raise SweepError(
            not_finite(columns, column, batch.place(int((~torch.isfinite(whole[:, column])).nonzero()[0])))
        )
    return State({"shift": shift})


def shift_of(setting: Setting, columns: Columns) -> Array:
    """The pilot's shift [total], float32; zero without a pilot."""
    if setting.pilot is None:
        return np.zeros(columns.total, np.float32)
    return setting.pilot.arrays["shift"]


def not_finite(columns: Columns, column: int, word: str = "some word") -> str:
    """The sentence for a column that holds NaN or infinity at a word."""
    number = next(n for n, place in enumerate(columns.slices) if place.start <= column < place.stop)
    unit = column - columns.slices[number].start
    return (
        f"Unit {unit} of {columns.keys[number]!r} is NaN or infinite for {word}; leave that site out, or run the "
        "model in float32."
    )


def widened(rows: Tensor) -> Generator[tuple[slice, Tensor]]:
    """A matrix as float64, a few rows at a time, with the place of those rows; the next part overwrites it."""
    step = len(rows) if rows.device.type != "cpu" else min(len(rows), _AT_ONCE // max(1, rows.shape[1]) + 1)
    room = rows.new_empty(step, rows.shape[1], dtype=torch.float64)
    for start in range(0, len(rows), max(1, step)):
        part = slice(start, min(start + step, len(rows)))
        yield part, room[: part.stop - start].copy_(rows[part])


def add_wide(total: Tensor, part: Tensor) -> None:
    """Adds a float32 matrix into a float64 one, in place."""
    for some, wide in widened(part):
        total[some].add_(wide)


def add_square(total: Tensor, rows: Tensor) -> None:
    """Adds Σxxᵀ of rows [n, d] into a float64 matrix [d, d], in place: float64 products, each pair of columns once."""
    width = rows.shape[1]
    stripes = [slice(start, min(start + _STRIPE, width)) for start in range(0, width, _STRIPE)]
    for start in range(0, len(rows), _TALL):
        wide = rows[start : start + _TALL].double()
        for stripe in stripes:
            total[: stripe.stop, stripe].addmm_(wide[:, : stripe.stop].T, wide[:, stripe])
    for stripe in stripes:
        total[stripe, : stripe.start] = total[: stripe.start, stripe].T
        block = total[stripe, stripe]
        block.copy_(block.triu() + block.triu(1).T)  # not every processor gives both halves to the last digit


@contextmanager
def exact_products() -> Generator[None]:
    """Float32 matrix products in full float32, whatever the process allows elsewhere (TF32, bfloat16)."""
    backends: list[Any] = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
    newer = [backend for backend in backends if hasattr(backend, "fp32_precision")]  # a second switch, torch 2.9 on
    precisions = [backend.fp32_precision for backend in newer]
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # the newer switch was used, and the older refuses to speak
        before = None
    try:
        if before is not None:
            torch.set_float32_matmul_precision("highest")  # sets both: torch refuses products when they disagree
        else:
            for backend in newer:
                backend.fp32_precision = "ieee"
        yield
    finally:
        if before is not None:
            torch.set_float32_matmul_precision(before)
        for backend, precision in zip(newer, precisions, strict=True):
            if backend.fp32_precision != precision:
                backend.fp32_precision = precision


def added(left: Mapping[str, Array], right: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays of both by name: the sum where both have one, else the one there is."""
    names = sorted(left.keys() | right.keys())
    return {
        name: left[name] + right[name] if name in left and name in right else (left if name in left else right)[name]
        for name in names
    }


def merged(left: Mapping[str, Array], right: Mapping[str, Array], *, once: Sequence[str]) -> Mapping[str, Array]:
    """As `added`, but arrays named `once` are the left one's; where one side is deferred, so is what comes of it."""
    both = left.keys() & right.keys() - set(once)
    parts = {name: later(left if name in left else right, name) for name in sorted(left.keys() | right.keys())}
    whole = Deferred(parts | {name: _sum(parts[name], later(right, name)) for name in both})
    return whole if isinstance(left, Deferred) or isinstance(right, Deferred) else dict(whole)


def _sum(left: Later, right: Later) -> Later:
    return Later(left.dtype, left.shape, lambda: left.make() + right.make())


def by_group(arrays: Mapping[str, Array]) -> dict[str, Mapping[str, Array]]:
    """Arrays named `GROUP/NAME` as one set per group, in the order of their numbers."""
    groups = {name.partition("/")[0] for name in arrays if "/" in name}
    return {group: under(arrays, group) for group in sorted(groups, key=lambda group: (len(group), group))}


def total_of(groups: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """The sum of all groups, added in their order, one array after another."""
    total: dict[str, Array] = {}
    for name in sorted({name for arrays in groups.values() for name in arrays}):
        for arrays in groups.values():
            if name in arrays:
                total[name] = total[name] + arrays[name] if name in total else arrays[name]
    return total
