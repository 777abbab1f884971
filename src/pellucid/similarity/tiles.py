"""Matrices of all pairs of sampled words, a few rows at a time: kernels, distances and ranks, and their products.

A form is an n × n matrix made from rows [n, d], its diagonal left out. What scores need of forms are the products
Σ_ij M_ij·M'_ij of all sides at once, and the sums of their rows; no more than a band of each matrix is ever held.
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
    from scipy.stats import rankdata

    n, squared = len(rows), squared_distances(rows)
    above = np.concatenate([squared(row, row + 1)[0, row + 1 :] for row in range(n)])  # each pair once, row by row
    ranks = rankdata(above)
    starts = np.concatenate([[0], np.cumsum(np.arange(n - 1, 0, -1))])  # where each row's pairs begin

    def band(start: int, stop: int) -> Array:
        found = np.zeros((stop - start, n))
        for row in range(start, stop):
            found[row - start, row + 1 :] = ranks[starts[row] : starts[row] + n - 1 - row]
            earlier = np.arange(row)
            found[row - start, :row] = ranks[starts[earlier] + row - 1 - earlier]
        return found

    return band


def median(band: Band, n: int) -> float:
    """The median of all n² entries of a matrix, its zero diagonal included, without holding them all."""
    top = max(float(band(start, stop).max()) for start, stop in steps(n))
    if not top > 0:
        return 0.0
    counts = np.zeros(_BINS, np.int64)
    for start, stop in steps(n):
        counts += np.bincount(_bin(band(start, stop), top).ravel(), minlength=_BINS)
    middles = [(n * n - 1) // 2, n * n // 2]
    ends = np.cumsum(counts)
    bins = np.searchsorted(ends, middles, side="right")
    held: dict[int, list[Array]] = {int(number): [] for number in bins}
    for start, stop in steps(n):
        rows = band(start, stop)
        places = _bin(rows, top)
        for number, parts in held.items():
            parts.append(rows[places == number])
    values = [
        np.sort(np.concatenate(held[int(number)]))[middle - (ends[number] - counts[number])]
        for number, middle in zip(bins, middles, strict=True)
    ]
    return float((values[0] + values[1]) / 2)


def _bin(values: Array, top: float) -> Array:
    return np.minimum((values * (_BINS / top)).astype(np.int64), _BINS - 1)


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
        found[start:stop] = np.sort(np.argsort(-cosine, axis=1, kind="stable")[:, :k], axis=1)
    return found
