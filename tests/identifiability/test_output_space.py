"""Heads whose output projection does not let all of their values through: null spaces of V·W_H, and what is said."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid import Corpus, Model, sweep
from pellucid.collect.freedom import AttentionFreedom
from pellucid.collect.null_space import values_of_heads
from pellucid.collect.output_space import NOWHERE, OutputSpace, deficient
from pellucid.identifiability import attention, reachable, second_attention
from pellucid.identifiability.notes import notes_of
from tests.tiny_models import TEXT, network, word_tokenizer

SILENT, NARROW, RANK = 2, 1, 3
"""A head of layer 1 with no output projection at all, and one whose projection reads so many directions."""
SHORT = ["the old dog runs", "a cat sleeps near the keys", "the red cabinet and a dog"]


def weight_of(hf, family: str) -> torch.Tensor:
    """The output projection of layer 1, [heads · d, width], to be changed in place."""
    if family == "gpt2":
        return hf.transformer.h[1].attn.c_proj.weight.data
    if family == "llama":
        return hf.model.layers[1].self_attn.o_proj.weight.data.T
    return hf.bert.encoder.layer[1].attention.output.dense.weight.data.T


@pytest.fixture(scope="module", params=["gpt2", "bert", "llama"])
def model(request) -> Model:
    hf = network(request.param, dtype=torch.float64)
    weight = weight_of(hf, request.param)
    width = len(weight) // hf.config.num_attention_heads
    weight[SILENT * width : (SILENT + 1) * width] = 0
    own = weight[NARROW * width : (NARROW + 1) * width]
    own.copy_(
        torch.randn(width, RANK, dtype=own.dtype, generator=torch.Generator().manual_seed(0)) @ own[:RANK].clone()
    )
    return Model.load(hf, tokenizer=word_tokenizer())


def through_weights(model: Model, text: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """The pattern of layer 1, and T = V·W_H of every head."""
    family = {"GPT2LMHeadModel": "gpt2", "LlamaForCausalLM": "llama"}.get(type(model.hf).__name__, "bert")
    run = model.run(model.tokenize([text]), sites=["pattern.1", "value.1"])
    pattern = run["pattern.1"][0].numpy()
    v = values_of_heads(run["value.1"][0], len(pattern)).numpy()
    w = weight_of(model.hf, family).numpy().reshape(len(pattern), v.shape[-1], -1)
    return pattern, [v[head] @ w[head] for head in range(len(pattern))]


def test_the_heads_that_let_less_through_are_found(model):
    sites = [site for site in model.sites if site.kind == "pattern"]
    found = deficient(model, sites)
    assert [each[:2] for each in found] == [("pattern.1", NARROW), ("pattern.1", SILENT)]
    values = torch.randn(model.size("value.1")[0], 9, model.size("value.1")[1], dtype=torch.float64)
    space = OutputSpace(found)
    assert space.through("pattern.0", values, 4) is values
    passed = space.through("pattern.1", values, 4)
    assert [int(torch.linalg.matrix_rank(each)) for each in passed[[SILENT, NARROW]]] == [0, RANK]
    assert torch.equal(passed[[0, 3]], values_of_heads(values, 4)[[0, 3]])


def test_freedom_is_that_of_projected_values(model):
    found = attention(model, Corpus.of(SHORT))
    queries, free, moved, unique = 0, np.zeros(4), np.zeros(4), np.zeros(4)
    for text in SHORT:
        pattern, projected = through_weights(model, text)
        special = model.tokenize([text]).special[0].numpy()
        for query in np.flatnonzero(~special):
            queries += 1
            for head, whole in enumerate(projected):
                seen = (pattern[:, query] > 0).any(0)
                left, sizes, _ = np.linalg.svd(whole[seen])
                rank = int((sizes > 1e-9).sum())
                basis, own = left[:, :rank], pattern[head, query, seen]
                free[head] += seen.sum() - rank
                with_one = np.concatenate([whole[seen], np.ones((seen.sum(), 1))], axis=1)
                unique[head] += np.linalg.matrix_rank(with_one, tol=1e-9) == seen.sum()
                moved[head] += np.linalg.norm(own - basis @ (basis.T @ own)) / np.linalg.norm(own)
    np.testing.assert_allclose(found.measure("free")[1], free / queries)
    np.testing.assert_allclose(found.measure("unique")[1], unique / queries)
    np.testing.assert_allclose(found.measure("moved")[1], moved / queries, atol=1e-9)
    assert found.measure("unique")[1, 0] == 1  # a head that lets all through, on short texts
    assert found.measure("unique")[1, SILENT] < 0.5
    assert "a part of the values through, which counts alone, in 1.1, 1.2." in notes_of(found)[0]


def test_a_silent_head_may_have_any_weights(model):
    result = second_attention(model, SHORT[1], f"1.{SILENT}")
    told = result.table("queries").columns
    assert not result.unique
    np.testing.assert_array_equal(told["free"], told["sees"])
    assert result.measure("effective").max() == 0  # nothing of its weights has an effect
    assert told["second moved"].max() > 0.1
    assert any("lets only a part" in line for line in notes_of(result))
    keys = reachable(model, Corpus.of(SHORT), queries=20)
    assert keys.measure("unique")[1, SILENT] < 0.5
    assert keys.measure("unique")[1, 0] == 1


def test_without_a_model_or_a_projection_it_is_said():
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    assert not notes_of(attention(model, Corpus.of(SHORT)))
    swept = attention(sweep(model, Corpus.of(SHORT), AttentionFreedom(), progress=False))
    assert "was not looked at" in notes_of(swept)[0]
    taken = AttentionFreedom(outputs=(("pattern.0", NOWHERE, ""),))
    told = notes_of(attention(sweep(model, Corpus.of([TEXT]), taken, progress=False)))
    assert told == ["No output projection was found for pattern.0: it is taken to let all of the values through."]
