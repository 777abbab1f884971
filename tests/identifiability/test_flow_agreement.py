"""Maps of attention against hidden states: rank correlations with scipy's, by hand, and over a corpus."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from pellucid.corpus import Corpus
from pellucid.errors import ModelError
from pellucid.heads import information_flow
from pellucid.heads.flow.following import METHODS
from pellucid.identifiability import flow_agreement, hidden_flow
from pellucid.identifiability.flow_agreement import compared
from pellucid.identifiability.notes import notes_of
from pellucid.identifiability.rank_agreement import BASELINES, SUMS, agreement, baseline_maps, ceiling, ranked
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
    found = agreement(maps, hidden, [0], causal=False)[:, 0]
    np.testing.assert_allclose(found[:, 0], [1, -1, 0, 0], atol=1e-12)
    np.testing.assert_array_equal(found[:, 1], [1, 1, 1, 0])  # one that says nothing is not counted


def test_baselines_by_hand():
    hidden = np.array([[[0.1, 0.2, 0.6, 0.1 + 1e-9]]])
    maps = baseline_maps([2], 4, layers=1)
    own, near, equal = agreement(maps, hidden, [2], causal=False)[:, 0, 0]
    assert own == pytest.approx(spearmanr([0, 0, 1, 0], hidden[0, 0]).statistic)
    assert near == pytest.approx(spearmanr([-2, -1, 0, -1], hidden[0, 0]).statistic)
    assert equal == 0
    assert list(BASELINES) == ["own token", "nearness", "equal"]


def test_chance_has_the_mean_and_variance_of_all_permutations():
    hidden = np.array([[[0.5, 0.1, 0.3, 0.3, 0.9]]])
    given = np.array([[[[2.0, 2.0, 1.0, 5.0, 0.0]]]])
    drawn = [agreement(given, hidden[..., list(order)], [0], causal=False)[0, 0, 0] for order in permutations(range(5))]
    assert np.mean(drawn) == pytest.approx(0, abs=1e-12)
    assert np.var(drawn) == pytest.approx(agreement(given, hidden, [0], causal=False)[0, 0, SUMS.index("variance")])


def test_maps_that_rank_nothing_are_counted():
    hidden = np.array([[[5.0, 1.0, 3.0, 2.0]]])
    maps = np.stack([hidden, np.full_like(hidden, 7.0), np.zeros_like(hidden)])
    found = agreement(maps, hidden, [0], causal=False)[:, 0]
    np.testing.assert_array_equal(found[:, SUMS.index("positions")], [1, 1, 0])
    np.testing.assert_array_equal(found[:, SUMS.index("without ranks")], [0, 1, 0])
    np.testing.assert_allclose(found[:, SUMS.index("variance")], [1 / 3, 0, 0])


def test_the_ceiling_is_what_noise_leaves():
    """Correlations with a noisy map of a known reliability, and the ceiling that its halves tell."""
    dice = np.random.default_rng(0)
    true = dice.normal(size=200_000)
    halves = [true + dice.normal(size=true.size) for _ in range(2)]
    between = np.corrcoef(*halves)[0, 1]
    assert ceiling(np.array(between)) == pytest.approx(np.corrcoef(true, sum(halves))[0, 1], abs=0.01)
    np.testing.assert_allclose(ceiling(np.array([1.0, 0.0, -0.2])), [1, 0, 0])


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
    assert not found.null.any()
    places = np.concatenate([np.arange(2, size) for size in (5, 6, 4, 6)])  # a position sees one token more
    spread = np.sqrt((1 / places).sum()) / len(places)
    np.testing.assert_allclose(found.table("chance").columns["sd"], spread)
    np.testing.assert_allclose(found.table("chance").columns["z"], found.values / spread)
    np.testing.assert_allclose(found.table("ceiling").columns["ceiling"], 1)  # exact
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
    assert found.axes["measure"] == tuple(METHODS)
    assert notes_of(found) == ["Attribution explains what is predicted at the first word."]
    assert found.table("texts").columns["tokens"].tolist() == [14]
    assert found.table("texts").columns["positions"].tolist() == [8]
    assert found.low is None
    assert found.resampled.startswith("no interval")
    cheap = flow_agreement(
        model, Corpus.of(["the old red dog runs to a cat and a dog sleeps"]), "rollout", random=False
    )
    assert cheap.table("texts").columns["positions"].tolist() == [12]


def test_attribution_is_left_out_where_a_model_predicts_nothing(gpt2):
    assert compared(gpt2)[0] == list(METHODS)
    headless = Model.load(network("gpt2").transformer, tokenizer=word_tokenizer())
    names, target, notes = compared(headless)
    assert (names, target) == ([name for name in METHODS if name != "attribution"], None)
    assert notes == ["Attribution is left out: GPT2Model has no head."]


def test_noise_lowers_the_ceiling(gpt2):
    found = flow_agreement(gpt2, Corpus.of(TEXTS), "rollout", probes=2, random=False)
    more = flow_agreement(gpt2, Corpus.of(TEXTS), "rollout", probes=64, random=False)
    low, high = (each.table("ceiling").columns["ceiling"].mean() for each in (found, more))
    assert low < high < 1


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
