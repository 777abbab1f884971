"""Gaussian selection: the picks of refitting at every step, the formula written out, planted neurons, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from pellucid import neurons
from pellucid.neurons.probing.gaussian import class_gaussians
from pellucid.neurons.probing.gaussian_selection import CRITERIA, prefixes, select
from pellucid.neurons.probing.rows import ArrayRows
from pellucid.results import ResultError
from tests.neurons import planted

D, CLASSES, N = 9, 3, 400


@pytest.fixture(scope="module")
def data():
    """Correlated neurons, one of which repeats another, with class means that overlap."""
    dice = np.random.default_rng(0)
    goals = dice.choice(CLASSES, p=[0.5, 0.3, 0.2], size=N)
    rows = dice.normal(size=(N, D)) @ (np.eye(D) + 0.4 * dice.normal(size=(D, D))) + 5.0
    rows[:, 2] += 1.5 * (goals == 0)
    rows[:, 5] -= 1.2 * (goals == 1)
    rows[:, 7] = rows[:, 2] + 0.3 * dice.normal(size=N)
    return rows, goals


@pytest.fixture(scope="module")
def made(data):
    rows, goals = data
    return class_gaussians(ArrayRows(rows), goals, np.arange(N) < 250, CLASSES)


def test_the_fit_is_the_formula_written_out(data, made):
    rows, goals = data
    for code in range(CLASSES):
        mine = rows[:250][goals[:250] == code]
        mean, scatter = mine.mean(0), (mine - mine.mean(0)).T @ (mine - mine.mean(0))
        prior = np.diag(np.diag(scatter / len(mine)))
        expected = (prior + scatter) / ((D + 2) + len(mine) + D + 2)
        assert made.means[code] == pytest.approx(mean, rel=1e-6)
        assert made.covariances[code] == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert np.exp(made.prior[code]) == pytest.approx((goals[:250] == code).mean())


def posterior(made, chosen, rows):
    logs = np.stack(
        [
            multivariate_normal(made.means[z][chosen], made.covariances[z][np.ix_(chosen, chosen)]).logpdf(
                rows[:, chosen]
            )
            + made.prior[z]
            for z in range(CLASSES)
        ]
    )
    return logs - np.logaddexp.reduce(logs, axis=0)


def refitted(made, rows, goals, count, by):
    """Each step tries every neuron with a Gaussian of its own."""
    picks, scores = [], []
    for _ in range(count):
        tried = {}
        for unit in range(D):
            if unit in picks:
                continue
            logs = posterior(made, [*picks, unit], rows)
            if by == "likelihood":
                tried[unit] = logs[goals, np.arange(len(goals))].mean()
            elif by == "accuracy":
                tried[unit] = (logs.argmax(0) == goals).mean()
            else:
                prior = np.exp(made.prior)
                tried[unit] = -(prior * made.prior).sum() + (np.exp(logs) * logs).sum(0).mean()
        picks.append(max(tried, key=tried.get))
        scores.append(tried[picks[-1]])
    return picks, scores


@pytest.mark.parametrize("by", CRITERIA)
def test_the_picks_are_those_of_refitting(data, made, by):
    rows, goals = data[0][250:], data[1][250:]
    found = select(made, torch.from_numpy(rows), goals, 6, by=by)
    picks, scores = refitted(made, rows, goals, 6, by)
    assert found.picks.tolist() == picks
    assert found.scores == pytest.approx(scores, abs=1e-5)
    assert picks[0] in (2, 7)


def test_prefixes_are_scipys(data, made):
    rows = data[0][250:260]
    picks = np.array([4, 2, 0])
    found = prefixes(made, picks, torch.from_numpy(rows))
    for k in range(1, 4):
        assert found[k - 1] == pytest.approx(posterior(made, picks[:k].tolist(), rows), abs=1e-9)


def test_a_still_neuron_is_never_chosen(data):
    rows, goals = data[0].copy(), data[1]
    rows[:, 3] = 7.0
    rows[goals == 0, 4] = 1.0  # still in one class alone
    made = class_gaussians(ArrayRows(rows), goals, np.ones(N, bool), CLASSES)
    found = select(made, torch.from_numpy(rows).float(), goals, D - 1)
    assert sorted(found.picks.tolist()) == [unit for unit in range(D) if unit != 3]  # each once
    assert np.isfinite(found.scores).all()
    with pytest.raises(ResultError, match="8 neurons change"):
        select(made, torch.from_numpy(rows), goals, D)


def test_bad_input_is_one_sentence(data, made):
    rows, goals = data
    with pytest.raises(ResultError, match="cannot be selected by 'magic'"):
        select(made, torch.from_numpy(rows), goals, 2, by="magic")
    with pytest.raises(ResultError, match="no held-out words"):
        select(made, torch.from_numpy(rows[:0]), goals[:0], 2)
    with pytest.raises(ResultError, match="two or more words of every class"):
        class_gaussians(ArrayRows(rows), goals, goals < 2, CLASSES)
    spoilt = rows.copy()
    spoilt[3, 1] = np.inf
    with pytest.raises(ResultError, match="1 is not a number"):
        class_gaussians(ArrayRows(spoilt), goals, np.ones(N, bool), CLASSES)


@pytest.mark.parametrize("tag", ["NOUN", "VERB", planted.FLIPPED])
def test_planted_neurons_are_chosen_and_beat_random_ones(tag):
    found = neurons.gaussian(planted.model(), planted.corpus(), concept=f"upos={tag}", sites="neurons.*", count=3)
    name = planted.names()[tag]
    assert found.picks[0] == name
    assert found.values[0, 0] > 0.95
    assert found.values[0, 0] > found.null[0, 0] + 0.1
    assert found.values[1, 0] > found.null[1, 0] + 0.1
    assert found.axes["neurons"] == (1, 2, 3)
    ranking = found.ranking()
    assert ranking.top(3) == found.picks
    assert ranking.scores()[ranking.place("neuron", found.picks[1])] == 0.5
    assert ranking.classes == (tag,)
    assert (ranking.values[0, ranking.place("neuron", name)] < 0) == (tag == planted.FLIPPED)
    assert ranking.null.sum() == pytest.approx(ranking.overall.columns["score"].sum())
