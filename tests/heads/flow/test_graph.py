"""Rollout and attention flow: by hand, against a linear programme, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from pellucid.errors import ModelError
from pellucid.heads import attention_flow, rollout
from pellucid.heads.flow.graph import SCALE, check_work

# Two layers, three tokens; the capacities ½(A + I) are those of `FIRST` and `SECOND`.
PATTERNS = np.array(
    [
        [[1.0, 0.0, 0.0], [0.4, 0.6, 0.0], [0.2, 0.8, 0.0]],
        [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.4, 0.6]],
    ]
)
FIRST = np.array([[1.0, 0.0, 0.0], [0.2, 0.8, 0.0], [0.1, 0.4, 0.5]])
SECOND = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.2, 0.8]])


def patterns(layers: int, tokens: int, *, causal: bool, seed: int = 0) -> np.ndarray:
    scores = 3 * np.random.default_rng(seed).normal(size=(layers, tokens, tokens))
    weights = np.exp(np.where(np.tri(tokens) > 0, scores, -np.inf) if causal else scores)
    return weights / weights.sum(-1, keepdims=True)


def test_rollout_by_hand():
    found = rollout(PATTERNS)
    np.testing.assert_allclose(found[0], FIRST)
    np.testing.assert_allclose(found[1], [[1, 0, 0], [0.6, 0.4, 0], [0.12, 0.48, 0.4]])


def test_the_share_of_the_residual_stream():
    np.testing.assert_allclose(rollout(PATTERNS, residual=0)[1], PATTERNS[1] @ PATTERNS[0])
    np.testing.assert_allclose(rollout(PATTERNS, residual=1), np.stack([np.eye(3)] * 2))
    quarter = 0.75 * PATTERNS + 0.25 * np.eye(3)
    np.testing.assert_allclose(rollout(PATTERNS, residual=0.25)[1], quarter[1] @ quarter[0])
    with pytest.raises(ModelError, match=r"from 0 to 1, and residual=1.5"):
        rollout(PATTERNS, residual=1.5)


@pytest.mark.parametrize("causal", [True, False])
def test_rollout_keeps_sums_and_zeros(causal):
    found = rollout(patterns(4, 6, causal=causal))
    np.testing.assert_allclose(found.sum(-1), 1)
    assert bool((np.triu(found, 1) == 0).all()) is causal


def test_flow_by_hand():
    """Token 2 sends .2 by token 1 and .8 by itself; to input 1 .2 of .8 and .4 of .8, to input 2 no more than .5."""
    found, error = attention_flow(PATTERNS)
    np.testing.assert_allclose(found[0], FIRST, atol=error)
    np.testing.assert_allclose(found[1], [[1, 0, 0], [0.7, 0.5, 0], [0.3, 0.6, 0.5]], atol=2 * error)
    assert 0 < error < 1e-8


def flow_by_programme(capacities: np.ndarray, depth: int, token: int, source: int) -> float:
    """The largest flow as a linear programme over the flows of all edges, each up to its capacity."""
    tokens = capacities.shape[-1]
    edges = [(layer, i, j) for layer in range(depth) for i in range(tokens) for j in range(tokens)]
    bounds = [(0, float(capacities[edge])) for edge in edges]
    balance, right = [], []
    for layer in range(1, depth):
        for node in range(tokens):
            leaves = [float(at == layer - 1 and i == node) for at, i, _ in edges]
            enters = [float(at == layer and j == node) for at, _, j in edges]
            balance.append(np.subtract(leaves, enters))
            right.append(0.0)
    begins = [float(layer == depth - 1 and i != token) for layer, i, _ in edges]  # nothing starts elsewhere
    ends = [float(layer == 0 and j != source) for layer, _, j in edges]  # nor ends elsewhere
    balance += [np.array(begins), np.array(ends)]
    right += [0.0, 0.0]
    gain = [-float(layer == 0 and j == source) for layer, _, j in edges]
    return -linprog(gain, A_eq=np.array(balance), b_eq=right, bounds=bounds).fun


@pytest.mark.parametrize("causal", [True, False])
def test_flow_is_that_of_a_linear_programme(causal):
    given = patterns(3, 4, causal=causal, seed=5)
    found, error = attention_flow(given)
    capacities = 0.5 * (given + np.eye(4))
    for depth in (1, 2, 3):
        for token in range(4):
            wanted = [flow_by_programme(capacities, depth, token, source) for source in range(4)]
            np.testing.assert_allclose(found[depth - 1, token], wanted, atol=error + 1e-9)
    if causal:
        assert not np.triu(found, 1).any()


def test_rounding_is_within_what_is_told():
    given = patterns(3, 5, causal=False, seed=2)
    coarse, error = attention_flow(given)
    assert error == pytest.approx(0.5 * np.count_nonzero(given) / SCALE)
    whole = np.rint(0.5 * (given + np.eye(5)) * SCALE) / SCALE
    np.testing.assert_allclose(coarse[0], whole[0], atol=1e-12)


def test_chosen_positions_are_those_rows():
    given = patterns(3, 5, causal=True)
    every, few = attention_flow(given)[0], attention_flow(given, positions=[4, 1])[0]
    np.testing.assert_array_equal(few, every[:, [4, 1]])


def test_inputs_are_not_changed():
    given = patterns(2, 4, causal=False)
    before = given.copy()
    rollout(given)
    attention_flow(given)
    np.testing.assert_array_equal(given, before)


def test_what_takes_too_long_is_refused_with_its_size():
    with pytest.raises(ModelError, match=r"512 tokens through 12 layers at 1 positions takes 6,144 maximum flows"):
        attention_flow(np.zeros((12, 512, 512)), positions=[511])
    check_work(12, 64, 64)  # a sentence may be looked at whole
