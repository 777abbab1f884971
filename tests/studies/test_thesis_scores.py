"""Scores of the thesis study: known answers in its layout, and equality with the similarity package in both."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from pellucid.collect.moments import of_rows
from pellucid.similarity.cca import mean_cca
from pellucid.similarity.cka import biased_cka, debiased_cka
from pellucid.similarity.metrics import chosen
from pellucid.similarity.nulls import drawn_correlations
from pellucid.similarity.pair import SimilarityError, pair_of_rows
from pellucid.similarity.presets import google_mean, thesis_svcca
from pellucid.similarity.sampled import Samples, SampleSet
from pellucid.studies.thesis import words
from pellucid.studies.thesis.arrays import Wide, canonical, folded, scores, shuffled
from pellucid.studies.thesis.chance import google_null
from pellucid.uncertainty import jackknife


def made(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


@pytest.fixture(scope="module")
def layers() -> tuple[torch.Tensor, torch.Tensor]:
    """Two layers [rows, columns, features] that have something in common, neither centred nor even."""
    common = made(1, 24, 8, 10)
    scale = torch.linspace(0.3, 2.0, 10, dtype=torch.float64)
    return common * scale + 0.5 * made(2, 24, 8, 10) + scale, common.flip(2) + made(3, 24, 8, 10) - 1


# -- the layout of the thesis --------------------------------------------------------------------------------------


def test_a_text_is_laid_in_columns():
    places = folded(23, 4, 5)
    assert places.shape == (5, 4)
    assert places[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert places[0].tolist() == [0, 5, 10, 15]  # 23 // 4 = 5 tokens a column, the last 3 left out
    assert folded(23, 4, 4, column=6)[0].tolist() == [0, 6, 12, 18]


def test_a_text_that_is_too_short_is_refused():
    with pytest.raises(SimilarityError, match="4 columns of 6 tokens were asked for, and the text has 23"):
        folded(23, 4, 6)
    with pytest.raises(SimilarityError, match="use more text"):
        folded(23, 4, 6, column=6)


def test_noise_in_the_shape_of_the_thesis_has_the_known_answers():
    """3,104 neurons of 15,360 data points: mean ρ .390, and the mean of google/svcca .444."""
    null = google_null(15360, 3104, 3104)
    assert null.mean == pytest.approx(0.444, abs=1e-3)
    rho = drawn_correlations(15360, 3104, 3104, np.random.default_rng(5))
    assert rho.mean() == pytest.approx(0.390, abs=5e-4)
    assert google_mean(np.sort(rho)[::-1]) == pytest.approx(null.mean, abs=4e-4)


def test_noise_in_a_smaller_array_of_the_same_proportions_scores_the_same():
    rows, columns, features = 194, 8, 120  # 194/960 = 3104/15360
    one, other = (Wide(made(seed, rows, columns, features)) for seed in (1, 2))
    found = scores(one, other)
    assert found["thesis-svcca"].value == pytest.approx(0.444, abs=0.006)
    assert found["thesis-svcca"].null.mean == pytest.approx(found["thesis-svcca"].value, abs=0.004)
    assert found["cca"].value == pytest.approx(0.390, abs=0.004)
    assert found["cca"].null.mean == pytest.approx(0.390, abs=0.001)
    expected = 960 / (960 + 194)  # tr² over (n−1)‖K‖² of white noise
    assert found["kornblith-cka"].value == pytest.approx(expected, abs=0.005)
    assert found["kornblith-cka"].null.mean == pytest.approx(expected, abs=0.005)
    assert found["cka"].value == pytest.approx(0.0, abs=0.03)
    assert found["cka"].null.mean == 0
    for name, scored in found.items():
        assert abs(scored.value - scored.null.mean) < 4 * scored.null.sd, name


@pytest.mark.parametrize(("n", "p", "q"), [(1200, 240, 240), (900, 60, 150), (4000, 30, 30)])
def test_chance_of_the_published_mean_is_that_of_draws(n, p, q):
    draws = [drawn_correlations(n, p, q, np.random.default_rng([7, at])) for at in range(200)]
    means = np.array([google_mean(np.sort(rho)[::-1]) for rho in draws])
    null = google_null(n, p, q)
    assert null.mean == pytest.approx(means.mean(), rel=0.006)
    assert null.sd == pytest.approx(means.std(ddof=1), rel=0.25)


def test_chance_needs_fewer_rows_than_points():
    with pytest.raises(SimilarityError, match="Ranks 60 and 60 among 100 points"):
        google_null(100, 60, 60)
    with pytest.raises(SimilarityError, match="60 rows of 100 points span everything"):
        scores(Wide(made(1, 60, 10, 10)), Wide(made(2, 60, 10, 10)))
    with pytest.raises(SimilarityError, match=r"they have \[20, 100\] and \[20, 80\]"):
        scores(Wide(made(1, 20, 10, 10)), Wide(made(2, 20, 8, 10)))


def test_scores_in_the_layout_of_the_thesis_are_those_of_the_similarity_package(layers):
    """SVCCA takes the rows for neurons, so the package gets the matrix turned round; CKA takes them for samples."""
    left, right = (layer.numpy().reshape(24, 80) for layer in layers)
    found = scores(*(Wide(layer) for layer in layers))
    turned, upright = pair_of_rows(left.T, right.T), pair_of_rows(left, right)
    assert found["thesis-svcca"].value == pytest.approx(thesis_svcca(turned), abs=1e-9)
    assert found["cca"].value == pytest.approx(mean_cca(turned), abs=1e-9)
    assert found["kornblith-cka"].value == pytest.approx(biased_cka(upright), abs=1e-12)
    assert found["cka"].value == pytest.approx(debiased_cka(upright), abs=1e-12)
    samples = Samples(SampleSet({"x": left, "y": right}), "x", "y")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for metric in chosen("kornblith-rbf-cka:1,kornblith-rbf-cka:0.5"):
            assert found[metric.name].value == pytest.approx(metric.score(samples), abs=1e-12)
            assert found[metric.name].null.mean == pytest.approx(metric.null(samples).mean, abs=1e-12)
            assert found[metric.name].null.sd == pytest.approx(metric.null(samples).sd, abs=1e-12)
    (linear,) = chosen("cka-biased")
    assert found["kornblith-cka"].null.mean == pytest.approx(linear.null(upright).mean, abs=1e-12)
    assert found["kornblith-cka"].null.sd == pytest.approx(linear.null(upright).sd, abs=1e-12)


def test_a_layer_is_alike_with_itself_and_rows_without_full_rank_are_cut():
    whole = made(1, 20, 8, 10)
    poor = whole.clone()
    poor[-1] = poor[0] + 2 * poor[1]  # 19 directions
    for layer in (whole, poor):
        found = scores(Wide(layer), Wide(layer.clone()))
        for name, scored in found.items():
            assert scored.value == pytest.approx(1.0, abs=1e-6), name
    assert len(Wide(whole).whitening) == 20
    assert len(Wide(poor).whitening) == 19
    pair = pair_of_rows(poor.reshape(20, 80).T.numpy(), whole.reshape(20, 80).T.numpy())
    assert canonical(Wide(poor), Wide(whole)).mean() == pytest.approx(mean_cca(pair), abs=1e-9)


def test_dealt_out_at_random_a_layer_falls_to_chance():
    layer = made(4, 97, 8, 60) * torch.linspace(0.5, 2.0, 60, dtype=torch.float64)
    wide = Wide(layer)
    found = shuffled(wide, wide, torch.Generator().manual_seed(0))
    for name, scored in scores(wide, wide).items():
        assert scored.value == pytest.approx(1.0, abs=1e-6)
        assert found[name] == pytest.approx(scored.null.mean, abs=5 * scored.null.sd), name


# -- the right layout ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows() -> dict[str, torch.Tensor]:
    common = made(11, 120, 6)
    return {
        "a": common + 0.7 * made(12, 120, 6) + 3,
        "b": common[:, :4] * 2 + made(13, 120, 4),
        "c": made(14, 120, 5),
    }


GROUPS = np.repeat(np.arange(5), (30, 20, 25, 25, 20))


def gaussian_estimates(rows, groups, name):
    one, other = (words.gaussian_kernels(rows[key], groups)[name] for key in ("a", "b"))
    sizes = np.unique(groups, return_counts=True)[1].tolist()
    return words.kernel_estimates(one, other, sizes, name)


def test_moments_are_those_of_a_sweep(rows):
    ours = words.moments(rows, GROUPS, [("a", "b"), ("a", "c"), ("b", "c")])
    theirs = of_rows(rows, GROUPS)
    assert ours.groups == theirs.groups
    for name, array in theirs.sums.items():
        assert np.allclose(ours.sums[name], array, rtol=1e-9, atol=1e-7), name
    for group in theirs.groups:
        for name, array in theirs.parts[str(group)].items():
            assert np.allclose(ours.parts[str(group)][name], array, rtol=1e-9, atol=1e-7), name


def test_only_the_pairs_asked_for_are_made(rows):
    view = words.moments(rows, GROUPS, [("c", "a")])
    assert view.has("a", "c")
    assert not view.has("a", "b")
    expected = (rows["c"] - rows["c"].mean(0)).T @ (rows["a"] - rows["a"].mean(0))
    assert np.allclose(view.scatter("c", "a"), expected, atol=1e-6)


def test_scores_from_moments_with_their_intervals(rows):
    grouping = words.Grouping(GROUPS, np.arange(120))
    pairs = [("a", "b"), ("a", "c")]
    found = words.moment_estimates(rows, grouping, pairs, ["cka", "svcca", "cka-biased"])
    for one, other in pairs:
        left, right = rows[one].numpy(), rows[other].numpy()
        whole = pair_of_rows(left, right)
        kept = [np.flatnonzero(GROUPS - group) for group in range(5)]
        without = [pair_of_rows(left[rest], right[rest]) for rest in kept]
        for metric in chosen("cka,svcca,cka-biased"):
            estimate = found[one, other][metric.name]
            assert estimate.scored.value == pytest.approx(metric.score(whole), abs=1e-9)
            assert estimate.scored.null.mean == pytest.approx(metric.null(whole).mean, abs=1e-9)
            rest = [metric.score(pair) for pair in without]
            assert estimate.without == pytest.approx(rest, abs=1e-9)
            ends = jackknife(np.array(metric.score(whole)), [np.array(v) for v in rest], [30, 20, 25, 25, 20])
            assert (estimate.low, estimate.high) == pytest.approx((float(ends.low), float(ends.high)), abs=1e-8)


@pytest.mark.parametrize("width", [1.0, 0.5])
def test_gaussian_kernels_are_those_of_the_similarity_package(rows, width):
    found = gaussian_estimates(rows, GROUPS, f"rbf-cka:{width:g}")
    samples = Samples(SampleSet({name: rows[name].numpy() for name in "ab"}), "a", "b")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for metric in chosen(f"rbf-cka:{width:g},kornblith-rbf-cka:{width:g}"):
            assert found[metric.name].scored.value == pytest.approx(metric.score(samples), abs=1e-10)
            assert found[metric.name].scored.null.mean == pytest.approx(metric.null(samples).mean, abs=1e-10)
            assert found[metric.name].scored.null.sd == pytest.approx(metric.null(samples).sd, abs=1e-10)


def test_without_a_group_a_kernel_keeps_its_width(rows):
    """Written out: the kernels of all words, cut to those that stay, and the unbiased products of what is left."""
    kept = GROUPS != 2
    kernels = []
    for name in ("a", "b"):
        x = rows[name].numpy()
        squared = ((x[:, None] - x) ** 2).sum(2)
        whole = np.exp(-squared / (2 * np.median(squared)))
        np.fill_diagonal(whole, 0)
        kernels.append(whole[kept][:, kept])

    def product(x, y):
        n, r, s = len(x), x.sum(1), y.sum(1)
        return (x * y).sum() - 2 / (n - 2) * (r @ s) + r.sum() * s.sum() / ((n - 1) * (n - 2))

    x, y = kernels
    expected = product(x, y) / np.sqrt(product(x, x) * product(y, y))
    found = gaussian_estimates(rows, GROUPS, "rbf-cka:1")
    assert found["rbf-cka:1"].without[2] == pytest.approx(expected, abs=1e-10)


def test_one_group_has_no_interval(rows):
    grouping = words.Grouping(np.zeros(120, int), np.arange(120))
    found = words.moment_estimates(rows, grouping, [("a", "b")], ["cka"])["a", "b"]["cka"]
    assert (found.low, found.high, found.without) == (None, None, ())
    assert gaussian_estimates(rows, grouping.groups, "rbf-cka:1")["rbf-cka:1"].low is None
