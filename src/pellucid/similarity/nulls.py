"""What chance gives: means and standard deviations of scores when the rows of one side are dealt out at random.

These are token nulls, for scale only: words of a document are not exchangeable, so that p-values come from whole
documents (`permutations.py`), never from these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pellucid.similarity.pair import Array, Pair
    from pellucid.similarity.tiles import Products

DRAWS = 20
"""Draws of a Gaussian surrogate where there is no closed form."""


@dataclass(frozen=True)
class Null:
    """Mean and standard deviation of a score under chance."""

    mean: float
    sd: float


@dataclass(frozen=True)
class Kernel:
    """What a null needs of a centred n × n matrix K: T = tr K, T2 = ‖K‖², S2 = Σk_ii²."""

    trace: float
    power: float
    squares: float


def inner_variance(n: int, x: Kernel, y: Kernel) -> float:
    """The variance of Σ_ij K_ij L_π(i)π(j) over all permutations π, for centred K and L."""
    first = 2 * ((n - 1) * x.power - x.trace**2) * ((n - 1) * y.power - y.trace**2)
    second = _excess(n, x) * _excess(n, y)
    return max(0.0, first / ((n - 1) ** 2 * (n + 1) * (n - 2)) + second / ((n + 1) * n * (n - 1) * (n - 2) * (n - 3)))


def _excess(n: int, kernel: Kernel) -> float:
    return n * (n + 1) * kernel.squares - (n - 1) * (kernel.trace**2 + 2 * kernel.power)


def kernels(pair: Pair) -> tuple[Kernel, Kernel]:
    """The linear kernels of both sides."""
    sides = (pair.left, pair.right)
    left, right = (Kernel(side.norm_sum, side.power, side.norm_squares) for side in sides)
    return left, right


def biased_cka(n: int, x: Kernel, y: Kernel) -> Null:
    """Mean TU/(n−1)/√(T2·U2), which is √(PR_x·PR_y)/(n−1) for participation ratios PR."""
    scale = np.sqrt(x.power * y.power)
    return Null(float(x.trace * y.trace / (n - 1) / scale), float(np.sqrt(inner_variance(n, x, y)) / scale))


def debiased(n: int) -> Null:
    """Debiased CKA and bias-corrected distance correlation: mean 0, sd √(2/(n(n−3)))."""
    return Null(0.0, float(np.sqrt(2 / (n * (n - 3)))))


def explained(pair: Pair) -> Null:
    """R² of the right side given the left one: mean p/(n−1); the left kernel is a projection of rank p."""
    n, p = pair.n, pair.left.rank
    own = Kernel(pair.right.norm_sum, pair.right.power, pair.right.norm_squares)
    first = 2 * ((n - 1) * p - p**2) * ((n - 1) * own.power - own.trace**2) / ((n - 1) ** 2 * (n + 1) * (n - 2))
    return Null(min(1.0, p / (n - 1)), float(np.sqrt(max(0.0, first)) / own.trace))


def squared_correlations(n: int, p: int, q: int) -> Null:
    """R²_CCA = Σρ²/min(p, q): mean max(p, q)/(n−1); both kernels are projections."""
    first = 2 * p * (n - 1 - p) * q * (n - 1 - q) / ((n - 1) ** 2 * (n + 1) * (n - 2))
    return Null(min(1.0, max(p, q) / (n - 1)), float(np.sqrt(max(0.0, first)) / min(p, q)))


@lru_cache(maxsize=1024)
def mean_correlation(n: int, p: int, q: int) -> Null:
    """The mean canonical correlation of independent sides of ranks p and q: mean and sd of the Wachter law.

    With p + q > n − 1 the spaces meet: p + q − (n−1) correlations are 1, and the rest are those of the complements.
    """
    low, high = min(p, q), max(p, q)
    meet = max(0, p + q - (n - 1))
    if meet == low:
        return Null(1.0, 0.0)
    if meet:
        rest = mean_correlation(n, n - 1 - high, n - 1 - low)
        share = (low - meet) / low
        return Null(1 - share * (1 - rest.mean), share * rest.sd)
    left, right = p / (n - 1), q / (n - 1)
    return Null(wachter_mean(left, right), wachter_spread(left, right) / low)


def wachter_mean(left: float, right: float, power: float = 0.5) -> float:
    """∫λ^power dW over the min(p, q) squared correlations λ, W the Wachter law at left = p/(n−1), right = q/(n−1).

    The density of the nonzero λ on [a, b] is √((λ−a)(b−λ)) / (2π·min(left, right)·λ(1−λ)), with
    a, b = (√(left(1−right)) ∓ √(right(1−left)))² (Wachter 1980).
    """
    low, high = _edges(left, right)
    angle, weight = _quadrature()
    value = (low + high) / 2 + (high - low) / 2 * np.cos(angle)
    density = ((high - low) / 2 * np.sin(angle)) ** 2 / (2 * np.pi * min(left, right) * value * (1 - value))
    return float((weight * density * value**power).sum())


def wachter_spread(left: float, right: float) -> float:
    """The standard deviation of Σρ over the min(p, q) correlations, the same for all sizes at one left and right.

    Var Σf(λ) = ½·Σ_k k·c_k² for f = c_0/2 + Σ_k c_k·cos kθ on the law's support, λ = (a+b)/2 + (b−a)/2·cos θ: real
    Gaussian rows (Johansson 1998; Bai and Silverstein 2004).
    """
    low, high = _edges(left, right)
    angle, weight = _quadrature()
    orders, waves = _waves()
    root = np.sqrt((low + high) / 2 + (high - low) / 2 * np.cos(angle))
    coefficients = 2 / np.pi * (waves @ (weight * root))
    return float(np.sqrt(orders @ coefficients**2 / 2))


def _edges(left: float, right: float) -> tuple[float, float]:
    """The support [a, b] of the Wachter law."""
    one, other = np.sqrt(left * (1 - right)), np.sqrt(right * (1 - left))
    return float((one - other) ** 2), float((one + other) ** 2)


@lru_cache(maxsize=1)
def _quadrature() -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Legendre on [0, π]: the substitution λ = cos takes away the edges' roots."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    return (nodes + 1) * np.pi / 2, weights * np.pi / 2


@lru_cache(maxsize=1)
def _waves() -> tuple[Array, Array]:
    """Orders k from 1 on and cos kθ at the nodes; c_k falls at least as 1/k², so that 200 are plenty."""
    orders = np.arange(1, 201)
    return orders, np.cos(orders[:, None] * _quadrature()[0])


def drawn_correlations(n: int, p: int, q: int, generator: np.random.Generator) -> Array:
    """One draw of the min(p, q) canonical correlations of independent Gaussian sides, n rows, means taken away.

    With p ≤ q and p + q < n their squares are the eigenvalues of a Jacobi ensemble, drawn as the squared singular
    values of a bidiagonal matrix of independent beta variables (Edelman and Sutton 2008). With p + q ≥ n, the spaces
    meet: p + q − (n−1) correlations are 1, and the rest are those of the two orthogonal complements.
    """
    p, q = min(p, q), max(p, q)
    meet = max(0, p + q - (n - 1))
    if meet:
        rest = drawn_correlations(n, n - 1 - q, n - 1 - p, generator) if n - 1 - q > 0 else np.empty(0)
        return np.concatenate([np.ones(meet), rest])
    from scipy.linalg import eigh_tridiagonal

    step = np.arange(1, p + 1)
    a, b = (q - p) / 2, (n - 1 - p - q) / 2  # λ ~ λ^(a−½)(1−λ)^(b−½), as for squared correlations
    cosine2 = generator.beta(a + step / 2, b + step / 2)  # c_1² … c_p²
    inner2 = generator.beta(step[:-1] / 2, a + b + (1 + step[:-1]) / 2)  # c'_1² … c'_(p−1)²
    cosine, sine = np.sqrt(cosine2), np.sqrt(1 - cosine2)
    low, high = np.sqrt(inner2), np.sqrt(1 - inner2)
    diagonal = cosine[::-1] * np.concatenate([[1.0], high[::-1]])
    above = -sine[::-1][:-1] * low[::-1]
    squares = diagonal**2
    squares[:-1] += above**2
    values = eigh_tridiagonal(squares, above * diagonal[1:], eigvals_only=True)
    return np.sqrt(np.clip(values, 0.0, 1.0))


def hollow_variance(found: Products, left: int, right: int) -> float:
    """The variance of Σ_(i≠j) M_ij·M'_π(i)π(j) over permutations, M and M' symmetric with zero diagonals (Mantel 1967).

    With entries centred over the n(n−1) pairs, A = Σm² and B = Σ_i(Σ_j m_ij)²: products of two entries that share two
    words sum to 2A, those that share one to 4(B−A), and those that share none to the rest, 2A − 4B.
    """
    n = found.n
    left_a, left_b = _shared(found, left)
    right_a, right_b = _shared(found, right)
    two = 2 * left_a * right_a / (n * (n - 1))
    one = 4 * (left_b - left_a) * (right_b - right_a) / (n * (n - 1) * (n - 2))
    none_left, none_right = (4 * b - 2 * a for a, b in ((left_a, left_b), (right_a, right_b)))
    none = none_left * none_right / (n * (n - 1) * (n - 2) * (n - 3))
    return max(0.0, two + one + none)


def _shared(found: Products, place: int) -> tuple[float, float]:
    """Σ_(i≠j) m² and Σ_i(Σ_j m)² of one matrix, its n(n−1) entries centred."""
    n = found.n
    total = float(found.sums[place].sum())
    mean = total / (n * (n - 1))
    squares = float(found.inner[place, place]) - total * mean
    rows = found.sums[place] - (n - 1) * mean
    return squares, float(rows @ rows)
