"""Learning rates on the way, and which parameters are decayed."""

import itertools

import pytest
import torch
from torch import nn

from pellucid.train.optimisers import learning_rate, optimiser
from pellucid.train.settings import settings_for


def test_the_step_schedule_of_the_thesis() -> None:
    lm = settings_for("lm", "thesis")
    assert learning_rate(lm, 1, 1, 500) == learning_rate(lm, 4, 40, 500) == 5.8
    assert learning_rate(lm, 5, 41, 500) == pytest.approx(5.8 * 0.7)
    assert learning_rate(lm, 50, 500, 500) == pytest.approx(5.8 * 0.7**12)


def test_a_cosine_rises_and_falls_to_nothing() -> None:
    settings = settings_for("lm", learning_rate=1.0, schedule="cosine", warmup=0.1)
    rates = [learning_rate(settings, 1, step, 100) for step in range(1, 101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == 1.0
    assert rates[10] == pytest.approx(1.0)
    assert 0 < rates[99] < 0.01
    assert rates[55] == pytest.approx(0.5)
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[10:]))


def test_a_constant_stays() -> None:
    settings = settings_for("lm", learning_rate=0.3, schedule="constant", warmup=0.0)
    assert {learning_rate(settings, epoch, epoch * 10, 50) for epoch in range(1, 6)} == {0.3}


def test_matrices_alone_are_decayed_and_frozen_ones_are_left_out() -> None:
    layers = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    layers[0].weight.requires_grad_(False)
    made = optimiser(layers.parameters(), settings_for("lm", weight_decay=0.2), fused=False)
    decayed = {id(each): group["weight_decay"] for group in made.param_groups for each in group["params"]}
    assert decayed == {
        id(layers[0].bias): 0.0,
        id(layers[1].weight): 0.0,
        id(layers[1].bias): 0.0,
        id(layers[2].weight): 0.2,
        id(layers[2].bias): 0.0,
    }


def test_sgd_steps_against_the_gradient() -> None:
    weight = nn.Parameter(torch.tensor([[1.0, 2.0]]))
    made = optimiser([weight], settings_for("lm", "thesis", learning_rate=0.5), fused=False)
    weight.grad = torch.tensor([[1.0, -2.0]])
    made.step()
    assert torch.equal(weight.data, torch.tensor([[0.5, 3.0]]))
