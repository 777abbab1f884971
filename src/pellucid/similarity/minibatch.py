"""Minibatch CKA: the score from batches of rows alone, for rows that are too many to hold products of."""

from __future__ import annotations

import warnings

import numpy as np

from pellucid.similarity.caution import SimilarityWarning
from pellucid.similarity.cka import ratio
from pellucid.similarity.pair import Array, SimilarityError

LEAST = 8
"""Rows of the smallest batch: the unbiased estimate needs 4 also where the last rows are shared out."""
_UNSHUFFLED = (
    "rows come in the order of the corpus, so a batch holds the words of a few documents, and what sets documents "
    "apart is lost within it"
)


def minibatch_cka(
    x: Array, y: Array, *, batch: int = 256, seed: int = 0, shuffle: bool = True, force: bool = False
) -> float:
    """Debiased linear CKA of rows [n, d_x] and [n, d_y] from batches of at most `batch` rows.

    Unbiased HSICs are averaged over batches before the ratio: Σ_b h_xy(b) / √(Σ_b h_xx(b)·Σ_b h_yy(b)) (Nguyen,
    Raghu & Kornblith 2021). Each is right on average only for batches drawn from all rows, so rows are shuffled by
    `seed`; unshuffled ones are refused unless `force` is true.
    """
    x, y = _rows(x, "x"), _rows(y, "y")
    if len(x) != len(y):
        raise SimilarityError(
            f"Rows belong together, but x has {len(x):,} and y has {len(y):,}; give both the same words in the same "
            "order."
        )
    if batch < LEAST:
        raise SimilarityError(f"Batches of {batch} rows are too small; use {LEAST} or more.")
    if not shuffle:
        if not force:
            raise SimilarityError(
                f"Minibatch CKA without shuffling was asked for: {_UNSHUFFLED}; leave shuffle=True, or pass "
                "force=True if your rows are in random order already."
            )
        warnings.warn(f"Minibatch CKA without shuffling: {_UNSHUFFLED}.", SimilarityWarning, stacklevel=2)
    order = np.random.default_rng(seed).permutation(len(x)) if shuffle else np.arange(len(x))
    sums = np.zeros(3)  # of x with y, x with x, y with y
    for numbers in np.array_split(order, -(-len(x) // batch)):
        sums += _hsics(x[numbers], y[numbers])
    return ratio(*sums.tolist())


def _hsics(x: Array, y: Array) -> Array:
    """Unbiased HSIC of x with y, x with x and y with y over one batch (Song et al. 2012), [3]."""
    n = len(x)
    left, right = _gram(x), _gram(y)
    found: list[float] = []
    for one, other in ((left, right), (left, left), (right, right)):
        r, s = one.sum(0), other.sum(0)
        whole = np.vdot(one, other) - 2 / (n - 2) * (r @ s) + r.sum() * s.sum() / ((n - 1) * (n - 2))
        found.append(float(whole) / (n * (n - 3)))
    return np.array(found)


def _gram(rows: Array) -> Array:
    """Products of all pairs of a batch's rows, means taken away and no row with itself, [n, n]."""
    wide = np.asarray(rows, dtype=np.float64)
    wide = wide - wide.mean(0)
    found = wide @ wide.T
    np.fill_diagonal(found, 0.0)
    return found


def _rows(rows: Array, name: str) -> Array:
    """The rows as they are; what cannot be compared is refused."""
    given = np.asarray(rows)
    if given.ndim != 2:
        raise SimilarityError(f"{name} has the shape {list(given.shape)}; rows [n, features] are compared.")
    if len(given) < 4:
        raise SimilarityError(f"{name} has {len(given)} rows, and a similarity needs at least 4.")
    bad = np.argwhere(~np.isfinite(given))
    if len(bad):
        raise SimilarityError(f"{name} is NaN or infinite at row {bad[0][0]}, feature {bad[0][1]}; leave that row out.")
    return given
