"""Sides and pairs: the centred moments of one set of rows, and of two sets of the same rows, which scores read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pellucid.errors import PellucidError
from pellucid.similarity.parallel import kept

if TYPE_CHECKING:
    from pellucid.collect.moment_sums import MomentsView

Array = np.ndarray[Any, Any]
ROUNDING = {"float64": 2.0**-52, "float32": 2.0**-23}
"""Relative rounding of the products that a scatter was made from, by their precision."""
LEAST = 4
"""Rows that a similarity needs: unbiased products divide by n − 3."""
_FAINT = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Correlations below this leave too little of their direction on the other side beside rounding."""
_EVEN = 10.0
"""Condition below which the error of float32 products is smaller than that of a float32 decomposition."""


class SimilarityError(PellucidError):
    """Rows that cannot be compared, or a comparison that does not exist."""


@dataclass(frozen=True, eq=False)
class Side:
    """One set of n rows x_i with their mean taken away: S = Σxxᵀ [d, d] and, with k_i = ‖x_i‖², Σk and Σk²."""

    name: str
    n: int
    scatter: Array
    norm_sum: float
    norm_squares: float
    precision: str = "float64"

    @property
    def width(self) -> int:
        """Features d."""
        return len(self.scatter)

    @kept
    def power(self) -> float:
        """‖S‖² = ‖K‖² for the Gram matrix K of the rows."""
        return _power(self.scatter)

    @kept
    def spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues of S from the largest down, and the eigenvectors as columns."""
        values, vectors = torch.linalg.eigh(torch.from_numpy(self.scatter))
        return values.numpy()[::-1].copy(), vectors.numpy()[:, ::-1].copy()

    @kept
    def rank(self) -> int:
        """Directions that the rows really have: eigenvalues above the rounding of the largest, at most n − 1."""
        values = self.spectrum[0]
        least = values[0] * self.width * ROUNDING[self.precision]
        return int(min((values > max(least, 0.0)).sum(), self.n - 1))

    @kept
    def condition(self) -> float:
        """Largest over smallest eigenvalue within the rank."""
        values = self.spectrum[0]
        return float(values[0] / values[self.rank - 1]) if self.rank else float("inf")

    def leading(self, *, variance: float | None = None, components: int | None = None) -> int:
        """How many directions hold that share of the variance, or the fixed number asked for; at most the rank."""
        if components is not None:
            return min(components, self.rank)
        if variance is None:
            return self.rank
        shares = np.cumsum(np.maximum(self.spectrum[0], 0.0))
        return int(min(np.searchsorted(shares, variance * shares[-1] * (1 - 1e-12)) + 1, self.rank))

    def whitening(self, count: int) -> Array:
        """W = V·Λ^(−½) of the `count` leading directions, [d, count]: the columns of XW are orthonormal."""
        return self._whitening[:, :count]

    @kept
    def _whitening(self) -> Array:
        values, vectors = self.spectrum
        return vectors[:, : self.rank] / np.sqrt(values[: self.rank])

    def carried(self, basis: Array) -> Array:
        """Row sums of |Bᵀ·Λ^½·Vᵀ|: how much of the features whitened directions carry, the columns of B [rank, …]."""
        return (
            (torch.from_numpy(basis).T @ torch.from_numpy(self._root.astype(basis.dtype)))
            .abs_()
            .sum(1)
            .double()
            .numpy()
        )

    @kept
    def unevenness(self) -> float:
        """Standard deviation over mean of what random directions carry."""
        drawn = np.random.default_rng(0).standard_normal((self.rank, min(self.rank, 64)))
        weights = self.carried(torch.linalg.qr(torch.from_numpy(drawn))[0].numpy())
        return float(weights.std() / weights.mean())

    @kept
    def _root(self) -> Array:
        values, vectors = self.spectrum
        return np.sqrt(values[: self.rank, None]) * vectors[:, : self.rank].T  # Λ^½·Vᵀ, [rank, d]


class Pair:
    """Two sides of the same rows: C = Σxyᵀ [d_x, d_y] and Σk·l with k_i = ‖x_i‖², l_i = ‖y_i‖².

    Both products may be given as functions, which are called when they are first needed: chance seldom needs them.
    """

    def __init__(
        self,
        left: Side,
        right: Side,
        cross: Array | Callable[[], Array],
        norm_products: float | Callable[[], float],
    ) -> None:
        self.left, self.right = left, right
        self._cross, self._norm_products = cross, norm_products
        self._whitened: Array | None = None

    @property
    def n(self) -> int:
        """Rows."""
        return self.left.n

    @kept
    def cross(self) -> Array:
        """C = Σxyᵀ, [d_x, d_y]."""
        return self._cross() if callable(self._cross) else self._cross

    @kept
    def norm_products(self) -> float:
        """Σk·l."""
        return self._norm_products() if callable(self._norm_products) else self._norm_products

    @kept
    def power(self) -> float:
        """‖C‖²."""
        return _power(self.cross)  # summed as a side's own, so that equal sides score exactly 1

    def whitened(self, left: int, right: int) -> Array:
        """T = W_xᵀ C W_y of the leading directions, [left, right]; its singular values are canonical correlations.

        The last one is kept, and fewer directions are a corner of it.
        """
        kept = self._whitened
        if kept is None or kept.shape[0] < left or kept.shape[1] < right:
            factors = (self.left.whitening(left).T, self.cross, self.right.whitening(right))
            kept = torch.linalg.multi_dot([torch.from_numpy(each) for each in factors]).numpy()
            self._whitened = kept
        return kept[:left, :right]

    @kept
    def canonical(self) -> tuple[Array, Array, Array]:
        """Directions U [p, …], correlations ρ and directions V [q, …] of all min(p, q): T = U·ρ·Vᵀ.

        In float32 where the sides came from float32 products, unless both are so even that their own error is smaller.
        """
        sides = (self.left, self.right)
        single = any(side.precision == "float32" for side in sides) and max(side.condition for side in sides) > _EVEN
        dtype = torch.float32 if single else torch.float64
        whole = torch.from_numpy(self.whitened(self.left.rank, self.right.rank)).to(dtype)
        tall = whole.shape[0] > whole.shape[1]
        wide = whole.T if tall else whole
        _, own = torch.linalg.eigh(wide @ wide.T)
        other = wide.T @ own
        rho = torch.linalg.vector_norm(other, dim=0)
        if rho.min() > _FAINT[dtype]:
            other /= rho
        else:
            other = torch.linalg.eigh(wide.T @ wide)[1][:, -len(rho) :]
        left, right = (other, own) if tall else (own, other)
        return left.numpy(), rho.clamp(0.0, 1.0).numpy(), right.numpy()

    def swapped(self) -> Pair:
        """The same pair with right before left."""
        return Pair(self.right, self.left, lambda: self.cross.T, lambda: self.norm_products)


def _power(matrix: Array) -> float:
    """‖M‖², by torch: NumPy's threads would go on spinning beside those that score pairs (`side_by_side`)."""
    flat = torch.from_numpy(matrix).reshape(-1)
    return float(torch.dot(flat, flat))


def side_of(view: MomentsView, key: str, *, precision: str) -> Side:
    """The side of one key of gathered moments."""
    return Side(key, view.n, view.scatter(key, key), view.norm_sum(key), view.norm_products(key, key), precision)


def pair_of(view: MomentsView, left: Side, right: Side) -> Pair:
    """The pair of two keys whose products were gathered."""
    one, other = left.name, right.name
    return Pair(left, right, lambda: view.scatter(one, other), lambda: view.norm_products(one, other))


def pair_of_rows(x: Array, y: Array, *, names: tuple[str, str] = ("x", "y")) -> Pair:
    """The pair of two arrays [n, d_x] and [n, d_y] whose rows belong together, in float64."""
    left, right = _centred(x, names[0]), _centred(y, names[1])
    if len(left) != len(right):
        raise SimilarityError(
            f"Rows belong together, but {names[0]} has {len(left):,} and {names[1]} has {len(right):,}; give both the "
            "same words in the same order."
        )
    k, l = (left**2).sum(1), (right**2).sum(1)  # noqa: E741  # the names of the formula
    return Pair(_side(names[0], left, k), _side(names[1], right, l), left.T @ right, float(k @ l))


def _centred(rows: Array, name: str) -> Array:
    """Rows in float64 without their mean; what cannot be centred is refused."""
    wide = np.asarray(rows, dtype=np.float64)
    if wide.ndim != 2:
        raise SimilarityError(f"{name} has the shape {list(wide.shape)}; rows [n, features] are compared.")
    if len(wide) < LEAST:
        raise SimilarityError(f"{name} has {len(wide)} rows, and a similarity needs at least {LEAST}.")
    bad = np.argwhere(~np.isfinite(wide))
    if len(bad):
        raise SimilarityError(f"{name} is NaN or infinite at row {bad[0][0]}, feature {bad[0][1]}; leave that row out.")
    centred = wide - wide.mean(0)
    centred[:, (wide == wide[0]).all(0)] = 0.0  # a constant's mean may be off by its last digit
    return centred


def _side(name: str, rows: Array, norms: Array) -> Side:
    return Side(name, len(rows), rows.T @ rows, float(norms.sum()), float(norms @ norms))
