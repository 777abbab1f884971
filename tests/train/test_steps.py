"""A step: what a plain loop would do, and what is left in memory of parameters that were frozen."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pellucid.train.settings import settings_for
from pellucid.train.steps import Steps


def squares(network: Any, batch: Any) -> torch.Tensor:
    return (network(batch["x"]) ** 2).mean()


def steps(network: nn.Module) -> Steps:
    settings = settings_for("lm", optimiser="sgd", clip=1e9, weight_decay=0.0)
    return Steps(network, squares, settings, torch.device("cpu"), half=False, recorded=False)


def test_a_step_is_the_gradient_times_the_rate() -> None:
    torch.manual_seed(0)
    network, batch = nn.Linear(3, 2), {"x": torch.randn(5, 3)}
    before = network.weight.detach().clone()
    gradient = 2 * (network(batch["x"]).detach().T @ batch["x"]) / 10
    expected = squares(network, batch).detach()
    loss = steps(network).take(batch, 0.1)
    torch.testing.assert_close(network.weight.detach(), before - 0.1 * gradient)
    torch.testing.assert_close(loss, expected)


def test_frozen_parameters_leave_no_gradient_in_memory_and_stay() -> None:
    torch.manual_seed(0)
    network, batch = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), {"x": torch.randn(5, 3)}
    taking = steps(network)
    taking.take(batch, 0.1)
    assert all(weight.grad is not None for weight in network.parameters())
    network[0].requires_grad_(False)
    taking.begin_again()
    assert [weight.grad is None for weight in network.parameters()] == [True, True, False, False]
    before = [weight.detach().clone() for weight in network.parameters()]
    taking.take(batch, 0.1)
    assert [torch.equal(*pair) for pair in zip(before, network.parameters(), strict=True)] == [True, True, False, False]
    assert all(weight.grad is None for weight in network[0].parameters())
