"""Class moments: counts, means and covariances of rows, apart for every value of a label."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.by_value import ByValue, ByValueView, Values, usual_values
from pellucid.collect.collector import Accumulator, Setting
from pellucid.collect.side_by_side import side_by_side
from pellucid.collect.state import Array, State
from pellucid.collect.sums import (
    BLOCK,
    Columns,
    RowBuffer,
    add_wide,
    exact_products,
    not_finite,
    pilot_mean,
    shift_of,
)
from pellucid.collect.value_groups import by_group, of_groups, united
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch

COVARIANCES = ("none", "diagonal", "full")
_COMMON = ("shift", "unlabelled")
"""Arrays of a state that hold for all values."""
_AT_ONCE = 1 << 19
"""Numbers of rows, sorted by value, that are summed by one product: they stay in a CPU's cache, and the cost of the
product does not grow with the number of values."""


@dataclass(frozen=True)
class ClassMoments(ByValue):
    """Moments of rows for each value z of a word or sentence label, about a pilot mean c, in float64: n_z, Σ(x−c), and
    for `covariance` `"diagonal"` Σ(x−c)² per unit, for `"full"` Σ(x−c)(x−c)ᵀ per site.

    `label="word"` takes the words themselves, in small letters. Values appear as they are met; rows without a value are
    only counted. `groups` keeps every document group apart, for intervals.
    """

    kind: ClassVar[str] = "class-moments"
    covariance: str = field(default="none", kw_only=True)

    def __post_init__(self) -> None:
        if self.covariance not in COVARIANCES:
            raise SweepError(f"covariance={self.covariance!r} means nothing; use one of {listing(COVARIANCES)}.")

    def open(self, setting: Setting) -> Accumulator:
        columns = self.columns(setting)
        made = _ClassProducts if self.covariance == "full" else _ClassSums
        return made(columns, shift_of(setting, columns), setting.device, self)

    def pilot(self, batch: WordBatch, setting: Setting) -> State:
        return pilot_mean(batch, setting.keys(self.sites))

    def merge(self, left: State, right: State) -> State:
        """Unites the values; sums about another shift are first moved to the left one's."""
        self.refuse_other(left, right, ())
        columns = Columns(left.facts["keys"], left.facts["widths"])
        moved = _moved(right, columns, left.arrays["shift"])
        values = sorted({*left.facts["values"], *right.facts["values"]})
        self.check(columns, len(values))
        arrays: dict[str, Array] = {"shift": left.arrays["shift"]}
        arrays["unlabelled"] = left.arrays["unlabelled"] + right.arrays["unlabelled"]
        for name in left.arrays:
            if name not in arrays:
                own = (left.facts["values"], left.arrays[name]), (right.facts["values"], moved[name])
                arrays[name] = united(values, *own)
        return State(arrays, {**left.facts, "values": values})

    def view(self, state: State, setting: Setting) -> ClassMomentsView:
        columns = Columns(state.facts["keys"], state.facts["widths"])
        if not self.groups:
            return ClassMomentsView(columns, state)
        parts = by_group(state, _COMMON)
        return ClassMomentsView(columns, of_groups(list(parts.values()), state, _COMMON), parts)

    def memory(self, setting: Setting, groups: int) -> int:
        """Bytes for as many values as labels usually have; raises where a single one is over the limit."""
        columns, groups = self.columns(setting), groups if self.groups else 1
        self.check(columns, groups)
        return self._bytes(columns, groups * usual_values(self.label))

    def check(self, columns: Columns, values: int) -> None:
        """Raises where a state with so many values is over the limit."""
        advice = "take fewer sites, covariance='none' or 'diagonal'"
        self.within_limit(self._bytes(columns, values), columns.total, values, advice)

    def _bytes(self, columns: Columns, values: int) -> int:
        numbers = 1 + columns.total * (2 if self.covariance == "diagonal" else 1)
        if self.covariance == "full":
            numbers += sum(width**2 for width in columns.widths)
        return 8 * (1 + values * numbers) + 4 * columns.total


def _moved(state: State, columns: Columns, shift: Array) -> dict[str, Array]:
    """A state's sums about another shift: every x − c becomes x − c − e."""
    arrays = dict(state.arrays)
    e = shift.astype(np.float64) - arrays["shift"]
    if not e.any():
        return arrays
    n, first = arrays["n"], arrays["sum"]
    arrays["sum"] = first - n[:, None] * e
    if "square" in arrays:
        arrays["square"] = arrays["square"] - 2 * first * e + n[:, None] * e**2
    for number, place in enumerate(columns.slices):
        if f"product.{number}" in arrays:
            s, d = first[:, place], e[place]
            crossed = s[:, :, None] * d + d[:, None] * s[:, None, :]
            arrays[f"product.{number}"] = arrays[f"product.{number}"] - crossed + n[:, None, None] * np.outer(d, d)
    return arrays


@dataclass(frozen=True, eq=False)
class ClassMomentsView(ByValueView):
    """Means, variances and covariances of rows by the value of a label; variances divide by n.

    A value that a document group lacks has no rows there, and its mean is the shift.
    """

    common: ClassVar[tuple[str, ...]] = _COMMON
    what: ClassVar[str] = "moments"

    def means(self, key: str) -> Array:
        """The mean row of every value, [values, width]."""
        place = self.place(key)
        return self.state.arrays["shift"][place] + self.state.arrays["sum"][:, place] / self._divisors

    def mean(self, value: str, key: str) -> Array:
        """The mean row of one value, [width]."""
        return self.means(key)[self._value(value)]

    def variances(self, key: str) -> Array:
        """The variance of every unit for every value, [values, width]."""
        offset = self.state.arrays["sum"][:, self.place(key)] / self._divisors
        return np.maximum(0.0, self._squares(key) / self._divisors - offset**2)

    @property
    def _divisors(self) -> Array:
        """Rows of each value, [values, 1]; 1 where a document group has none."""
        return np.maximum(self.counts, 1)[:, None]

    def variance(self, value: str, key: str) -> Array:
        """The variance of every unit for one value, [width]."""
        return self.variances(key)[self._value(value)]

    def covariance(self, value: str, key: str) -> Array:
        """The covariance of the units for one value, [width, width]."""
        number, place = self._value(value), self.place(key)
        name = f"product.{self.keys.index(key)}"
        if name not in self.state.arrays:
            raise SweepError("Covariances were not gathered; sweep again with covariance='full'.")
        n = int(self.counts[number])
        offset = self.state.arrays["sum"][number, place] / n
        return self.state.arrays[name][number] / n - np.outer(offset, offset)

    def overall(self, key: str) -> Array:
        """The mean of all labelled rows, [width]."""
        return self.state.arrays["shift"][self.place(key)] + self._offset(key)

    def overall_variance(self, key: str) -> Array:
        """The variance of every unit over all labelled rows, [width]."""
        return np.maximum(0.0, self._squares(key).sum(0) / self.counts.sum() - self._offset(key) ** 2)

    def _offset(self, key: str) -> Array:
        if not len(self.values):
            raise SweepError(f"No row had a value of {self.state.facts['label']!r}; choose another label or corpus.")
        return self.state.arrays["sum"][:, self.place(key)].sum(0) / self.counts.sum()

    def _squares(self, key: str) -> Array:
        arrays, name = self.state.arrays, f"product.{self.columns.keys.index(key)}" if key in self.keys else ""
        place = self.place(key)
        if name in arrays:
            return np.diagonal(arrays[name], axis1=1, axis2=2)
        if "square" not in arrays:
            raise SweepError("Variances were not gathered; sweep again with covariance='diagonal'.")
        return arrays["square"][:, place]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {value: number for number, value in enumerate(self.values)}

    def _value(self, value: str) -> int:
        if value not in self._numbers:
            raise SweepError(
                f"{self.state.facts['label']!r} never has the value {value!r}; it has {listing(self.values, most=30)}."
            )
        return self._numbers[value]


class _ByClass(Accumulator):
    """Sums by value in float64, on the rows' device."""

    def __init__(self, columns: Columns, shift: Array, device: torch.device, collector: ClassMoments) -> None:
        self.columns, self.shift, self.collector, self.device = columns, shift, collector, device
        self.values = Values(collector.label, grouped=collector.groups)
        self.sums: dict[str, Tensor] = {}
        self.shapes: dict[str, tuple[int, ...]] = {"sum": (columns.total,)}
        if collector.covariance == "diagonal":
            self.shapes["square"] = (columns.total,)
        if collector.covariance == "full":
            self.shapes |= {f"product.{number}": (width, width) for number, width in enumerate(columns.widths)}
        self.grow(0)

    def grow(self, values: int) -> None:
        """Makes room for so many values, and for some more."""
        have = len(self.sums["sum"]) if self.sums else 0
        if have >= values and self.sums:
            return
        room = max(values, min(2 * have, values + 64))
        self.collector.check(self.columns, max(1, values))
        for name, shape in self.shapes.items():
            larger = torch.zeros(room, *shape, dtype=torch.float64, device=self.device)
            if have:
                larger[:have] = self.sums[name]
            self.sums[name] = larger

    def check(self, codes: Array) -> None:
        """Raises where the sum of some value is not a number."""
        sums = self.sums["sum"][np.unique(codes)]
        if not bool(torch.isfinite(sums.sum())):
            wrong = (~torch.isfinite(sums).all(0)).nonzero()
            raise SweepError(not_finite(self.columns, int(wrong[0, 0])))

    def state(self) -> State:
        values, order, n = self.values.sorted()
        arrays: dict[str, Array] = {"shift": self.shift, "unlabelled": np.array([self.values.unlabelled], np.int64)}
        arrays["n"] = n
        chosen = torch.tensor(order, dtype=torch.long, device=self.device)
        arrays |= {name: total[chosen].cpu().numpy() for name, total in self.sums.items()}
        facts: dict[str, Any] = {"keys": list(self.columns.keys), "widths": list(self.columns.widths)}
        return State(arrays, {**facts, "label": self.collector.label, "values": values})


class _ClassSums(_ByClass):
    """Sums (and squares) of rows as they come, sorted by value, a few at a time, by products; sites side by side."""

    def add(self, batch: WordBatch) -> None:
        chosen, codes = self.values.of(batch)
        if not len(chosen):
            return
        self.grow(len(self.values))
        order = np.argsort(codes, kind="stable")
        values, codes = np.unique(codes[order], return_inverse=True)
        chosen, whose = torch.from_numpy(chosen[order]).to(self.device), torch.from_numpy(values).to(self.device)
        steps = {width: min(len(codes), _AT_ONCE // max(1, width) + 1) for width in self.columns.widths}
        parts = {step: [self._part(chosen, codes, start, step) for start in range(0, len(codes), step)]
                 for step in set(steps.values())}  # fmt: skip

        def add(number: int) -> None:
            rows, place = batch.rows[self.columns.keys[number]], self.columns.slices[number]
            width = self.columns.widths[number]
            shift, step = torch.from_numpy(self.shift[place]).to(self.device), steps[width]
            room = rows.new_empty(step, width)
            own = {name: rows.new_zeros(len(values), width, dtype=torch.float64) for name in self.sums}
            for hot, where, some in parts[step]:
                away = torch.index_select(rows, 0, some, out=room[: len(some)]).sub_(shift)
                own["sum"][where] += hot @ away
                if "square" in own:
                    own["square"][where] += hot @ away.square_()
            for name, total in own.items():
                self.sums[name][whose, place] += total

        with exact_products():
            side_by_side(add, range(len(self.columns.keys)))
        self.check(values)

    def _part(self, chosen: Tensor, codes: Array, start: int, step: int) -> tuple[Tensor, slice, Tensor]:
        """A one-hot matrix [values, rows] of a few rows sorted by value, the places of these values, and the rows."""
        own = codes[start : start + step]
        where = slice(int(own[0]), int(own[-1]) + 1)
        hot = torch.zeros(where.stop - where.start, len(own), device=self.device)
        hot[torch.from_numpy(own - own[0]).to(self.device), torch.arange(len(own), device=self.device)] = 1.0
        return hot, where, chosen[start : start + step]


class _ClassProducts(_ByClass):
    """Sums and products of rows: blocks of them gather, are sorted by value and multiplied value by value."""

    def __init__(self, columns: Columns, shift: Array, device: torch.device, collector: ClassMoments) -> None:
        super().__init__(columns, shift, device, collector)
        self._buffer = RowBuffer(columns, shift, device)
        self._codes = np.zeros(BLOCK, np.int64)

    def add(self, batch: WordBatch) -> None:
        chosen, codes = self.values.of(batch)
        if not len(chosen):
            return
        rows = {key: batch.rows[key] for key in self.columns.keys}
        if len(chosen) < batch.size:
            kept = torch.from_numpy(chosen).to(self.device)
            rows = {key: value[kept] for key, value in rows.items()}
        start = 0
        while start < len(codes):
            begin, filled = start, self._buffer.filled
            start = self._buffer.take(rows, start)
            self._codes[filled : self._buffer.filled] = codes[begin:start]
            if self._buffer.filled == BLOCK:
                self._flush()

    def _flush(self) -> None:
        count = self._buffer.filled
        if count == 0:
            return
        self.grow(len(self.values))
        order = np.argsort(self._codes[:count], kind="stable")
        codes = self._codes[:count][order]
        rows = self._buffer.rows[torch.from_numpy(order).to(self.device)]
        values, starts = np.unique(codes, return_index=True)
        with exact_products():
            for value, start, stop in zip(values.tolist(), starts, [*starts[1:], count], strict=True):
                part = rows[start:stop]
                self.sums["sum"][value] += part.sum(0, dtype=torch.float64)
                for number, place in enumerate(self.columns.slices):
                    own = part[:, place]
                    add_wide(self.sums[f"product.{number}"][value], own.T @ own)
        self.check(codes)
        self._buffer.clear()

    def state(self) -> State:
        self._flush()
        return super().state()
