"""Quantiles: a histogram of every unit on a grid fixed by the pilot, with exact smallest and largest values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting
from pellucid.collect.state import Array, State
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch

REACH = 100.0
"""The grid ends so many scales away from the centre; what lies beyond falls into the end bins."""

_AT_ONCE = 2**19
"""Numbers sorted into bins at a time, so that they stay in a CPU's cache."""


@dataclass(frozen=True)
class Quantiles(Collector):
    """Counts of every unit's values in `bins` bins, fine near the pilot's median m and ever wider away from it.

    The edges are m + s·sinh(u) for equally spaced u in ±asinh(100), s being 1.4826 times the pilot's median |x − m|
    (where that is 0, the mean of it), and no bin finer than 50 steps of float32 at m; the end bins are open. A value
    belongs to the bin whose lower edge it reaches. Counts are whole numbers and merge by addition; the smallest and
    largest value are exact.
    """

    kind: ClassVar[str] = "quantiles"
    sites: Patterns
    bins: int = field(default=256, kw_only=True)

    def __post_init__(self) -> None:
        if self.bins < 2:
            raise SweepError(f"bins={self.bins} divides nothing; use 2 or more.")

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    def open(self, setting: Setting) -> Accumulator:
        keys = setting.keys(self.sites)
        edges = [self._edges(setting, number, setting.width(key)) for number, key in enumerate(keys)]
        return _Histograms(keys, edges, setting.device)

    def pilot(self, batch: WordBatch, setting: Setting) -> State | None:
        if not batch.size:
            return None
        keys = enumerate(setting.keys(self.sites))
        return State({f"edges/{number}": _grid(batch.rows[key], self.bins) for number, key in keys})

    def merge(self, left: State, right: State) -> State:
        arrays: dict[str, Array] = {}
        for name, array in left.arrays.items():
            other = right.arrays.get(name)
            if other is None or (name.startswith("edges") and not np.array_equal(array, other)):
                raise SweepError(
                    "Histograms on different grids cannot be merged; take all shards from one sweep, whose pilot fixed "
                    "the grid."
                )
            combine = {"edges": np.maximum, "smallest": np.minimum, "largest": np.maximum}.get(name.partition("/")[0])
            arrays[name] = array + other if combine is None else combine(array, other)
        return State(arrays, left.facts)

    def view(self, state: State, setting: Setting) -> QuantilesView:
        return QuantilesView(tuple(state.facts["keys"]), state.arrays)

    def memory(self, setting: Setting, groups: int) -> int:
        keys = setting.keys(self.sites)
        return 8 + sum(setting.width(key) * (8 * self.bins + 4 * (self.bins - 1) + 8) for key in keys)

    def _edges(self, setting: Setting, number: int, width: int) -> Array:
        if setting.pilot is not None:
            return setting.pilot.arrays[f"edges/{number}"]
        return np.tile(_standard(self.bins).astype(np.float32), (width, 1))


def _standard(bins: int) -> Array:
    """The inner edges of a unit with centre 0 and scale 1, [bins − 1]."""
    end = np.arcsinh(REACH)
    return np.sinh(np.linspace(-end, end, bins - 1)) if bins > 2 else np.zeros(1)


def _grid(rows: Tensor, bins: int) -> Array:
    """The inner edges of every unit, float32 [units, bins − 1], from pilot rows."""
    values = rows.double().cpu().numpy()
    middle = np.median(values, axis=0)
    away = np.abs(values - middle)
    scale = 1.4826 * np.median(away, axis=0)
    for instead in (away.mean(0), 1e-3 * np.abs(middle), np.ones_like(middle)):  # half constant, all constant, all zero
        scale = np.where(scale > 0, scale, instead)
    finest = 2 * np.arcsinh(REACH) / max(1, bins - 2)  # width of the middle bins, in scales
    scale = np.maximum(scale, 50 * np.abs(middle) * 2.0**-23 / finest)
    return (middle[:, None] + scale[:, None] * _standard(bins)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class QuantilesView:
    """Quantiles and histograms of every unit."""

    keys: tuple[str, ...]
    arrays: Mapping[str, Array]

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.arrays["n"][0])

    def smallest(self, key: str) -> Array:
        """The smallest value of every unit, exact, [units]."""
        return self.arrays[f"smallest/{self._some(key)}"]

    def largest(self, key: str) -> Array:
        """The largest value of every unit, exact, [units]."""
        return self.arrays[f"largest/{self._some(key)}"]

    def quantile(self, q: float, key: str) -> Array:
        """The q-quantile of every unit, [units]: between the two values next to rank q·(n−1), each placed in its bin.

        It is off by no more than `error(q, key)`.
        """
        return self._between(q, key)[0]

    def error(self, q: float, key: str) -> Array:
        """The most that `quantile` can be off, [units]: the width of the bin (or the wider of the two)."""
        return self._between(q, key)[1]

    def histogram(self, key: str, unit: int) -> tuple[Array, Array]:
        """Counts of one unit [bins], and the edges [bins + 1]; the outer edges are its smallest and largest value."""
        number = self._some(key)
        counts = self.arrays[f"counts/{number}"]
        if not 0 <= unit < len(counts):
            raise SweepError(f"{key!r} has units 0 to {len(counts) - 1}, and unit {unit} was asked for.")
        inner = self.arrays[f"edges/{number}"][unit].astype(np.float64)
        low, high = float(self.smallest(key)[unit]), float(self.largest(key)[unit])
        return counts[unit], np.concatenate([[min(low, inner[0])], inner, [max(high, inner[-1])]])

    def _between(self, q: float, key: str) -> tuple[Array, Array]:
        if not 0 <= q <= 1:
            raise SweepError(f"A quantile lies between 0 and 1, and {q} was asked for.")
        number = self._some(key)
        rank = q * (self.n - 1)
        first = min(int(np.floor(rank)), self.n - 1)
        low, low_width = self._value(number, first)
        high, high_width = self._value(number, min(first + 1, self.n - 1))
        share = rank - first
        return low + share * (high - low), np.where(share > 0, np.maximum(low_width, high_width), low_width)

    def _value(self, number: int, rank: int) -> tuple[Array, Array]:
        """The value of a rank (from 0) for every unit, and the width of the bin that holds it."""
        counts, edges = self.arrays[f"counts/{number}"], self.arrays[f"edges/{number}"].astype(np.float64)
        smallest, largest = (self.arrays[f"{side}/{number}"].astype(np.float64) for side in ("smallest", "largest"))
        if rank in (0, self.n - 1):
            return (smallest if rank == 0 else largest), np.zeros(len(counts))
        up_to = np.cumsum(counts, axis=1)
        units = np.arange(len(counts))
        place = (up_to <= rank).sum(1)  # the bin of that rank
        lower = np.concatenate([smallest[:, None], np.maximum(edges, smallest[:, None])], axis=1)[units, place]
        upper = np.concatenate([np.minimum(edges, largest[:, None]), largest[:, None]], axis=1)[units, place]
        inside = counts[units, place]
        share = (rank - (up_to[units, place] - inside) + 0.5) / inside
        return lower + share * (upper - lower), upper - lower

    def _some(self, key: str) -> int:
        if key not in self.keys:
            raise SweepError(f"No histogram of {key!r} was gathered; there are those of {listing(self.keys, most=40)}.")
        if self.n < 1:
            raise SweepError("These histograms hold no rows; give the sweep a corpus with words.")
        return self.keys.index(key)


class _Histograms(Accumulator):
    """Counts, smallest and largest values so far, on the rows' device."""

    def __init__(self, keys: tuple[str, ...], edges: list[Array], device: torch.device) -> None:
        self._keys, self._n = keys, 0
        self._edges = edges
        self._grids = [_Grid(each, device) for each in edges]
        sizes = [(each.shape[0], each.shape[1] + 1) for each in edges]
        self._counts = [torch.zeros(size, dtype=torch.int64, device=device) for size in sizes]
        self._smallest = [torch.full((each.shape[0],), torch.inf, device=device) for each in edges]
        self._largest = [torch.full((each.shape[0],), -torch.inf, device=device) for each in edges]

    def add(self, batch: WordBatch) -> None:
        self._n += batch.size
        for number, key in enumerate(self._keys):
            rows = batch.rows[key]
            step = max(1, _AT_ONCE // max(1, batch.size))
            for start in range(0, rows.shape[1] if batch.size else 0, step):
                units = slice(start, min(start + step, rows.shape[1]))
                part = rows[:, units]
                low, high = part.amin(0), part.amax(0)  # NaN stays NaN
                if not bool(torch.isfinite(high - low).all()):
                    unit = start + int((~torch.isfinite(high - low)).nonzero()[0, 0])
                    raise SweepError(
                        f"Unit {unit} of {key!r} is NaN or infinite for some word; leave that site out, or run the "
                        "model in float32."
                    )
                smallest, largest = self._smallest[number][units], self._largest[number][units]
                torch.minimum(smallest, low, out=smallest)
                torch.maximum(largest, high, out=largest)
                self._counts[number][units] += self._grids[number].counts(part, units)

    def state(self) -> State:
        arrays: dict[str, Array] = {"n": np.array([self._n], np.int64)}
        for number, edges in enumerate(self._edges):
            arrays[f"edges/{number}"] = edges
            arrays[f"counts/{number}"] = self._counts[number].cpu().numpy()
            arrays[f"smallest/{number}"] = self._smallest[number].cpu().numpy()
            arrays[f"largest/{number}"] = self._largest[number].cpu().numpy()
        return State(arrays, {"keys": list(self._keys)})


class _Grid:
    """Finds bins: a formula says nearly which, and where it is in doubt the edges decide, so that counts are exact."""

    def __init__(self, edges: Array, device: torch.device) -> None:
        self._edges = torch.from_numpy(edges.copy()).to(device)  # [units, bins − 1]
        inner = edges.shape[1]
        wide = edges.astype(np.float64)
        middle = (wide[:, 0] + wide[:, -1]) / 2
        scale = np.maximum((wide[:, -1] - wide[:, 0]) / (2 * REACH), np.finfo(np.float32).tiny)
        self._middle = torch.from_numpy(middle.astype(np.float32)).to(device)
        self._over = torch.from_numpy((1 / scale).clip(max=3e38).astype(np.float32)).to(device)
        self._steps = (inner - 1) / (2 * float(np.arcsinh(REACH)))

    def counts(self, rows: Tensor, units: slice) -> Tensor:
        """Counts [units, bins] of rows [n, units] of some units."""
        inner, width = self._edges.shape[1], rows.shape[1]
        z = (rows - self._middle[units]).mul_(self._over[units])
        size = z.abs().clamp_(max=1e18)
        u = size.square().add_(1).sqrt_().add_(size).log_().copysign_(z)  # asinh, in parts that are vectorised
        place = u.mul_(self._steps).add_((inner - 1) / 2 + 1)
        near = place.round()
        doubt = (place - near).abs_() < 0.02
        found = place.floor_().clamp_(0, inner).long()
        row, unit = doubt.nonzero(as_tuple=True)
        if len(row):
            found[row, unit] = self._by_edges(rows[row, unit], unit + units.start, near[row, unit])
        found += torch.arange(width, device=found.device) * (inner + 1)
        return torch.bincount(found.reshape(-1), minlength=width * (inner + 1)).view(width, inner + 1)

    def _by_edges(self, value: Tensor, unit: Tensor, near: Tensor) -> Tensor:
        """The number of edges that values reach; `near` is the number of the edge (from 1) that they lie close to."""
        inner = self._edges.shape[1]
        edge = near.long().clamp(1, inner)
        below = edge - 1
        return torch.where(value >= self._edges[unit, edge - 1], edge, below)
