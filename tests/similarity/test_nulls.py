"""What chance gives, against real permutations and against draws of whole matrices."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from pellucid.similarity import Samples, SampleSet, pair_of_rows
from pellucid.similarity.geometry import rotation_block
from pellucid.similarity.metrics import chosen
from pellucid.similarity.nulls import drawn_correlations, mean_correlation, wachter_mean
from tests.similarity.test_scores import Array, made, qr_correlations

PERMUTATIONS = 400


def data_of(needs: str, x: Array, y: Array) -> Any:
    return pair_of_rows(x, y) if needs == "moments" else Samples(SampleSet({"x": x, "y": y}), "x", "y")


NAMES = ["cka", "cka-biased", "cca", "svcca", "pwcca", "pwcca-back", "r2-cca", "regression", "regression-back"]
NAMES += ["procrustes", "rsa", "rbf-cka", "mutual-knn", "knn-overlap", "rsa-spearman", "distance-correlation"]


@pytest.mark.parametrize("name", NAMES)
def test_equals_permutations(name: str) -> None:
    """The mean within 4 standard errors, the sd within 20%: 400 permutations know it to 3.5%."""
    (metric,) = chosen(name)
    few = metric.needs == "sample"
    x, y = made(120 if few else 300, 8, 6, seed=3)
    null = metric.null(data_of(metric.needs, x, y))
    generator = np.random.default_rng(11)
    scores = [metric.score(data_of(metric.needs, x, y[generator.permutation(len(y))])) for _ in range(PERMUTATIONS)]
    assert np.mean(scores) == pytest.approx(null.mean, abs=4 * np.std(scores) / np.sqrt(PERMUTATIONS) + 2e-4)
    loose = name in ("procrustes", "pwcca", "pwcca-back", "cca", "svcca", "r2-cca", "regression", "regression-back")
    assert np.std(scores) == pytest.approx(null.sd, rel=0.35 if loose else 0.2)


@pytest.mark.parametrize("name", ["cka-biased", "rsa", "rsa-spearman", "mutual-knn:2"])
def test_exact_over_all_permutations(name: str) -> None:
    """Six rows have 720 orders: mean and standard deviation are those over all of them, to rounding."""
    (metric,) = chosen(name)
    generator = np.random.default_rng(8)
    x, y = generator.gamma(0.5, size=(6, 3)), generator.gamma(0.5, size=(6, 2))
    null = metric.null(data_of(metric.needs, x, y))
    scores = [metric.score(data_of(metric.needs, x, y[list(order)])) for order in permutations(range(6))]
    assert null.mean == pytest.approx(np.mean(scores), abs=1e-10)
    assert null.sd == pytest.approx(np.std(scores), rel=1e-8)


def test_wachter_law_equals_whole_matrices() -> None:
    generator = np.random.default_rng(0)
    drawn = [
        qr_correlations(generator.normal(size=(400, 60)), generator.normal(size=(400, 90))).mean() for _ in range(10)
    ]
    assert wachter_mean(60 / 399, 90 / 399) == pytest.approx(np.mean(drawn), abs=2e-3)
    assert wachter_mean(60 / 399, 90 / 399, 0.0) == pytest.approx(1.0, abs=1e-6)
    assert wachter_mean(60 / 399, 90 / 399, 1.0) == pytest.approx(90 / 399, abs=1e-6)


@pytest.mark.parametrize("sizes", [(50, 5, 9), (40, 25, 30), (30, 20, 15), (31, 10, 20), (20, 19, 4)])
def test_drawn_correlations_have_the_law_of_whole_matrices(sizes: tuple[int, int, int]) -> None:
    n, p, q = sizes
    generator = np.random.default_rng(1)
    ours = np.array([np.sort(drawn_correlations(n, p, q, generator)) for _ in range(600)])
    theirs = np.array(
        [
            np.sort(qr_correlations(generator.normal(size=(n, p)), generator.normal(size=(n, q))))[-min(p, q) :]
            for _ in range(600)
        ]
    )
    assert ours.shape == theirs.shape
    error = np.sqrt((ours.var(0) + theirs.var(0)) / 600)
    assert np.all(np.abs(ours.mean(0) - theirs.mean(0)) < 5 * error + 1e-9)
    assert ours.mean(1).std() == pytest.approx(theirs.mean(1).std(), rel=0.25, abs=1e-9)


def test_blocks_of_rotations() -> None:
    """A block of orthonormal columns: lengths below 1, mean square 1/(n − 1)."""
    generator = np.random.default_rng(0)
    blocks = np.stack([rotation_block(31, 12, 8, generator) for _ in range(400)])
    assert np.linalg.svd(blocks, compute_uv=False).max() <= 1 + 1e-9
    assert (blocks**2).mean() == pytest.approx(1 / 30, rel=0.03)


def test_noise_in_the_shape_of_a_published_study() -> None:
    """3,104 × 15,360 arrays of noise read as neurons × data points: mean ρ .390, √(mean ρ²) .4496."""
    left = right = 3104 / 15359
    assert wachter_mean(left, right) == pytest.approx(0.390, abs=1e-3)
    assert np.sqrt(wachter_mean(left, right, 1.0)) == pytest.approx(0.4496, abs=1e-4)


@pytest.mark.parametrize("sizes", [(400, 60, 90), (300, 120, 120), (200, 150, 120), (31, 10, 20), (20, 19, 19)])
def test_mean_correlation_equals_draws(sizes: tuple[int, int, int]) -> None:
    """Mean and standard deviation in closed form, also where the two spaces must meet (p + q ≥ n)."""
    generator = np.random.default_rng(2)
    means = [drawn_correlations(*sizes, generator).mean() for _ in range(800)]
    null = mean_correlation(*sizes)
    assert null.mean == pytest.approx(np.mean(means), abs=0.006)
    assert null.sd == pytest.approx(np.std(means), rel=0.2, abs=1e-9)
