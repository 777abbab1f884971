"""Every score against its definition written out in NumPy float64 over whole matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pellucid.errors import PellucidError
from pellucid.similarity import Samples, SampleSet, metrics, pair_of_rows
from pellucid.similarity.metrics import chosen

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.filterwarnings("ignore::pellucid.similarity.SimilarityWarning")  # published faults warn


def made(n: int = 400, d: int = 12, e: int = 9, *, seed: int = 0) -> tuple[Array, Array]:
    """Two sides that share some directions, with means, uneven variances and heavy tails."""
    generator = np.random.default_rng(seed)
    shared = generator.standard_t(5, size=(n, 4))
    x = shared @ generator.normal(size=(4, d)) + generator.normal(size=(n, d)) * np.linspace(2, 0.2, d)
    y = shared @ generator.normal(size=(4, e)) + generator.normal(size=(n, e)) * np.linspace(0.3, 1.5, e)
    return x + 30 * generator.normal(size=d), y - 5


def gram(x: Array) -> Array:
    centred = x - x.mean(0)
    return centred @ centred.T


def hsic(k: Array, l: Array) -> float:  # noqa: E741
    """Song et al. 2012, equation 5, times n(n−3)."""
    n = len(k)
    k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))  # noqa: E741
    one = np.ones(n)
    return float(
        np.trace(k @ l) + (one @ k @ one) * (one @ l @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * (one @ k @ l @ one)
    )


def debiased(k: Array, l: Array) -> float:  # noqa: E741
    return hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l))


def qr_correlations(x: Array, y: Array) -> Array:
    """Björck and Golub 1973: singular values of Q_xᵀ·Q_y."""
    bases = [np.linalg.qr(side - side.mean(0))[0] for side in (x, y)]
    return np.clip(np.linalg.svd(bases[0].T @ bases[1], compute_uv=False), 0, 1)


def cut(x: Array, share: float, *, power: int = 2) -> Array:
    """The scores of the leading singular directions that hold a share of Σs², or of another power."""
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    keep = int(np.searchsorted(np.cumsum(s**power) / (s**power).sum(), share)) + 1
    return u[:, :keep] * s[:keep]


def pwcca(x: Array, y: Array) -> float:
    """Morcos et al. 2018 by whole matrices."""
    qx, qy = (np.linalg.qr(side - side.mean(0))[0] for side in (x, y))
    u, rho, _ = np.linalg.svd(qx.T @ qy, full_matrices=False)
    weights = np.abs((qx @ u).T @ (x - x.mean(0))).sum(1)
    return float(weights @ rho / weights.sum())


def squared(x: Array) -> Array:
    return ((x[:, None] - x[None]) ** 2).sum(-1)


def above(matrix: Array) -> Array:
    return matrix[np.triu_indices(len(matrix), 1)]


def explained(x: Array, y: Array) -> float:
    xc, yc = x - x.mean(0), y - y.mean(0)
    fitted = xc @ np.linalg.lstsq(xc, yc, rcond=None)[0]
    return float((fitted**2).sum() / (yc**2).sum())


def u_centred(d: Array) -> Array:
    """Székely and Rizzo 2014."""
    n = len(d)
    rows = d.sum(1) / (n - 2)
    centred = d - rows[:, None] - rows[None] + d.sum() / ((n - 1) * (n - 2))
    return centred - np.diag(np.diag(centred))


def distance_correlation(x: Array, y: Array) -> float:
    a, b = (u_centred(np.sqrt(squared(side))) for side in (x, y))
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def nearest(x: Array, k: int) -> list[set[int]]:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosine = unit @ unit.T - 9 * np.eye(len(x))
    return [set(np.argsort(-row)[:k].tolist()) for row in cosine]


def spearman(x: Array, y: Array) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(above(squared(x)), above(squared(y)))[0])


def rbf(x: Array, width: float) -> Array:
    d = squared(x)
    return np.exp(-d / (2 * width**2 * np.median(d)))


def leading_mean(rho: Array) -> float:
    """The mean of the fewest leading correlations that make up 98% of their sum."""
    count = next((i for i in range(1, len(rho)) if rho[:i].sum() >= 0.98 * rho.sum()), len(rho))
    return float(rho[:count].mean())


def aligned(k: Array, l: Array) -> float:  # noqa: E741
    """Kornblith et al. 2019: ⟨HKH, HLH⟩ over both norms, diagonals included."""
    h = np.eye(len(k)) - 1 / len(k)
    k, l = h @ k @ h, h @ l @ h  # noqa: E741
    return float((k * l).sum() / (np.linalg.norm(k) * np.linalg.norm(l)))


ORACLES: dict[str, Callable[[Array, Array], float]] = {
    "cka": lambda x, y: debiased(gram(x), gram(y)),
    "cka-biased": lambda x, y: float((gram(x) * gram(y)).sum() / np.sqrt((gram(x) ** 2).sum() * (gram(y) ** 2).sum())),
    "cca": lambda x, y: float(qr_correlations(x, y).mean()),
    "svcca": lambda x, y: float(qr_correlations(cut(x, 0.99), cut(y, 0.99)).mean()),
    "svcca:0.8": lambda x, y: float(qr_correlations(cut(x, 0.8), cut(y, 0.8)).mean()),
    "svcca:3": lambda x, y: float(qr_correlations(cut(x, 1.0)[:, :3], cut(y, 1.0)[:, :3]).mean()),
    "pwcca": pwcca,
    "pwcca-back": lambda x, y: pwcca(y, x),
    "r2-cca": lambda x, y: float((qr_correlations(x, y) ** 2).mean()),
    "regression": explained,
    "regression-back": lambda x, y: explained(y, x),
    "procrustes": lambda x, y: float(
        np.linalg.svd((x - x.mean(0)).T @ (y - y.mean(0)), compute_uv=False).sum()
        / (np.linalg.norm(x - x.mean(0)) * np.linalg.norm(y - y.mean(0)))
    ),
    "rsa": lambda x, y: float(np.corrcoef(above(squared(x)), above(squared(y)))[0, 1]),
    "rbf-cka": lambda x, y: debiased(rbf(x, 1.0), rbf(y, 1.0)),
    "rbf-cka:0.5": lambda x, y: debiased(rbf(x, 0.5), rbf(y, 0.5)),
    "mutual-knn": lambda x, y: float(
        np.mean([len(a & b) / 10 for a, b in zip(nearest(x, 10), nearest(y, 10), strict=True)])
    ),
    "knn-overlap": lambda x, y: float(
        np.mean([len(a & b) / len(a | b) for a, b in zip(nearest(x, 10), nearest(y, 10), strict=True)])
    ),
    "rsa-spearman": spearman,
    "distance-correlation": distance_correlation,
    "google-svcca": lambda x, y: leading_mean(qr_correlations(cut(x, 0.99, power=1), cut(y, 0.99, power=1))),
    "thesis-svcca": lambda x, y: leading_mean(qr_correlations(x, y)),
    "kornblith-cka": lambda x, y: aligned(gram(x), gram(y)),
    "kornblith-rbf-cka": lambda x, y: aligned(rbf(x, 0.5), rbf(y, 0.5)),
}


def scored(name: str, x: Array, y: Array) -> float:
    (metric,) = chosen(name)
    data: Any = pair_of_rows(x, y) if metric.needs == "moments" else Samples(SampleSet({"x": x, "y": y}), "x", "y")
    return metric.score(data)


def test_every_score_has_an_oracle() -> None:
    assert {name for name in metrics() if ":" not in name} <= set(ORACLES)


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("sizes", [(400, 12, 9), (150, 5, 11)])
def test_equals_its_definition(name: str, sizes: tuple[int, int, int]) -> None:
    x, y = made(*sizes)
    assert scored(name, x, y) == pytest.approx(ORACLES[name](x, y), abs=1e-10)


@pytest.mark.parametrize("name", [name for name in ORACLES if name not in ("mutual-knn", "knn-overlap")])
def test_translation_changes_nothing(name: str) -> None:
    x, y = made()
    assert scored(name, x + 7, y - 3) == pytest.approx(scored(name, x, y), abs=1e-8)


@pytest.mark.parametrize("name", ORACLES)
def test_a_side_is_like_itself(name: str) -> None:
    x, _ = made()
    assert scored(name, x, x) == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("name", ["cca", "r2-cca", "regression", "regression-back"])
def test_full_correlations_ignore_invertible_maps(name: str) -> None:
    x, y = made()
    change = np.random.default_rng(5).normal(size=(x.shape[1], x.shape[1]))
    changed = scored(name, x @ change, y)
    if name != "regression-back":
        assert changed == pytest.approx(scored(name, x, y), abs=1e-8)
    else:
        assert changed != pytest.approx(scored(name, x, y), abs=1e-3)


@pytest.mark.parametrize("name", ["pwcca", "regression"])
def test_directions_differ(name: str) -> None:
    x, y = made()
    assert scored(name, x, y) != pytest.approx(scored(name, y, x), abs=1e-3)
    assert scored(f"{name}-back", x, y) == pytest.approx(scored(name, y, x), abs=1e-12)


def test_svcca_keeps_variance_not_singular_values() -> None:
    """Keeping 99% of Σs instead of Σs² keeps more directions."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 20)) * 0.7 ** np.arange(20)
    y = generator.normal(size=(500, 20)) * 0.7 ** np.arange(20)
    s = np.linalg.svd(x - x.mean(0), compute_uv=False)
    by_squares = int(np.searchsorted(np.cumsum(s**2) / (s**2).sum(), 0.99)) + 1
    by_values = int(np.searchsorted(np.cumsum(s) / s.sum(), 0.99)) + 1
    assert by_squares < by_values
    assert pair_of_rows(x, y).left.leading(variance=0.99) == by_squares


def test_dead_constant_and_copied_features() -> None:
    x, y = made()
    dead = np.concatenate([x, np.zeros((len(x), 2)), np.full((len(x), 1), 3.0), x[:, :2]], axis=1)
    for name in ("cca", "r2-cca", "regression", "svcca"):
        assert scored(name, dead, y) == pytest.approx(scored(name, np.concatenate([x, x[:, :2]], 1), y), abs=1e-8)
    assert pair_of_rows(dead, y).left.rank == x.shape[1]


@pytest.mark.parametrize("name", [name for name in ORACLES if "knn" not in name])
def test_constant_side_scores_zero_not_nan(name: str) -> None:
    x, _ = made(60, 5, 4)
    assert scored(name, x, np.ones((60, 4))) == 0.0


def test_refusals() -> None:
    x, y = made(50, 4, 4)
    broken = x.copy()
    broken[7, 2] = np.nan
    with pytest.raises(PellucidError, match=r"row 7, feature 2"):
        pair_of_rows(broken, y)
    with pytest.raises(PellucidError, match=r"50 and y has 49"):
        pair_of_rows(x, y[:-1])
    with pytest.raises(PellucidError, match=r"1 rows"):
        pair_of_rows(x[:1], y[:1])
    with pytest.raises(PellucidError, match=r"no score 'ckaa'; there are cca"):
        chosen("ckaa")
    with pytest.raises(PellucidError, match="nothing to set"):
        chosen("cka:3")
    with pytest.raises(PellucidError, match="number above 0"):
        chosen("svcca:many")
    with pytest.raises(PellucidError, match="fewer"):
        scored("mutual-knn:70", x, y)
