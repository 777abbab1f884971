"""Maps of attention against hidden states: rank correlations with scipy's, by hand, and over a corpus."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from pellucid.corpus import Corpus
from pellucid.errors import ModelError
from pellucid.heads import information_flow
from pellucid.identifiability import flow_agreement, hidden_flow
from pellucid.identifiability.flow_agreement import COMPARED
from pellucid.identifiability.rank_agreement import BASELINES, agreement, ranked
from pellucid.model import Model
from pellucid.results import Result, ResultError
from tests.tiny_models import network, word_tokenizer

TEXTS = ["the old red dog runs", "a cat sleeps near the keys", "the dog is old", "keys of the dog are red", "a dog"]


@pytest.fixture(scope="module")
def gpt2() -> Model:
    return Model.load(network("gpt2"), tokenizer=word_tokenizer())


@pytest.mark.parametrize("causal", [True, False])
def test_correlations_are_scipys_over_the_sources_in_sight(causal):
    dice = np.random.default_rng(1)
    maps, hidden = dice.normal(size=(2, 3, 2, 8)), dice.normal(size=(3, 2, 8))
    maps[0, :, :, 1:4] = 2.0  # equal ones share a rank
    positions = (4, 6)
    found = agreement(maps, hidden, positions, causal=causal)
    for number in range(2):
        for layer in range(3):
            wanted = 0.0
            for row, position in enumerate(positions):
                sees = position + 1 if causal else 8
                wanted += spearmanr(maps[number, layer, row, :sees], hidden[layer, row, :sees]).statistic
            assert found[number, layer, 0] == pytest.approx(wanted)
    assert (found[:, :, 1] == 2).all()


def test_what_lies_behind_a_causal_token_does_not_count():
    hidden = np.array([[[3.0, 1.0, 2.0, 0.0, 0.0]]])
    maps = np.array([[[[3.0, 1.0, 2.0, 9.0, 8.0]]]])
    assert agreement(maps, hidden, [2], causal=True)[0, 0, 0] == pytest.approx(1)
    assert agreement(maps, hidden, [2], causal=False)[0, 0, 0] < 0


def test_the_same_order_the_opposite_equal_ones_and_none():
    hidden = np.array([[[5.0, 1.0, 3.0, 2.0]]])
    maps = np.stack([hidden**3, -hidden, np.full_like(hidden, 7.0), np.zeros_like(hidden)])
    found = agreement(maps, hidden, [0], causal=False)[:4, 0]
    np.testing.assert_allclose(found[:, 0], [1, -1, 0, 0], atol=1e-12)
    np.testing.assert_array_equal(found[:, 1], [1, 1, 1, 0])  # one that says nothing is not counted


def test_baselines_by_hand():
    hidden = np.array([[[0.1, 0.2, 0.6, 0.1 + 1e-9]]])
    own, near, equal = agreement(np.ones((0, 1, 1, 4)), hidden, [2], causal=False)[:, 0, 0]
    assert own == pytest.approx(spearmanr([0, 0, 1, 0], hidden[0, 0]).statistic)
    assert near == pytest.approx(spearmanr([-2, -1, 0, -1], hidden[0, 0]).statistic)
    assert equal == 0
    assert list(BASELINES) == ["own token", "nearness", "equal"]


def test_permuted_tokens_agree_by_chance_alone():
    dice = np.random.default_rng(0)
    hidden = dice.random((2, 60, 12))
    found = agreement(hidden[None] ** 2, hidden, list(range(60)), causal=False, seed=3)
    assert found[0, 0, 0] == pytest.approx(60)
    assert np.abs(found[0, :, 2] / found[0, :, 1]).max() < 0.05
    np.testing.assert_array_equal(found, agreement(hidden[None] ** 2, hidden, list(range(60)), causal=False, seed=3))


def test_ranks_have_length_one_or_none():
    found = ranked(np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]]))
    np.testing.assert_allclose(found, [[1 / np.sqrt(2), -1 / np.sqrt(2), 0], [0, 0, 0]], atol=1e-12)


def test_a_corpus_gives_the_mean_of_its_positions(gpt2, tmp_path):
    """Every number again from the maps of single texts, position by position."""
    methods = ["attention", "rollout", "flow", "norms_layernorm"]
    found = flow_agreement(gpt2, Corpus.of(TEXTS), methods, seed=0)
    told: list[list[float]] = []
    for text in TEXTS[:-1]:  # the last one has no position that sees three tokens
        maps, hidden = information_flow(gpt2, text, methods).values, hidden_flow(gpt2, text).values[0]
        for position in range(2, maps.shape[2]):
            part = slice(position + 1)
            told.append([spearmanr(one[-1, position, part], hidden[-1, position, part]).statistic for one in maps])
    np.testing.assert_allclose(found.values[:, -1], np.mean(told, axis=0), atol=1e-9)
    assert found.table("positions").columns["positions"].min() == len(told)
    assert found.table("texts").columns["tokens"].tolist() == [5, 6, 4, 6]
    assert found.table("random model").columns["value"].shape == found.values.shape
    assert found.low is not None
    assert (found.low < found.high).all()
    assert np.abs(found.null).max() < 0.2
    found.save(tmp_path / "kept")
    assert Result.load(tmp_path / "kept").same(found)


def test_attribution_is_ranked_by_size_where_it_says_anything(gpt2):
    found = flow_agreement(gpt2, Corpus.of(TEXTS), ["attribution"], target="token:dog", steps=2, random=False)
    counts = found.table("positions").columns["positions"][0]
    assert counts[0] == 2 * 3 + 4 * 2 - 1  # every position that sees three tokens
    assert counts[-1] == 4  # in the last layer, the last token of each text alone
    told = [
        spearmanr(
            np.abs(information_flow(gpt2, text, "attribution", target="token:dog", steps=2).values[0, -1, -1]),
            hidden_flow(gpt2, text).values[0, -1, -1],
        ).statistic
        for text in TEXTS[:-1]
    ]
    assert found.values[0, -1] == pytest.approx(np.mean(told))
    assert "random model" not in found.tables


def test_special_tokens_are_sources_alone_and_long_texts_are_spread():
    model = Model.load(network("bert"), tokenizer=word_tokenizer(closing=True))
    found = flow_agreement(model, Corpus.of(["the old red dog runs to a cat and a dog sleeps"]), random=False)
    assert found.axes["measure"] == COMPARED
    assert found.table("texts").columns["tokens"].tolist() == [14]
    assert found.table("texts").columns["positions"].tolist() == [8]
    assert found.low is None
    assert found.resampled.startswith("no interval")
    cheap = flow_agreement(
        model, Corpus.of(["the old red dog runs to a cat and a dog sleeps"]), "rollout", random=False
    )
    assert cheap.table("texts").columns["positions"].tolist() == [12]


def test_what_cannot_be_compared_is_refused(gpt2):
    with pytest.raises(ModelError, match="sentences=0 leaves nothing"):
        flow_agreement(gpt2, Corpus.of(TEXTS), sentences=0)
    with pytest.raises(ResultError, match="no ranks can be compared"):
        flow_agreement(gpt2, Corpus.of(["a dog", "dog"]))
    with pytest.raises(ResultError, match="no method 'hope'"):
        flow_agreement(gpt2, Corpus.of(TEXTS), "hope")
    wrapped = Model.wrap(nn.GRU(4, 4), sites={"out": ":0"}, tokenize=lambda _: torch.zeros(1, 3, 4))
    with pytest.raises(ModelError, match="no layers of softmax attention"):
        flow_agreement(wrapped, Corpus.of(TEXTS))
