"""Class histograms: how the values of every unit are spread, apart for every value of a label."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.by_value import ByValue, ByValueView, Values, usual_values
from pellucid.collect.collector import Accumulator, Setting
from pellucid.collect.side_by_side import side_by_side
from pellucid.collect.state import Array, State
from pellucid.collect.sums import Columns, not_finite
from pellucid.collect.value_groups import united
from pellucid.errors import SweepError

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch

_COMMON = ("centre", "scale", "moves", "unlabelled")
_GATHERED = 1 << 27
"""Bytes of bins that gather before they are counted: to count few rows costs as much as to count many."""
_ROWS = 1 << 10, 1 << 15
"""The fewest and the most rows that gather."""
_PILOT = 256
"""Rows of the pilot that fix the grid."""
_INSIDE = 1 - 2.0**-20
"""Keeps the largest values inside the last bin, however float32 rounds them."""
_AT_ONCE = 1 << 16
"""Numbers that each thread puts into bins at a time, so that they stay in a CPU's cache."""
_UNITS = 64
"""Units counted at a time, so that their counts stay there too."""


@dataclass(frozen=True)
class ClassHistograms(ByValue):
    """Counts of every unit's values in `bins` bins for each value of a label, on a grid that the pilot fixed.

    With z = (x − centre) / scale, the pilot's median and 1.4826 times its median distance from it, bin b holds
    b ≤ bins·(1 + z/(1 + |z|))/2 < b + 1: bins are finest at the centre and reach to infinity. A value within float32's
    rounding of an edge may fall on either side of it. `moves` tells which units ever leave the centre: the others are
    constant. `groups` keeps every document group apart, for intervals, with `group_bins` bins, each of which holds
    several of the others: many values would take too much room otherwise.
    """

    kind: ClassVar[str] = "class-histograms"
    bins: int = field(default=128, kw_only=True)
    group_bins: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not 2 <= self.bins <= 256:
            raise SweepError(f"bins={self.bins} must lie between 2 and 256.")
        if self.apart < 2 or self.bins % self.apart:
            raise SweepError(f"group_bins={self.group_bins} must be 2 or more and divide bins={self.bins}.")

    @property
    def apart(self) -> int:
        """Bins of the histograms of single document groups."""
        return self.bins if self.group_bins is None else self.group_bins

    def open(self, setting: Setting) -> Accumulator:
        columns = self.columns(setting)
        pilot = setting.pilot
        centre = np.zeros(columns.total, np.float32) if pilot is None else pilot.arrays["centre"]
        scale = np.ones(columns.total, np.float32) if pilot is None else pilot.arrays["scale"]
        return _Counting(columns, centre, scale, setting.device, self)

    def pilot(self, batch: WordBatch, setting: Setting) -> State | None:
        if not batch.size:
            return None
        step = -(-batch.size // _PILOT)
        rows = torch.cat([batch.rows[key][::step] for key in setting.keys(self.sites)], dim=1).cpu().numpy()
        centre = np.median(rows, axis=0)
        away = np.abs(rows - centre)
        scale = 1.4826 * np.median(away, axis=0)
        for instead in (away.mean(0), 1e-3 * np.abs(centre)):  # half of it constant, all constant
            scale = np.where(scale > 1e-6 * np.abs(centre), scale, instead)
        for place in self.columns(setting).slices:  # always zero: the scale of the units beside it
            own = scale[place]
            own[own <= 0] = np.median(own[own > 0]) if (own > 0).any() else 1.0
        return State({"centre": centre.astype(np.float32), "scale": scale.astype(np.float32)})

    def merge(self, left: State, right: State) -> State:
        """Unites the values; histograms on different grids are refused."""
        same = all(np.array_equal(left.arrays[name], right.arrays[name]) for name in ("centre", "scale"))
        self.refuse_other(left, right, ("bins",), same=same)
        values = sorted({*left.facts["values"], *right.facts["values"]})
        numbers = sorted({*left.facts["grouped"], *right.facts["grouped"]}, key=int)
        grouped = {group: sorted({*left.facts["grouped"].get(group, ()), *right.facts["grouped"].get(group, ())})
                   for group in numbers}  # fmt: skip
        self.check(sum(left.facts["widths"]), len(values), sum(map(len, grouped.values())))
        arrays = {name: left.arrays[name] for name in ("centre", "scale")}
        arrays["unlabelled"] = left.arrays["unlabelled"] + right.arrays["unlabelled"]
        arrays["moves"] = left.arrays["moves"] | right.arrays["moves"]
        for name in ("n", "counts"):
            arrays[name] = united(values, *((each.facts["values"], each.arrays[name]) for each in (left, right)))
            for group, own in grouped.items():
                there = [each for each in (left, right) if group in each.facts["grouped"]]
                parts = [(each.facts["grouped"][group], each.arrays[_apart(name, group)]) for each in there]
                arrays[_apart(name, group)] = united(own, *parts)
        if int(arrays["n"].max(initial=0)) > np.iinfo(np.int32).max:
            raise SweepError(f"One value of {self.label!r} has more than 2³¹ words; sweep over parts of the corpus.")
        return State(arrays, {**left.facts, "values": values, "grouped": grouped})

    def view(self, state: State, setting: Setting) -> ClassHistogramsView:
        columns = Columns(state.facts["keys"], state.facts["widths"])
        if "moves" not in state.arrays:
            raise SweepError("These class histograms were kept by an older Pellucid; sweep again.")
        common = {name: state.arrays[name] for name in _COMMON}
        whole = State({**common, "n": state.arrays["n"], "counts": state.arrays["counts"]}, state.facts)
        values, parts = state.facts["values"], dict[int, State]()
        for group, own in state.facts["grouped"].items():
            arrays = {name: united(values, (own, state.arrays[_apart(name, group)])) for name in ("n", "counts")}
            parts[int(group)] = State({**common, **arrays}, {**state.facts, "bins": self.apart})
        return ClassHistogramsView(columns, whole, parts)

    def memory(self, setting: Setting, groups: int) -> int:
        """Bytes for as many values as labels usually have; raises where a single one is over the limit."""
        units, groups, values = self.columns(setting).total, groups if self.groups else 0, usual_values(self.label)
        self.check(units, 1, groups)
        return self._bytes(units, values, groups * values)

    def check(self, units: int, values: int, grouped: int) -> None:
        """Raises where a state with so many values, and so many in single document groups, is over the limit."""
        advice = "take fewer sites or bins, groups=False"
        self.within_limit(self._bytes(units, values, grouped), units, max(values, grouped), advice)

    def _bytes(self, units: int, values: int, grouped: int) -> int:
        return 8 * units + values * (8 + 4 * units * self.bins) + grouped * (8 + 4 * units * self.apart)


@dataclass(frozen=True, eq=False)
class ClassHistogramsView(ByValueView):
    """Histograms of every unit by the value of a label; those of document groups may have fewer bins."""

    common: ClassVar[tuple[str, ...]] = _COMMON
    what: ClassVar[str] = "histograms"

    @property
    def bins(self) -> int:
        """Number of bins."""
        return int(self.state.facts["bins"])

    def histograms(self, key: str) -> Array:
        """Counts of a key's units, [values, units, bins]."""
        return self.state.arrays["counts"][:, self.place(key)]

    def edges(self, key: str) -> Array:
        """The lower edges of bins 1, 2 … of a key's units, [units, bins − 1]; bin 0 begins at −∞."""
        place = self.place(key)
        u = (2 * np.arange(1, self.bins) / self.bins - 1) / _INSIDE
        z = u / (1 - np.abs(u))
        centre, scale = (self.state.arrays[name][place].astype(np.float64)[:, None] for name in ("centre", "scale"))
        return centre + scale * z


def _apart(name: str, group: str) -> str:
    """The name of a document group's own array in a state."""
    return f"{name}.{group}"


@dataclass(frozen=True, eq=False)
class _Group:
    """What one document group has: its values, how many rows of each, and their counts [values, units, bins]."""

    values: list[str]
    n: Array
    counts: Array


class _Counting(Accumulator):
    """Gathers the bins of rows as bytes, and counts them block by block; a block is of one document group."""

    def __init__(
        self, columns: Columns, centre: Array, scale: Array, device: torch.device, collector: ClassHistograms
    ) -> None:
        self._columns, self._collector, self._device = columns, collector, device
        self._grid = {"centre": centre, "scale": scale}
        self._over = torch.from_numpy((1 / scale.astype(np.float64)).astype(np.float32)).to(device)
        self._less = -torch.from_numpy(np.array(centre)).to(device) * self._over
        self._half = torch.tensor(collector.bins / 2, device=device)
        self._room = int(np.clip(_GATHERED // max(1, columns.total), *_ROWS))
        self._bins = self._no_bins = torch.empty(0, columns.total, dtype=torch.uint8, device=device)
        self._codes = np.zeros(self._room, np.int64)
        self._values = Values(collector.label)
        self._rounding = 2.0**-22 * (1 + self._less.abs())
        self._moves = torch.zeros(columns.total, dtype=torch.bool, device=device)
        self._still = [torch.arange(width, device=device) for width in columns.widths]  # units not seen to move yet
        self._group, self._filled = -1, 0
        self._counts = np.zeros((0, columns.total, collector.bins), np.int32)
        self._grouped: dict[int, _Group] = {}
        self._before: dict[str, tuple[int, Array]] = {}  # rows of every value and counts when the last group ended

    def add(self, batch: WordBatch) -> None:
        if self._collector.groups and batch.group != self._group:
            self._put_apart()
            self._group = batch.group
        chosen, codes = self._values.of(batch)
        order = np.argsort(codes, kind="stable")  # rows of a value side by side: its counts stay in a CPU's cache
        chosen, codes = chosen[order], codes[order]
        start = 0
        while start < len(chosen):
            count = min(self._room - self._filled, len(chosen) - start)
            self._put(batch, chosen[start : start + count])
            self._codes[self._filled : self._filled + count] = codes[start : start + count]
            self._filled += count
            start += count
            if self._filled == self._room:
                self._flush()

    def _put(self, batch: WordBatch, rows: Array) -> None:
        """The bins of some rows into the buffer, site by site."""
        if not len(self._bins):
            self._bins = self._bins.new_empty(self._room, self._columns.total)
        chosen = torch.from_numpy(rows).to(self._device)
        for number, key in enumerate(self._columns.keys):
            self._bin(number, batch.rows[key], chosen)

    def _bin(self, number: int, values: Tensor, chosen: Tensor) -> None:
        """The bins of chosen rows of one site [rows, units]; the same memory serves all parts, as new one is slow."""
        place, most = self._columns.slices[number], self._collector.bins / 2 * _INSIDE
        less, over, still = self._less[place], self._over[place], self._still[number]
        room = self._bins[self._filled : self._filled + len(chosen), place]
        step = max(1, _AT_ONCE * torch.get_num_threads() // max(1, values.shape[1]))
        shape = min(step, len(chosen)), values.shape[1]
        above, below = values.new_empty(shape), values.new_empty(shape)
        whole = torch.empty(shape, dtype=torch.int16, device=values.device)
        total, farthest = values.new_zeros(()), values.new_ones(len(still))
        for start in range(0, len(chosen), step):
            some = chosen[start : start + step]
            z, size = above[: len(some)], below[: len(some)]
            torch.index_select(values, 0, some, out=z)
            torch.addcmul(less, z, over, out=z)
            torch.abs(z, out=size).add_(1)
            total += size.sum()
            if len(still):
                torch.maximum(farthest, size.index_select(1, still).amax(0), out=farthest)
            where = torch.addcdiv(self._half, z, size, value=most, out=z)
            room[start : start + len(some)] = whole[: len(some)].copy_(where)  # the cast cuts off the fraction
        if not bool(torch.isfinite(total)):
            spoilt = ~torch.isfinite(torch.addcmul(less, values[chosen], over)).all(0)
            if bool(spoilt.any()):  # else the numbers are merely large
                raise SweepError(not_finite(self._columns, place.start + int(spoilt.nonzero()[0, 0])))
        if len(still):
            moved = farthest - 1 > self._rounding[place][still]
            self._moves[place.start + still[moved]] = True
            self._still[number] = still[~moved]

    def _flush(self) -> None:
        """Counts what has gathered: one number for value, unit and bin together, and how often each occurs."""
        if not self._filled:
            return
        self._grow()
        present, dense = np.unique(self._codes[: self._filled], return_inverse=True)
        bins, width = self._collector.bins, min(_UNITS, self._columns.total)
        codes = torch.from_numpy(dense * (width * bins)).to(self._device, torch.int32)[:, None]
        firsts = codes + torch.arange(width, device=self._device, dtype=torch.int32) * bins
        values = slice(len(present)) if len(present) == present[-1] + 1 else present

        def count(start: int) -> None:
            units = slice(start, min(start + width, self._columns.total))
            places = self._bins[: self._filled, units].to(torch.int32).add_(firsts[:, : units.stop - start])
            found = torch.bincount(places.reshape(-1), minlength=len(present) * width * bins).to(torch.int32)
            found = found.view(len(present), width, bins)[:, : units.stop - start]
            self._counts[values, units] += found.cpu().numpy()

        side_by_side(count, range(0, self._columns.total, width))
        self._filled = 0

    def _grow(self) -> None:
        """Makes room for all values met, and for as many again: zeros that nobody has touched take no memory."""
        values = len(self._values)
        if values > len(self._counts):
            grouped = sum(len(group.values) for group in self._grouped.values())
            self._collector.check(self._columns.total, values, grouped)
            room = np.zeros((2 * values, *self._counts.shape[1:]), np.int32)
            room[: len(self._counts)] = self._counts
            self._counts = room

    def _put_apart(self) -> None:
        """Puts away, with fewer bins, what the document group that has ended added to the counts of all groups."""
        self._flush()
        if self._group < 0:
            return
        self._grow()
        names, order, rows = self._values.sorted()
        shape = self._columns.total, self._collector.apart
        added = {name: (code, int(count) - self._before.get(name, (0,))[0])
                 for name, code, count in zip(names, order, rows, strict=True)}  # fmt: skip
        own = [name for name, (_, count) in added.items() if count]
        counts = np.empty((len(own), *shape), np.int32)

        def put(place: int) -> None:
            code, count = added[own[place]]
            seen, before = self._before.setdefault(own[place], (0, np.zeros(shape, np.int32)))
            _coarse(self._counts[code], counts[place])
            counts[place] -= before
            before += counts[place]
            self._before[own[place]] = seen + count, before

        side_by_side(put, range(len(own)))
        made = _Group(own, np.array([added[name][1] for name in own], np.int64), counts)
        known = self._grouped.get(self._group)
        self._grouped[self._group] = made if known is None else _together(known, made)

    def state(self) -> State:
        self._flush()
        self._bins = self._no_bins  # lets go of the memory, which the state's arrays take
        if self._collector.groups:
            self._put_apart()
        self._grow()
        values, order, n = self._values.sorted()
        arrays: dict[str, Array] = {**self._grid, "unlabelled": np.array([self._values.unlabelled], np.int64)}
        arrays |= {"n": n, "counts": _in_order(self._counts[: len(order)], order)}
        arrays["moves"] = self._moves.cpu().numpy()
        for group, own in self._grouped.items():
            arrays |= {_apart("n", str(group)): own.n, _apart("counts", str(group)): own.counts}
        facts: dict[str, Any] = {"keys": list(self._columns.keys), "widths": list(self._columns.widths)}
        facts |= {"label": self._collector.label, "bins": self._collector.bins, "values": values}
        facts["grouped"] = {str(group): self._grouped[group].values for group in sorted(self._grouped)}
        return State(arrays, facts)


def _in_order(counts: Array, order: list[int]) -> Array:
    """Counts [values, …] with the value `order[i]` at i, put there in place: another array of this size takes long."""
    moved = set[int]()
    for first in range(len(order)):
        if first in moved or order[first] == first:
            continue
        kept, place = counts[first].copy(), first
        while order[place] != first:
            counts[place] = counts[order[place]]
            moved.add(place)
            place = order[place]
        counts[place] = kept
        moved.add(place)
    return counts


def _coarse(counts: Array, room: Array) -> None:
    """Counts [units, bins] with fewer bins, [units, room's bins]: each holds several of the others."""
    step = counts.shape[1] // room.shape[1]
    room[:] = counts[:, ::step]
    for place in range(1, step):
        room += counts[:, place::step]


def _together(one: _Group, other: _Group) -> _Group:
    """A document group that came in two stretches."""
    values = sorted({*one.values, *other.values})
    n, counts = (united(values, *((each.values, getattr(each, name)) for each in (one, other)))
                 for name in ("n", "counts"))  # fmt: skip
    return _Group(values, n, counts)
