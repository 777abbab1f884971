"""Moments: means, variances, products of all pairs of sites and row-norm sums, from one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting
from pellucid.collect.moment_sums import MomentsView, Pairs, empty_sums, moved, partners, view_of
from pellucid.collect.state import Array, Deferred, State, later, put_away
from pellucid.collect.sums import (
    BLOCK,
    Columns,
    RowBuffer,
    add_square,
    add_wide,
    by_group,
    exact_products,
    merged,
    not_finite,
    pilot_mean,
    shift_of,
    widened,
)
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch

PRECISIONS = ("float32", "float64")
PairPatterns = str | tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Moments(Collector):
    """Moments of rows about a pilot mean c, in float64: n, Σx, Σxyᵀ for pairs of sites, Σa, Σa·y, Σa·b with a = ‖x‖².

    `pairs` are `"all"`, `"diagonal"` (each site with itself), pairs of patterns (each site with itself always comes
    along), or `"units"`: no products, only each unit's Σx and Σx². `groups` keeps every document group apart. From the
    sums come, for all pairs, linear CKA (also debiased), CCA, Procrustes and their jackknife intervals. Products are
    made over blocks of 8192 shifted rows, in float32 so that they carry about 1e-7 of their size (on a CPU, those of a
    site with itself in float64), or with the `precision` float64 (twice as slow, and more on graphics cards); sums are
    float64 always.
    """

    kind: ClassVar[str] = "moments"
    sites: Patterns
    pairs: PairPatterns = field(default="all", kw_only=True)
    groups: bool = field(default=False, kw_only=True)
    memory_limit: int = field(default=4 * 2**30, kw_only=True)
    precision: str = field(default="float32", kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.pairs, str) and self.pairs not in ("all", "diagonal", "units"):
            raise SweepError(
                f"pairs={self.pairs!r} means nothing; use 'all', 'diagonal', 'units' or a tuple of pairs of patterns."
            )
        if self.precision not in PRECISIONS:
            raise SweepError(f"precision={self.precision!r} is not known; use one of {listing(PRECISIONS)}.")

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    def open(self, setting: Setting) -> Accumulator:
        columns = self._columns(setting)
        return _Sums(columns, self._chosen(setting, columns), shift_of(setting, columns), setting.device, self)

    def pilot(self, batch: WordBatch, setting: Setting) -> State:
        return pilot_mean(batch, setting.keys(self.sites))

    def merge(self, left: State, right: State) -> State:
        """Adds group by group; sums about another shift are first moved to the left one's."""
        if left.facts != right.facts:
            raise SweepError(f"Moments of {left.facts['keys']} and of {right.facts['keys']} cannot be merged.")
        arrays = right.arrays
        if not np.array_equal(left.arrays["shift"], arrays["shift"]):
            change = left.arrays["shift"].astype(np.float64) - arrays["shift"]
            columns, pairs = _layout(left)
            arrays = {
                f"{group}/{name}": array
                for group, sums in by_group(right.arrays).items()
                for name, array in moved(sums, columns, pairs, change).items()
            }
        return State(merged(left.arrays, arrays, once=("shift",)), left.facts)

    def on_disk(self, folder: Path) -> Moments:
        """The same moments; an accumulator puts the sums of a document group away when the next group begins."""
        options = {each.name: getattr(self, each.name) for each in fields(self)}
        return _MomentsOnDisk(**options, folder=str(folder))

    def view(self, state: State, setting: Setting) -> MomentsView:
        columns, pairs = _layout(state)
        return view_of(columns, pairs, state.arrays["shift"], by_group(state.arrays))

    def memory(self, setting: Setting, groups: int) -> int:
        columns = self._columns(setting)
        pairs = self._chosen(setting, columns)
        products = 0 if pairs is None else sum(columns.widths[one] * columns.widths[other] for one, other in pairs)
        count = len(columns.keys)
        others = columns.total * 2 if pairs is None else columns.total * (1 + count) + count**2
        needed = 8 * (products + others + 3 * count + 1) * (groups if self.groups else 1) + 4 * columns.total
        if needed > self.memory_limit:
            raise SweepError(
                f"Moments of {count} sites need {needed:,} bytes, and memory_limit is {self.memory_limit:,}; take "
                "fewer sites, pairs='diagonal' or groups=False, or raise memory_limit."
            )
        return needed

    def _columns(self, setting: Setting) -> Columns:
        keys = setting.keys(self.sites)
        return Columns(keys, [setting.width(key) for key in keys])

    def _chosen(self, setting: Setting, columns: Columns) -> Pairs | None:
        """The pairs of key numbers whose products are kept, sorted; None for single units."""
        if self.pairs == "units":
            return None
        count = len(columns.keys)
        if self.pairs == "all":
            return tuple((one, other) for one in range(count) for other in range(one, count))
        chosen = {(number, number) for number in range(count)}
        for first, second in () if isinstance(self.pairs, str) else self.pairs:
            sides = [[self._number(key, columns) for key in setting.keys(side)] for side in (first, second)]
            chosen |= {(min(one, other), max(one, other)) for one in sides[0] for other in sides[1]}
        return tuple(sorted(chosen))

    def _number(self, key: str, columns: Columns) -> int:
        if key not in columns.keys:
            raise SweepError(f"pairs names {key!r}, which the sites {self.sites!r} do not include; add it to them.")
        return columns.keys.index(key)


@dataclass(frozen=True)
class _MomentsOnDisk(Moments):
    """Moments whose groups are together larger than memory."""

    folder: str = field(kw_only=True)

    def open(self, setting: Setting) -> Accumulator:
        columns = self._columns(setting)
        chosen, shift = self._chosen(setting, columns), shift_of(setting, columns)
        return _Sums(columns, chosen, shift, setting.device, self, Path(self.folder))


def of_rows(rows: Mapping[str, Tensor], groups: Array) -> MomentsView:
    """Moments of all pairs of rows [n, width] by key that are at hand, in float64, with their document groups apart."""
    from pellucid.collect.words import WordBatch

    columns = Columns(tuple(rows), [part.shape[1] for part in rows.values()])
    count = len(rows)
    pairs = tuple((one, other) for one in range(count) for other in range(one, count))
    shift = torch.cat([part.double().mean(0) for part in rows.values()]).numpy().astype(np.float32)
    collector = Moments(tuple(rows), groups=True, precision="float64")
    sums = _Sums(columns, pairs, shift, torch.device("cpu"), collector)
    for group in np.unique(groups):
        numbers = np.flatnonzero(groups == group)
        chosen = {key: part[torch.from_numpy(numbers)] for key, part in rows.items()}
        sums.add(WordBatch(chosen, numbers, numbers, numbers, int(group), {}))
    return view_of(columns, pairs, shift, by_group(sums.state().arrays))


def _layout(state: State) -> tuple[Columns, Pairs | None]:
    """The columns and pairs that a state's facts tell."""
    pairs = state.facts["pairs"]
    chosen = None if pairs is None else tuple((one, other) for one, other in pairs)
    return Columns(state.facts["keys"], state.facts["widths"]), chosen


class _Sums(Accumulator):
    """Gathers blocks of rows and multiplies them; one set of float64 sums per group, on the rows' device."""

    def __init__(
        self,
        columns: Columns,
        pairs: Pairs | None,
        shift: Array,
        device: torch.device,
        collector: Moments,
        folder: Path | None = None,
    ) -> None:
        self._columns, self._pairs, self._shift = columns, pairs, shift
        self._dtype = torch.float64 if collector.precision == "float64" else torch.float32
        self._buffer = RowBuffer(columns, shift, device, self._dtype)
        self._device, self._apart = device, collector.groups
        self._sums: dict[str, dict[str, Tensor]] = {}
        self._folder = folder  # where the sums of groups lie that were put away
        self._away: dict[str, Deferred] = {}
        self._group = "all"
        self._lengths: list[Tensor] = []
        self._product: Tensor | None = None
        self._taken: list[
            tuple[WordBatch, int, int]
        ] = []  # the buffer's rows: from a batch, from one row up to another

    def add(self, batch: WordBatch) -> None:
        group = str(batch.group) if self._apart else "all"
        if group != self._group:
            self._flush()
            self._put_away()
            self._group = group
        start = 0
        while start < batch.size:
            begin, start = start, self._buffer.take(batch.rows, start)
            self._taken.append((replace(batch, rows={}), begin, start))
            part = [torch.linalg.vector_norm(batch.rows[key][begin:start], dim=1) for key in self._columns.keys]
            self._lengths.append(torch.stack(part).double())  # [keys, rows]
            if self._buffer.filled == BLOCK:
                self._flush()

    def state(self) -> State:
        self._flush()
        facts = {"keys": list(self._columns.keys), "widths": list(self._columns.widths), "pairs": self._pairs_fact()}
        groups: dict[str, Mapping[str, Array]] = {group: _arrays(sums) for group, sums in self._sums.items()}
        groups |= self._away
        named = {f"{group}/{name}": later(arrays, name) for group, arrays in groups.items() for name in arrays}
        arrays = Deferred({"shift": later({"shift": self._shift}, "shift"), **named})
        return State(arrays if self._away else dict(arrays), facts)

    def _put_away(self) -> None:
        """Moves the sums of the group that ends here to the disk, where that was asked for."""
        if self._folder is not None and self._group in self._sums:
            self._away[self._group] = put_away(_arrays(self._sums.pop(self._group)), self._folder)

    def _pairs_fact(self) -> list[list[int]] | None:
        return None if self._pairs is None else [list(pair) for pair in self._pairs]

    def _flush(self) -> None:
        if self._buffer.filled == 0:
            return
        if self._group not in self._sums:
            begun = self._away.pop(self._group, None) or empty_sums(self._columns, self._pairs)
            self._sums[self._group] = {name: torch.tensor(array).to(self._device) for name, array in begun.items()}
        sums, rows = self._sums[self._group], self._buffer.rows
        lengths = torch.cat(self._lengths, dim=1)
        sums["n"] += len(rows)
        sums["lengths"] += lengths.sum(1)
        sums["squares"] += lengths.square().sum(1)
        parts = [rows[:, place] for place in self._columns.slices]
        norms = torch.stack([_squared_norms(part) for part in parts])
        sums["norms"] += norms.sum(1)  # norms: [keys, rows]
        if self._pairs is None:
            self._add_units(sums, rows)
        else:
            self._add_firsts(sums, rows, norms, self._pairs)
        wrong = (~torch.isfinite(sums["sum"])).nonzero()
        if len(wrong):
            column = int(wrong[0, 0])
            row = int((~torch.isfinite(rows[:, column])).nonzero()[0])
            raise SweepError(not_finite(self._columns, column, self._word(row)))
        if self._pairs is not None:
            self._add_products(sums, rows, self._pairs)
        self._buffer.clear()
        self._lengths.clear()
        self._taken.clear()

    def _word(self, row: int) -> str:
        """The word of a row of the buffer."""
        for batch, begin, stop in self._taken:
            if row < stop - begin:
                return batch.place(begin + row)
            row -= stop - begin
        raise AssertionError("a row of no batch")

    def _add_units(self, sums: dict[str, Tensor], rows: Tensor) -> None:
        """Adds Σx and Σx² of every unit."""
        for _, wide in widened(rows):
            sums["sum"] += wide.new_ones(len(wide)) @ wide
            sums["square"] += wide.square_().sum(0)

    def _add_firsts(self, sums: dict[str, Tensor], rows: Tensor, norms: Tensor, pairs: Pairs) -> None:
        """Adds Σx, and Σa_l x_m and Σa_l a_m of the pairs asked for, in float64."""
        asked = torch.zeros(len(norms), len(norms), dtype=torch.bool)
        for one, other in pairs:
            asked[one, other] = asked[other, one] = True
        sums["fourth"] += (norms @ norms.T) * asked.to(norms.device)
        for number, place in enumerate(self._columns.slices):
            related = asked[number].nonzero()[:, 0].to(norms.device)
            factors = torch.cat([torch.ones_like(norms[:1]), norms[related]])
            total = factors.new_zeros(len(factors), place.stop - place.start)
            for part, wide in widened(rows[:, place]):
                total.addmm_(factors[:, part], wide)
            sums["sum"][place] += total[0]
            sums["third"][related, place] += total[1:]

    def _add_products(self, sums: dict[str, Tensor], rows: Tensor, pairs: Pairs) -> None:
        """Adds Σx_l x_mᵀ: one product per key and run of neighbouring partners, so that products are large.

        A key's product with itself, whose weak directions whitening blows up, is in float64 wherever that is fast.
        """
        with exact_products():
            for left, own in enumerate(self._columns.slices):
                done, others_of = 0, partners(pairs, left)
                if self._device.type == "cpu":
                    done, others_of = own.stop - own.start, others_of[1:]
                    add_square(sums[f"product.{left}"][:, :done], rows[:, own])
                for run in _runs(others_of):
                    others = slice(self._columns.slices[run[0]].start, self._columns.slices[run[-1]].stop)
                    height, width = own.stop - own.start, others.stop - others.start
                    product = self._room(height * width).view(height, width)
                    torch.mm(rows[:, own].T, rows[:, others], out=product)
                    add_wide(sums[f"product.{left}"][:, done : done + width], product)
                    done += width

    def _room(self, size: int) -> Tensor:
        """Memory for one product, kept: fresh pages for each cost as much as a tenth of the product."""
        if self._product is None or len(self._product) < size:
            self._product = torch.empty(size, device=self._device, dtype=self._dtype)
        return self._product[:size]


def _squared_norms(rows: Tensor) -> Tensor:
    """‖x‖² of every row in float64, a few rows at a time: a norm with a wider type copies and is three times slower."""
    return torch.cat([wide.square_().sum(1) for _, wide in widened(rows)])


def _arrays(sums: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: array.cpu().numpy() for name, array in sums.items()}


def _runs(numbers: list[int]) -> list[list[int]]:
    """Rising numbers cut where one is left out: 1, 2, 5 becomes (1, 2) and (5)."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
