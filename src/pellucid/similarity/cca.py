"""Canonical correlations from moments: CCA, SVCCA, PWCCA and R²_CCA (Raghu et al. 2017; Morcos et al. 2018)."""

from __future__ import annotations

import numpy as np
import torch

from pellucid.similarity import nulls
from pellucid.similarity.metrics import Metric, number_of, register
from pellucid.similarity.pair import Array, Pair, Side, SimilarityError

VARIANCE = 0.99
"""Share of the variance that SVCCA keeps: of Σs², not of Σs."""


def correlations(pair: Pair, left: int, right: int) -> Array:
    """The min(left, right) canonical correlations of the leading directions, from the largest down.

    They are the singular values of T = W_xᵀ C W_y, found as roots of the eigenvalues of the smaller of T·Tᵀ and Tᵀ·T.
    """
    if not left or not right:
        return np.zeros(0)
    whole = torch.from_numpy(pair.whitened(left, right))
    square = whole @ whole.T if left <= right else whole.T @ whole
    values = torch.linalg.eigvalsh(square).flip(0)
    return values.clamp(0.0, 1.0).sqrt().numpy()


def mean_cca(pair: Pair) -> float:
    """Mean ρ over min(rank of x, rank of y)."""
    return _mean(correlations(pair, pair.left.rank, pair.right.rank))


def svcca(pair: Pair, *, variance: float | None = VARIANCE, components: int | None = None) -> float:
    """Mean ρ after both sides were cut to the directions that hold `variance`, or to fixed `components`."""
    return _mean(correlations(pair, *kept(pair, variance=variance, components=components)))


def kept(pair: Pair, *, variance: float | None = VARIANCE, components: int | None = None) -> tuple[int, int]:
    """How many directions SVCCA keeps on both sides."""
    left, right = (side.leading(variance=variance, components=components) for side in (pair.left, pair.right))
    return left, right


def r2_cca(pair: Pair) -> float:
    """Σρ²/min(p, q) = ‖T‖²/min(p, q)."""
    p, q = pair.left.rank, pair.right.rank
    if not p or not q:
        return 0.0
    whole = torch.from_numpy(pair.whitened(p, q))
    return float(whole.square().sum() / min(p, q))


def pwcca(pair: Pair) -> float:
    """Σα_i·ρ_i/Σα_i, α_i = Σ_j|⟨h_i, z_j⟩| for the left side's canonical variables h and features z.

    From moments, α are the row sums of |Uᵀ·Λ^½·Vᵀ| with S_x = V·Λ·Vᵀ and U the left singular vectors of T.
    """
    if not pair.left.rank or not pair.right.rank:
        return 0.0
    basis, rho, _ = pair.canonical
    return _weighted(pair.left, basis, rho)


def pwcca_back(pair: Pair) -> float:
    """The same with the right side's canonical variables and features."""
    if not pair.left.rank or not pair.right.rank:
        return 0.0
    _, rho, basis = pair.canonical
    return _weighted(pair.right, basis, rho)


def _weighted(side: Side, basis: Array, rho: Array) -> float:
    weights = side.carried(basis)
    return float(weights @ rho / weights.sum())


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else 0.0


def _cca_null(pair: Pair) -> nulls.Null:
    return _of_ranks(pair.n, pair.left.rank, pair.right.rank)


def _svcca_null(pair: Pair) -> nulls.Null:
    return _of_ranks(pair.n, *kept(pair))


def _of_ranks(n: int, p: int, q: int) -> nulls.Null:
    return nulls.mean_correlation(n, p, q) if p and q else nulls.Null(0.0, 0.0)


def _r2_null(pair: Pair) -> nulls.Null:
    p, q = pair.left.rank, pair.right.rank
    return nulls.squared_correlations(pair.n, p, q) if p and q else nulls.Null(0.0, 0.0)


def _pwcca_null(pair: Pair) -> nulls.Null:
    """The mean of plain CCA: under chance U is a random rotation, so the weights do not know the correlations.

    Weights that differ by a share c (sd over mean, from one random rotation) add c²·var(ρ)/m to the variance.
    """
    p, q = pair.left.rank, pair.right.rank
    if not p or not q:
        return nulls.Null(0.0, 0.0)
    flat = nulls.mean_correlation(pair.n, p, q)
    left, right = p / (pair.n - 1), q / (pair.n - 1)
    spread = max(0.0, nulls.wachter_mean(left, right, 1.0) - flat.mean**2) if left + right < 1 else 0.0
    return nulls.Null(flat.mean, float(np.sqrt(flat.sd**2 + pair.left.unevenness**2 * spread / min(p, q))))


CCA = register(
    Metric(
        name="cca",
        about="mean canonical correlation over all directions of both sides",
        needs="moments",
        score=mean_cca,
        null=_cca_null,
        whole=True,
    )
)


def _tuned_svcca(argument: str) -> Metric:
    """`svcca:0.9` keeps 90% of the variance, `svcca:20` twenty components."""
    value = number_of("svcca", argument)
    if value >= 1 and value != int(value):
        raise SimilarityError(f"svcca:{argument} keeps no whole number of components; give 20, or a share such as 0.9.")
    share, count = (value, None) if value < 1 else (None, int(value))
    what = f"directions that hold {share:.0%} of each side's variance" if count is None else f"{count} main directions"
    return Metric(
        name=f"svcca:{argument}",
        about=f"mean canonical correlation of the {what}",
        needs="moments",
        score=lambda pair: svcca(pair, variance=share, components=count),
        null=lambda pair: _of_ranks(pair.n, *kept(pair, variance=share, components=count)),
        keeps=None if share is None else lambda side: side.leading(variance=share),
    )


SVCCA = register(
    Metric(
        name="svcca",
        about="mean canonical correlation of the directions that hold 99% of each side's variance",
        needs="moments",
        score=svcca,
        null=_svcca_null,
        tuned=_tuned_svcca,
        keeps=lambda side: side.leading(variance=VARIANCE),
    )
)
PWCCA = register(
    Metric(
        name="pwcca",
        about="canonical correlations weighted by how much of the left side each direction carries",
        needs="moments",
        score=pwcca,
        null=_pwcca_null,
        symmetric=False,
        whole=True,
    )
)
PWCCA_BACK = register(
    Metric(
        name="pwcca-back",
        about="the same, weighted by how much of the right side each direction carries",
        needs="moments",
        score=pwcca_back,
        null=lambda pair: _pwcca_null(pair.swapped()),
        symmetric=False,
        whole=True,
    )
)
R2_CCA = register(
    Metric(
        name="r2-cca",
        about="mean squared canonical correlation over all directions",
        needs="moments",
        score=r2_cca,
        null=_r2_null,
        whole=True,
    )
)
