"""Rows for probes: words as rows of activations, read in shuffled batches that need little memory, whatever is on
disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import split_key
from pellucid.collect.freed_memory import give_back
from pellucid.results import Array, ResultError

if TYPE_CHECKING:
    from pellucid.collect.store import Store

MEMORY = 192 << 20
"""Bytes of rows that are held at a time; with those that stop training, with libraries and labels, a process that
trains stays below a gigabyte."""


def memory_option(needed: int) -> str:
    """How a memory of so many bytes is asked for on the command line, in gigabytes."""
    return f"--memory {-(-needed // 10**6) / 1000:g}"


class Rows(Protocol):
    """Rows of activations that are read in batches; a neuron of every column is in `names`, as SITE:INDEX.

    Who reads them holds at most half of `memory` bytes of them besides.
    """

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def count(self) -> int: ...
    @property
    def memory(self) -> int: ...
    def batches(self, wanted: Array, size: int, dice: np.random.Generator | None) -> Iterator[tuple[Array, Tensor]]: ...
    def take(self, numbers: Array) -> Tensor: ...


def only_numbers(part: Tensor, names: Sequence[str]) -> Tensor:
    """Rows [n, neurons] in float32; the first neuron that is NaN or infinite in one of them is named."""
    part = part.float()
    if not torch.isfinite(part.sum()) and not torch.isfinite(part).all():
        unit = int((~torch.isfinite(part)).any(0).nonzero()[0, 0])
        raise ResultError(
            f"{names[unit]} is not a number for some words (NaN or infinity), so nothing can be learned from it; leave "
            "its site out, or keep it with another dtype."
        )
    return part


class ArrayRows:
    """Rows that lie in memory: a matrix [rows, neurons] of any float type."""

    def __init__(self, matrix: Tensor | Array, names: Sequence[str] | None = None) -> None:
        self._matrix = torch.as_tensor(matrix)
        if self._matrix.dim() != 2:
            raise ResultError(f"Rows are a matrix [rows, neurons]; this has the shape {list(self._matrix.shape)}.")
        self.names = tuple(names) if names is not None else tuple(str(unit) for unit in range(self._matrix.shape[1]))
        self.memory = MEMORY
        if len(self.names) != self._matrix.shape[1]:
            raise ResultError(f"There are {len(self.names)} names for {self._matrix.shape[1]} columns; give one each.")

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self._matrix)

    def batches(self, wanted: Array, size: int, dice: np.random.Generator | None) -> Iterator[tuple[Array, Tensor]]:
        """The rows that are `wanted` [rows], `size` at a time: their numbers and their values [n, neurons] in float32.

        They come in a new random order with `dice`, and in their own without.
        """
        numbers = np.flatnonzero(wanted)
        if dice is not None:
            numbers = dice.permutation(numbers)
        for start in range(0, len(numbers), size):
            part = numbers[start : start + size]
            yield part, self.take(part)

    def take(self, numbers: Array) -> Tensor:
        """The rows of some numbers, [n, neurons] in float32."""
        return only_numbers(self._matrix[torch.from_numpy(numbers)], self.names)


class SomeNeurons:
    """The rows of other rows, of some of their neurons alone: those at `places` [n]."""

    def __init__(self, rows: Rows, places: Array) -> None:
        self._rows, self._places = rows, torch.from_numpy(places)
        self.names, self.memory = tuple(rows.names[place] for place in places.tolist()), rows.memory

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._rows.count

    def batches(self, wanted: Array, size: int, dice: np.random.Generator | None) -> Iterator[tuple[Array, Tensor]]:
        """The rows that are `wanted` [rows], `size` at a time, as the other rows give them."""
        for numbers, part in self._rows.batches(wanted, size, dice):
            yield numbers, part[:, self._places]

    def take(self, numbers: Array) -> Tensor:
        """The rows of some numbers, [n, neurons] in float32."""
        return self._rows.take(numbers)[:, self._places]


class StoreRows:
    """Rows of several sites of a store, side by side; at most `memory` bytes of them are held at a time.

    Where all fit, they are read once and every batch is a random draw. Where not, each pass takes the shards in a new
    random order, as many together as fit, and shuffles the rows of these.
    """

    def __init__(self, store: Store, keys: Sequence[str], *, memory: int = MEMORY) -> None:
        if store.missing:
            raise ResultError(
                f"The store in {str(store.folder)!r} is not complete: {len(store.missing)} shards are missing. Build "
                "it to the end first."
            )
        self.store, self.keys, self.memory = store, tuple(keys), memory
        self.names = tuple(f"{split_key(key)[1]}:{unit}" for key in self.keys for unit in range(store.width(key)))
        self._starts = np.cumsum([0, *(entry.rows for entry in store.entries)])

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.store.rows

    @property
    def _row_bytes(self) -> int:
        return len(self.names) * self.store.dtype.itemsize

    @cached_property
    def _whole(self) -> ArrayRows:
        return ArrayRows(self._gather(range(len(self.store.entries)), np.ones(self.count, dtype=bool))[1], self.names)

    @property
    def fits(self) -> bool:
        """Whether all rows can be held at once."""
        return self.count * self._row_bytes <= self.memory

    def by_site(self) -> Iterator[StoreRows]:
        """The rows of every site alone."""
        return (StoreRows(self.store, (key,), memory=self.memory) for key in self.keys)

    def batches(self, wanted: Array, size: int, dice: np.random.Generator | None) -> Iterator[tuple[Array, Tensor]]:
        """The rows that are `wanted` [rows], `size` at a time: their numbers and their values [n, neurons] in float32.

        They come in a new random order with `dice`, and in their own without.
        """
        if self.fits:
            yield from self._whole.batches(wanted, size, dice)
            return
        shards = np.arange(len(self.store.entries))
        for block in self._blocks(wanted, shards if dice is None else dice.permutation(shards)):
            numbers, values = self._gather(block, wanted)
            order = np.arange(len(numbers)) if dice is None else dice.permutation(len(numbers))
            for start in range(0, len(order), size):
                part = order[start : start + size]
                yield numbers[part], only_numbers(values[torch.from_numpy(part)], self.names)
            del values
            give_back()  # what batches of the last block have left would lie beside the next

    def take(self, numbers: Array) -> Tensor:
        """The rows of some numbers, [n, neurons] in float32."""
        if self.fits:
            return self._whole.take(numbers)
        wanted = np.zeros(self.count, dtype=bool)
        wanted[numbers] = True
        chosen = np.flatnonzero(wanted)
        values = torch.empty(len(chosen), len(self.names))
        place = 0
        for shard in range(len(self.store.entries)):
            _, rows = self._gather([shard], wanted)
            values[place : place + len(rows)] = only_numbers(rows, self.names)
            place += len(rows)
        return values[torch.from_numpy(np.searchsorted(chosen, numbers))]

    def _blocks(self, wanted: Array, shards: Array) -> Iterator[list[int]]:
        """Shards that are held together: as many as fit, and at least one."""
        most = max(1, self.memory // self._row_bytes)
        block, held = list[int](), 0
        for shard in shards.tolist():
            count = int(wanted[self._starts[shard] : self._starts[shard + 1]].sum())
            if block and held + count > most:
                yield block
                block, held = [], 0
            block.append(shard)
            held += count
        if block:
            yield block

    def _gather(self, block: Sequence[int], wanted: Array) -> tuple[Array, Tensor]:
        """Numbers and values, as they are kept, of the wanted rows of some shards."""
        spans = [(shard, int(self._starts[shard]), int(self._starts[shard + 1])) for shard in block]
        numbers = [np.flatnonzero(wanted[start:stop]) + start for _, start, stop in spans]
        values = torch.empty(sum(map(len, numbers)), len(self.names), dtype=self.store.dtype)
        place = 0
        for (shard, start, _), chosen in zip(spans, numbers, strict=True):
            entry, rows, column = self.store.entries[shard], torch.from_numpy(chosen - start), 0
            for key in self.keys:
                width = self.store.width(key)
                values[place : place + len(chosen), column : column + width] = self.store.shard(entry, key)[rows]
                column += width
            place += len(chosen)
        return np.concatenate([np.empty(0, np.int64), *numbers]), values
