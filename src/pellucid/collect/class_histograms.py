"""Class histograms: how the values of every unit are spread, apart for every value of a label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting
from pellucid.collect.state import Array, State
from pellucid.collect.sums import Columns, not_finite
from pellucid.collect.value_groups import by_group, grouped_value, of_groups, united
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch

_COMMON = ("centre", "scale", "unlabelled")
_ROWS = 4096
"""Rows whose bins gather before they are counted."""
_PILOT = 512
"""Rows of the pilot that fix the grid."""
_INSIDE = 1 - 2.0**-20
"""Keeps the largest values inside the last bin, however float32 rounds them."""
_AT_ONCE = 64
"""Rows put into bins at a time, and units counted at a time, so that both stay in a CPU's cache."""


@dataclass(frozen=True)
class ClassHistograms(Collector):
    """Counts of every unit's values in `bins` bins for each value of a label, on a grid that the pilot fixed.

    With z = (x − centre) / scale, the pilot's median and 1.4826 times its median distance from it, bin b holds
    b ≤ bins·(1 + z/(1 + |z|))/2 < b + 1: bins are finest at the centre and reach to infinity. A value within float32's
    rounding of an edge may fall on either side of it. `groups` keeps every document group apart, for intervals.
    """

    kind: ClassVar[str] = "class-histograms"
    sites: Patterns
    label: str = field(kw_only=True)
    bins: int = field(default=128, kw_only=True)
    groups: bool = field(default=False, kw_only=True)
    memory_limit: int = field(default=4 * 2**30, kw_only=True)

    def __post_init__(self) -> None:
        if not 2 <= self.bins <= 256:
            raise SweepError(f"bins={self.bins} must lie between 2 and 256.")

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label,)

    def open(self, setting: Setting) -> Accumulator:
        columns = self._columns(setting)
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
        for instead in (away.mean(0), 1e-3 * np.abs(centre), np.ones_like(centre)):  # half constant, constant, zero
            scale = np.where(scale > 1e-6 * np.abs(centre), scale, instead)
        return State({"centre": centre.astype(np.float32), "scale": scale.astype(np.float32)})

    def merge(self, left: State, right: State) -> State:
        """Unites the values; histograms on different grids are refused."""
        same = all(np.array_equal(left.arrays[name], right.arrays[name]) for name in ("centre", "scale"))
        if not same or any(left.facts[name] != right.facts[name] for name in ("keys", "widths", "label", "bins")):
            raise SweepError(
                f"Histograms of {left.facts['label']!r} at {left.facts['keys']} and of {right.facts['label']!r} at "
                f"{right.facts['keys']}, or on different grids, cannot be merged; take all shards from one sweep."
            )
        values = sorted({*left.facts["values"], *right.facts["values"]})
        self.check(sum(left.facts["widths"]), len(values))
        arrays = {name: left.arrays[name] for name in ("centre", "scale")}
        arrays["unlabelled"] = left.arrays["unlabelled"] + right.arrays["unlabelled"]
        arrays["n"] = united(left, right, values, "n", right.arrays["n"])
        if int(arrays["n"].max(initial=0)) > np.iinfo(np.int32).max:
            raise SweepError(f"One value of {self.label!r} has more than 2³¹ words; sweep over parts of the corpus.")
        arrays["counts"] = united(left, right, values, "counts", right.arrays["counts"])
        return State(arrays, {**left.facts, "values": values})

    def view(self, state: State, setting: Setting) -> ClassHistogramsView:
        columns = Columns(state.facts["keys"], state.facts["widths"])
        if not self.groups:
            return ClassHistogramsView(columns, state)
        parts = by_group(state, _COMMON)
        return ClassHistogramsView(columns, of_groups(list(parts.values()), state, _COMMON), parts)

    def memory(self, setting: Setting, groups: int) -> int:
        """Bytes of one value: how many values there are is not known beforehand."""
        return self.check(self._columns(setting).total, groups if self.groups else 1)

    def check(self, units: int, values: int) -> int:
        """Bytes of a state with so many values; over the limit raises."""
        needed = 8 * units + values * (8 + 4 * units * self.bins)
        if needed > self.memory_limit:
            raise SweepError(
                f"Histograms of {units:,} units for {values:,} values of {self.label!r} need {needed:,} bytes, and "
                f"memory_limit is {self.memory_limit:,}; take fewer sites or bins, groups=False, or raise memory_limit."
            )
        return needed

    def _columns(self, setting: Setting) -> Columns:
        keys = setting.keys(self.sites)
        return Columns(keys, [setting.width(key) for key in keys])


@dataclass(frozen=True, eq=False)
class ClassHistogramsView:
    """Histograms of every unit by the value of a label; `parts` are the document groups, if they were kept apart."""

    columns: Columns
    state: State
    parts: Mapping[int, State] = field(default_factory=dict[int, State])

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that were read."""
        return self.columns.keys

    @property
    def label(self) -> str:
        """The label whose values tell the rows apart."""
        return self.state.facts["label"]

    @property
    def values(self) -> tuple[str, ...]:
        """The label's values, sorted."""
        return tuple(self.state.facts["values"])

    @property
    def bins(self) -> int:
        """Number of bins."""
        return int(self.state.facts["bins"])

    @property
    def counts(self) -> Array:
        """Rows of each value, [values]."""
        return self.state.arrays["n"]

    @property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the document groups that have rows; none unless they were kept apart."""
        return tuple(self.parts)

    def group(self, number: int) -> ClassHistogramsView:
        """The histograms of one document group alone."""
        return ClassHistogramsView(self.columns, self.parts[number])

    def without(self, number: int) -> ClassHistogramsView:
        """The histograms of all rows but those of one document group, for the jackknife."""
        rest = [part for group, part in self.parts.items() if group != number]
        return ClassHistogramsView(self.columns, of_groups(rest, self.state, _COMMON))

    def histograms(self, key: str) -> Array:
        """Counts of a key's units, [values, units, bins]."""
        return self.state.arrays["counts"][:, self._place(key)]

    def edges(self, key: str) -> Array:
        """The lower edges of bins 1, 2 … of a key's units, [units, bins − 1]; bin 0 begins at −∞."""
        place = self._place(key)
        u = (2 * np.arange(1, self.bins) / self.bins - 1) / _INSIDE
        z = u / (1 - np.abs(u))
        centre, scale = (self.state.arrays[name][place].astype(np.float64)[:, None] for name in ("centre", "scale"))
        return centre + scale * z

    def _place(self, key: str) -> slice:
        if key not in self.keys:
            raise SweepError(
                f"No histograms of {key!r} were gathered; there are those of {listing(self.keys, most=40)}."
            )
        return self.columns.slices[self.keys.index(key)]


class _Counting(Accumulator):
    """Gathers the bins of rows as bytes, and counts them block by block."""

    def __init__(
        self, columns: Columns, centre: Array, scale: Array, device: torch.device, collector: ClassHistograms
    ) -> None:
        self._columns, self._collector, self._device = columns, collector, device
        self._grid = {"centre": centre, "scale": scale}
        self._over = torch.from_numpy((1 / scale.astype(np.float64)).astype(np.float32)).to(device)
        self._less = -torch.from_numpy(np.array(centre)).to(device) * self._over
        self._half = torch.tensor(collector.bins / 2, device=device)
        self._bins = torch.empty(_ROWS, columns.total, dtype=torch.uint8, device=device)
        self._codes = np.zeros(_ROWS, np.int64)
        self._filled = self._unlabelled = 0
        self._values: dict[str, int] = {}
        self._n: list[int] = []
        self._counts = np.zeros((0, columns.total, collector.bins), np.int32)

    def add(self, batch: WordBatch) -> None:
        labels = batch.labels(self._collector.label)
        if self._collector.groups:
            labels = [None if value is None else grouped_value(batch.group, value) for value in labels]
        chosen = np.flatnonzero([value is not None for value in labels])
        self._unlabelled += len(labels) - len(chosen)
        codes = np.array([self._code(value) for value in labels if value is not None], np.int64)
        start = 0
        while start < len(chosen):
            count = min(_AT_ONCE, _ROWS - self._filled, len(chosen) - start)
            rows = chosen[start : start + count]
            whole = rows[-1] - rows[0] + 1 == count
            self._put(batch, slice(int(rows[0]), int(rows[-1]) + 1) if whole else rows.tolist(), count)
            self._codes[self._filled : self._filled + count] = codes[start : start + count]
            self._filled += count
            start += count
            if self._filled == _ROWS:
                self._flush()

    def _code(self, value: str) -> int:
        code = self._values.setdefault(value, len(self._values))
        if code == len(self._n):
            self._n.append(0)
        self._n[code] += 1
        return code

    def _put(self, batch: WordBatch, rows: slice | list[int], count: int) -> None:
        """The bins of a few rows into the buffer."""
        room = self._bins[self._filled : self._filled + count]
        half = self._collector.bins / 2
        for key, place in zip(self._columns.keys, self._columns.slices, strict=True):
            z = torch.addcmul(self._less[place], batch.rows[key][rows], self._over[place])
            where = z.div_(z.abs().add_(1))
            if not bool(torch.isfinite(where.sum())):
                column = place.start + int((~torch.isfinite(where)).any(0).nonzero()[0, 0])
                raise SweepError(not_finite(self._columns, column))
            room[:, place] = torch.add(self._half, where, alpha=half * _INSIDE)  # the cast cuts off the fraction

    def _flush(self) -> None:
        """Counts what has gathered: one number for unit, value and bin together, and how often each occurs."""
        if not self._filled:
            return
        bins, values = self._collector.bins, len(self._values)
        if values > len(self._counts):
            self._collector.check(self._columns.total, values)
            room = np.zeros((values, self._columns.total, bins), np.int32)
            room[: len(self._counts)] = self._counts
            self._counts = room
        present, dense = np.unique(self._codes[: self._filled], return_inverse=True)
        codes = torch.from_numpy(dense * bins).to(self._device, torch.int32)[:, None]
        for start in range(0, self._columns.total, _AT_ONCE):
            units = slice(start, min(start + _AT_ONCE, self._columns.total))
            found = self._counted(units, codes, len(present))
            for place, code in enumerate(present.tolist()):
                self._counts[code, units] += found[:, place]
        self._filled = 0

    def _counted(self, units: slice, codes: Tensor, values: int) -> Array:
        """Counts of some units, [units, values, bins]."""
        width, bins = units.stop - units.start, self._collector.bins
        places = self._bins[: self._filled, units].to(torch.int32)
        places += codes
        places += torch.arange(width, device=self._device, dtype=torch.int32) * (values * bins)
        found = torch.bincount(places.reshape(-1), minlength=width * values * bins)
        return found.to(torch.int32).view(width, values, bins).cpu().numpy()

    def state(self) -> State:
        self._flush()
        values = sorted(self._values)
        order = [self._values[value] for value in values]
        arrays: dict[str, Array] = {**self._grid, "unlabelled": np.array([self._unlabelled], np.int64)}
        arrays["n"] = np.array([self._n[code] for code in order], np.int64)
        arrays["counts"] = self._counts[order] if order else self._counts
        facts: dict[str, Any] = {"keys": list(self._columns.keys), "widths": list(self._columns.widths)}
        facts |= {"label": self._collector.label, "bins": self._collector.bins, "values": values}
        return State(arrays, facts)
