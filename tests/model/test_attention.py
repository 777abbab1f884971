"""Attention as captured: written out by hand in float64, masked, grouped, and the same under both settings."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface, eager_mask, sdpa_mask

from pellucid.errors import EditError
from pellucid.model import Batch, Edit, Model
from pellucid.model.attention import EAGER, FUSED, pattern_beside
from tests.tiny_models import error, network, opened, padded, plain_output

SETTINGS = ["eager", "sdpa"]
KINDS = ("query", "key", "value", "pattern", "heads")


def causal_pattern(query, key, mask, scale):
    """softmax(scale · q kᵀ) over real keys that are not ahead, in float64; rows of padded queries are zero."""
    length = query.shape[2]
    scores = scale * query @ key.transpose(-1, -2)
    seen = torch.ones(length, length, dtype=torch.bool).tril() & mask.bool()[:, None, None, :]
    weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)
    return weights.masked_fill(~mask.bool()[:, None, :, None], 0)


def gpt2_by_hand(hf, stream, mask, layer):
    """GPT-2's attention from its parameters, in float64."""
    block = hf.transformer.h[layer]
    weight = {name: parameter.detach().double() for name, parameter in block.named_parameters()}
    width, heads = stream.shape[-1], hf.config.n_head
    x = functional.layer_norm(
        stream.double(), (width,), weight["ln_1.weight"], weight["ln_1.bias"], hf.config.layer_norm_epsilon
    )
    joined = x @ weight["attn.c_attn.weight"] + weight["attn.c_attn.bias"]  # Conv1D: [in, out]
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in joined.split(width, dim=-1))
    pattern = causal_pattern(q, k, mask, q.shape[-1] ** -0.5)
    return dict(zip(KINDS, (q, k, v, pattern, pattern @ v), strict=True))


def llama_by_hand(hf, stream, mask, layer):
    """Llama's attention with rotary positions and grouped keys, in float64."""
    block, config = hf.model.layers[layer], hf.config
    x = stream.double()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps) * block.input_layernorm.weight.double()
    parts = []
    for name in ("q_proj", "k_proj", "v_proj"):
        flat = x @ getattr(block.self_attn, name).weight.double().T
        parts.append(flat.unflatten(-1, (-1, config.head_dim)).transpose(1, 2))
    places = (
        (mask.cumsum(1) - 1).clamp(min=0) if not mask[:, 0].all() else torch.arange(mask.shape[1]).expand(mask.shape)
    )
    half = config.head_dim // 2
    rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = places[:, None, :, None] * rates  # [B, 1, T, dh/2]

    def turned(y):
        one, two = y[..., :half], y[..., half:]
        return torch.cat([one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()], -1)

    q, k, v = turned(parts[0]), turned(parts[1]), parts[2]
    groups = q.shape[1] // k.shape[1]
    pattern = causal_pattern(q, k.repeat_interleave(groups, 1), mask, config.head_dim**-0.5)
    return dict(zip(KINDS, (q, k, v, pattern, pattern @ v.repeat_interleave(groups, 1)), strict=True))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("name", "by_hand"), [("gpt2", gpt2_by_hand), ("llama", llama_by_hand)])
def test_every_attention_tensor_equals_attention_written_out(name, by_hand, side, setting):
    model, batch = opened(name, setting), padded(name, side)
    real = batch.mask.bool()
    for layer in range(3):
        run = model.run(batch, [f"resid.{layer}", *(f"{kind}.{layer}" for kind in KINDS)])
        wanted = by_hand(model.hf, run[f"resid.{layer}"], batch.mask, layer)
        for kind in KINDS:
            got, expected = run[f"{kind}.{layer}"], wanted[kind]
            assert got.shape == expected.shape, kind
            rows = real[:, None, :, None].expand_as(expected)
            assert error(got[rows], expected[rows]) < 1e-5, (kind, layer)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "bloom", "mistral", "t5"])
def test_padding_gets_no_attention_and_padded_queries_are_zero(name, side, setting):
    """The mask trap: an attention function registered without its mask function attends to padding."""
    model, batch = opened(name, setting), padded(name, side)
    run = model.run(batch, "*.pattern.*")
    assert len(run) >= 3
    for site, pattern in run.items():
        queries = batch.mask if site.stack in (None, "encoder") else batch.target_mask
        keys = batch.target_mask if site.stack == "decoder" else batch.mask
        assert pattern.shape[2:] == (queries.shape[1], keys.shape[1])
        assert not pattern.isnan().any(), site
        hidden = ~keys.bool()[:, None, None, :].expand_as(pattern)
        assert pattern[hidden].abs().max() == 0, site
        rows = pattern.sum(-1)
        real = queries.bool()[:, None, :].expand_as(rows)
        assert torch.allclose(rows[real], torch.ones(1), atol=1e-5), site
        assert rows[~real].abs().max() == 0, site


def test_both_names_are_registered_with_the_mask_function_each_kernel_needs():
    assert ALL_MASK_ATTENTION_FUNCTIONS[FUSED] is sdpa_mask
    assert ALL_MASK_ATTENTION_FUNCTIONS[EAGER] is eager_mask


@pytest.mark.parametrize("setting", SETTINGS)
def test_without_its_mask_function_padding_would_be_attended_to(setting, monkeypatch):
    """The two tests above can fail: this is what they would see."""
    name = {"eager": EAGER, "sdpa": FUSED}[setting]
    model, batch = Model.load(network("bert", setting)), padded("bert")
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, name, lambda *args, **kwargs: None)
    pattern = model.run(batch, "pattern.0")["pattern.0"]
    hidden = ~batch.mask.bool()[:, None, None, :].expand_as(pattern)
    real = batch.mask.bool()[:, None, :, None].expand_as(pattern)
    assert pattern[hidden & real].max() > 0.01


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "mistral", "t5", "bart", "qwen3", "granite"])
def test_fused_patterns_equal_eager_ones(name):
    batch = padded(name)
    fused, eager = opened(name, "sdpa"), opened(name, "eager")
    assert (fused.attention, eager.attention) == ("fused", "eager")
    one, other = fused.run(batch, "*.pattern.*"), eager.run(batch, "*.pattern.*")
    assert set(one) == set(other)
    for site in one:
        assert error(one[site], other[site]) < 2e-5, site


@pytest.mark.parametrize("setting", SETTINGS)
def test_reading_patterns_leaves_the_output_bit_equal(setting):
    model = opened("llama", setting)
    for side in ("right", "left"):
        batch = padded("llama", side)
        assert torch.equal(model.run(batch, "pattern.*").logits, plain_output(model, batch))


def test_grouped_queries_keep_their_own_number_of_key_heads():
    model, batch = opened("llama", "sdpa"), padded("llama")
    run = model.run(batch, ["query.1", "key.1", "value.1", "pattern.1", "heads.1"])
    heads = {str(site): value.shape[1] for site, value in run.items()}
    assert heads == {"query.1": 4, "key.1": 2, "value.1": 2, "pattern.1": 4, "heads.1": 4}
    assert model.size("key.1") == (2, 12)
    with pytest.raises(Exception, match=r"key.1 has 2 heads, numbered 0 to 1; head 2 does not exist"):
        model.run(batch, (), Edit.zero("key.1", heads=2))


def test_zeroing_one_key_head_changes_exactly_its_group_of_patterns():
    model, batch = opened("llama", "eager"), padded("llama")
    plain = model.run(batch, "pattern.0")["pattern.0"]
    edited = model.run(batch, "pattern.0", Edit.zero("key.0", heads=1))["pattern.0"]
    assert torch.equal(edited[:, :2], plain[:, :2])
    for head in (2, 3):  # scores of zero: every visible key gets the same weight
        row = edited[0, head, 10, :11]
        assert torch.allclose(row, torch.full_like(row, 1 / 11), atol=1e-6)


def test_edits_of_patterns_are_refused_under_fused_attention():
    model, batch = opened("gpt2", "sdpa"), padded("gpt2")
    with pytest.raises(
        EditError, match=r"Editing pattern.1 needs eager attention; load the model with attention='eager'"
    ):
        model.run(batch, (), Edit.zero("pattern.1", heads=0))


@pytest.mark.parametrize("name", ["gpt2", "llama", "bloom", "t5"])
def test_an_edited_pattern_is_what_mixes_the_values(name):
    model, batch = opened(name, "eager"), padded(name)
    prefix = "decoder." if name == "t5" else ""
    real = (batch.target_mask if name == "t5" else batch.mask).bool()
    wanted = torch.rand(real.shape[1], real.shape[1])
    sites = [f"{prefix}{kind}.1" for kind in ("pattern", "value", "heads")]
    run = model.run(batch, sites, Edit.set(sites[0], wanted, heads=[1]))
    pattern, value, heads = (run[site] for site in sites)
    assert torch.equal(pattern[0, 1][real[0]], wanted[real[0]])
    value = value.repeat_interleave(heads.shape[1] // value.shape[1], 1)
    for row in range(real.shape[0]):
        mixed = pattern[row][:, real[row]].double() @ value[row].double()
        assert error(heads[row][:, real[row]], mixed) < 1e-5
    plain = model.run(batch, sites[2])[sites[2]]
    assert torch.equal(heads[:, 0], plain[:, 0])


def test_editing_the_pattern_to_itself_changes_nothing():
    model, batch = opened("gpt2", "eager"), padded("gpt2")
    run = model.run(batch, "pattern.1")
    again = model.run(batch, (), Edit.patch("pattern.1", run))
    real = batch.mask.bool()
    assert torch.equal(again.logits[real], run.logits[real])


@pytest.mark.parametrize("mask_kind", ["bool", "float", "none"])
def test_pattern_beside_follows_the_fused_kernel(mask_kind):
    """Identity values make the kernel give its own pattern back."""
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(2, 4, 5, 6, generator=generator)
    k = torch.randn(2, 2, 5, 6, generator=generator)
    seen = torch.ones(5, 5, dtype=torch.bool).tril()[None, None].repeat(2, 1, 1, 1)
    seen[1, :, :, 0] = False
    seen[1, :, 0, 0] = True  # no row without a key
    mask = {"bool": seen, "float": torch.zeros(seen.shape).masked_fill(~seen, -1e4), "none": None}[mask_kind]
    eye = torch.eye(5).expand(2, 4, 5, 5)
    kernel = functional.scaled_dot_product_attention(
        q, k.repeat_interleave(2, 1), eye, attn_mask=mask, is_causal=mask is None, scale=0.3
    )
    module = torch.nn.Module()
    assert torch.allclose(pattern_beside(module, q, k, mask, scaling=0.3), kernel, atol=1e-6)


def test_pattern_beside_does_not_change_its_inputs():
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
    mask = torch.zeros(1, 1, 3, 3)
    before = q.clone(), k.clone(), mask.clone()
    pattern_beside(torch.nn.Module(), q, k, mask, position_bias=torch.ones(1, 2, 3, 3))
    assert all(torch.equal(one, other) for one, other in zip((q, k, mask), before, strict=True))


def test_a_batch_row_equals_the_row_alone():
    for setting in SETTINGS:
        for name in ("gpt2", "llama", "bloom"):
            model = opened(name, setting)
            for side in ("right", "left"):
                batch = padded(name, side)
                together = model.run(batch, ["resid.*", "pattern.*", "heads.*", "query.*"])
                for row in range(batch.size):
                    real = batch.mask[row].bool()
                    alone = model.run(Batch.of_ids(batch.ids[row][real][None]), list(together))
                    for site, value in together.items():
                        part = value[row][:, real] if site.per_head else value[row][real]
                        part = part[..., real] if site.kind == "pattern" else part
                        assert error(part, alone[site][0]) < 2e-5, (name, setting, side, row, str(site))
