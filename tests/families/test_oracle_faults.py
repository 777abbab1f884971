"""Faults planted in captured tensors: the oracle must see every one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pellucid.families.configs import FAMILIES
from pellucid.families.oracle import Finding, recompose
from tests.tiny_models import opened, padded

Captured = dict[str, torch.Tensor]


def judged(name: str, fault: Callable[[Captured], None] = lambda captured: None, side: str = "right") -> list[Finding]:
    """What the oracle says of a run whose tensors were tampered with."""
    model, batch = opened(name), padded(name, side)
    captured = {str(site): value.clone() for site, value in model.run(batch, model.sites).items()}
    fault(captured)
    arguments, _ = model._arguments(batch)
    return recompose(FAMILIES[name], model.hf, captured, arguments)


def failures(found: list[Finding]) -> set[tuple[str, str]]:
    return {(finding.check, finding.site) for finding in found if not finding.ok}


NAMES = ["gpt2", "bert", "llama", "gemma2", "granite", "mixtral", "deepseek_v3", "gpt_oss"]
NAMES += ["t5", "bloom", "gptj", "xlnet", "longformer"]
KINDS = ["resid", "query", "key", "value", "pattern", "heads", "attn", "mid", "neurons", "mlp"]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", NAMES)
def test_an_honest_run_has_no_failure(name, side):
    assert not failures(judged(name, side=side))


@pytest.mark.parametrize(
    "kind", ["resid", "query", "key", "value", "pattern", "heads", "attn", "mid", "neurons", "mlp"]
)
@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "bloom"])
def test_a_layer_shifted_by_one_is_seen(name, kind):
    def shift(captured):
        captured[f"{kind}.0"], captured[f"{kind}.1"] = captured[f"{kind}.1"], captured[f"{kind}.0"]

    assert failures(judged(name, shift))


@pytest.mark.parametrize("kind", ["query", "key", "value", "pattern", "heads"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bloom"])
def test_swapped_heads_are_seen(name, kind):
    prefix = "decoder." if name == "t5" else ""

    def swap(captured):
        site = f"{prefix}{kind}.1"
        captured[site] = captured[site].flip(1)

    assert failures(judged(name, swap))


@pytest.mark.parametrize("kind", ["query", "key", "value", "heads"])
def test_heads_and_tokens_exchanged_are_seen(kind):
    def exchange(captured):
        value = captured[f"{kind}.1"]
        captured[f"{kind}.1"] = value.transpose(1, 2).reshape(value.shape)

    assert failures(judged("gpt2", exchange))


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "longformer"])
def test_padded_rows_that_were_not_zeroed_are_seen(name):
    prefix = "encoder." if name == "t5" else ""
    site = f"{prefix}pattern.1"

    def fill(captured):
        rows = ~padded(name).mask.bool()[:, None, :, None]
        captured[site] = torch.where(rows, 1 / captured[site].shape[-1], captured[site])

    found = judged(name, fill)
    assert failures(found) == {("pattern_rows", site)}
    assert any("padded rows" in finding.note for finding in found)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral"])
def test_a_pattern_made_without_the_causal_mask_is_seen(name):
    def unmask(captured):
        query, key = captured["query.1"], captured["key.1"]
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        real = padded(name).mask.bool()
        captured["pattern.1"] = (
            scores.masked_fill(~real[:, None, None, :], -torch.inf).softmax(-1) * real[:, None, :, None]
        )

    found = failures(judged(name, unmask))
    assert {
        ("pattern_rows", "pattern.1"),
        ("pattern_eager", "pattern.1"),
        ("qk", "pattern.1"),
        ("heads", "heads.1"),
    } <= found


def test_a_pattern_that_attends_to_padding_is_seen():
    def leak(captured):
        pattern, real = captured["pattern.1"], padded("bert").mask.bool()
        captured["pattern.1"] = torch.full_like(pattern, 1 / pattern.shape[-1]) * real[:, None, :, None]

    found = judged("bert", leak)
    assert any(finding.check == "pattern_rows" and "cannot be seen" in finding.note for finding in found)


def test_a_window_that_is_one_too_wide_is_seen():
    def widen(captured):
        pattern = captured["pattern.1"].clone()
        pattern[0, :, 9, 9 - 6] = 0.01  # mistral's window is 6 keys: 4 to 9
        captured["pattern.1"] = pattern

    assert ("pattern_rows", "pattern.1") in failures(judged("mistral", widen))


def test_a_missing_sink_is_seen():
    def renormalise(captured):
        pattern = captured["pattern.1"]
        captured["pattern.1"] = pattern / pattern.sum(-1, keepdim=True).clamp_min(1e-9)

    assert ("pattern_rows", "pattern.1") in failures(judged("gpt_oss", renormalise))


@pytest.mark.parametrize("kind", ["attn", "mlp"])
def test_a_forgotten_multiplier_is_seen_in_granite(kind):
    def forget(captured):
        captured[f"{kind}.1"] = captured[f"{kind}.1"] / 0.7

    assert {(kind, f"{kind}.1")} <= failures(judged("granite", forget))


@pytest.mark.parametrize(
    ("kind", "part", "source"), [("attn", "self_attn.o_proj", "heads"), ("mlp", "mlp.down_proj", "neurons")]
)
def test_a_forgotten_output_norm_is_seen_in_gemma2(kind, part, source):
    def forget(captured):
        value = captured[f"{source}.1"]
        flat = value.transpose(1, 2).flatten(2) if value.dim() == 4 else value
        layer = opened("gemma2").hf.model.layers[1]
        captured[f"{kind}.1"] = flat @ layer.get_submodule(part).weight.detach().T

    found = failures(judged("gemma2", forget))
    assert (kind, f"{kind}.1") in found
    assert {check for check, _ in found} >= {"stream"}


def test_an_untransposed_projection_is_seen_in_gpt2():
    """Conv1D holds its weight as [in, out]; read as a linear layer's it is another map."""

    def transpose(captured):
        projection = opened("gpt2").hf.transformer.h[1].attn.c_proj
        flat = captured["heads.1"].transpose(1, 2).flatten(2)
        captured["attn.1"] = (flat @ projection.weight.T + projection.bias).detach()

    assert ("attn", "attn.1") in failures(judged("gpt2", transpose))


@pytest.mark.parametrize("name", ["llama", "gptj", "gpt_neox"])
def test_queries_from_before_the_rotation_are_seen(name):
    """A vector that was not turned scores like one at position 0."""

    def unturn(captured):
        captured["query.1"] = captured["query.1"][:, :, :1].expand_as(captured["query.1"]).clone()

    assert ("qk", "pattern.1") in failures(judged(name, unturn))


@pytest.mark.parametrize("name", ["mixtral", "deepseek_v3", "gpt_oss"])
def test_routing_and_expert_units_are_held_to_the_router(name):
    def exchange_weights(captured):
        captured["routing.1"] = captured["routing.1"].roll(1, -1)

    def wake_idle_units(captured):
        captured["neurons.1"] = captured["neurons.1"] + 0.01

    assert ("routing", "routing.1") in failures(judged(name, exchange_weights))
    assert ("routing", "routing.1") in failures(judged(name, wake_idle_units))


def test_shared_units_that_are_left_out_are_seen():
    def silence(captured):
        captured["neurons.1"][..., 144:] = 0

    assert ("mlp", "mlp.1") in failures(judged("deepseek_v3", silence))


def test_the_stream_after_the_final_norm_is_not_the_last_stream():
    def norm(captured):
        captured["resid.3"] = opened("gpt2").hf.transformer.ln_f(captured["resid.3"]).detach()

    found = failures(judged("gpt2", norm))
    assert {("stream", "resid.3"), ("hidden_states", "resid.3"), ("logits", "logits")} <= found


def test_cross_patterns_of_another_layer_are_seen():
    def shift(captured):
        captured["cross.pattern.0"] = captured["cross.pattern.1"]

    found = failures(judged("bart", shift))
    assert {("pattern_eager", "cross.pattern.0"), ("heads", "cross.heads.0")} <= found


@pytest.mark.parametrize("site", ["heads.1", "resid.2", "pattern.0", "logits", "embed", "neurons.1"])
def test_a_missing_site_is_a_failure_that_names_it(site):
    found = [finding for finding in judged("gpt2", lambda captured: captured.pop(site) is None) if not finding.ok]
    assert found
    assert any(site in finding.note for finding in found)


def test_not_a_number_and_wrong_shapes_are_failures():
    def spoil(captured):
        captured["attn.1"][0, 0, 0] = torch.nan

    def cut(captured):
        captured["attn.1"] = captured["attn.1"][:, :-1]

    for fault in (spoil, cut):
        assert ("attn", "attn.1") in failures(judged("gpt2", fault))


@pytest.mark.parametrize("size", [1e-3, 1e-4])
def test_small_errors_are_seen(size):
    def nudge(captured):
        captured["mlp.1"] = captured["mlp.1"] * (1 + size)

    assert ("mlp", "mlp.1") in failures(judged("gpt2", nudge))
