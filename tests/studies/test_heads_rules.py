"""Rules of the study of heads: known answers counted by hand, and every verdict within reach."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from pellucid.studies import rules
from pellucid.studies.rules import Number


def test_a_number_with_an_interval_lies_above_below_or_neither():
    assert Number(0.6, 0.5, 0.55, 0.65).above() is True
    assert Number(0.4, 0.5, 0.35, 0.45).above() is False
    assert Number(0.6, 0.5, 0.45, 0.75).above() is None
    assert Number(0.4, 0.5, 0.35, 0.45).below() is True
    assert Number(0.6, 0.5, 0.45, 0.75).below() is None
    assert Number(0.6, 0.5).above() is None
    assert rules.UNKNOWN.above() is None


def test_a_number_with_a_band_must_lie_outside_of_it():
    assert Number(3, 2, band=(1, 3)).above() is None
    assert Number(4, 2, band=(1, 3)).above() is True
    assert Number(0, 2, band=(1, 3)).above() is False


def test_precedence_counts_pairs():
    values, chosen = np.array([5.0, 1.0, 3.0, 3.0, 2.0]), np.array([True, False, True, False, False])
    # pairs of a chosen and another one: 5 beats 1, 3, 2; 3 beats 1 and 2, and ties with 3
    assert rules.beaten(values, chosen) == pytest.approx(5.5 / 6)
    assert rules.precedence(values, np.array([True, *[False] * 4])).above() is None  # one head is too few


def test_precedence_against_all_permutations():
    values = np.arange(10.0)
    every = [rules.beaten(values, np.isin(values, chosen)) for chosen in combinations(range(10), 3)]  # 120 ways
    low, high = np.quantile(every, [0.025, 0.975])
    found = rules.precedence(values, values >= 7)
    assert found.value == 1
    assert found.chance == 0.5
    assert found.band == pytest.approx((low, high), abs=0.05)
    many = np.arange(40.0)
    assert rules.precedence(many, many >= 30).above() is True
    assert rules.precedence(many, many < 10).above() is False
    assert rules.precedence(many, many % 4 == 0).above() is None


def test_agreement_known_answers():
    first = np.arange(30.0)
    assert rules.agreement(first, first**3).value == pytest.approx(1)
    assert rules.agreement(first, first**3).above() is True
    assert rules.agreement(first, -first).above() is False
    mixed = np.random.default_rng(3).permutation(first)
    found = rules.agreement(first, mixed)
    assert found.value == pytest.approx(1 - 6 * ((first - mixed) ** 2).sum() / (30 * (30**2 - 1)))
    assert found.above() is None
    assert found.band == pytest.approx((-0.36, 0.36), abs=0.04)  # ±1.96/√29
    assert rules.agreement(first, np.ones(30)).above() is None


def test_difference_of_two_kinds():
    values = np.array([1.0] * 8 + [0.0] * 8 + [9.0] * 4)
    first, second = np.arange(20) < 8, (np.arange(20) >= 8) & (np.arange(20) < 16)
    found = rules.difference(values, first, second)
    assert found.value == pytest.approx(1)
    assert found.above() is True
    assert rules.difference(values, second, first).above() is False
    assert (
        rules.difference(values % 2 + np.arange(20) % 2, np.arange(20) % 4 == 0, np.arange(20) % 4 == 2).above() is None
    )


def test_survivors_beside_every_draw():
    """Of six heads two are special; three are left: all twenty draws, counted by hand."""
    draws = [len({0, 1} & set(left)) for left in combinations(range(6), 3)]
    found = rules.survivors(6, 2, 3, 2)
    assert found.chance == pytest.approx(np.mean(draws))
    assert found.band == (0, 2)  # none in 4 of 20 draws, two in 4 of 20: neither is rare
    assert found.above() is None
    assert [draws.count(each) for each in (0, 1, 2)] == [4, 12, 4]


def test_survivors_beyond_draws():
    chances = np.random.default_rng(0).hypergeometric(20, 52, 24, size=200_000)
    found = rules.survivors(72, 20, 24, 14)
    low, high = np.quantile(chances, [0.025, 0.975])
    assert found.band == (low, high)
    assert found.chance == pytest.approx(24 * 20 / 72)
    assert found.above() is True
    assert rules.survivors(72, 20, 24, 1).above() is False
    assert rules.survivors(72, 20, 24, 7).above() is None
    for empty in (rules.survivors(72, 0, 24, 0), rules.survivors(72, 20, 0, 0), rules.survivors(72, 20, 72, 20)):
        assert empty.above() is None


def test_wilson_known_answer():
    found = rules.share(8, 10, 0.4)
    assert (found.low, found.high) == (pytest.approx(0.4902, abs=1e-3), pytest.approx(0.9433, abs=1e-3))
    assert found.above() is True
    assert rules.share(0, 12, 0.0).low == 0
    assert rules.share(12, 12, 0.0).high == 1


def test_the_middle_third():
    assert rules.middle_layers(3).tolist() == [False, True, False]
    assert np.flatnonzero(rules.middle_layers(6)).tolist() == [2, 3]
    assert np.flatnonzero(rules.middle_layers(30)).tolist() == list(range(10, 20))
    assert rules.middle_less(np.array([1.0, 4.0, 2.0]), "first") == pytest.approx(3)
    assert rules.middle_less(np.array([1.0, 4.0, 2.0]), "last") == pytest.approx(2)
    assert rules.middle_less(np.array([9.0, 1.0, 4.0, 2.0, 3.0, 5.0]), "first") == pytest.approx(-2)
    assert np.isnan(rules.middle_less(np.array([1.0, 4.0]), "last"))


def test_centre_of_what_is_positive():
    assert rules.centre(np.array([0.0, -5.0, 2.0])) == 1
    assert rules.centre(np.array([1.0, 0.0, 1.0])) == 0.5
    assert rules.centre(np.array([3.0, 1.0, 0.0])) == pytest.approx(0.125)
    assert rules.centre(np.array([-1.0, -1.0])) == 0.5


def test_resampled_needs_groups():
    groups = np.array([0.2, 0.3, 0.25, 0.35])
    whole = groups.mean()
    without = [(groups.sum() - each) / 3 for each in groups]
    found = rules.resampled(float(whole), without, [1, 1, 1, 1], 0.0)
    reach = 3.1824463 * groups.std(ddof=1) / 2
    assert (found.low, found.high) == (pytest.approx(whole - reach), pytest.approx(whole + reach))
    assert rules.resampled(0.3, [], [], 0.0).above() is None
