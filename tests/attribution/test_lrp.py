"""Relevance of whole models: conservation, known answers, scope, and what is left behind (nothing)."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.gpt2 import modeling_gpt2

from pellucid.attribution import Target, attribute
from pellucid.attribution.computing import Settings, compute
from pellucid.attribution.lrp import relevance, rules
from pellucid.attribution.methods import chosen
from pellucid.errors import AttributionError
from pellucid.model import Batch, Model
from pellucid.model.sites import expand
from tests.tiny_models import network, opened, padded, plain_output

ALL = ("lrp_voita", "lrp_attn", "lrp_cp")
FAMILIES = {
    "llama": ("eager", "sdpa"),
    "gpt2": ("eager", "sdpa"),
    "bert": ("eager", "sdpa"),
    "t5": ("eager", "sdpa"),
    "marian": ("eager", "sdpa"),
    "albert": ("sdpa",),
    "bloom": ("eager",),
    "deberta": ("eager",),
    "gemma2": ("sdpa",),
    "gptj": ("eager",),
    "longformer": ("eager",),
    "mixtral": ("sdpa",),
    "olmo": ("sdpa",),
    "qwen3": ("sdpa",),
    "xlnet": ("eager",),
}


UNPADDED = ("longformer", "mixtral", "gemma2")
"""Longformer and Gemma 2 give NaN on padded rows by themselves; experts mix the tokens of all texts."""


def computed(model, batch, methods=ALL, sites="*.embed", targets=None):
    targets = targets or [Target.token(7, position=-1)]
    return compute(model, batch, targets, chosen(methods), expand(sites, model.sites), Settings())[0]


def first(batch):
    """The first text of a batch, which has no padding."""
    return Batch.of_ids(batch.ids[:1], target_ids=None if batch.target_ids is None else batch.target_ids[:1])


def total(part):
    return part.flatten(1).sum(dim=1)


# -- conservation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_all_relevance_is_accounted_for_with_either_attention(family):
    """Nothing is lost that is not booked, and fused attention gives what its steps give."""
    found = []
    for attention in FAMILIES[family]:
        model = opened(family, attention, torch.float64)
        batch = first(padded(family)) if family in UNPADDED else padded(family)
        found.append(computed(model, batch))
        for key, shares in found[-1].shares.items():
            size = max(float(part.abs().max()) for part in shares.values())
            assert float(shares["unaccounted for"].abs().max()) <= 1e-5 * size, (key, shares)  # some steps are float32
    for key, part in found[0].parts.items():
        torch.testing.assert_close(found[-1].parts[key], part, rtol=1e-4, atol=1e-6)  # eager softmax is float32
        assert float(part.abs().max()) > 0


@pytest.mark.parametrize("method", ["lrp_cp", "lrp_voita"])
def test_without_biases_the_whole_score_is_in_every_layer(method):
    """A Llama has no biases, and its positions only turn queries and keys."""
    model = opened("llama", "sdpa", torch.float64)
    found = computed(model, padded("llama"), [method], "embed, resid.*, attn.0, resid.3")
    for site in expand("embed, resid.*", model.sites):
        torch.testing.assert_close(total(found.parts[method, 0, site]), found.end[0], rtol=1e-4, atol=1e-6)


def test_constant_patterns_conserve_through_two_stacks():
    model = opened("t5", "sdpa", torch.float64)
    found = computed(model, padded("t5"), ["lrp_cp"])
    both = sum(total(part) for part in found.parts.values())
    torch.testing.assert_close(both, found.end[0], rtol=1e-4, atol=1e-6)


def test_alpha_beta_relevance_has_the_sign_of_the_score():
    found = computed(opened("bert", "sdpa", torch.float64), padded("bert"), ["lrp_voita"])
    (part,) = found.parts.values()
    assert bool((part * found.end[0].sign()[:, None, None] >= 0).all())


def test_a_log_probability_says_what_its_own_form_takes():
    model = opened("llama", "sdpa", torch.float64)
    batch = first(padded("llama"))
    found = computed(model, batch, ["lrp_cp"], targets=[Target.token(7, position=-1, log=True)])
    logits = plain_output(model, batch)[0, -1]
    slope = torch.eye(len(logits))[7] - logits.softmax(dim=0)
    shares = found.shares["lrp_cp", 0]
    assert shares["target's own form"] == pytest.approx(float(found.end - (logits * slope).sum()))
    assert abs(float(shares["unaccounted for"])) < 1e-6


# -- known answers ---------------------------------------------------------------------------------------------------


def uniform_llama(width=8, vocabulary=12, seed=0):
    """One block that looks everywhere alike (queries are zero) and has no MLP."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=32,
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    hf = LlamaForCausalLM(config).double().eval()
    with torch.no_grad():
        for weight in hf.parameters():
            weight.normal_()
        block = hf.model.layers[0]
        block.self_attn.q_proj.weight.zero_()
        block.mlp.down_proj.weight.zero_()
    return hf


def test_one_layer_of_uniform_attention_in_closed_form(monkeypatch):
    monkeypatch.setattr(rules, "EPSILON", 1e-15)
    hf = uniform_llama()
    ids = [[3, 5, 1, 7]]
    found = computed(Model.load(hf), Batch.of_ids(ids), ["lrp_cp"], targets=[Target.token(9, position=-1)])
    (part,) = found.parts.values()
    weights = {name: weight.detach().numpy() for name, weight in hf.named_parameters()}
    block = "model.layers.0."
    e = weights["model.embed_tokens.weight"][ids[0]]
    eps = hf.config.rms_norm_eps

    def scale(x, weight):
        return weight / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)

    inner = scale(e, weights[block + "input_layernorm.weight"])
    moved = weights[block + "self_attn.o_proj.weight"] @ weights[block + "self_attn.v_proj.weight"]
    last = e[-1] + (moved @ (inner * e).T).mean(axis=1)
    read = weights["lm_head.weight"][9] * scale(last, weights["model.norm.weight"])
    wanted = e * inner * (moved.T @ read) / 4
    wanted[-1] += e[-1] * read
    np.testing.assert_allclose(part[0].numpy(), wanted, rtol=1e-6)
    np.testing.assert_allclose(float(found.end), read @ last)


@pytest.mark.parametrize("method", ALL)
def test_the_planted_token_is_found(method):
    """Only token 5 has anything in unit 0, which attention copies into the unit that the answer is read from."""
    hf = uniform_llama()
    with torch.no_grad():
        hf.model.embed_tokens.weight[:, :2] = 0
        hf.model.embed_tokens.weight[5, 0] = 3
        hf.model.norm.weight.fill_(1)
        block = hf.model.layers[0]
        block.input_layernorm.weight.fill_(1)
        block.self_attn.v_proj.weight.copy_(torch.diag(torch.tensor([1.0] + [0.0] * 7)))
        block.self_attn.o_proj.weight.zero_()[1, 0] = 1
        hf.lm_head.weight[9] = 0
        hf.lm_head.weight[9, 1] = 2
    tokens = [3, 8, 5, 1, 7]
    found = computed(Model.load(hf), Batch.of_ids([tokens]), [method], targets=[Target.token(9, position=-1)])
    (part,) = found.parts.values()
    by_token = part[0].sum(dim=1)
    assert tokens[int(by_token.argmax())] == 5
    assert float(by_token[2]) > 0.4 * float(found.end)
    others = by_token.abs()
    others[2] = 0
    assert float(others.sum()) <= 0.02 * float(by_token[2]) or method == "lrp_attn"


def test_heads_and_neurons_hold_what_their_sublayers_hold():
    """Without biases a projection hands all it has to its inputs; what is read there is read before the next rule."""
    model = opened("llama", "sdpa", torch.float64)
    sites = "heads.*, attn.*, neurons.*, mlp.*"
    found = computed(model, padded("llama"), ["lrp_attn", "lrp_cp"], sites)
    for (method, number, site), part in found.parts.items():
        if site.kind in ("heads", "neurons"):
            whole = found.parts[method, number, site.beside("attn" if site.kind == "heads" else "mlp")]
            torch.testing.assert_close(total(part), total(whole), rtol=1e-4, atol=1e-5)


def test_what_is_asked_for_changes_nothing():
    """Recording a pattern makes it a tensor with a gradient of its own, which must not change the rules."""
    model, batch = opened("llama", "eager", torch.float64), padded("llama")
    alone = computed(model, batch)
    beside = computed(model, batch, sites="embed, pattern.*, query.1, key.1, value.1, heads.0, neurons.2, resid.1")
    for key, part in alone.parts.items():
        torch.testing.assert_close(beside.parts[key], part)
    pattern, heads = (beside.parts["lrp_cp", 0, site] for site in expand("pattern.0, heads.0", model.sites))
    torch.testing.assert_close(total(pattern), total(heads), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_padding_changes_nothing(family):
    model, batch = opened(family, "sdpa", torch.float64), padded(family)
    together = computed(model, batch)
    decoded = batch.target_mask is not None
    for row in range(3):
        length = int(batch.mask[row].sum())
        written = int(batch.target_mask[row].sum()) if decoded else 0
        alone = computed(
            model,
            Batch.of_ids(
                batch.ids[row : row + 1, :length],
                target_ids=batch.target_ids[row : row + 1, :written] if decoded else None,
            ),
        )
        for key, part in alone.parts.items():
            kept = together.parts[key][row, : part.shape[1]]
            torch.testing.assert_close(kept, part[0], rtol=1e-5, atol=1e-8)
            assert not together.parts[key][row, part.shape[1] :].any()
        for key, shares in alone.shares.items():
            for name, share in shares.items():
                assert float(together.shares[key][name][row]) == pytest.approx(float(share), rel=1e-4, abs=1e-7)


# -- the result, the notice and bad input ----------------------------------------------------------------------------


def test_a_result_tells_where_the_score_went(caplog):
    relevance._tell.cache_clear()
    model, batch = opened("gpt2", "sdpa", torch.float64), first(padded("gpt2"))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            found = attribute(model, batch, "token@-1", ["lrp_cp", "saliency"], "heads.*", by="head")
    assert [record.getMessage() for record in caplog.records if "patents" in record.getMessage()] == [
        f"Notice: {relevance.NOTICE}."
    ]
    assert relevance.NOTICE in found.provenance.arguments["note"]
    assert found.axes["place"][:2] == ("heads.0:0", "heads.0:1")
    table = found.conservation.columns
    assert set(table["measure"]) == {"lrp_cp"}
    assert set(table["part"]) >= {"embed", "biases", "positions and other constants", "unaccounted for"}
    assert table["relevance"].sum() == pytest.approx(float(found.targets.columns["score"][0]))
    assert table["share of the score"].sum() == pytest.approx(1)
    assert not attribute(model, batch, "token@-1", "saliency").conservation.columns["part"].size


def test_nothing_is_loaded_before_it_is_used():
    """Only files of `lrp` import it when they are loaded; the others do where a method asks for it."""
    folder = Path(relevance.__file__).parents[1]
    for path in {*folder.rglob("*.py")} - {*Path(relevance.__file__).parent.glob("*.py")}:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            assert not [name for name in names if "lrp" in name], path.name
    assert "from pellucid.attribution.lrp.relevance import" in (folder / "computing.py").read_text(encoding="utf-8")


def test_attention_that_cannot_be_seen_is_refused(monkeypatch):
    def hidden(module, query, key, value, attention_mask, **_):
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5 + attention_mask).exp()
        return (weights / weights.sum(dim=-1, keepdim=True) @ value).transpose(1, 2), weights

    model = Model.load(network("gpt2"))
    monkeypatch.setattr(modeling_gpt2, "eager_attention_forward", hidden)
    with pytest.raises(AttributionError, match="3 of its 3 attention layers"):
        computed(model, padded("gpt2"), ["lrp_attn"])


def test_places_without_a_rule_are_refused():
    with pytest.raises(AttributionError, match=r"lrp_voita gives no relevance at mid\.0"):
        computed(opened("gpt2"), padded("gpt2"), ["lrp_voita"], "mid.0")
    with pytest.raises(AttributionError, match=r"Relevance at neurons\.1 is not to be had"):
        computed(opened("mixtral"), padded("mixtral"), ["lrp_cp"], "neurons.1")
    found = computed(opened("gpt2", "eager", torch.float64), padded("gpt2"), ["lrp_attn"], "mid.0, attn.0, resid.0")
    assert len(found.parts) >= 3


def test_a_target_that_nothing_made_is_refused():
    model, batch = opened("gpt2"), first(padded("gpt2"))
    for score, why in ((lambda run: run.logits.detach()[:, 0, 0], "nothing made it"), (endless, "not a finite number")):
        with pytest.raises(AttributionError, match=why):
            computed(model, batch, ["lrp_cp"], targets=[Target.of(score, "odd")])


def endless(run):
    return run.logits[:, 0, 0] * torch.inf
