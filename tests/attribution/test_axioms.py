"""Closed forms and axioms: what attributions must be, whatever computes them."""

from __future__ import annotations

import pytest
import torch

from pellucid.attribution import completeness
from pellucid.attribution.targets import Target
from pellucid.model import Batch, Edit, Model
from pellucid.model.sites import Site
from tests.attribution.engine_models import headed, ids, model, one, ragged, swept
from tests.tiny_models import error, network, opened

EMBED = Site("embed")


def directions(batch, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, batch.ids.shape[1], 40, generator=generator, dtype=torch.float64)


def worst(found, method):
    return max(float(each.error.max()) for each in completeness.sums(found) if each.method == method)


def test_a_quadratic_function():
    """F = Σ a·x² from zero: integrated gradients a·x², the gradient 2·a·x."""
    gpt2, batch = model("gpt2"), ids()
    a, x = directions(batch), model("gpt2").run(batch, "embed")["embed"]
    target = Target.of(lambda run: (a * run["embed"] ** 2).sum(dim=(1, 2)), "quadratic", sites=["embed"])
    found = swept(gpt2, batch, target, "integrated_gradients,saliency,conductance", "embed", steps=3)
    assert error(found.parts["integrated_gradients", 0, EMBED], a * x**2) < 1e-12
    assert error(found.parts["conductance", 0, EMBED], a * x**2) < 1e-12  # the trapezoid of a line is exact
    assert error(found.parts["saliency", 0, EMBED], (2 * a * x).abs()) < 1e-12


def test_a_sigmoid_function_shares_its_change_in_proportion():
    """F = σ(Σ w·x): integrated gradients (F(x) − F(x₀))·w·(x − x₀)/Σ w·(x − x₀)."""
    gpt2, batch = model("gpt2"), ids()
    w, x = directions(batch) / 4, model("gpt2").run(batch, "embed")["embed"]
    start = 0.3 * directions(batch, seed=2)
    target = Target.of(lambda run: (w * run["embed"]).sum(dim=(1, 2)).sigmoid(), "sigmoid", sites=["embed"])
    found = swept(gpt2, batch, target, "integrated_gradients", "embed", steps=30, baseline=start)
    part = w * (x - start)
    change = (w * x).sum().sigmoid() - (w * start).sum().sigmoid()
    assert error(found.parts["integrated_gradients", 0, EMBED], change * part / part.sum()) < 1e-6
    assert float(found.end) == pytest.approx(float((w * x).sum().sigmoid()))
    assert float(found.start) == pytest.approx(float((w * start).sum().sigmoid()))


def test_conductance_through_branches_whose_sum_is_read_linearly():
    """F = Σ w·resid.1 = Σ w·(mid.0 + mlp.0): the MLP conducts w times its own change, and the sum w times its, at any
    steps."""
    gpt2, batch = model("gpt2"), ids()
    w = directions(batch)
    target = Target.of(lambda run: (w * run["resid.1"]).sum(dim=(1, 2)), "linear", sites=["resid.1"])
    sites = {"mlp.0": Site("mlp", 0), "resid.1": Site("resid", 1)}
    found = swept(gpt2, batch, target, "conductance", list(sites), steps=4)
    low, high = gpt2.run(batch, list(sites), Edit.zero("embed")), gpt2.run(batch, list(sites))
    for name, site in sites.items():
        assert error(found.parts["conductance", 0, site], w * (high[name] - low[name])) < 1e-9, name


def test_a_site_path_of_a_linear_branch_is_its_change():
    gpt2, batch = model("gpt2"), ids()
    w = directions(batch)
    target = Target.of(lambda run: (w * run["resid.2"]).sum(dim=(1, 2)), "linear", sites=["resid.2"])
    found = swept(gpt2, batch, target, "integrated_gradients", "mlp.1", steps=2)
    low, high = gpt2.run(batch, "mlp.1", Edit.zero("embed"))["mlp.1"], gpt2.run(batch, "mlp.1")["mlp.1"]
    assert error(found.parts["integrated_gradients", 0, Site("mlp", 1)], w * (high - low)) < 1e-9


@pytest.mark.parametrize("name", ["classifier", "gpt2", "gptj"])
def test_errors_vanish_with_steps(name):
    """Integrated gradients at once, conductance with the square of the steps, at every place all must pass."""
    target = Target.label(2) if name == "classifier" else Target.token(9, position=-1)
    options = {"baseline": "mean"} if name == "gptj" else {}
    errors = []
    for steps in (20, 40, 80):
        wanted = "conductance,integrated_gradients"
        found = swept(model(name), ids(2), target, wanted, "embed,resid.*,mid.*", steps=steps, **options)
        assert worst(found, "integrated_gradients") < 2e-3
        errors.append(worst(found, "conductance"))
        places = [each.place for each in completeness.sums(found) if each.method == "conductance"]
        assert ("mid.1" in places) == (name != "gptj"), "a parallel block's MLP reads past `mid`"
    assert errors[0] / errors[2] > 10
    assert errors[2] < 1e-2


def test_captums_rule_is_of_first_order():
    found = {
        steps: swept(model("gpt2"), ids(), Target.token(9), "conductance", "resid.*", rule="captum", steps=steps)
        for steps in (40, 80)
    }
    errors = {steps: worst(each, "conductance") for steps, each in found.items()}
    assert 1.6 < errors[40] / errors[80] < 2.6
    exact = worst(swept(model("gpt2"), ids(), Target.token(9), "conductance", "resid.*", steps=40), "conductance")
    assert exact < errors[40] / 10


def test_equal_tokens_of_a_symmetric_function_get_equal_shares():
    """Without positions, a BERT treats two equal tokens alike."""
    hf = headed("classifier").hf
    keep = hf.bert.embeddings.position_embeddings.weight.detach().clone()
    batch = Batch.of_ids([[7, 20, 31, 20, 50, 60]])
    wanted = "integrated_gradients,conductance,saliency,gradient_x_activation,input_path_gradients"
    try:
        with torch.no_grad():
            hf.bert.embeddings.position_embeddings.weight.zero_()
        found = swept(headed("classifier"), batch, Target.label(0), wanted, "embed,resid.2", steps=20)
    finally:
        with torch.no_grad():
            hf.bert.embeddings.position_embeddings.weight.copy_(keep)
    for key, part in found.parts.items():
        assert error(part[:, 1], part[:, 3]) < 1e-9, key
        assert error(part[:, 1], part[:, 2]) > 1e-3, key


def test_two_implementations_of_one_function_get_the_same_answer():
    """Eager and fused attention, and an MLP whose units were shuffled."""
    wanted, sites = "integrated_gradients,conductance,saliency", "embed,resid.*,heads.1"
    target, batch = Target.token(9, position=-1), ids()
    first = swept(model("gpt2"), batch, target, wanted, sites, steps=10)
    shuffled = network("gpt2", "eager", torch.float64)
    order = torch.randperm(56, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        mlp = shuffled.transformer.h[1].mlp
        for weight in (mlp.c_fc.weight, mlp.c_fc.bias):
            weight.copy_(weight[..., order])
        mlp.c_proj.weight.copy_(mlp.c_proj.weight[order])
    for other in (opened("gpt2", "sdpa", torch.float64), Model.load(shuffled)):
        again = swept(other, batch, target, wanted, sites, steps=10)
        for key, part in first.parts.items():
            assert error(again.parts[key], part) < 1e-8, key


def test_tokens_that_the_target_cannot_see_get_nothing():
    """Sensitivity: in a causal model, tokens behind the target's place; anywhere, padding."""
    wanted = "integrated_gradients,conductance,saliency,gradient_x_activation,internal_influence,smoothgrad"
    found = swept(model("gpt2"), ids(), Target.token(9, position=3), wanted, "embed,resid.2", steps=5)
    for (_, _, site), part in found.parts.items():
        assert not part[:, 4:].any()
        assert part[:, 3].any(), site
    for side in ("right", "left"):
        batch = ragged(side)
        found = swept(model("gpt2"), batch, Target.token(9), wanted, "embed,resid.2,heads.1", steps=5)
        for (method, _, site), part in found.parts.items():
            tokens = part.movedim(2, 1) if site.per_head else part
            assert not tokens[1][~batch.mask[1].bool()].any(), (method, site, side)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", ["gpt2", "classifier"])
def test_a_text_gets_what_it_would_get_alone(name, side):
    if name == "classifier" and side == "left":
        pytest.skip("BERT counts positions from the edge, so padding on the left is another text to it")
    target = Target.label(1) if name == "classifier" else Target.token(9, position=-2)
    wanted, sites = "integrated_gradients,conductance,saliency", "embed,resid.1,heads.2,neurons.0"
    batch = ragged(side)
    together = swept(model(name), batch, target, wanted, sites, steps=8)
    for row in range(2):
        alone = swept(model(name), one(batch, row), target, wanted, sites, steps=8)
        for key, part in alone.parts.items():
            tokens = 2 if key[2].per_head else 1
            kept = together.parts[key][row : row + 1].index_select(tokens, batch.mask[row].nonzero()[:, 0])
            assert error(kept, part) < 1e-6, key
        assert float(alone.end) == pytest.approx(float(together.end[0, row]), rel=1e-6)
