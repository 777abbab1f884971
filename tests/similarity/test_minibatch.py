"""Minibatch CKA: equal to its definition, near the exact score when shuffled, and far from it when batches are text."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.errors import PellucidError
from pellucid.similarity import SimilarityWarning, minibatch_cka, pair_of_rows
from pellucid.similarity.cka import debiased_cka
from tests.similarity.test_scores import Array, gram, hsic, made

DOCUMENTS, WORDS = 64, 32


def planted(seed: int = 0) -> tuple[Array, Array]:
    """Two sides that share what sets documents apart, turned round, and nothing of what sets their words apart."""
    generator = np.random.default_rng(seed)
    topic = np.repeat(generator.normal(size=(DOCUMENTS, 24)), WORDS, axis=0)
    turn = np.linalg.qr(generator.normal(size=(24, 24)))[0]
    x, y = (0.42 * generator.normal(size=topic.shape) for _ in range(2))
    return x + topic, y + topic @ turn


def unshuffled(x: Array, y: Array, batch: int) -> float:
    with pytest.warns(SimilarityWarning, match="a batch holds the words of a few documents"):
        return minibatch_cka(x, y, batch=batch, shuffle=False, force=True)


def test_batches_of_text_measure_something_else() -> None:
    """The trap: exact .78; one document to a batch finds nothing, four to a batch far too much, shuffled is right."""
    x, y = planted()
    exact = debiased_cka(pair_of_rows(x, y))
    assert exact == pytest.approx(0.78, abs=0.01)
    assert abs(unshuffled(x, y, WORDS)) < 0.01
    assert unshuffled(x, y, 4 * WORDS) > exact + 0.1
    for seed in range(3):
        assert minibatch_cka(x, y, batch=WORDS, seed=seed) == pytest.approx(exact, abs=0.01)
        assert minibatch_cka(x, y, batch=4 * WORDS, seed=seed) == pytest.approx(exact, abs=0.01)


def test_hsics_are_averaged_before_the_ratio() -> None:
    """By the definition over three batches of unequal structure; the mean of three ratios is another number."""
    x, y = made(96, 5, 4)
    y[:32] = np.random.default_rng(3).normal(size=(32, 4))
    parts = [(gram(x[at : at + 32]), gram(y[at : at + 32])) for at in (0, 32, 64)]
    both, own, other = np.sum([(hsic(k, m), hsic(k, k), hsic(m, m)) for k, m in parts], axis=0)
    expected = both / np.sqrt(own * other)
    assert unshuffled(x, y, 32) == pytest.approx(expected, abs=1e-12)
    ratios = [hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m)) for k, m in parts]
    assert abs(np.mean(ratios) - expected) > 0.01


def test_unequal_batches_weigh_their_means() -> None:
    """20 rows in batches of at most 8 are 7, 7 and 6: each sum is over n(n−3), and batches count alike."""
    x, y = made(20, 3, 3)
    edges = [(0, 7), (7, 14), (14, 20)]
    sums = np.zeros(3)
    for start, stop in edges:
        n, k, m = stop - start, gram(x[start:stop]), gram(y[start:stop])
        sums += np.array([hsic(k, m), hsic(k, k), hsic(m, m)]) / (n * (n - 3))
    assert unshuffled(x, y, 8) == pytest.approx(sums[0] / np.sqrt(sums[1] * sums[2]), abs=1e-12)


def test_one_batch_is_the_exact_score() -> None:
    x, y = made(200)
    exact = debiased_cka(pair_of_rows(x, y))
    assert minibatch_cka(x, y, batch=200) == pytest.approx(exact, abs=1e-10)
    assert minibatch_cka(x + 800, y, batch=256) == pytest.approx(exact, abs=1e-8)


def test_seeds_and_inputs() -> None:
    x, y = made(300)
    before = x.copy(), y.copy()
    assert minibatch_cka(x, y, batch=32, seed=4) == minibatch_cka(x, y, batch=32, seed=4)
    assert minibatch_cka(x, y, batch=32, seed=4) != minibatch_cka(x, y, batch=32, seed=5)
    assert np.array_equal(x, before[0])
    assert np.array_equal(y, before[1])
    assert minibatch_cka(x, np.ones((300, 2)), batch=32) == 0.0


def test_refusals() -> None:
    x, y = made(40, 4, 4)
    with pytest.raises(PellucidError, match=r"order of the corpus.*leave shuffle=True, or pass force=True"):
        minibatch_cka(x, y, shuffle=False)
    with pytest.raises(PellucidError, match=r"x has 40 and y has 39"):
        minibatch_cka(x, y[:-1])
    with pytest.raises(PellucidError, match=r"Batches of 7 rows are too small; use 8"):
        minibatch_cka(x, y, batch=7)
    with pytest.raises(PellucidError, match=r"y has the shape \[40\]"):
        minibatch_cka(x, y[:, 0])
    with pytest.raises(PellucidError, match=r"x has 3 rows"):
        minibatch_cka(x[:3], y[:3])
    broken = y.copy()
    broken[9, 1] = np.inf
    with pytest.raises(PellucidError, match=r"y is NaN or infinite at row 9, feature 1"):
        minibatch_cka(x, broken)
