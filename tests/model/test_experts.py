"""Mixtures of experts: neurons and routing against each token's own path, written out expert by expert."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pellucid.model import Edit, Model
from tests.tiny_models import error, network, opened, padded, plain_output

SPARSE = {"mixtral": 4, "qwen3_moe": 4, "gpt_oss": 4, "deepseek_v3": 6}
"""Families and their number of routed experts."""


def mixtral_by_hand(hf, mid, layer):
    """Each token's two best experts: their hidden units and weights, one token at a time in float64."""
    block = hf.model.layers[layer]
    norm, moe = block.post_attention_layernorm, block.mlp
    x = mid.double()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon) * norm.weight.double()
    gate_up, down = moe.experts.gate_up_proj.double(), moe.experts.down_proj.double()
    count, width = gate_up.shape[0], gate_up.shape[1] // 2
    routing, neurons = torch.zeros(*x.shape[:2], count).double(), torch.zeros(*x.shape[:2], count, width).double()
    added = torch.zeros_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            chances = torch.softmax(x[b, t] @ moe.gate.weight.double().T, -1)
            best = chances.topk(2)
            for chance, expert in zip(best.values / best.values.sum(), best.indices.tolist(), strict=True):
                inner = gate_up[expert] @ x[b, t]
                units = functional.silu(inner[:width]) * inner[width:]
                routing[b, t, expert], neurons[b, t, expert] = chance, units
                added[b, t] += chance * (down[expert] @ units)
    return routing, neurons.flatten(2), added


@pytest.mark.parametrize("layer", [0, 2])
def test_mixtral_neurons_routing_and_output_equal_the_path_of_each_token(layer):
    model, batch = opened("mixtral"), padded("mixtral")
    run = model.run(batch, [f"{kind}.{layer}" for kind in ("mid", "routing", "neurons", "mlp")])
    with torch.no_grad():
        routing, neurons, added = mixtral_by_hand(model.hf, run[f"mid.{layer}"], layer)
    real = batch.mask.bool()
    assert error(run[f"routing.{layer}"][real], routing[real]) < 1e-5
    assert error(run[f"neurons.{layer}"][real], neurons[real]) < 1e-5
    assert error(run[f"mlp.{layer}"][real], added[real]) < 1e-5


@pytest.mark.parametrize("name", SPARSE)
def test_each_token_has_its_experts_and_the_others_are_silent(name):
    model, batch = opened(name), padded(name)
    run = model.run(batch, ["routing.1", "neurons.1"])
    routing, neurons = run["routing.1"], run["neurons.1"]
    experts = SPARSE[name]
    assert routing.shape == (*batch.ids.shape, experts)
    real = batch.mask.bool()
    assert bool(((routing[real] != 0).sum(-1) == 2).all())
    width = model.hf.model.layers[1].mlp.experts.down_proj.numel() // (experts * 40)
    units = neurons[..., : experts * width].unflatten(-1, (experts, width))
    idle = routing == 0
    assert not units[idle].any()
    assert bool(units[~idle].any(-1).all())


def test_shared_experts_follow_the_routed_ones_and_serve_every_token():
    model, batch = opened("deepseek_v3"), padded("deepseek_v3")
    assert model.size("neurons.1") == (6 * 24 + 2 * 24,)
    assert model.size("neurons.0") == (56,)  # the first block is dense
    assert "routing.0" not in {str(site) for site in model.sites}
    shared = model.hf.model.layers[1].mlp.shared_experts
    seen = []
    handle = shared.down_proj.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach().clone()))
    neurons = model.run(batch, "neurons.1")["neurons.1"]
    handle.remove()
    assert torch.equal(neurons[..., 144:], seen[0].reshape(*batch.ids.shape, 48))


@pytest.mark.parametrize(
    ("name", "unit", "parameter", "index"),
    [
        ("mixtral", 56 + 5, "model.layers.1.mlp.experts.down_proj", (1, slice(None), 5)),
        ("qwen3_moe", 3 * 24 + 2, "model.layers.1.mlp.experts.down_proj", (3, slice(None), 2)),
        ("gpt_oss", 2 * 56 + 7, "model.layers.1.mlp.experts.down_proj", (2, 7)),
        ("deepseek_v3", 4 * 24 + 1, "model.layers.1.mlp.experts.down_proj", (4, slice(None), 1)),
        ("deepseek_v3", 144 + 30, "model.layers.1.mlp.shared_experts.down_proj.weight", (slice(None), 30)),
    ],
)
def test_zeroing_an_expert_unit_equals_cutting_its_column(name, unit, parameter, index):
    model, batch = opened(name), padded(name)
    cut = network(name)
    with torch.no_grad():
        cut.get_parameter(parameter)[index] = 0
    edited = model.run(batch, (), Edit.zero("neurons.1", neurons=unit)).logits
    real = batch.mask.bool()
    assert error(edited[real], Model.load(cut).run(batch).logits[real]) < 1e-5
    assert error(edited[real], model.run(batch).logits[real]) > 1e-4


def test_zeroing_the_routing_removes_the_experts():
    model, batch = opened("mixtral"), padded("mixtral")
    run = model.run(batch, ["mlp.1", "mid.1", "resid.2"], Edit.zero("routing.1"))
    assert run["mlp.1"].abs().max() < 1e-5
    assert error(run["resid.2"], run["mid.1"]) < 1e-5


def test_doubling_one_experts_weight_adds_its_part_once_more():
    model, batch = opened("mixtral"), padded("mixtral")
    plain = model.run(batch, ["mlp.1", "routing.1", "neurons.1"])
    edited = model.run(batch, "mlp.1", Edit.scale("routing.1", 2.0, neurons=3))["mlp.1"]
    down = model.hf.model.layers[1].mlp.experts.down_proj[3].detach()
    part = plain["routing.1"][..., 3:4] * (plain["neurons.1"][..., 3 * 56 :] @ down.T)
    assert part.abs().max() > 0.1
    assert error(edited, plain["mlp.1"] + part) < 1e-5


@pytest.mark.parametrize("name", SPARSE)
def test_an_edit_that_changes_nothing_leaves_every_bit(name):
    """What the model computed is kept, and only the change is added to it."""
    model, batch = opened(name), padded(name)
    before = plain_output(model, batch)
    for kind in ("neurons.1", "routing.1"):
        assert torch.equal(model.run(batch, (), Edit.scale(kind, 1.0)).logits, before), kind


def test_edits_at_positions_touch_only_those_tokens():
    model, batch = opened("deepseek_v3"), padded("deepseek_v3")
    plain = model.run(batch, ["neurons.1", "mlp.1"])
    edited = model.run(batch, ["neurons.1", "mlp.1"], Edit.zero("neurons.1", positions=[2]))
    assert not edited["neurons.1"][:, 2].any()
    assert edited["mlp.1"][:, 2].abs().max() < 1e-5
    others = [place for place in range(batch.ids.shape[1]) if place != 2]
    assert torch.equal(edited["neurons.1"][:, others], plain["neurons.1"][:, others])
    assert error(edited["mlp.1"][:, others], plain["mlp.1"][:, others]) < 1e-6
