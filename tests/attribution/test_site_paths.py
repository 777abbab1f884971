"""Integrated gradients along a site's own path: what moves, what stands still, and what is left out."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pellucid.attribution import completeness
from pellucid.attribution.targets import Target
from pellucid.model import Edit, Model
from pellucid.model.sites import Site
from tests.attribution.engine_models import headed, ids, model, swept
from tests.tiny_models import error, opened, padded

SITES = ("resid.2", "query.1", "value.2", "pattern.1", "heads.0", "attn.1", "mid.2", "neurons.1", "mlp.0")


def by_hand(net, batch, name, score, steps):
    """The site alone moves, in whole passes, with captum-like nodes."""
    from numpy.polynomial.legendre import leggauss

    low = net.run(batch, name, Edit.zero("embed"))[name]
    high = net.run(batch, name)[name]
    total = torch.zeros_like(high)
    for point, weight in zip(*leggauss(steps - 1), strict=True):
        alpha = (point + 1) / 2
        run = net.run(batch, name, Edit.patch(name, low + alpha * (high - low)), gradients=True)
        total += weight / 2 * torch.autograd.grad(score(run).sum(), run[name])[0]
    return (high - low) * total


@pytest.mark.parametrize("family", ["gpt2", "bert", "albert"])
def test_every_kind_of_site_equals_whole_passes(family):
    """ALBERT's blocks are one module: none can be left out, and the note says so."""
    net, batch = model(family), ids(2)
    found = swept(net, batch, Target.token(9, position=2), "integrated_gradients", list(SITES), steps=7)
    for name in SITES:
        site = Site(name[:-2], int(name[-1]))
        told = by_hand(net, batch, name, lambda run: run.logits[:, 2, 9], 7)
        assert error(found.parts["integrated_gradients", 0, site], told) < 1e-6, name
    assert ("is called several times in a pass" in found.note) == (family == "albert")
    plain = net.run(batch).logits[:, 2, 9]
    assert torch.allclose(found.end[0], plain), "scores are those of the text and the baseline, not of a site's path"
    assert torch.allclose(found.start[0], net.run(batch, (), Edit.zero("embed")).logits[:, 2, 9])


@pytest.mark.parametrize("name", ["classifier", "gpt2"])
def test_every_site_is_complete_for_its_own_change(name):
    target = Target.label(2) if name == "classifier" else Target.token(9)
    found = swept(model(name), ids(), target, "integrated_gradients", list(SITES), steps=30)
    sums = completeness.sums(found)
    assert [each.place for each in sums] == list(SITES)
    assert max(float(each.error.max()) for each in sums) < 1e-3
    stream = sums[0]
    assert float(stream.wanted) == pytest.approx(float(found.end - found.start), rel=1e-6)
    assert float(sums[4].wanted) != pytest.approx(float(found.end - found.start), rel=1e-2), (
        "heads alone did not do all"
    )


def test_sites_of_both_stacks_and_between_them():
    for name in ("marian", "mt5"):
        net, batch = opened(name, "eager", torch.float64), padded(name)
        sites = ["encoder.resid.2", "decoder.resid.1", "decoder.mlp.2", "cross.heads.1", "cross.key.2", "encoder.mid.1"]
        baseline = "mean" if name == "mt5" else "zero"
        target = Target.token(9, position=-1)
        found = swept(net, batch, target, "integrated_gradients", sites, steps=60, baseline=baseline)
        assert max(float(each.error.max()) for each in completeness.sums(found)) < 5e-3
        assert len(completeness.sums(found)) == len(sites)
        assert bool(found.note) == (name == "mt5")
        assert all(part.any() for part in found.parts.values())


def test_a_target_further_below_does_not_depend_on_the_site():
    found = swept(
        model("gpt2"),
        ids(),
        Target.unit("neurons.0", 3, position=2),
        "integrated_gradients",
        "resid.0,resid.2",
        steps=4,
    )
    assert not found.parts["integrated_gradients", 0, Site("resid", 2)].any()
    assert found.parts["integrated_gradients", 0, Site("resid", 0)].any()


def test_all_layers_cost_about_half_of_as_many_sweeps():
    """L + 1 paths, each from its own layer upward: Σ (L − l)/L = (L + 1)/2 sweeps of the blocks, not L + 1."""
    from transformers import BertConfig, BertForSequenceClassification

    layers, steps, batch = 6, 10, ids(1, 32)
    sizes = {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 192, "vocab_size": 97}
    net = Model.load(BertForSequenceClassification(BertConfig(num_hidden_layers=layers, **sizes)).eval())
    wanted = {"sweep": ("conductance", "resid.0"), "layers": ("integrated_gradients", "resid.*")}
    swept(net, batch, Target.label(1), "integrated_gradients", "resid.*", steps=2)  # each layer is tried once
    flops = {}
    for name, (method, sites) in wanted.items():
        with FlopCounterMode(display=False) as counter:
            swept(net, batch, Target.label(1), method, sites, steps=steps)
        flops[name] = counter.get_total_flops()
    ratio = flops["layers"] / flops["sweep"]
    assert 0.9 * (layers + 1) / 2 < ratio < 1.1 * (layers + 1) / 2 + 0.2


def test_paths_of_a_fused_model_are_those_of_an_eager_one():
    sites = ["resid.1", "heads.1", "mid.0"]
    first, second = (
        swept(headed("classifier", kind), ids(), Target.label(0), "integrated_gradients", sites, steps=8)
        for kind in ("eager", "sdpa")
    )
    for key, part in first.parts.items():
        assert error(second.parts[key], part) < 1e-8, key
