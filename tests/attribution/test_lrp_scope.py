"""Relevance leaves nothing behind: passes, hooks, weights and gradients are as before, in other threads too."""

from __future__ import annotations

import threading

import pytest
import torch

from pellucid.attribution import Target
from pellucid.attribution.lrp import relevance, rules
from pellucid.attribution.lrp.ledger import Ledger
from pellucid.attribution.sweep import Asked
from pellucid.model import Model
from pellucid.model.changed_outputs import changed_outputs
from pellucid.model.sites import expand
from tests.attribution.test_lrp import ALL, computed, first
from tests.tiny_models import hook_count, network, opened, padded


def test_several_targets_share_one_forward_pass():
    model, batch = opened("gpt2", "sdpa", torch.float64), first(padded("gpt2"))
    targets = [Target.token(7, position=-1), Target.token(11, position=3), Target.contrast(4, 5)]
    passes = []
    handle = model.hf.register_forward_pre_hook(lambda *_: passes.append(1))
    try:
        found = compute_at(model, batch, *targets)
    finally:
        handle.remove()
    assert len(passes) == 1
    for number, target in enumerate(targets):
        alone = computed(model, batch, ["lrp_attn"], targets=[target])
        torch.testing.assert_close(
            found.parts["lrp_attn", number, found.inputs[0]], alone.parts["lrp_attn", 0, found.inputs[0]]
        )
        for name, share in alone.shares["lrp_attn", 0].items():
            torch.testing.assert_close(found.shares["lrp_attn", number][name], share)


def snapshot(model, batch):
    """Everything that a pass could leave behind."""
    run = model.run(batch, "embed, resid.1", gradients=True)
    score = run.logits[:, -1].square().sum()
    slopes = torch.autograd.grad(score, [run["embed"], run["resid.1"]])
    state = {name: weight.clone() for name, weight in model.hf.state_dict().items()}
    flags = [weight.requires_grad for weight in model.hf.parameters()]
    forwards = [part.forward.__func__ for part in model.hf.modules()]
    return state, flags, hook_count(model.hf), forwards, run.logits.detach(), *slopes


def assert_same(before, after):
    assert before[1:4] == after[1:4]
    for name, weight in before[0].items():
        assert torch.equal(weight, after[0][name]), name
    assert all(torch.equal(one, other) for one, other in zip(before[4:], after[4:], strict=True))


@pytest.mark.parametrize("method", ALL)
def test_everything_is_as_before_bit_for_bit(method):
    model, batch = Model.load(network("gpt2", "sdpa")), padded("gpt2")
    before = snapshot(model, batch)
    found = computed(model, batch, [method], "embed, heads.*, neurons.1")
    assert_same(before, snapshot(model, batch))
    torch.testing.assert_close(found.end[0], model.run(batch).logits[[0, 1, 2], batch.mask.sum(1) - 1, 7].double())


@pytest.mark.parametrize("place", ["transformer.h.1.mlp.act", "transformer.h.2.attn", "lm_head"])
def test_everything_is_as_before_when_the_pass_breaks(place, monkeypatch):
    model, batch = Model.load(network("gpt2", "sdpa")), padded("gpt2")
    before = snapshot(model, batch)

    def broken(*given, **named):
        raise RuntimeError("broken on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(model.hf.get_submodule(place), "forward", broken)
        with pytest.raises(RuntimeError, match="on purpose"):
            compute_at(model, batch)
    for part in model.hf.modules():
        vars(part).pop("forward", None)
    assert_same(before, snapshot(model, batch))


def compute_at(model, batch, *targets):
    """Relevance from embeddings that are known already: the pass under rules is the only one."""
    embed = expand("embed", model.sites)[0]
    with torch.no_grad():
        end = {embed: model.hf.get_input_embeddings()(batch.ids)}
    resolved = tuple(target.resolve(model, batch) for target in targets or [Target.token(7, position=-1)])
    return relevance.sweep_lrp(Asked(model, batch, resolved, (embed,), {}, end), ["lrp_attn"])


def slopes(network, ids):
    """The gradient of something at a network's input, as the network itself has it."""
    embedded = network.get_input_embeddings()(ids).detach().requires_grad_()
    return torch.autograd.grad(network(inputs_embeds=embedded).logits.square().sum(), embedded)[0]


def in_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_another_model_keeps_its_gradients_meanwhile(monkeypatch):
    model, other, batch = Model.load(network("gpt2", "sdpa")), network("gpt2", "sdpa", seed=1), padded("gpt2")
    wanted, seen = slopes(other, batch.ids), []
    block = model.hf.transformer.h[1]
    whole = block.forward

    def meanwhile(*given, **named):
        seen.append(in_a_thread(lambda: slopes(other, batch.ids)))
        return whole(*given, **named)

    monkeypatch.setattr(block, "forward", meanwhile)
    compute_at(model, batch)
    assert len(seen) == 1
    assert torch.equal(seen[0], wanted)
    assert torch.equal(slopes(other, batch.ids), wanted)


def test_another_thread_keeps_the_gradients_of_the_same_network():
    hf, batch = network("gpt2", "sdpa"), padded("gpt2")
    wanted, applied = slopes(hf, batch.ids), rules.Rules("lrp_attn", Ledger(3))
    parts = list(rules.nonlinearities(hf))
    assert parts
    with changed_outputs(parts, applied.straight), applied:
        assert torch.equal(in_a_thread(lambda: slopes(hf, batch.ids)), wanted)
        assert not torch.equal(slopes(hf, batch.ids), wanted)
    assert torch.equal(slopes(hf, batch.ids), wanted)
