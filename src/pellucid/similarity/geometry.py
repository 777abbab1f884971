"""Shapes and distances from moments: Procrustes, and representational similarity analysis on squared distances."""

from __future__ import annotations

import numpy as np

from pellucid.similarity import nulls
from pellucid.similarity.metrics import Metric, register
from pellucid.similarity.nulls import Kernel, Null
from pellucid.similarity.pair import Array, Pair, Side


def procrustes(pair: Pair) -> float:
    """‖C‖_*/(‖X‖·‖Y‖): how well one side, rotated and scaled, lies on the other."""
    import torch

    scale = np.sqrt(pair.left.norm_sum * pair.right.norm_sum)
    if not scale > 0:
        return 0.0
    return float(torch.linalg.svdvals(torch.from_numpy(np.ascontiguousarray(pair.cross))).sum() / scale)


def rsa(pair: Pair) -> float:
    """Pearson correlation of the squared Euclidean distances of all pairs of rows.

    With D_ij = k_i + k_j − 2K_ij of centred rows, Σ D = 2nΣk and Σ D·D' = 2nΣk·l + 2(Σk)(Σl) + 4‖C‖².
    """
    both = _distances(pair.n, pair.norm_products, pair.power, pair.left.norm_sum * pair.right.norm_sum)
    left, right = (_spread(side) for side in (pair.left, pair.right))
    return float(both / np.sqrt(left * right)) if left > 0 and right > 0 else 0.0


def _distances(n: int, products: float, power: float, sums: float) -> float:
    """Σ_(i≠j) (D − mean)(D' − mean)."""
    return 2 * n * products + 2 * sums + 4 * power - 4 * n / (n - 1) * sums


def _spread(side: Side) -> float:
    return _distances(side.n, side.norm_squares, side.power, side.norm_sum**2)


def _rsa_null(pair: Pair) -> Null:
    """Mean 0, and the variance of 2nΣk·l_π + 4ΣK·L_π over all permutations π of the rows."""
    n, (x, y) = pair.n, nulls.kernels(pair)
    left, right = (_spread(side) for side in (pair.left, pair.right))
    if not (left > 0 and right > 0):
        return Null(0.0, 0.0)
    norms = (x.squares - x.trace**2 / n) * (y.squares - y.trace**2 / n) / (n - 1)
    variance = 4 * n**2 * norms + 16 * nulls.inner_variance(n, x, y) + 16 * n * _crossed(n, x, y)
    return Null(0.0, float(np.sqrt(max(0.0, variance) / (left * right))))


def _crossed(n: int, x: Kernel, y: Kernel) -> float:
    """The covariance of Σ_i k_i·l_π(i) and Σ_ij K_ij·L_π(i)π(j): which indices coincide decides each term's mean."""
    one = x.squares * y.squares * (1 / n + 2 / (n * (n - 1)))
    two = (x.trace**2 - x.squares) * (y.trace**2 - y.squares) / (n * (n - 1))
    three = (x.trace**2 - 2 * x.squares) * (y.trace**2 - 2 * y.squares) / (n * (n - 1) * (n - 2))
    return one + two + three - (x.trace * y.trace) ** 2 / (n * (n - 1))


def _procrustes_null(pair: Pair) -> Null:
    """Draws of S_x^½·Z·S_y^½, Z a block of a random rotation of n − 1 dimensions.

    For n ≥ 20d, Z is iid normal over √(n−1). Rotating both sides into their eigenvectors changes nothing.
    """
    import torch

    scale = np.sqrt(pair.left.norm_sum * pair.right.norm_sum)
    if not scale > 0:
        return Null(0.0, 0.0)
    roots = [np.sqrt(side.spectrum[0][: side.rank]) for side in (pair.left, pair.right)]
    scores: list[float] = []
    for draw in range(nulls.DRAWS):
        block = rotation_block(pair.n, len(roots[0]), len(roots[1]), np.random.default_rng([0, draw]))
        drawn = torch.from_numpy(roots[0][:, None] * block * roots[1])
        square = drawn @ drawn.T if len(roots[0]) <= len(roots[1]) else drawn.T @ drawn
        scores.append(float(torch.linalg.eigvalsh(square).clamp(0.0).sqrt().sum() / scale))
    return Null(float(np.mean(scores)), float(np.std(scores, ddof=1)))


def rotation_block(n: int, rows: int, columns: int, generator: np.random.Generator) -> Array:
    """A rows × columns block of a random rotation of n − 1 dimensions; iid normal over √(n−1) for n ≥ 20 of them."""
    block = generator.standard_normal((rows, columns))
    if n >= 20 * max(rows, columns):
        return block / np.sqrt(n - 1)
    rest = generator.standard_normal((max(0, n - 1 - rows), columns))
    values, vectors = np.linalg.eigh(block.T @ block + rest.T @ rest)
    return (block @ vectors / np.sqrt(values)) @ vectors.T


PROCRUSTES = register(
    Metric(
        name="procrustes",
        about="how well one side lies on the other after the best rotation and scaling, 1 for the same shape",
        needs="moments",
        score=procrustes,
        null=_procrustes_null,
    )
)
RSA = register(
    Metric(
        name="rsa",
        about="Pearson correlation of the squared distances between words",
        needs="moments",
        score=rsa,
        null=_rsa_null,
        cheap=True,
    )
)
