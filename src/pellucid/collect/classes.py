"""Class moments: counts, means and covariances of rows, apart for every value of a label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting
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
from pellucid.collect.value_groups import by_group, grouped_value, of_groups, united
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch

COVARIANCES = ("none", "diagonal", "full")
_COMMON = ("shift", "unlabelled")
"""Arrays of a state that hold for all values."""
_ROWS = 128
"""Rows, sorted by value, that are summed by one product: so its cost does not grow with the number of values."""


@dataclass(frozen=True)
class ClassMoments(Collector):
    """Moments of rows for each value z of a word or sentence label, about a pilot mean c, in float64: n_z, Σ(x−c), and
    for `covariance` `"diagonal"` Σ(x−c)² per unit, for `"full"` Σ(x−c)(x−c)ᵀ per site.

    `label="word"` takes the words themselves, in small letters. Values appear as they are met; rows without a value are
    only counted. `groups` keeps every document group apart, for intervals.
    """

    kind: ClassVar[str] = "class-moments"
    sites: Patterns
    label: str = field(kw_only=True)
    covariance: str = field(default="none", kw_only=True)
    groups: bool = field(default=False, kw_only=True)
    memory_limit: int = field(default=4 * 2**30, kw_only=True)

    def __post_init__(self) -> None:
        if self.covariance not in COVARIANCES:
            raise SweepError(f"covariance={self.covariance!r} means nothing; use one of {listing(COVARIANCES)}.")

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label,)

    def open(self, setting: Setting) -> Accumulator:
        columns = self._columns(setting)
        return _ClassSums(columns, shift_of(setting, columns), setting.device, self)

    def pilot(self, batch: WordBatch, setting: Setting) -> State:
        return pilot_mean(batch, setting.keys(self.sites))

    def merge(self, left: State, right: State) -> State:
        """Unites the values; sums about another shift are first moved to the left one's."""
        if any(left.facts[name] != right.facts[name] for name in ("keys", "widths", "label")):
            raise SweepError(
                f"Class moments of {left.facts['label']!r} at {left.facts['keys']} and of {right.facts['label']!r} at "
                f"{right.facts['keys']} cannot be merged."
            )
        columns = Columns(left.facts["keys"], left.facts["widths"])
        moved = _moved(right, columns, left.arrays["shift"])
        values = sorted({*left.facts["values"], *right.facts["values"]})
        self.check(columns, len(values))
        arrays: dict[str, Array] = {"shift": left.arrays["shift"]}
        arrays["unlabelled"] = left.arrays["unlabelled"] + right.arrays["unlabelled"]
        for name in left.arrays:
            if name not in arrays:
                arrays[name] = united(left, right, values, name, moved[name])
        return State(arrays, {**left.facts, "values": values})

    def view(self, state: State, setting: Setting) -> ClassMomentsView:
        columns = Columns(state.facts["keys"], state.facts["widths"])
        if not self.groups:
            return ClassMomentsView(columns, state)
        parts = by_group(state, _COMMON)
        return ClassMomentsView(columns, of_groups(list(parts.values()), state, _COMMON), parts)

    def memory(self, setting: Setting, groups: int) -> int:
        """Bytes of the shift and of one value: how many values there are is not known beforehand."""
        return self.check(self._columns(setting), groups if self.groups else 1)

    def check(self, columns: Columns, values: int) -> int:
        """Bytes of a state with so many values; over the limit raises."""
        numbers = 1 + columns.total * (2 if self.covariance == "diagonal" else 1)
        if self.covariance == "full":
            numbers += sum(width**2 for width in columns.widths)
        needed = 8 * (1 + values * numbers) + 4 * columns.total
        if needed > self.memory_limit:
            raise SweepError(
                f"Class moments of {values:,} values of {self.label!r} at {len(columns.keys)} sites need {needed:,} "
                f"bytes, and memory_limit is {self.memory_limit:,}; take fewer sites, covariance='none' or 'diagonal', "
                "or raise memory_limit."
            )
        return needed

    def _columns(self, setting: Setting) -> Columns:
        keys = setting.keys(self.sites)
        return Columns(keys, [setting.width(key) for key in keys])


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
class ClassMomentsView:
    """Means, variances and covariances of rows by the value of a label; variances divide by n.

    `parts` are the document groups, if they were kept apart; a value that a group lacks has no rows there, and its mean
    is the shift.
    """

    columns: Columns
    state: State
    parts: Mapping[int, State] = field(default_factory=dict[int, State])

    @property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the document groups that have rows; none unless they were kept apart."""
        return tuple(self.parts)

    def group(self, number: int) -> ClassMomentsView:
        """The moments of one document group alone."""
        return ClassMomentsView(self.columns, self.parts[number])

    def without(self, number: int) -> ClassMomentsView:
        """The moments of all rows but those of one document group, for the jackknife."""
        rest = [part for group, part in self.parts.items() if group != number]
        return ClassMomentsView(self.columns, of_groups(rest, self.state, _COMMON))

    @property
    def label(self) -> str:
        """The label whose values tell the rows apart."""
        return self.state.facts["label"]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that were read."""
        return self.columns.keys

    @property
    def values(self) -> tuple[str, ...]:
        """The label's values, sorted."""
        return tuple(self.state.facts["values"])

    @property
    def counts(self) -> Array:
        """Rows of each value, [values]."""
        return self.state.arrays["n"]

    @property
    def unlabelled(self) -> int:
        """Rows without a value."""
        return int(self.state.arrays["unlabelled"][0])

    def means(self, key: str) -> Array:
        """The mean row of every value, [values, width]."""
        place = self._place(key)
        return self.state.arrays["shift"][place] + self.state.arrays["sum"][:, place] / self._divisors

    def mean(self, value: str, key: str) -> Array:
        """The mean row of one value, [width]."""
        return self.means(key)[self._value(value)]

    def variances(self, key: str) -> Array:
        """The variance of every unit for every value, [values, width]."""
        offset = self.state.arrays["sum"][:, self._place(key)] / self._divisors
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
        number, place = self._value(value), self._place(key)
        name = f"product.{self.keys.index(key)}"
        if name not in self.state.arrays:
            raise SweepError("Covariances were not gathered; sweep again with covariance='full'.")
        n = int(self.counts[number])
        offset = self.state.arrays["sum"][number, place] / n
        return self.state.arrays[name][number] / n - np.outer(offset, offset)

    def overall(self, key: str) -> Array:
        """The mean of all labelled rows, [width]."""
        return self.state.arrays["shift"][self._place(key)] + self._offset(key)

    def overall_variance(self, key: str) -> Array:
        """The variance of every unit over all labelled rows, [width]."""
        return np.maximum(0.0, self._squares(key).sum(0) / self.counts.sum() - self._offset(key) ** 2)

    def _offset(self, key: str) -> Array:
        if not len(self.values):
            raise SweepError(f"No row had a value of {self.state.facts['label']!r}; choose another label or corpus.")
        return self.state.arrays["sum"][:, self._place(key)].sum(0) / self.counts.sum()

    def _squares(self, key: str) -> Array:
        arrays, name = self.state.arrays, f"product.{self.columns.keys.index(key)}" if key in self.keys else ""
        place = self._place(key)
        if name in arrays:
            return np.diagonal(arrays[name], axis1=1, axis2=2)
        if "square" not in arrays:
            raise SweepError("Variances were not gathered; sweep again with covariance='diagonal'.")
        return arrays["square"][:, place]

    def _place(self, key: str) -> slice:
        if key not in self.keys:
            raise SweepError(f"No moments of {key!r} were gathered; there are those of {listing(self.keys, most=40)}.")
        return self.columns.slices[self.keys.index(key)]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {value: number for number, value in enumerate(self.values)}

    def _value(self, value: str) -> int:
        if value not in self._numbers:
            raise SweepError(
                f"{self.state.facts['label']!r} never has the value {value!r}; it has {listing(self.values, most=30)}."
            )
        return self._numbers[value]


class _ClassSums(Accumulator):
    """Gathers blocks of rows, sorts them by value and sums them with products; sums stay on the rows' device."""

    def __init__(self, columns: Columns, shift: Array, device: torch.device, collector: ClassMoments) -> None:
        self._columns, self._shift, self._collector = columns, shift, collector
        self._buffer = RowBuffer(columns, shift, device)
        self._codes = np.zeros(BLOCK, np.int64)
        self._some = torch.empty(_ROWS, columns.total, device=device)
        self._values: dict[str, int] = {}
        self._counts: list[int] = []
        self._sums: dict[str, Tensor] = {}
        self._shapes: dict[str, tuple[int, ...]] = {"sum": (columns.total,)}
        if collector.covariance == "diagonal":
            self._shapes["square"] = (columns.total,)
        if collector.covariance == "full":
            self._shapes |= {f"product.{number}": (width, width) for number, width in enumerate(columns.widths)}
        self._device = device
        self._unlabelled = 0
        self._grow(0)

    def add(self, batch: WordBatch) -> None:
        labels = batch.labels(self._collector.label)
        if self._collector.groups:
            labels = [None if value is None else grouped_value(batch.group, value) for value in labels]
        chosen = [number for number, value in enumerate(labels) if value is not None]
        self._unlabelled += len(labels) - len(chosen)
        if not chosen:
            return
        codes = np.array([self._code(value) for value in labels if value is not None])
        rows = {key: batch.rows[key] for key in self._columns.keys}
        if len(chosen) < len(labels):
            kept = torch.tensor(chosen, device=self._device)
            rows = {key: value[kept] for key, value in rows.items()}
        start = 0
        while start < len(codes):
            begin, filled = start, self._buffer.filled
            start = self._buffer.take(rows, start)
            self._codes[filled : self._buffer.filled] = codes[begin:start]
            if self._buffer.filled == BLOCK:
                self._flush()

    def _code(self, value: str) -> int:
        code = self._values.setdefault(value, len(self._values))
        if code == len(self._counts):
            self._counts.append(0)
        self._counts[code] += 1
        return code

    def _grow(self, values: int) -> None:
        """Makes room for so many values, and for some more."""
        have = len(self._sums["sum"]) if self._sums else 0
        if have >= values and self._sums:
            return
        room = max(values, min(2 * have, values + 64))
        self._collector.check(self._columns, max(1, values))
        for name, shape in self._shapes.items():
            larger = torch.zeros(room, *shape, dtype=torch.float64, device=self._device)
            if have:
                larger[:have] = self._sums[name]
            self._sums[name] = larger

    def _flush(self) -> None:
        count = self._buffer.filled
        if count == 0:
            return
        self._grow(len(self._values))
        order = np.argsort(self._codes[:count], kind="stable")
        codes = self._codes[:count][order]
        places = torch.from_numpy(order).to(self._device)
        with exact_products():
            for start in range(0, count, _ROWS):
                some = places[start : start + _ROWS]
                rows = torch.index_select(self._buffer.rows, 0, some, out=self._some[: len(some)])
                self._add_sums(rows, codes[start : start + _ROWS])
            if self._collector.covariance == "full":
                self._add_products(self._buffer.rows[places], codes)
        wrong = (~torch.isfinite(self._sums["sum"][np.unique(codes)]).all(0)).nonzero()
        if len(wrong):
            raise SweepError(not_finite(self._columns, int(wrong[0, 0])))
        self._buffer.clear()

    def _add_sums(self, rows: Tensor, codes: Array) -> None:
        """Adds Σx (and Σx²) by value, as the product of a one-hot matrix [values, rows] with rows that are used up."""
        values, place = np.unique(codes, return_inverse=True)
        hot = torch.zeros(len(values), len(codes), device=self._device)
        hot[torch.from_numpy(place).to(self._device), torch.arange(len(codes), device=self._device)] = 1.0
        where = torch.from_numpy(values).to(self._device)
        self._sums["sum"][where] += (hot @ rows).double()
        if "square" in self._sums:
            self._sums["square"][where] += (hot @ rows.square_()).double()

    def _add_products(self, rows: Tensor, codes: Array) -> None:
        """Adds Σxxᵀ of every value and key."""
        values, starts = np.unique(codes, return_index=True)
        for value, start, stop in zip(values.tolist(), starts, [*starts[1:], len(codes)], strict=True):
            for number, place in enumerate(self._columns.slices):
                part = rows[start:stop, place]
                add_wide(self._sums[f"product.{number}"][value], part.T @ part)

    def state(self) -> State:
        self._flush()
        values = sorted(self._values)
        order = [self._values[value] for value in values]
        arrays: dict[str, Array] = {"shift": self._shift, "unlabelled": np.array([self._unlabelled], np.int64)}
        arrays["n"] = np.array([self._counts[code] for code in order], np.int64)
        chosen = torch.tensor(order, dtype=torch.long, device=self._device)
        arrays |= {name: total[chosen].cpu().numpy() for name, total in self._sums.items()}
        facts: dict[str, Any] = {"keys": list(self._columns.keys), "widths": list(self._columns.widths)}
        return State(arrays, {**facts, "label": self._collector.label, "values": values})
