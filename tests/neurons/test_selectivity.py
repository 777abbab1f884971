"""Selectivity: known answers on planted spreads, chance by shuffling, and Morcos's index."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.neurons import selectivity
from pellucid.neurons.class_sums import ClassSums
from pellucid.neurons.selectivity import class_index, d_prime
from tests.neurons import planted
from tests.neurons.test_probeless import drawn, sums_of


def test_a_known_answer():
    """One class 2 above the rest, with spread 1 inside and 3 in the rest: d′ = 2/√((1 + 9)/2)."""
    sums = ClassSums(("a", "other"), np.array([10.0, 30.0]), np.array([[2.0], [0.0]]), np.array([[1.0], [9.0]]))
    scores = d_prime(sums)
    assert scores.signed == pytest.approx(np.array([[2 / np.sqrt(5)]]))
    assert scores.null == pytest.approx(np.array([[np.sqrt(2 / np.pi * (1 / 10 + 1 / 30))]]))


def test_it_is_the_same_from_rows():
    rows, tags = drawn(4)
    rows[tags == "c", 1] -= 1.5
    scores = d_prime(sums_of(rows, tags))
    for place, name in enumerate("abc"):
        own, rest = rows[tags == name], rows[tags != name]
        expected = (own.mean(0) - rest.mean(0)) / np.sqrt((own.var(0) + rest.var(0)) / 2)
        assert scores.signed[place] == pytest.approx(expected)
    assert scores.overall == pytest.approx(np.abs(scores.signed).max(0))
    assert np.abs(scores.signed[2]).argmax() == 1
    assert scores.signed[2, 1] < 0


def test_chance_is_what_shuffled_labels_give():
    rows, tags = drawn(5)
    dice = np.random.default_rng(6)
    shuffled = [np.abs(d_prime(sums_of(rows, dice.permutation(tags))).signed) for _ in range(300)]
    assert d_prime(sums_of(rows, tags)).null == pytest.approx(np.mean(shuffled, axis=0), rel=0.15)


def test_constant_neurons_score_nothing():
    rows, tags = drawn()
    rows[:, 0] = 1e4
    scores = d_prime(sums_of(rows, tags))
    assert (scores.signed[:, 0] == 0).all()
    assert np.isfinite(scores.signed).all()


def test_the_index_of_morcos():
    means = np.array([[3.0, 0.0, -1.0, 0.0], [1.0, 0.0, 2.0, 5.0], [1.0, 0.0, 1.0, 0.0]])
    index, best = class_index(means, np.array([5, 5, 5]))
    assert index == pytest.approx([(3 - 1) / (3 + 1), 0.0, 0.0, 1.0])
    assert best.tolist() == [0, 0, -1, 1], "a negative mean leaves it undefined"


def test_planted_neurons_are_first():
    found = selectivity(planted.model(), planted.corpus(), concept="upos", sites="neurons.*")
    for tag, name in planted.names().items():
        assert found.top(1, tag) == [name], tag
        assert (found.values[found.place("class", tag), found.place("neuron", name)] < 0) == (tag == planted.FLIPPED)
    assert set(found.table("index").columns) == {"index", "class"}
    assert found.low is not None
