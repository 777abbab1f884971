"""The thesis's layout: a layer over running text as one wide matrix, and the scores that the thesis took of it.

The text lies in columns side by side; a network reads `length` tokens of every column at a time. What comes out,
[tokens down a column, columns, features], is read as a matrix [rows, columns · features] whose rows are places in the
columns. SVCCA takes the rows for neurons and the columns for data points; CKA takes the rows for samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pellucid.similarity import nulls
from pellucid.similarity.cka import ratio, unbiased
from pellucid.similarity.nulls import Kernel, Null
from pellucid.similarity.pair import ROUNDING, SimilarityError
from pellucid.similarity.presets import google_mean
from pellucid.studies.thesis.chance import google_null

RBF = {"kornblith-rbf-cka:1": 1.0, "kornblith-rbf-cka:0.5": 0.5}
"""Widths of the Gaussian kernels over the root of the median squared distance."""
KERNELS = ("kornblith-cka", "cka", *RBF)
"""Scores of kernels between rows: linear CKA as first published, the same without bias, and Gaussian kernels."""
CORRELATIONS = ("thesis-svcca", "cca")
"""Scores of canonical correlations: the mean of google/svcca, and the plain mean ρ."""
_SURE = 1e3
"""How far above its rounding the smallest pivot of a Cholesky factor must be for the rows to have full rank."""


@dataclass(frozen=True)
class Scored:
    """A score, and mean and sd of what chance gives for it."""

    value: float
    null: Null


def folded(tokens: int, columns: int, rows: int, *, column: int | None = None) -> Tensor:
    """Which token of a running text stands at each place of the layout, [rows, columns].

    Column c holds the tokens from c·`column` on (default: the text in equal columns); only the first `rows` are read.
    """
    step = tokens // columns if column is None else column
    if rows > step or step * (columns - 1) + rows > tokens:
        raise SimilarityError(
            f"{columns} columns of {rows} tokens were asked for, and the text has {tokens:,}; use more text."
        )
    return torch.arange(columns)[None, :] * step + torch.arange(rows)[:, None]


class Wide:
    """One layer in the thesis's layout; what a score needs of it alone is worked out once, in float64."""

    def __init__(self, array: Tensor) -> None:
        """`array` is [rows, columns, features], on the device where the work is done."""
        self.flat = array.reshape(len(array), -1).double()  # [rows, points]

    @property
    def rows(self) -> int:
        """Places in the columns: neurons of SVCCA, samples of CKA."""
        return self.flat.shape[0]

    @property
    def points(self) -> int:
        """Columns times features: data points of SVCCA, features of CKA."""
        return self.flat.shape[1]

    @cached_property
    def gram(self) -> Tensor:
        """X·Xᵀ, [rows, rows]."""
        return self.flat @ self.flat.T

    @cached_property
    def means(self) -> Tensor:
        """The mean of every row, [rows]."""
        return self.flat.mean(1)

    @cached_property
    def whitening(self) -> Tensor:
        """W [rank, rows] with W·S·Wᵀ = 1 for the scatter S of the rows about their means."""
        scatter = self.gram - self.points * torch.outer(self.means, self.means)
        factor, failed = torch.linalg.cholesky_ex(scatter)
        pivots = factor.diagonal() ** 2
        least = _SURE * self.rows * ROUNDING["float64"] * float(scatter.diagonal().max())
        if not int(failed) and float(pivots.min()) > least:
            unit = torch.eye(self.rows, dtype=factor.dtype, device=factor.device)
            return torch.linalg.solve_triangular(factor, unit, upper=False)
        values, vectors = torch.linalg.eigh(scatter)
        kept = values > values[-1] * self.rows * ROUNDING["float64"]
        return (vectors[:, kept] / values[kept].sqrt()).T

    def kernel(self, name: str) -> Centred:
        """The doubly centred kernel that a score reads."""
        if name not in self._kernels:
            squared = squared_distances(self.gram)
            middle = median(squared)
            self._kernels |= {each: Centred(centred(gaussian(squared, width, middle))) for each, width in RBF.items()}
        return self._kernels[name]

    @cached_property
    def _kernels(self) -> dict[str, Centred]:
        linear = Centred(centred(self.gram))
        return {"kornblith-cka": linear, "cka": linear}


@dataclass(frozen=True, eq=False)
class Centred:
    """A doubly centred kernel HKH, [n, n]."""

    matrix: Tensor

    @cached_property
    def diagonal(self) -> Tensor:
        """k_ii, [n]."""
        return self.matrix.diagonal().clone()

    @cached_property
    def facts(self) -> Kernel:
        """What chance needs of it: trace, ‖K‖² and Σk_ii²."""
        flat = self.matrix.reshape(-1)
        return Kernel(float(self.diagonal.sum()), float(flat @ flat), float(self.diagonal @ self.diagonal))

    def shuffled(self, order: Tensor) -> Centred:
        """The same kernel with its samples in another order."""
        return Centred(self.matrix[order][:, order])


def centred(kernel: Tensor) -> Tensor:
    """HKH: rows and columns without their means."""
    across = kernel.mean(0)
    return kernel - across - across[:, None] + across.mean()


def squared_distances(gram: Tensor) -> Tensor:
    """k_ii + k_jj − 2k_ij, zeros on the diagonal."""
    norms = gram.diagonal()
    found = (norms[:, None] + norms - 2 * gram).clamp_(min=0.0)
    return found.fill_diagonal_(0.0)


def gaussian(squared: Tensor, width: float, middle: float) -> Tensor:
    """exp(−D²/(2·width²·m)) for m = `middle`, the median over all n² entries, the diagonal included."""
    scale = 2 * width**2 * middle
    return torch.exp(squared / -scale) if scale > 0 else (squared == 0).to(squared.dtype)


def median(values: Tensor) -> float:
    """The median of all entries; of an even number, the mean of the two in the middle."""
    flat = values.reshape(-1)
    places = ((len(flat) - 1) // 2, len(flat) // 2)
    if flat.is_cuda:  # sorting all of them is faster there than looking for one
        ordered = flat.sort().values
        return float(ordered[places[0]] + ordered[places[1]]) / 2
    return float(sum(flat.kthvalue(place + 1).values for place in places)) / 2


def canonical(left: Wide, right: Wide, *, order: Tensor | None = None) -> np.ndarray:
    """All canonical correlations of the rows of two layers, from the largest down.

    They are singular values of W_x·C·W_yᵀ. `order` deals out the right side's data points in another order.
    """
    if left is right and order is None:
        return np.ones(len(left.whitening))
    other = right.flat if order is None else right.flat[:, order]
    cross = left.flat @ other.T - left.points * torch.outer(left.means, right.means)
    whole = left.whitening @ cross @ right.whitening.T
    square = whole @ whole.T if whole.shape[0] <= whole.shape[1] else whole.T @ whole
    return torch.linalg.eigvalsh(square).flip(0).clamp(0.0, 1.0).sqrt().cpu().numpy()


def correlation_scores(rho: np.ndarray, left: Wide, right: Wide) -> dict[str, Scored]:
    """The mean of google/svcca and the plain mean of some correlations, beside chance."""
    ranks = len(left.whitening), len(right.whitening)
    return {
        "thesis-svcca": Scored(google_mean(rho), google_null(left.points, *ranks)),
        "cca": Scored(float(rho.mean()), nulls.mean_correlation(left.points, *ranks)),
    }


def kernel_score(name: str, left: Centred, right: Centred) -> Scored:
    """CKA of two kernels by the name of a score, beside chance (rows dealt out at random)."""
    n = len(left.matrix)
    both = float(left.matrix.reshape(-1) @ right.matrix.reshape(-1))
    x, y = left.facts, right.facts
    if name != "cka":
        return Scored(ratio(both, x.power, y.power), nulls.biased_cka(n, x, y))
    own = float(left.diagonal @ right.diagonal)
    value = ratio(
        unbiased(n, both, own, x.trace * y.trace),
        unbiased(n, x.power, x.squares, x.trace**2),
        unbiased(n, y.power, y.squares, y.trace**2),
    )
    return Scored(value, nulls.debiased(n))


def scores(left: Wide, right: Wide, *, correlations: bool = True) -> dict[str, Scored]:
    """Every score of two layers in the thesis's layout; canonical correlations only where asked for, they are slow."""
    _check(left, right)
    found = correlation_scores(canonical(left, right), left, right) if correlations else {}
    return found | {name: kernel_score(name, left.kernel(name), right.kernel(name)) for name in KERNELS}


def shuffled(left: Wide, right: Wide, generator: torch.Generator, *, correlations: bool = True) -> dict[str, float]:
    """The same scores once the right side was dealt out at random: data points for SVCCA, rows for CKA."""
    _check(left, right)
    found: dict[str, float] = {}
    if correlations:
        order = torch.randperm(right.points, generator=generator).to(right.flat.device)
        both = correlation_scores(canonical(left, right, order=order), left, right)
        found = {name: scored.value for name, scored in both.items()}
    order = torch.randperm(right.rows, generator=generator).to(right.flat.device)
    for name in KERNELS:
        found[name] = kernel_score(name, left.kernel(name), right.kernel(name).shuffled(order)).value
    return found


def _check(left: Wide, right: Wide) -> None:
    if left.flat.shape != right.flat.shape:
        raise SimilarityError(
            f"Both layers must have one shape in this layout, and they have {list(left.flat.shape)} and "
            f"{list(right.flat.shape)}."
        )
    if 2 * left.rows >= left.points:
        raise SimilarityError(
            f"{left.rows:,} rows of {left.points:,} points span everything in this layout; read fewer rows, or more "
            "columns."
        )
