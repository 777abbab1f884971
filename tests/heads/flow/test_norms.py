"""Norm-based attention: every term from the networks' own weights, sums that are the modules' own output."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pellucid.errors import ModelError
from pellucid.heads import information_flow
from pellucid.heads.flow.mixings import mixing, sites_of
from pellucid.heads.flow.norms import Mixing, NormSplit, lengths
from pellucid.heads.flow.reading import read
from pellucid.model import Batch, Model
from tests.tiny_models import network, opened, padded

IDS = Batch.of_ids([[7, 20, 33, 9, 51, 12, 70]])
METHODS = ["norms", "norms_residual", "norms_layernorm"]


def given(module: nn.Module, name: str, ids: Tensor) -> Tensor:
    """What a part of a network gives for a text, without Pellucid."""
    kept: list[Tensor] = []
    hook = module.get_submodule(name).register_forward_hook(
        lambda _, __, out: kept.append(out[0] if isinstance(out, tuple) else out)
    )
    with torch.no_grad():
        module(input_ids=ids)
    hook.remove()
    return kept[0][0].double()


def terms(pattern: Tensor, values: Tensor, weight: Tensor) -> Tensor:
    """α_hij·v_hj·W_h for every head, [H, T, T, d]; weight [H·dh, d]."""
    heads = weight.double().unflatten(0, (len(values), -1))
    return pattern.double()[..., None] * torch.einsum("htd,hdm->htm", values.double(), heads)[:, None]


def split(flat: Tensor, heads: int) -> Tensor:
    return flat.unflatten(-1, (heads, -1)).transpose(0, 1)


def bert_terms(hf, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Terms, the stream, and what attention and its norm give, by BERT's own names."""
    block = f"bert.encoder.layer.{layer}"
    part = hf.get_submodule(f"{block}.attention")
    ids = IDS.ids
    with torch.no_grad():
        out = hf(input_ids=ids, output_attentions=True, output_hidden_states=True)
        stream = out.hidden_states[layer][0]
        values = split(part.self.value(stream), 4)
        dense = part.output.dense
        found = terms(out.attentions[layer][0], values, dense.weight.T)
    return (
        found,
        stream.double(),
        given(hf, f"{block}.attention.output.dense", ids) - dense.bias.double(),
        given(hf, f"{block}.attention.output.LayerNorm", ids),
    )


def test_every_length_of_bert_is_that_of_its_terms():
    hf = network("bert")
    result = information_flow(Model.load(hf), IDS, METHODS, heads=True)
    for layer in range(3):
        found, stream, attention, normed = bert_terms(hf, layer)
        torch.testing.assert_close(found.sum((0, 2)), attention, rtol=1e-5, atol=1e-5)
        summed = found.sum(0)  # [T, T, d]
        np.testing.assert_allclose(result.values[0, layer], summed.norm(dim=-1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            result.table("heads").columns["norms"][layer], found.norm(dim=-1), rtol=1e-5, atol=1e-6
        )
        summed[range(7), range(7)] += stream
        np.testing.assert_allclose(result.values[1, layer], summed.norm(dim=-1), rtol=1e-5, atol=1e-6)
        norm = hf.bert.encoder.layer[layer].attention.output.LayerNorm
        bias = hf.bert.encoder.layer[layer].attention.output.dense.bias.double()
        whole = summed.sum(1) + bias
        deviation = (whole.var(-1, unbiased=False) + norm.eps).sqrt()
        split_terms = (summed - summed.mean(-1, keepdim=True)) / deviation[:, None, None] * norm.weight.double()
        own = (bias - bias.mean()) / deviation[:, None] * norm.weight.double() + norm.bias.double()
        torch.testing.assert_close(split_terms.sum(1) + own, normed, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(result.values[2, layer], split_terms.detach().norm(dim=-1), rtol=1e-5, atol=1e-6)


def test_every_length_of_gpt2_is_that_of_its_terms():
    hf = network("gpt2")
    result = information_flow(Model.load(hf), IDS, METHODS)
    with torch.no_grad():
        out = hf(input_ids=IDS.ids, output_attentions=True, output_hidden_states=True)
        for layer, block in enumerate(hf.transformer.h):
            stream = out.hidden_states[layer][0]
            values = split(block.attn.c_attn(block.ln_1(stream)).chunk(3, -1)[2], 4)
            found = terms(out.attentions[layer][0], values, block.attn.c_proj.weight)
            wanted = given(hf, f"transformer.h.{layer}.attn.c_proj", IDS.ids) - block.attn.c_proj.bias.double()
            torch.testing.assert_close(found.sum((0, 2)), wanted, rtol=1e-5, atol=1e-5)
            summed = found.sum(0)
            np.testing.assert_allclose(result.values[0, layer], summed.norm(dim=-1), rtol=1e-5, atol=1e-6)
            summed[range(7), range(7)] += stream.double()
            np.testing.assert_allclose(result.values[1, layer], summed.norm(dim=-1), rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(result.values[2, layer], result.values[1, layer])  # no norm after the sum
    assert not np.triu(result.values, 1).any()


def test_grouped_values_are_those_of_their_group():
    """Llama with four query heads and two for keys and values, and an RMS norm before attention."""
    hf = network("llama")
    result = information_flow(Model.load(hf), IDS, METHODS)
    with torch.no_grad():
        out = hf(input_ids=IDS.ids, output_attentions=True, output_hidden_states=True)
        for layer, block in enumerate(hf.model.layers):
            normed = block.input_layernorm(out.hidden_states[layer][0])
            grouped = split(block.self_attn.v_proj(normed), 2)
            values = grouped[[0, 0, 1, 1]]
            found = terms(out.attentions[layer][0], values, block.self_attn.o_proj.weight.T)
            wanted = given(hf, f"model.layers.{layer}.self_attn.o_proj", IDS.ids)
            torch.testing.assert_close(found.sum((0, 2)), wanted, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(result.values[0, layer], found.sum(0).norm(dim=-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "stack"),
    [
        ("gemma2", None),
        ("olmo2", None),
        ("granite", None),
        ("gpt_oss", None),
        ("deberta-v2", None),
        ("albert", None),
        ("t5", "decoder"),
        ("bart", "encoder"),
    ],
)
def test_materialised_terms_of_other_families_add_up(name, stack):
    """All terms, output norms and multipliers included, sum to what the site `attn` and the next norm hold."""
    model, batch = opened(name), padded(name)
    target = None if batch.target_ids is None else batch.target_ids[:1]
    reading = read(model, Batch.of_ids(batch.ids[:1], target_ids=target), stack=stack)
    site = reading.sites[-1]
    run = model.run(reading.batch, sites_of(model, site))
    found, error = mixing(model, site, run)
    vectors, factor = found.added()
    every = found.weights[..., None] * vectors[:, None] * factor[:, None, None]  # [H, T, T, d]
    attention = run[site.beside("attn")][0].double()
    rest = attention - every.sum((0, 2))  # a bias or shift: the same for every token, up to a norm's statistics
    told = lengths(found)
    torch.testing.assert_close(told.attention, every.sum(0).norm(dim=-1), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(told.heads, every.norm(dim=-1), rtol=1e-6, atol=1e-9)
    summed = every.sum(0)
    summed[range(len(summed)), range(len(summed))] += found.stream
    torch.testing.assert_close(told.residual, summed.norm(dim=-1), rtol=1e-6, atol=1e-9)
    if found.norm is not None:
        turned = found.norm.turned(summed) / found.norm.deviation[:, None, None]
        torch.testing.assert_close(told.layernorm, turned.norm(dim=-1), rtol=1e-6, atol=1e-9)
    assert error < 1e-5
    if name in ("olmo2", "granite", "t5"):  # nothing but terms: no bias anywhere
        assert float(rest.abs().max()) < 1e-5 * float(attention.abs().max())


def test_a_head_without_values_adds_nothing_however_high_its_weights():
    hf = network("bert")
    attention = hf.bert.encoder.layer[1].attention
    width = 10
    with torch.no_grad():
        attention.self.value.weight[:width] = 0  # head 0
        attention.self.value.bias[:width] = 0
    result = information_flow(Model.load(hf), IDS, ["attention", "norms"], heads=True)
    columns = result.table("heads").columns
    assert columns["attention"][1, 0].sum() == pytest.approx(7)
    assert not columns["norms"][1, 0].any()
    assert columns["norms"][1, 1].all()
    with torch.no_grad():
        attention.self.value.weight.zero_()
        attention.self.value.bias.zero_()
    result = information_flow(Model.load(hf), IDS, ["attention", *METHODS])
    assert result.values[0, 1].min() > 0
    assert not result.values[1, 1].any()
    assert result.values[2, 1][~np.eye(7, dtype=bool)].max() == 0
    assert result.values[3, 1].diagonal().min() > 0  # the residual stream is left


def test_lengths_by_hand():
    weights = torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.25, 0.75]]]).double()
    vectors = torch.tensor([[[3.0, 0.0], [0.0, 2.0]], [[-3.0, 4.0], [0.0, -2.0]]]).double()
    stream = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()
    norm = NormSplit(torch.tensor([2.0, 1.0]).double(), torch.zeros(2).double(), torch.tensor([1.0, 2.0]), False)
    told = lengths(Mixing(weights, vectors, stream, norm=norm))
    # token 0: 1·(3, 0) + 1·(−3, 4); token 1: ½(3, 0) + ¼(−3, 4) = (.75, 1) from 0, ½(0, 2) + ¾(0, −2) = (0, −.5) from 1
    torch.testing.assert_close(told.attention, torch.tensor([[4.0, 0.0], [1.25, 0.5]]).double())
    torch.testing.assert_close(told.residual, torch.tensor([[17**0.5, 0.0], [1.25, 0.5]]).double())
    own, other = (2.0**2 + 4.0**2) ** 0.5, (1.5**2 + 1.0**2) ** 0.5 / 2
    torch.testing.assert_close(told.layernorm, torch.tensor([[own, 0.0], [other, 0.25]]).double())
    torch.testing.assert_close(told.heads[1], torch.tensor([[5.0, 0.0], [1.25, 1.5]]).double())


def test_models_that_mix_in_another_way_are_refused():
    with pytest.raises(ModelError, match="needs the output projection of its heads"):
        information_flow(opened("xlnet"), IDS, "norms")
    hf = deepcopy(network("gpt2"))
    model = Model.load(hf)
    with torch.no_grad():  # a projection whose weights are not what it computes with
        projection = hf.transformer.h[1].attn.c_proj
        projection.forward = lambda states, whole=projection.forward: whole(states) + states.mean(1, keepdim=True)
    with pytest.raises(ModelError, match=r"pattern\.1 .* is not the sum of its weights times projected values"):
        information_flow(model, IDS, "norms")
