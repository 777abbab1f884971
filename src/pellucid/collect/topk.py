"""Top contexts: the words at which every unit is largest and smallest, exact and the same however the corpus is cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting
from pellucid.collect.state import Array, State
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch

SIDES = ("largest", "smallest")
NOTHING = -(2**63)
"""The rank of an empty place: below that of every number."""

_LAST = 2**32 - 1
_ROWS = 32
"""Rows compared at a time on a CPU, so that they stay in its cache."""
_FIRST = 128
"""Rows that are ranked in full to find the first limits."""
_AT_ONCE = 2**22
"""Ranks sorted at a time."""


@dataclass(frozen=True)
class TopContexts(Collector):
    """Per unit the k words with the largest and the k with the smallest activation; of equals, the earlier word.

    A word ranks by one int64: the float32's order-preserving image in the upper half, 2³² − 1 − ordinal in the lower.
    The pilot's k-th rank prunes exactly: what lies below it cannot be among the k of the whole corpus. (So a single
    shard's state may hold fewer than k.)
    """

    kind: ClassVar[str] = "top-contexts"
    sites: Patterns
    k: int = field(default=20, kw_only=True)

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SweepError(f"k={self.k} keeps nothing; use 1 or more.")

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    def open(self, setting: Setting) -> Accumulator:
        return _Top(setting, setting.keys(self.sites), self.k)

    def pilot(self, batch: WordBatch, setting: Setting) -> State | None:
        if batch.size < self.k:
            return None
        found = _Top(replace(setting, pilot=None), setting.keys(self.sites), self.k)
        found.add(batch)
        return State({name: _lowered(limit) for name, limit in found.limits().items()})

    def merge(self, left: State, right: State) -> State:
        if left.facts != right.facts:
            raise SweepError(f"Top contexts of {left.facts['keys']} and of {right.facts['keys']} cannot be merged.")
        arrays: dict[str, Array] = {}
        for name in left.arrays:
            if name.endswith("/rank"):
                stem = name.removesuffix("rank")
                names = [f"{stem}{part}" for part in ("rank", "sentence", "position")]
                both = [np.concatenate([left.arrays[part], right.arrays[part]], axis=1) for part in names]
                order = np.argsort(~both[0], axis=1, kind="stable")[:, : self.k]  # ~ turns the order around
                arrays |= {
                    part: np.take_along_axis(array, order, axis=1) for part, array in zip(names, both, strict=True)
                }
        return State(arrays, left.facts)

    def view(self, state: State, setting: Setting) -> TopContextsView:
        return TopContextsView(tuple(state.facts["keys"]), state.arrays)

    def memory(self, setting: Setting, groups: int) -> int:
        return sum(2 * 3 * 8 * self.k * setting.width(key) for key in setting.keys(self.sites))

    def sentences(self, state: State) -> set[int]:
        found = [array for name, array in state.arrays.items() if name.endswith("/sentence")]
        return {int(number) for array in found for number in np.unique(array)} - {-1}


@dataclass(frozen=True, eq=False)
class Contexts:
    """The words at which the units of one site are largest or smallest, best first: every array is [units, k].

    Where there were fewer than k words, `value` is NaN and `ordinal` and `sentence` are −1.
    """

    value: Array
    ordinal: Array
    sentence: Array
    position: Array


@dataclass(frozen=True, eq=False)
class TopContextsView:
    """The largest and smallest activations of every unit, with the words where they occurred."""

    keys: tuple[str, ...]
    arrays: Mapping[str, Array]

    def largest(self, key: str) -> Contexts:
        """The words with the largest activations, from the largest down."""
        return self._contexts("largest", key)

    def smallest(self, key: str) -> Contexts:
        """The words with the smallest activations, from the smallest up."""
        return self._contexts("smallest", key)

    def _contexts(self, side: str, key: str) -> Contexts:
        if key not in self.keys:
            raise SweepError(f"No contexts of {key!r} were gathered; there are those of {listing(self.keys, most=40)}.")
        return contexts_of(self.arrays, side, f"{side}/{self.keys.index(key)}")


def contexts_of(arrays: Mapping[str, Array], side: str, stem: str) -> Contexts:
    """The contexts kept under one name in a state."""
    rank = arrays[f"{stem}/rank"]
    there = rank != NOTHING
    value = np.where(there, values_of(rank) * (1 if side == "largest" else -1), np.float32(np.nan))
    ordinal = np.where(there, ordinals_of(rank), -1)
    return Contexts(value, ordinal, arrays[f"{stem}/sentence"], arrays[f"{stem}/position"])


def ranks(values: Tensor, ordinal: Tensor, side: str) -> Tensor:
    """Float32 values and the ordinals of their words as int64 that sort by value, then by the earlier word."""
    signed = values if side == "largest" else -values
    bits = (signed + 0.0).view(torch.int32)  # −0 becomes 0: they are equal
    image = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (image.to(torch.int64) << 32) | (_LAST - ordinal)


def values_of(rank: Array) -> Array:
    """The float32 values of ranks (of the side `smallest`: turned around)."""
    image = (rank >> 32).astype(np.int32)
    return (image ^ ((image >> 31) & 0x7FFFFFFF)).view(np.float32)


def ordinals_of(rank: Array) -> Array:
    """The ordinals of ranks."""
    return _LAST - (rank & _LAST)


def checked_ordinals(ordinal: Array) -> Array:
    """Ordinals that fit into a rank."""
    if len(ordinal) and int(ordinal.max()) > _LAST:
        raise SweepError(
            f"The corpus has more than {_LAST + 1:,} words, too many to rank them in one sweep; sweep over parts of it."
        )
    return ordinal


def best_ranks(batch: WordBatch, key: str, side: str, k: int) -> Tensor:
    """The k best ranks of every unit in one batch, best first, [units, ≤ k]; NaN raises."""
    rows = batch.rows[key]
    ordinal = torch.from_numpy(checked_ordinals(batch.ordinal)).to(rows.device)
    step = max(1, _AT_ONCE // max(1, batch.size))
    parts: list[Tensor] = []
    for start in range(0, rows.shape[1], step):
        part = rows[:, start : start + step].T.contiguous()
        if bool(torch.isnan(part).any()):
            raise SweepError(_not_a_number(key, start + int(torch.isnan(part).any(1).nonzero()[0, 0])))
        parts.append(ranks(part, ordinal, side).topk(min(k, batch.size), dim=1).values)
    return torch.cat(parts)


def _not_a_number(key: str, unit: int) -> str:
    return f"Unit {unit} of {key!r} is NaN for some word, so it cannot be ranked; leave that site out."


def merge_ranks(kept: Tensor, unit: Tensor, rank: Tensor) -> None:
    """Puts candidate ranks, each with its unit, among the kept ones [units, k], in place."""
    order = torch.argsort(unit, stable=True)
    unit, rank = unit[order], rank[order]
    units, counts = torch.unique_consecutive(unit, return_counts=True)
    starts = torch.cumsum(counts, 0) - counts
    place = torch.arange(len(unit), device=unit.device) - starts.repeat_interleave(counts)
    line = torch.arange(len(units), device=unit.device).repeat_interleave(counts)
    width, k = int(counts.max()), kept.shape[1]
    table = torch.full((len(units), k + width), NOTHING, dtype=torch.int64, device=kept.device)
    table[:, :k] = kept[units]
    table[line, k + place] = rank
    kept[units] = table.topk(k, dim=1).values


class _Top(Accumulator):
    """The best ranks so far; rows that cannot be among them are sorted out by one comparison."""

    def __init__(self, setting: Setting, keys: tuple[str, ...], k: int) -> None:
        self._keys, self._k = keys, k
        self._kept: dict[str, Tensor] = {}
        self._limits: dict[str, Tensor] = {}
        for number, key in enumerate(keys):
            for side in SIDES:
                name, width = f"{side}/{number}", setting.width(key)
                self._kept[name] = torch.full((width, k), NOTHING, dtype=torch.int64, device=setting.device)
                pilot = None if setting.pilot is None else torch.from_numpy(setting.pilot.arrays[name].copy())
                limit = torch.full((width,), NOTHING, dtype=torch.int64) if pilot is None else pilot
                self._limits[name] = limit.to(setting.device)
        self._ready = setting.pilot is not None
        self._places: list[tuple[Array, Array, Array]] = []

    def add(self, batch: WordBatch) -> None:
        checked_ordinals(batch.ordinal)
        start = 0
        while start < batch.size:  # until there are limits, every number is ranked: that is slow, so a few rows first
            stop = batch.size if self._ready else min(batch.size, start + max(self._k, _FIRST))
            self._add(_piece(batch, start, stop))
            start = stop

    def _add(self, batch: WordBatch) -> None:
        self._places.append((batch.ordinal, batch.sentence, batch.position))
        for number, key in enumerate(self._keys):
            names = {side: f"{side}/{number}" for side in SIDES}
            if self._ready:
                self._sift(batch, key, names)
            else:
                for side, name in names.items():
                    both = torch.cat([self._kept[name], best_ranks(batch, key, side, self._k)], dim=1)
                    self._kept[name] = both.topk(self._k, dim=1).values
            for name in names.values():
                self._limits[name] = torch.maximum(self._limits[name], self._kept[name][:, -1])
        self._ready = self._ready or sum(len(part[0]) for part in self._places) >= self._k

    def _sift(self, batch: WordBatch, key: str, names: Mapping[str, str]) -> None:
        """Finds the few numbers that may be among the best, and ranks those."""
        rows = batch.rows[key]
        bounds = {side: _Bound(self._limits[name]) for side, name in names.items()}
        ordinal = torch.from_numpy(batch.ordinal).to(rows.device)
        for row, unit in _outside(rows, batch.ordinal, bounds):
            value = rows[row, unit]
            if bool(torch.isnan(value).any()):
                raise SweepError(_not_a_number(key, int(unit[torch.isnan(value)].min())))
            for side, name in names.items():
                rank = ranks(value, ordinal[row], side)
                good = rank >= self._limits[name][unit]
                if bool(good.any()):
                    merge_ranks(self._kept[name], unit[good], rank[good])

    def limits(self) -> dict[str, Array]:
        """The k-th best rank of every unit so far."""
        return {name: limit.cpu().numpy() for name, limit in self._limits.items()}

    def state(self) -> State:
        arrays: dict[str, Array] = {}
        columns = zip(*self._places, strict=True) if self._places else [[np.zeros(0, np.int64)]] * 3
        ordinal, sentence, position = (np.concatenate(list(column)) for column in columns)
        order = np.argsort(ordinal, kind="stable")
        for name, kept in self._kept.items():
            rank = kept.cpu().numpy()
            arrays[f"{name}/rank"] = rank
            there = rank != NOTHING
            place = order[np.searchsorted(ordinal, ordinals_of(rank[there]), sorter=order)]
            for part, known in (("sentence", sentence), ("position", position)):
                arrays[f"{name}/{part}"] = np.full(rank.shape, -1, np.int64)
                arrays[f"{name}/{part}"][there] = known[place]
        return State(arrays, {"keys": list(self._keys), "k": self._k})


def _piece(batch: WordBatch, start: int, stop: int) -> WordBatch:
    """Some consecutive rows of a batch."""
    if stop - start == batch.size:
        return batch
    rows = {key: value[start:stop] for key, value in batch.rows.items()}
    place = slice(start, stop)
    return replace(
        batch, rows=rows, sentence=batch.sentence[place], position=batch.position[place], ordinal=batch.ordinal[place]
    )


def _lowered(rank: Array) -> Array:
    """Limits of a pilot a little below its k-th ranks, in case its numbers differ in the last bits from the sweep's.

    Where the value is 0 (a unit that is off) there is nothing to differ, and the whole rank stays.
    """
    value = values_of(rank)
    less = torch.from_numpy(value - np.float32(1e-3) * np.abs(value))
    lower = ranks(less, torch.full(less.shape, _LAST), "largest").numpy()
    return np.where((rank == NOTHING) | (value == 0), rank, lower)


class _Bound:
    """The value that a unit's next best number must reach, [units]: more than that where the words come later."""

    def __init__(self, limit: Tensor) -> None:
        rank = limit.cpu().numpy()
        self.value = np.where(rank == NOTHING, np.float32(-np.inf), values_of(rank))
        self._above = np.nextafter(self.value, np.float32(np.inf))
        self._ordinal = ordinals_of(rank)
        self._last = int(self._ordinal.max(initial=0))

    def at(self, ordinal: int) -> Array:
        """The smallest value that counts for words from number `ordinal` on."""
        return self._above if self._last < ordinal else np.where(self._ordinal < ordinal, self._above, self.value)


def _outside(rows: Tensor, ordinal: Array, bounds: Mapping[str, _Bound]) -> Iterator[tuple[Tensor, Tensor]]:
    """Row and unit of every number that reaches a bound (or is NaN), some rows at a time."""
    device = rows.device
    found: list[tuple[Array, Array]] = []
    waiting = 0
    on_cpu = device.type == "cpu"
    step = _ROWS if on_cpu else max(1, _AT_ONCE // rows.shape[1])
    for start in range(0, len(rows), step):
        first = int(ordinal[start : start + step].min())
        high, low = bounds["largest"].at(first), -bounds["smallest"].at(first)
        part = rows[start : start + step]
        if not on_cpu:
            inside = (part < torch.from_numpy(high).to(device)) & (part > torch.from_numpy(low).to(device))
            row, unit = (~inside).nonzero(as_tuple=True)
            yield row + start, unit
            continue
        values = part.numpy()  # comparing and finding are several times faster in NumPy
        inside = np.less(values, high)
        inside &= np.greater(values, low)
        place = np.flatnonzero(np.logical_not(inside, out=inside))
        found.append((place // rows.shape[1] + start, place % rows.shape[1]))
        waiting += len(place)
        if waiting > _AT_ONCE // 16 or start + step >= len(rows):
            row, unit = (torch.from_numpy(np.concatenate(column)) for column in zip(*found, strict=True))
            yield row, unit
            found, waiting = [], 0
