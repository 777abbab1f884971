"""Gradients at sites: against finite differences made with edits, in float64."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pellucid.attribution.passes import frozen
from pellucid.errors import ModelError
from pellucid.model import Batch, Edit
from pellucid.model.gradient import sparse
from tests.tiny_models import opened, padded

NAMES = ["gpt2", "llama", "bloom", "mixtral", "deepseek_v3", "bert", "granite"]
SITES = ["resid.1", "heads.1", "neurons.1", "pattern.1", "value.2", "mid.1", "attn.2"]
STEP = 1e-2
"""Norms and softmaxes compute in float32 in any precision, so the step is long and the stencil of fourth order."""


def weights_like(logits):
    return torch.randn(logits.shape, generator=torch.Generator().manual_seed(7), dtype=logits.dtype)


def loss_of(logits, mask):
    """A weighted sum over real tokens."""
    return (logits * weights_like(logits))[mask.bool()].sum()


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", NAMES)
def test_gradient_equals_finite_difference(name, site):
    """⟨∂L/∂site, v⟩ = the change of L along v, for a direction v over all units and real tokens."""
    model, batch = opened(name, "eager", torch.float64), padded(name)
    run = model.run(batch, site, gradients=True)
    (slope,) = torch.autograd.grad(loss_of(run.logits, batch.mask), run[site])
    assert slope.shape == run[site].shape
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(slope.shape, generator=generator, dtype=torch.float64)
    if "neurons" in site:  # a unit of an expert that a token was not sent to is not there to be moved
        direction = direction * (run[site].detach() != 0)
    rows = batch.mask.bool()[:, None, :, None] if run[site].dim() == 4 else batch.mask.bool()[:, :, None]
    direction = torch.where(rows, direction, 0.0)
    direction /= direction.norm()
    difference = 0.0
    for steps, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
        moved = model.run(batch, (), Edit.add(site, steps * STEP * direction)).logits
        difference += weight * float(loss_of(moved, batch.mask)) / (12 * STEP)
    along = float((slope * direction).sum())
    assert abs(difference) > 1e-3, "the direction must matter"
    assert abs(along - difference) < 2e-3 * max(abs(difference), float(slope.norm()) / slope.numel() ** 0.5)


@pytest.mark.parametrize("setting", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "granite", "mixtral", "deepseek_v3"])
def test_asking_for_gradients_leaves_the_output_bit_equal(name, setting):
    model, batch = opened(name, setting), padded(name)
    sites = [site for site in model.sites if site.kind != "pattern" or model.attention == "eager"]
    arguments, _ = model._arguments(batch)
    plain = model.hf(**arguments).logits  # with a graph: fused kernels differ with and without one
    run = model.run(batch, sites, gradients=True)
    assert torch.equal(run.logits, plain)
    slopes = torch.autograd.grad(loss_of(run.logits, batch.mask), [run[site] for site in sites], allow_unused=True)
    dead = [str(site) for site, slope in zip(sites, slopes, strict=True) if slope is None or not slope.any()]
    assert not dead


def test_gates_get_the_gradient_that_a_finite_difference_gives():
    model, batch = opened("gpt2", "sdpa", torch.float64), padded("gpt2")
    gates = torch.tensor([0.2, 0.9, 1.0, 0.5], dtype=torch.float64, requires_grad=True)

    def loss(values):
        return loss_of(model.run(batch, (), Edit.gate("heads.1", values), gradients=True).logits, batch.mask)

    (slope,) = torch.autograd.grad(loss(gates), gates)
    for head in range(4):
        step = torch.zeros(4, dtype=torch.float64)
        step[head] = 1e-5
        with torch.no_grad():
            difference = (loss(gates + step) - loss(gates - step)) / 2e-5
        assert float(slope[head]) == pytest.approx(float(difference), rel=1e-4)


def test_a_gate_on_expert_units_gets_a_gradient():
    for name in ("mixtral", "deepseek_v3"):
        model, batch = opened(name), padded(name)
        width = model.size("neurons.1")[0]
        gates = torch.ones(width, requires_grad=True)
        run = model.run(batch, (), Edit.gate("neurons.1", gates), gradients=True)
        (slope,) = torch.autograd.grad(loss_of(run.logits, batch.mask), gates)
        active = model.run(batch, "neurons.1")["neurons.1"][batch.mask.bool()].abs().sum(0) > 0
        assert bool((slope != 0)[active].all()), name


def test_gradients_of_an_edited_run_pass_through_the_edit():
    model, batch = opened("gpt2"), padded("gpt2")
    run = model.run(batch, ["resid.1", "heads.2"], Edit.zero("resid.2"), gradients=True)
    before, after = torch.autograd.grad(run.logits.sum(), [run["resid.1"], run["heads.2"]], allow_unused=True)
    assert before is None or not before.any()
    assert after.any()


def test_gradient_of_one_site_does_not_depend_on_the_others_asked_for():
    model, batch = opened("llama"), padded("llama")
    alone, together = (model.run(batch, sites, gradients=True) for sites in (["heads.1"], model.sites))
    (one,) = torch.autograd.grad(loss_of(alone.logits, batch.mask), alone["heads.1"])
    (other,) = torch.autograd.grad(loss_of(together.logits, batch.mask), together["heads.1"])
    assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


def test_gradients_at_fused_patterns_are_refused():
    model, batch = opened("gpt2", "sdpa"), padded("gpt2")
    with pytest.raises(ModelError, match=r"with respect to pattern.0 need eager attention"):
        model.run(batch, "pattern.0", gradients=True)


def test_parameters_keep_no_gradient_and_grad_mode_is_restored():
    model, batch = opened("gpt2"), padded("gpt2")
    with torch.no_grad():
        run = model.run(batch, "heads.1", gradients=True)
        assert not torch.is_grad_enabled()
    torch.autograd.grad(run.logits.sum(), run["heads.1"])
    assert all(parameter.grad is None for parameter in model.hf.parameters())


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "longformer"])  # the last one changes what layers give it
@pytest.mark.parametrize("token", [0, 3])
def test_layers_that_leave_out_tokens_without_a_gradient_give_the_same(name, token):
    """In a text that only grows, tokens after the one that is read have none; in the last block no other one has."""
    model, batch = opened(name, "eager", torch.float64), Batch.of_ids(padded(name).ids[:1])
    sites = [site for site in model.sites if site.kind in ("embed", "resid", "neurons", "heads")]
    before = [set(vars(module)) for module in model.hf.modules()]

    def slopes():
        embeddings = torch.randn(*batch.ids.shape, *model.size("embed"), generator=torch.Generator().manual_seed(0))
        given = embeddings.double().requires_grad_()
        run = model.run(batch, sites, Edit.patch("embed", given), gradients=True)
        return torch.autograd.grad(run.logits[:, token, 5:7].square().sum(), [run[site] for site in sites])

    with frozen(model):
        plain = slopes()
        with sparse(model.hf), FlopCounterMode(display=False) as few:
            found = slopes()
        with FlopCounterMode(display=False) as all_of_them:
            slopes()
    assert few.get_total_flops() < all_of_them.get_total_flops()
    for one, other in zip(plain, found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    assert [set(vars(module)) for module in model.hf.modules()] == before, "the layers are as they were"
