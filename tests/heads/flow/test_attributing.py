"""Self-attention attribution: against finite differences and plain autograd, completeness, and the models it takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid.attribution import Target
from pellucid.errors import AttributionError
from pellucid.heads import information_flow
from pellucid.heads.flow.attributing import attributed, the_target
from pellucid.heads.flow.reading import eager, read
from pellucid.model import Batch, Edit, Model
from tests.tiny_models import hook_count, network, opened, padded

IDS = Batch.of_ids([[7, 20, 33, 9, 51]])
TARGET = Target.token(11, position=-1)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(network("gpt2", dtype=torch.float64))


def layers(model: Model, target: Target = TARGET, **options) -> list:
    reading = read(model, IDS)
    return list(attributed(reading, the_target(reading, target), **options))


def score(model: Model, site: str, pattern: torch.Tensor) -> torch.Tensor:
    return model.run(IDS, edits=[Edit.patch(site, pattern)]).logits[0, -1, 11]


def test_every_entry_agrees_with_finite_differences(model):
    """A ⊙ the mean over 2 midpoints of ∂F/∂A, each derivative from two passes, for all entries of two layers."""
    found, step = layers(model, steps=2, rule="midpoint"), 1e-5
    for layer in (1, 2):
        site = f"pattern.{layer}"
        pattern = model.run(IDS, sites=[site])[site]
        wanted = torch.zeros_like(pattern)
        for head, token, source in torch.ones_like(pattern[0]).tril().nonzero().tolist():
            for alpha in (0.25, 0.75):
                ends = []
                for sign in (1, -1):
                    moved = alpha * pattern
                    moved[0, head, token, source] += sign * step
                    ends.append(score(model, site, moved))
                wanted[0, head, token, source] += (ends[0] - ends[1]) / (2 * step) / 2
        np.testing.assert_allclose(found[layer].values, (pattern * wanted)[0], rtol=1e-5, atol=1e-9)


def test_all_heads_are_scaled_together(model):
    """The same by plain autograd; scaled one head at a time, the numbers are others."""
    pattern = model.run(IDS, sites=["pattern.1"])["pattern.1"]

    def gradients(part: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(pattern)
        for alpha in (torch.arange(20).double() + 0.5) / 20:
            point = (torch.where(part, alpha, 1.0) * pattern).requires_grad_()
            run = model.run(IDS, ["pattern.1"], [Edit.patch("pattern.1", point)], gradients=True)
            total += torch.autograd.grad(run.logits[0, -1, 11], run["pattern.1"])[0] / 20
        return (pattern * total)[0]

    found = layers(model, rule="midpoint")[1].values
    together = gradients(torch.ones_like(pattern, dtype=torch.bool))
    np.testing.assert_allclose(found, together, rtol=1e-9, atol=1e-12)
    alone = torch.zeros_like(pattern, dtype=torch.bool)
    alone[:, 0] = True
    assert np.abs(found[0] - gradients(alone)[0].numpy()).max() > 1e-4


def test_sums_are_complete_and_more_so_by_better_rules(model):
    fives, eighties = (layers(model, steps=steps, rule="midpoint") for steps in (5, 80))
    for layer, (few, many) in enumerate(zip(fives, eighties, strict=True)):
        site = f"pattern.{layer}"
        pattern = model.run(IDS, sites=[site])[site]
        assert many.end == pytest.approx(float(score(model, site, pattern)))
        assert many.start == pytest.approx(float(score(model, site, 0 * pattern)))
        assert many.values.sum() == pytest.approx(many.end - many.start, abs=1e-4)
        assert many.error < few.error / 50 or few.error < 1e-9  # of second order
    gauss, midpoint, right = (
        max(each.error for each in layers(model, steps=20, rule=rule)) for rule in ("gauss", "midpoint", "right")
    )
    assert gauss < midpoint / 10 < right / 10
    for one, other in zip(layers(model), layers(model, steps=200, rule="midpoint"), strict=True):  # gauss by default
        np.testing.assert_allclose(one.values, other.values, rtol=1e-4, atol=1e-5)


def test_the_published_sum_takes_gradients_at_the_end_of_each_step(model):
    pattern = model.run(IDS, sites=["pattern.2"])["pattern.2"]
    total = torch.zeros_like(pattern)
    for number in (1, 2, 3):
        run = model.run(IDS, ["pattern.2"], [Edit.patch("pattern.2", number / 3 * pattern)], gradients=True)
        total += torch.autograd.grad(run.logits[0, -1, 11], run["pattern.2"])[0] / 3
    found = layers(model, steps=3, rule="right")[2].values
    np.testing.assert_allclose(found, (pattern * total)[0], rtol=1e-9, atol=1e-12)


def test_fused_attention_gives_way_to_eager_and_nothing_is_left_behind():
    fused, plain = opened("gpt2", "sdpa"), opened("gpt2")
    weight = fused.hf.transformer.wte.weight
    copied = eager(fused)
    assert copied.attention == "eager"
    assert copied.hf.transformer.wte.weight is weight
    assert eager(copied) is copied
    one, other = (information_flow(each, IDS, "attribution", target=TARGET, steps=3) for each in (fused, plain))
    np.testing.assert_allclose(one.values, other.values, rtol=1e-4, atol=1e-6)
    assert fused.attention == "fused"
    assert fused.hf.config._attn_implementation == "sdpa"
    assert hook_count(fused.hf) == 0
    assert all(parameter.requires_grad for parameter in fused.hf.parameters())


def test_a_target_below_a_layer_owes_nothing_to_it(model):
    found = layers(model, Target.unit("neurons.1", 3, position=4), steps=3)
    assert np.abs(found[0].values).max() > 1e-6
    assert np.abs(found[1].values).max() > 1e-6
    assert not found[2].values.any()
    assert found[2].error < 1e-5


def test_causal_rows_and_other_tokens_owe_nothing(model):
    found = layers(model, Target.token(11, position=2), steps=3)
    for each in found:
        assert not np.triu(each.values, 1).any()
        assert not each.values[:, 3:].any()  # tokens behind the one that was asked about
    assert not found[-1].values[:, :2].any()  # in the last layer, that one alone


def test_both_stacks_of_an_encoder_decoder():
    given = padded("t5")
    batch = Batch.of_ids(given.ids[:1], target_ids=given.target_ids[:1])
    for stack in ("encoder", "decoder"):
        result = information_flow(
            opened("t5"), batch, "attribution", stack=stack, target=Target.token(11), steps=80, heads=True
        )
        assert result.table("checks").columns["error"].max() < 0.02
        np.testing.assert_allclose(result.table("heads").columns["attribution"].sum(1), result.values[0], atol=1e-12)


def test_what_cannot_be_explained_is_refused(model):
    with pytest.raises(AttributionError, match=r"no rule 'simpson' .* the rules are gauss, midpoint, right"):
        layers(model, rule="simpson")
    with pytest.raises(AttributionError, match="in 0 steps; give at least 1"):
        information_flow(model, IDS, "attribution", steps=0)
    with pytest.raises(AttributionError, match="Position 5 was asked for, and the text has 5 tokens"):
        layers(model, Target.token(11, position=5))
    headless = Model.load(network("gpt2").transformer)
    with pytest.raises(AttributionError, match="has no head"):
        information_flow(headless, IDS, "attribution")
