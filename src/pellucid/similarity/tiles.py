"""Matrices of all pairs of sampled words, a few rows at a time: kernels, distances and ranks, and their products.

A form is an n × n matrix made from rows [n, d], its diagonal left out. What scores need of forms are the products
Σ_ij M_ij·M'_ij of all sides at once, and the sums of their rows. No more than a band of each matrix is ever held; of
ranks, which need all pairs at once, 4 bytes for every pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pellucid.similarity.pair import Array

BAND = 1 << 21
"""Numbers of a matrix that are held at a time."""
_BINS = 1 << 16

Band = Callable[[int, int], Array]
"""Rows from start to stop of a matrix, [stop − start, n], with zeros on the diagonal."""
Form = Callable[[Array], Band]
"""Makes a matrix from centred rows [n, d]; whatever it needs of the whole is worked out first."""


@dataclass(frozen=True, eq=False)
class Products:
    """Of L matrices: `inner` [L, L] Σ_ij M_ij·M'_ij and `sums` [L, n] Σ_j M_ij."""

    n: int
    inner: Array
    sums: Array


def products(bands: list[Band], n: int) -> Products:
    """Products and row sums of several matrices, band by band."""
    inner, sums = np.zeros((len(bands), len(bands))), np.zeros((len(bands), n))
    for start, stop in steps(n):
        flat = np.empty((len(bands), (stop - start) * n))
        for number, band in enumerate(bands):
            rows = band(start, stop)
            flat[number] = rows.ravel()
            sums[number, start:stop] = rows.sum(1)
        inner += flat @ flat.T
    return Products(n, inner, sums)


def steps(n: int) -> Iterator[tuple[int, int]]:
    """Starts and stops of bands over n rows."""
    step = max(1, min(n, BAND // n))
    for start in range(0, n, step):
        yield start, min(n, start + step)


def linear(rows: Array) -> Band:
    """The Gram matrix X·Xᵀ."""
    return lambda start, stop: hollow(rows[start:stop] @ rows.T, start)


def squared_distances(rows: Array) -> Band:
    """‖x_i − x_j‖²."""
    norms = (rows**2).sum(1)

    def band(start: int, stop: int) -> Array:
        found = norms[start:stop, None] + norms - 2 * (rows[start:stop] @ rows.T)
        return hollow(np.maximum(found, 0.0, out=found), start)

    return band


def distances(rows: Array) -> Band:
    """‖x_i − x_j‖."""
    squared = squared_distances(rows)
    return lambda start, stop: np.sqrt(squared(start, stop))


def rbf(width: float) -> Form:
    """exp(−‖x_i − x_j‖²/(2t²·m)) with t = `width` and m the median of all n² squared distances."""

    def form(rows: Array) -> Band:
        squared = squared_distances(rows)
        scale = 2 * width**2 * median(squared, len(rows))

        def band(start: int, stop: int) -> Array:
            found = squared(start, stop)
            if scale > 0:
                found /= -scale
                np.exp(found, out=found)
            else:  # more than half of the words are the same row
                found = (found == 0).astype(np.float64)
            return hollow(found, start)

        return band

    return form


def distance_ranks(rows: Array) -> Band:
    """Ranks of the distances of all pairs of different words, 1 for the nearest; equal ones share their mean rank."""
    n, squared = len(rows), squared_distances(rows)
    starts = np.concatenate([[0], np.cumsum(np.arange(n - 1, 0, -1))])  # where each row's pairs begin
    above = np.empty(n * (n - 1) // 2)  # each pair once, row by row
    for start, stop in steps(n):
        for row, found in zip(range(start, stop), squared(start, stop), strict=True):
            above[starts[row] : starts[row] + n - 1 - row] = found[row + 1 :]
    ranks = _twice_ranks(above)

    def band(start: int, stop: int) -> Array:
        found = np.zeros((stop - start, n))
        for row in range(start, stop):
            found[row - start, row + 1 :] = ranks[starts[row] : starts[row] + n - 1 - row]
            earlier = np.arange(row)
            found[row - start, :row] = ranks[starts[earlier] + row - 1 - earlier]
        return np.divide(found, 2, out=found)

    return band


def _twice_ranks(values: Array) -> Array:
    """Twice the rank of every value, a whole number also where equal ones share their mean rank."""
    order = np.argsort(values)
    rising = values[order]
    ends = np.append(np.flatnonzero(rising[1:] != rising[:-1]) + 1, len(rising))  # where runs of equals end
    lengths = np.diff(ends, prepend=0)
    found = np.empty(len(values), np.int32 if 2 * len(values) < 2**31 else np.int64)
    found[order] = np.repeat(2 * ends - lengths + 1, lengths)
    return found


def median(band: Band, n: int) -> float:
    """The median of all n² entries of a matrix, its zero diagonal included, without holding them all.

    Entries are counted in bins, and the bin in the middle is cut into bins again until it holds no more than a band.
    """
    middles = np.array([(n * n - 1) // 2, n * n // 2])
    low, high = 0.0, max(float(band(start, stop).max()) for start, stop in steps(n))
    below = 0  # entries under low
    while low < high:
        counts = np.zeros(_BINS, np.int64)
        for values in _between(band, n, low, high):
            counts += np.bincount(_bins(values, low, high), minlength=_BINS)
        first, last = (int(place) for place in np.searchsorted(np.cumsum(counts), middles - below, side="right"))
        if first < last:  # the largest of one bin and the smallest of another
            ends = [_ends(band, n, low, high, place) for place in (first, last)]
            return (ends[0][1] + ends[1][0]) / 2
        below += int(counts[:first].sum())
        if counts[first] <= BAND:
            held = [values[_bins(values, low, high) == first] for values in _between(band, n, low, high)]
            return float(np.sort(np.concatenate(held))[middles - below].mean())
        low, high = _ends(band, n, low, high, first)
    return low


def _between(band: Band, n: int, low: float, high: float) -> Iterator[Array]:
    """The entries of a matrix from low to high, band by band."""
    for start, stop in steps(n):
        rows = band(start, stop)
        yield rows[(rows >= low) & (rows <= high)]


def _bins(values: Array, low: float, high: float) -> Array:
    """The bin of every value from low to high."""
    return np.minimum((values - low) * (_BINS / (high - low)), _BINS - 1).astype(np.int64)


def _ends(band: Band, n: int, low: float, high: float, place: int) -> tuple[float, float]:
    """The smallest and the largest entry in a bin."""
    parts = (values[_bins(values, low, high) == place] for values in _between(band, n, low, high))
    ends = [(float(part.min()), float(part.max())) for part in parts if len(part)]
    return min(end[0] for end in ends), max(end[1] for end in ends)


def hollow(rows: Array, start: int) -> Array:
    """Zeros where a word meets itself, in place."""
    np.fill_diagonal(rows[:, start:], 0.0)
    return rows


def neighbours(rows: Array, k: int) -> Array:
    """The k nearest other words of every word by cosine, [n, k], sorted by number; of equals the earlier ones."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    found = np.empty((len(rows), k), np.int64)
    for start, stop in steps(len(rows)):
        cosine = unit[start:stop] @ unit.T
        cosine[np.arange(stop - start), np.arange(start, stop)] = -np.inf
        least = np.partition(cosine, -k, axis=1)[:, -k, None]  # the k-th largest
        near, equal = cosine > least, cosine == least
        near |= equal & (np.cumsum(equal, axis=1) <= k - near.sum(1, keepdims=True))
        found[start:stop] = np.nonzero(near)[1].reshape(-1, k)
    return found
