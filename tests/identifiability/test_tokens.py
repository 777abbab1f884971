"""Telling tokens from states: against a plain loop over texts, planted cases, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid import Corpus, Model, sweep
from pellucid.collect.nearest_tokens import NearestTokens
from pellucid.errors import SweepError
from pellucid.identifiability import tokens
from pellucid.identifiability.token_identity import SHARE
from pellucid.identifiability.token_maps import RIDGE
from pellucid.results import Result, ResultError
from tests.tiny_models import WORDS


def texts(count: int = 60) -> list[str]:
    dice = np.random.default_rng(0)
    return [" ".join(dice.choice(WORDS, size=dice.integers(4, 10))) for _ in range(count)]


@pytest.fixture(scope="module", params=["gpt2_folder", "bert_folder"])
def model(request):
    return Model.load(request.getfixturevalue(request.param))


@pytest.fixture(scope="module")
def found(model):
    return tokens(model, Corpus.of(texts()), maps=("identity", "linear"))


def states(model: Model, text: str) -> tuple[dict[int, np.ndarray], np.ndarray, np.ndarray]:
    """States by layer [tokens, width], ids, and which tokens are no special ones."""
    batch = model.tokenize(text)
    run = model.run(batch, sites=["resid.*"])
    layers = [site.layer for site in model.sites if site.kind == "resid"]
    rows = {layer: run[f"resid.{layer}"][0].double().numpy() for layer in layers}
    return rows, batch.ids[0].numpy(), ~batch.special[0].numpy()


def plain_rates(model: Model) -> tuple[np.ndarray, float]:
    """Rates [identity cosine, identity l2, linear cosine, linear l2] by layer, and chance, by loops."""
    every = [states(model, text) for text in texts()]
    learn = [each for place, each in enumerate(every) if place % SHARE != SHARE - 1]
    ask = [each for place, each in enumerate(every) if place % SHARE == SHARE - 1]
    goal = np.concatenate([rows[0][kept] for rows, _, kept in learn])
    rates, chances = [], []
    for layer in sorted(every[0][0])[1:]:
        x = np.concatenate([rows[layer][kept] for rows, _, kept in learn])
        centred = x - x.mean(0)
        own = centred.T @ centred
        weight = np.linalg.solve(own + RIDGE * np.trace(own) / len(own) * np.eye(len(own)), centred.T @ goal)
        hits: list[list[bool]] = []
        for rows, ids, kept in ask:
            inputs = rows[0]
            for place in np.flatnonzero(kept):
                state = rows[layer][place]
                mapped = (state, (state - x.mean(0)) @ weight + goal.mean(0))
                hit: list[bool] = []
                for one in mapped:
                    cosine = inputs @ one / np.linalg.norm(inputs, axis=1) / np.linalg.norm(one)
                    hit += [ids[cosine.argmax()] == ids[place]]
                    hit += [ids[np.linalg.norm(inputs - one, axis=1).argmin()] == ids[place]]
                hits.append(hit)
                chances.append(float((ids == ids[place]).mean()))
        rates.append(np.mean(hits, axis=0))
    return np.stack(rates, axis=1), float(np.mean(chances))


def test_rates_are_those_of_a_plain_loop(model, found):
    rates, chance = plain_rates(model)
    np.testing.assert_allclose(found.values, rates, atol=0.011)  # one token of a hundred may be as near to two
    np.testing.assert_allclose(found.null, chance, atol=1e-9)
    assert found.axes["measure"] == ("identity cosine", "identity l2", "linear cosine", "linear l2")
    assert found.low is not None
    assert found.low.min() >= 0
    assert found.high.max() <= 1


def test_a_turned_space_needs_a_map(bert_folder):
    """States that are a turned copy of the input: not found as they are, and found by a linear map."""
    model = Model.load(bert_folder)
    network = model.hf
    width = network.config.hidden_size
    turn = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(0)))[0]

    class Turned(torch.nn.Module):
        def forward(self, stream, *_args, **_options):
            return stream @ turn

    for place in range(len(network.bert.encoder.layer)):
        layer = network.bert.encoder.layer[place]
        layer.output.LayerNorm = torch.nn.Identity()
        layer.attention.output.LayerNorm = torch.nn.Identity()
        for linear in (layer.attention.output.dense, layer.output.dense):
            torch.nn.init.zeros_(linear.weight)
            torch.nn.init.zeros_(linear.bias)
        layer.output.LayerNorm = Turned()
    turned = Model.load(network, tokenizer=model.tokenizer)
    found = tokens(turned, Corpus.of(texts()), maps=("identity", "linear", "mlp"), random=False)
    assert found.measure("identity cosine").max() < 0.6
    assert found.measure("linear cosine").min() == found.measure("linear l2").min() == 1
    assert found.measure("mlp cosine").min() > found.measure("identity cosine").max()


def test_classes_of_tokens_add_up(found):
    table = found.table("frequencies")
    count = table.columns["tokens"][:, 0, 0]
    whole = (table.columns["rate"] * count[:, None, None]).sum(0) / count.sum()
    np.testing.assert_allclose(whole, found.values, atol=1e-12)


def test_labels_come_from_the_corpus(bert_folder):
    found = tokens(Model.load(bert_folder), Corpus.grammar(40, seed=1), maps=("identity",), random=False)
    assert {"NOUN", "DET"} <= set(found.table("labels").axes["label"])


def test_between_two_layers(model):
    found = tokens(model, Corpus.of(texts(20)), maps=("identity",), to=1, random=False)
    assert found.axes["layer"] == tuple(layer for layer in range(len(found.axes["layer"]) + 1) if layer != 1)


def test_shards_merge_to_the_same_counts(model):
    corpus = Corpus.of(texts())
    ways = [
        sweep(model, corpus, NearestTokens(), pooling="all", progress=False, **options)[NearestTokens]
        for options in ({}, {"shard_tokens": 50, "token_budget": 64})
    ]
    assert ways[0].n == ways[1].n == sum(len(text.split()) for text in texts())
    np.testing.assert_allclose(ways[0].rates, ways[1].rates, atol=0.005)


def test_a_result_is_saved_drawn_and_read_again(found, tmp_path):
    found.save(tmp_path / "kept")
    assert Result.load(tmp_path / "kept").same(found)
    found.plot().savefig(tmp_path / "figure.png")


def test_what_cannot_be_asked_is_refused(model):
    with pytest.raises(SweepError, match="no map 'cubic' of states; there are identity, linear, mlp"):
        tokens(model, Corpus.of(texts()), maps=("cubic",))
    with pytest.raises(ResultError, match="3 documents, too few"):
        tokens(model, Corpus.of(texts(3)))
    with pytest.raises(ResultError, match="no layer 9 to map states to"):
        tokens(model, Corpus.of(texts()), to=9)
