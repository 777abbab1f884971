"""Scores drawn within their intervals: what is made of them has the uncertainty that it says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata, t

from pellucid import neurons
from pellucid.neurons.judging import agreement
from tests.neurons.test_agreement import ranking


def noisy(truth, deviation, seed, names):
    """A ranking whose scores are the true ones [classes, neurons] with normal noise that it knows."""
    truth = np.atleast_2d(truth)
    values = truth + deviation * np.random.default_rng(seed).normal(size=truth.shape)
    reach = t.ppf(0.975, 9) * deviation
    return ranking(values, low=values - reach, high=values + reach, names=names)


def test_how_many_neurons_a_class_takes_has_no_interval():
    """Twenty equal neurons of a thousand look like hundreds, and drawn again like more: no such range holds 20."""
    names = [f"n:{unit}" for unit in range(1000)]
    truth = np.r_[np.ones(20), np.zeros(980)]
    found = neurons.spread(noisy(truth, 0.1, 0, names))
    assert found.measure("effective")[0] > 400
    assert found.low is None
    assert found.high is None
    assert found.resampled.startswith("no interval: noise")
    assert neurons.spread(ranking(truth, names=names)).measure("effective") == pytest.approx([20])
    assert found.null[0, 0] == neurons.spread(ranking(truth, names=names), seed=0).null[0, 0]
    assert found.null[0, 0] != neurons.spread(ranking(truth, names=names), seed=1).null[0, 0]
    assert neurons.spread(ranking(truth, names=names), seed=1).provenance.seed == 1


@pytest.mark.parametrize("kind", ["planted", "graded"])
def test_the_true_shares_of_sites_lie_within_their_intervals(kind):
    """Scores with noise, over and over: of 95 in a hundred intervals, noise counted twice leaves next to none."""
    names = [f"resid.{site}:{unit}" for site in range(3) for unit in range(200)]
    graded = np.abs(np.random.default_rng(7).laplace(size=600)) * np.repeat([2, 1, 0.5], 200)
    truth = graded if kind == "graded" else np.r_[np.ones(20), np.zeros(580)]
    true = neurons.distribution(ranking(truth, names=names), 20, cls="c0").values
    found = [neurons.distribution(noisy(truth, 0.3, seed, names), 20, cls="c0") for seed in range(60)]
    inside = np.mean([(each.low <= true + 1e-9) & (true - 1e-9 <= each.high) for each in found], axis=0)
    assert (inside >= 0.88).all(), inside
    assert all(((each.low <= each.values) & (each.values <= each.high)).all() for each in found)
    assert all(((each.low >= 0) & (each.high <= 1)).all() for each in found)
    assert np.mean([each.high - each.low for each in found]) < 0.5


def test_the_true_shares_of_classes_lie_within_their_intervals():
    """Four classes with five neurons each, and none with one of another's; noise makes some look shared."""
    names = [f"n:{unit}" for unit in range(200)]
    truth = np.zeros((4, 200))
    for cls in range(4):
        truth[cls, 5 * cls : 5 * cls + 5] = 1
    found = [neurons.polysemy(noisy(truth, 0.35, seed, names), 5) for seed in range(40)]
    true = np.array([180, 20, 0, 0, 0]) / 200
    inside = np.mean([(each.low <= true + 1e-9) & (true - 1e-9 <= each.high) for each in found], axis=0)
    assert (inside >= 0.88).all(), inside


def test_the_interval_of_a_vote_is_that_of_votes_of_scores_drawn_again(monkeypatch):
    """± 1.96 standard deviations of Borda's count, worked out here from scores with the same noise."""
    monkeypatch.setattr(agreement, "_VOTES", 400)
    names = [f"n:{unit}" for unit in range(8)]
    truth = np.arange(1.0, 9.0)
    one, other = (noisy(truth, 1.0, seed, names) for seed in (0, 1))
    found = neurons.vote({"one": one, "other": other}, cls="c0")
    dice = np.random.default_rng(5)
    drawn = [
        np.mean([rankdata(np.abs(each.values[0] + dice.normal(size=8))) for each in (one, other)], axis=0)
        for _ in range(2000)
    ]
    reach = 1.96 * np.std((np.array(drawn) - 1) / 7, axis=0)
    share, overall = found.values[0], found.overall.columns
    for low, high in ((found.low[0], found.high[0]), (overall["low"], overall["high"])):
        assert np.maximum(high - share, share - low) == pytest.approx(reach, rel=0.15)
        inner = (low > 0) & (high < 1)
        assert (high + low)[inner] / 2 == pytest.approx(share[inner])
        assert 3 <= inner.sum() < 8
        assert (low.min(), high.max()) == (0, 1)  # of shares, where they end
