"""Published variants: what they give for pure noise, what they say is wrong, and the chance told beside them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pellucid.errors import PellucidError
from pellucid.similarity import Samples, SampleSet, SimilarityWarning, pair_of_rows, preset
from pellucid.similarity.cka import biased_cka, debiased_cka
from pellucid.similarity.metrics import chosen, metrics
from pellucid.similarity.presets import google_mean, leading_count
from tests.similarity.test_scores import ORACLES, Array, cut, made, qr_correlations, scored

FEATURES, WORDS = 194, 960
"""A sixteenth of 3,104 neurons over 15,360 words: the same ratio of features to words, so the same limit law."""


def noise(words: int = WORDS, features: int = FEATURES, *, seed: int = 0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(words, features)), generator.normal(size=(words, features))


def limit_law(ratio: float) -> tuple[Array, Array]:
    """Correlations ρ of independent sides with features/words = ratio on both, falling, and the share of each.

    Wachter's density for equal ratios c: λ = ρ² on (0, 4c(1−c)) with √((4c(1−c)−λ)/λ)/(2πc(1−λ)), by fine midpoints
    in ρ, where dλ = 2ρ·dρ takes the root at 0 away.
    """
    top = 2 * np.sqrt(ratio * (1 - ratio))
    rho = top * (np.arange(400_000)[::-1] + 0.5) / 400_000
    density = np.sqrt(top**2 - rho**2) / (np.pi * ratio * (1 - rho**2))
    return rho, density * top / 400_000


def test_the_limit_law_is_a_law() -> None:
    rho, share = limit_law(3104 / 15359)
    assert share.sum() == pytest.approx(1, abs=1e-6)
    assert (share * rho**2).sum() == pytest.approx(3104 / 15359, abs=1e-6)  # the mean of ρ² is p/(n−1)


def test_what_noise_scores() -> None:
    """Mean ρ .390 and the leading 98% alone .444, from the limit law and from rows."""
    rho, share = limit_law(3104 / 15359)
    mean = (share * rho).sum()
    leading = np.cumsum(share * rho) <= 0.98 * mean
    google = (share * rho)[leading].sum() / share[leading].sum()
    assert mean == pytest.approx(0.390, abs=5e-4)
    assert google == pytest.approx(0.444, abs=1e-3)
    x, y = noise()
    assert scored("cca", x, y) == pytest.approx(mean, abs=0.003)
    with pytest.warns(SimilarityWarning, match="leading correlations"):
        assert scored("thesis-svcca", x, y) == pytest.approx(google, abs=0.003)


def test_biased_cka_of_noise_depends_on_which_way_the_array_is_read() -> None:
    """.17 with 3,104 features of 15,360 words, .83 with 15,360 features of 3,104; debiased about 0 either way."""
    ratio = 3104 / 15359
    pair = pair_of_rows(*noise())
    assert biased_cka(pair) == pytest.approx(ratio / (1 + ratio), abs=0.003)
    assert debiased_cka(pair) == pytest.approx(0, abs=0.01)
    turned = pair_of_rows(*noise(FEATURES, WORDS))
    assert biased_cka(turned) == pytest.approx(1 / (1 + ratio), abs=0.005)
    assert 1 / (1 + ratio) == pytest.approx(0.83, abs=0.005)
    assert debiased_cka(turned) == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("name", ["thesis-svcca", "google-svcca", "kornblith-cka", "kornblith-rbf-cka"])
@pytest.mark.filterwarnings("ignore::pellucid.similarity.SimilarityWarning")
def test_chance_is_what_noise_scores(name: str) -> None:
    """The told mean and sd are those of independent sides, over sixty draws."""
    (metric,) = chosen(name)
    values: list[float] = []
    means: list[float] = []
    for seed in range(60):
        x, y = noise(120, 20, seed=seed)
        data = pair_of_rows(x, y) if metric.needs == "moments" else Samples(SampleSet({"x": x, "y": y}), "x", "y")
        values.append(metric.score(data))
        means.append(metric.null(data).mean)
    null = metric.null(data)
    assert np.mean(values) == pytest.approx(np.mean(means), abs=4 * null.sd / np.sqrt(60) + 1e-3)
    assert np.std(values) == pytest.approx(null.sd, rel=0.5)


def test_rbf_chance_is_that_of_permutations() -> None:
    x, y = made(60, 5, 4)
    (metric,) = chosen("kornblith-rbf-cka:0.7")
    null = metric.null(Samples(SampleSet({"x": x, "y": y}), "x", "y"))
    generator = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimilarityWarning)
        drawn = [scored("kornblith-rbf-cka:0.7", x, y[generator.permutation(60)]) for _ in range(400)]
    assert null.mean == pytest.approx(np.mean(drawn), abs=4 * null.sd / 20)
    assert null.sd == pytest.approx(np.std(drawn), rel=0.15)


def test_the_leading_part_is_the_least_that_reaches_the_share() -> None:
    rho = np.array([0.5, 0.3, 0.18, 0.02])
    assert leading_count(rho, 0.98) == 3
    assert google_mean(rho) == pytest.approx((0.5 + 0.3 + 0.18) / 3)
    assert leading_count(rho, 0.99) == 4
    assert google_mean(np.zeros(3)) == 0.0


def test_singular_values_keep_more_than_variance() -> None:
    """The fault itself: with a falling spectrum, 99% of Σs keeps directions that 99% of the variance leaves out."""
    generator = np.random.default_rng(0)
    x, y = (generator.normal(size=(500, 20)) * 0.7 ** np.arange(20) for _ in range(2))
    fewer, more = qr_correlations(cut(x, 0.99), cut(y, 0.99)), ORACLES["google-svcca"](x, y)
    with pytest.warns(SimilarityWarning, match="not the variance"):
        found = scored("google-svcca", x, y)
    assert found == pytest.approx(more, abs=1e-10)
    assert abs(found - google_mean(fewer)) > 0.01


@pytest.mark.parametrize(
    ("name", "wrong", "instead"),
    [
        ("google-svcca", "cuts at 99% of Σs", "use 'svcca'"),
        ("thesis-svcca", "keeps every direction", "'cca' for all directions"),
        ("kornblith-cka", r"unrelated sides score over 0\.05", "use 'cka'"),
        ("kornblith-rbf-cka", r"unrelated sides score over 0\.05", r"use 'rbf-cka:0\.5'"),
    ],
)
def test_each_says_what_is_wrong_and_what_to_use(name: str, wrong: str, instead: str) -> None:
    with pytest.warns(SimilarityWarning, match=f"^{name} .*{wrong}.*{instead}"):
        scored(name, *noise(60, 20))


@pytest.mark.parametrize("name", ["google-svcca", "kornblith-cka"])
def test_the_same_sentence_is_shown_once(name: str) -> None:
    """A grid scores many pairs, each with another chance: Python's own rule shows equal sentences once."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for seed in range(4):
            scored(name, *noise(60 + seed, 20, seed=seed))
    assert len([each for each in shown if issubclass(each.category, SimilarityWarning)]) == 1


def test_biased_scores_are_quiet_where_chance_is_low() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scored("kornblith-cka", *made(400, 4, 3))


@pytest.mark.parametrize("name", ["google", "kornblith", "thesis"])
def test_presets_name_scores(name: str) -> None:
    assert preset(name)
    assert set(preset(name)) <= set(metrics())
    assert all(each.startswith(f"{name}-") for each in preset(name))


def test_refusals() -> None:
    with pytest.raises(PellucidError, match=r"no preset 'svcca'; there are google, kornblith, thesis"):
        preset("svcca")
    with pytest.raises(PellucidError, match="number above 0"):
        chosen("kornblith-rbf-cka:wide")
