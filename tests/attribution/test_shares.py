"""Shares of attribution as arithmetic: what chance gives, and what every sentence weighs."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.attribution.shares import Shares


def test_chance_is_what_permutations_give():
    dice = np.random.default_rng(0)
    sentences = [(dice.normal(size=(2, n)), dice.integers(0, 3, size=n)) for n in (4, 9, 6)]
    told = Shares(1, (2,), 3)
    for values, codes in sentences:
        told.add(values, codes, 0, np.abs(values).sum(-1))
    shuffled = Shares(1, (2,), 3)
    for _ in range(4000):
        for values, codes in sentences:
            order = dice.permutation(len(codes))
            shuffled.add(values[:, order], codes, 0, np.abs(values).sum(-1))
    estimates, drawn = told.estimates(), shuffled.estimates()
    assert drawn.share == pytest.approx(estimates.share_chance, abs=0.01)
    assert drawn.signed == pytest.approx(estimates.signed_chance, abs=0.01)
    frequency = np.mean([np.bincount(codes, minlength=3) / len(codes) for _, codes in sentences], axis=0)
    assert estimates.share_chance == pytest.approx(np.stack([frequency] * 2))


def test_sentences_weigh_the_same_whatever_their_scale():
    one, many = Shares(1, (1,), 2), Shares(1, (1,), 2)
    for scale in (1.0, 1000.0):
        values = np.array([[1.0, -3.0]])
        one.add(values, np.array([0, 1]), 0, np.abs(values).sum(-1))
        many.add(values * scale, np.array([0, 1]), 0, np.abs(values).sum(-1))
    assert many.estimates().share == pytest.approx(one.estimates().share)
    assert one.estimates().share[0] == pytest.approx([0.25, 0.75])
    assert one.estimates().signed[0] == pytest.approx([0.25, -0.75])
