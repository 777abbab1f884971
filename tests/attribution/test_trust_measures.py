"""Measures of trust as arithmetic: equal to captum's, to SciPy's and to numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from captum.metrics import infidelity as captum_infidelity
from captum.metrics import sensitivity_max as captum_sensitivity
from scipy.stats import spearmanr
from torch import nn

from pellucid.attribution.trials import measures
from pellucid.attribution.trials.tally import Tally, document_groups

TEXTS, FEATURES, TIMES = 5, 6, 12


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 9), nn.Tanh(), nn.Linear(9, 1), nn.Flatten(0)).double()


def gradients(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    given = inputs.detach().clone().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(model(given).sum(), given)[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scaled", [False, True])
def test_infidelity_is_captum_s(seed, scaled):
    model = network(seed)
    inputs = torch.randn(TEXTS, FEATURES).double()
    attributions = gradients(model, inputs) * inputs
    shifts = torch.randn(TEXTS, TIMES, FEATURES).double()

    def perturb(given):
        shift = shifts.flatten(0, 1)
        return shift, given - shift

    theirs = captum_infidelity(model, perturb, inputs, attributions, n_perturb_samples=TIMES, normalize=scaled)
    with torch.no_grad():
        changes = torch.stack([model(inputs) - model(inputs - shifts[:, k]) for k in range(TIMES)])
        explained = torch.stack([(attributions * shifts[:, k]).sum(1) for k in range(TIMES)])
    mine = measures.infidelity(explained.numpy(), changes.numpy(), scaled=scaled)
    assert np.allclose(mine, theirs.detach().numpy(), rtol=1e-10)
    share = measures.unexplained(explained.numpy(), changes.numpy())
    forward = (explained * changes).sum(0).numpy() > 0
    assert forward.any()
    if scaled:
        assert np.allclose(share[forward], mine[forward] / (changes**2).mean(0).numpy()[forward])
        assert (share[~forward] == 1).all()


@pytest.mark.parametrize("seed", range(3))
def test_sensitivity_is_captum_s(seed):
    model = network(seed)
    inputs = torch.randn(TEXTS, FEATURES).double()
    shifts = 0.05 * torch.randn(TEXTS, TIMES, FEATURES).double()

    def explain(given):
        return (gradients(model, given[0]) * given[0],)

    def perturb(given):
        return (given + shifts.flatten(0, 1),)

    theirs = captum_sensitivity(explain, inputs, perturb, n_perturb_samples=TIMES)
    perturbed = torch.stack([explain((inputs + shifts[:, k],))[0] for k in range(TIMES)])
    mine = measures.sensitivity_max(explain((inputs,))[0].numpy(), perturbed.numpy())
    assert np.allclose(mine, theirs.numpy(), rtol=1e-10)


def test_a_share_is_one_for_nothing_and_for_the_opposite_and_zero_for_any_scale():
    changes = np.array([[1.0, 2.0, 3.0, 0.0], [2.0, -1.0, 1.0, 0.0]])
    assert np.allclose(measures.unexplained(17 * changes, changes), 0)
    assert np.allclose(measures.unexplained(-changes, changes), [1, 1, 1, 0])
    assert np.allclose(measures.unexplained(0 * changes, changes), [1, 1, 1, 0])
    assert measures.unexplained(np.ones((2, 1)), np.zeros((2, 1))) == 1


def test_sensitivity_of_nothing_is_the_length_itself():
    assert measures.sensitivity_max(np.zeros((1, 2)), np.array([[[3.0, 4.0]]])) == 5


def test_ranks_and_their_correlation():
    rng = np.random.default_rng(0)
    for _ in range(20):
        one, other = rng.integers(0, 4, size=(2, 9)).astype(float)
        assert measures.rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)
    assert measures.ranks(np.array([5.0, 1.0, 5.0])).tolist() == [2.5, 1, 2.5]
    flat, rising = np.ones(3), np.arange(3.0)
    assert measures.rank_correlation(flat, 2 * flat) == 1
    assert measures.rank_correlation(flat, rising) == 0


def test_curves():
    assert measures.area(np.array([0, 0.25, 1.0]), np.array([0, 1.0, 3.0])) == pytest.approx(0.125 + 1.5)
    assert measures.counts(4, 10).tolist() == [0, 1, 2, 3, 4]
    assert measures.counts(25, 5).tolist() == [0, 5, 10, 15, 20, 25]
    order = measures.descending(np.array([3.0, 9.0, 5.0, 5.0, 7.0]), np.array([0, 2, 3, 4]))
    assert order.tolist() == [4, 2, 3, 0]
    assert measures.first(order, 2, 5).tolist() == [False, False, True, False, True]


def test_what_a_tally_comes_to():
    tally = Tally(3)
    for item, (value, weight) in enumerate([(2.0, 1.0), (4.0, 1.0), (12.0, 2.0)]):
        tally.add("area", item, np.array([value]), random=np.array([[value], [0.0]]), weight=weight)
    assert tally.mean("area") == pytest.approx(18 / 4)
    middle, low, high = tally.chance("area")
    assert middle == pytest.approx((4.5 + 0) / 2)
    spread = 1.96 * np.std([4.5, 0], ddof=1)
    assert (low, high) == (pytest.approx(2.25 - spread), pytest.approx(2.25 + spread))
    found = tally.interval("area", ["a", "b", "c"])
    left_out = [16 / 3, 14 / 3, 6 / 2]
    sd = np.sqrt(2 / 3 * ((np.array(left_out) - np.mean(left_out)) ** 2).sum())  # groups of one size
    assert found.high - tally.mean("area") == pytest.approx(4.302653 * sd, rel=1e-6)
    assert tally.interval("area", ["a", "a", "a"]).low is None


def test_groups_are_whole_documents():
    documents = [name for name in "abcdefghijklmnopqrstuvwxy" for _ in range(2)]
    group = document_groups(documents)
    assert len(set(group)) == 10
    assert (group[::2] == group[1::2]).all()
    assert document_groups(["a", "b", "a"]).tolist() == [0, 1, 0]
