"""Effective weights in the collectors of heads: against an oracle word by word, signs, masks, padding, and identity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import pellucid as pl
from pellucid import Corpus, Model
from pellucid.collect.collector import collector_of
from pellucid.collect.counts import MEASURES, HeadCounts
from pellucid.collect.divergence import HeadDivergence
from pellucid.collect.head_targets import HeadTargets
from pellucid.collect.state import State
from pellucid.corpus import Sentence
from pellucid.corpus.sentence import Arc
from pellucid.errors import ModelError, SweepError
from pellucid.model.sites import Site
from tests.collect.batches import words_of
from tests.collect.effective_by_hand import effective_by_svd, rows_of_one
from tests.collect.test_counts import by_loops
from tests.found_by_hand import facts, setting
from tests.tiny_models import WORDS, network, word_tokenizer

# special a b b c d d e pad pad, and padded on the left; d is wide enough for four keys alone
INDEX = [[-1, 0, 1, 1, 2, 3, 3, 4, -1, -1], [-1, -1, -1, 0, 1, 1, 2, 3, 3, 4]]
MASK = [[1] * 8 + [0] * 2, [0] * 2 + [1] * 8]
SPECIAL = [[1] + [0] * 9, [0, 0, 1] + [0] * 7]
COUNTED = [[0, 1, 1, 1, 0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]]
HEADS, WIDTH = 4, 4


def sight(mask: list[int], causal: bool) -> torch.Tensor:
    seen = torch.tensor(mask).bool().expand(len(mask), -1)
    return seen & torch.ones(len(mask), len(mask)).tril().bool() if causal else seen


def made(causal: bool, *, groups: int = 2, seed: int = 0):
    """Words, weights with rubbish at padding, and values of grouped heads."""
    words = words_of(INDEX, mask=MASK, special=SPECIAL, counted=COUNTED)
    dice = torch.Generator().manual_seed(seed)
    pattern = torch.full((2, HEADS, 10, 10), 0.37)
    for row, mask in enumerate(MASK):
        seen = sight(mask, causal)
        scores = (2 * torch.randn(HEADS, 10, 10, generator=dice)).masked_fill(~seen, -torch.inf).softmax(-1)
        pattern[row] = torch.where(torch.tensor(mask).bool()[:, None], scores, torch.nan)  # queries of padding are NaN
    values = torch.randn(2, groups, 10, WIDTH, generator=dice)
    values[~torch.tensor(MASK).bool()[:, None].expand(-1, groups, -1)] = torch.nan
    return words, pattern, values


def opened(collector, causal: bool, heads: int = HEADS):
    where = setting([facts({Site("pattern", 0): (heads, 10), Site("value", 0): (heads, WIDTH)}, causal=causal)])
    return collector.open(replace(where, pilot=State({}, {"frequent": {}}))), where


def oracle(pattern: torch.Tensor, values: torch.Tensor, causal: bool) -> np.ndarray:
    """Signed effective attention of every text alone, [B, heads, T, T]; zero at padding."""
    found = np.zeros(pattern.shape)
    for row, mask in enumerate(MASK):
        real = torch.tensor(mask).bool()
        place = np.ix_(range(HEADS), np.flatnonzero(mask), np.flatnonzero(mask))
        seen = sight(mask, causal)[real][:, real]
        found[row][place] = effective_by_svd(pattern[row][:, real][:, :, real], values[row][:, real], seen)
    return found


@pytest.mark.parametrize("order", ["pattern first", "value first"])
@pytest.mark.parametrize("causal", [False, True])
def test_counts_are_of_absolute_rows_and_the_argmax_is_signed(causal, order):
    words, pattern, values = made(causal)
    accumulator, _ = opened(HeadCounts(offsets=3, groups=False, weights="effective"), causal)
    halves = [("pattern.0", pattern), ("value.0", values)]
    for key, tensor in halves if order == "pattern first" else reversed(halves):
        accumulator.see(key, tensor, words)
    state = accumulator.state()
    signed = oracle(pattern, values, causal)
    absolute = rows_of_one(signed)
    for head in range(HEADS):
        n, sums, _ = by_loops(absolute[:, head], INDEX, MASK, COUNTED, SPECIAL, 3)
        assert state.arrays["all/n"].tolist() == [n]
        np.testing.assert_allclose(state.arrays["all/sums/0"][head], sums, rtol=2e-5, atol=1e-6)
        np.testing.assert_array_equal(state.arrays["all/offsets/0"][head], signed_offsets(signed[:, head], 3))
    by_size = [by_loops(absolute[:, head], INDEX, MASK, COUNTED, SPECIAL, 3)[2] for head in range(HEADS)]
    assert not np.array_equal(np.stack(by_size), state.arrays["all/offsets/0"])  # absolute values would tell otherwise


def signed_offsets(weights: np.ndarray, offsets: int) -> np.ndarray:
    """Offsets of the largest signed weight between words, where it is over 0, in plain loops."""
    found = np.zeros(2 * offsets + 3, int)
    for row, places in enumerate(INDEX):
        present = sorted({word for word in places if word >= 0})
        pieces = {word: [at for at, each in enumerate(places) if each == word] for word in present}
        for query in present:
            if all(COUNTED[row][at] for at in pieces[query]):
                token = np.mean([weights[row, at] for at in pieces[query]], axis=0)
                word = {key: sum(token[at] for at in pieces[key]) for key in present}
                best = max(present, key=lambda key, word=word: (word[key], -key))
                if word[best] > 0:
                    found[int(np.clip(best - query, -offsets - 1, offsets + 1)) + offsets + 1] += 1
    return found


def test_a_query_whose_words_all_have_less_than_nothing_has_no_largest_one():
    """One value for all keys but the special token, whose value is opposite: o and −o share what the token gets."""
    words = words_of([[-1, 0, 1]])
    pattern = torch.tensor([[0.8, 0.1, 0.1]]).expand(1, 1, 3, 3)
    values = torch.tensor([[[[1.0], [-1.0], [-1.0]]]])
    accumulator, _ = opened(HeadCounts(offsets=1, groups=False, weights="effective"), False, heads=1)
    accumulator.see("pattern.0", pattern, words)
    accumulator.see("value.0", values, words)
    state = accumulator.state()
    assert state.arrays["all/offsets/0"].sum() == 0
    sums = dict(zip(MEASURES, state.arrays["all/sums/0"][0], strict=True))
    assert sums["first"] == pytest.approx(2 / 3)  # |0.2|, |−0.2| and |−0.2| of one query each: a third on each key
    assert sums["confidence"] == pytest.approx(2 / 3)


def test_nothing_lies_in_the_future_of_a_causal_model():
    words, pattern, values = made(True)
    accumulator, _ = opened(HeadCounts(groups=False, weights="effective"), True)
    accumulator.see("pattern.0", pattern, words)
    accumulator.see("value.0", values, words)
    state = accumulator.state()
    assert state.arrays["all/sums/0"][:, MEASURES.index("next")].max() == 0
    assert state.arrays["all/offsets/0"][:, 10:].sum() == 0  # offsets over 0


TREE = Sentence.of_words(
    ["the", "old", "dog", "sees", "a", "cat", "here"],
    labels={"upos": ["DET", "ADJ", "NOUN", "VERB", "DET", "NOUN", "ADV"]},
    arcs=[Arc(0, 2, "det"), Arc(1, 2, "amod"), Arc(2, 3, "nsubj"), Arc(4, 5, "det"), Arc(5, 3, "obj")],
)


@pytest.mark.parametrize("causal", [False, True])
def test_targets_are_hit_by_signed_weights_and_get_absolute_ones(causal):
    """Raw collectors that are given either do the same, since every word has one token."""
    words = replace(words_of([[-1, *range(7)]]), sentences=(TREE,))
    dice = torch.Generator().manual_seed(3)
    seen = sight([1] * 8, causal)
    pattern = (2 * torch.randn(1, HEADS, 8, 8, generator=dice)).masked_fill(~seen, -torch.inf).softmax(-1)
    values = torch.randn(1, 1, 8, 3, generator=dice)
    signed = effective_by_svd(pattern[0], values[0], seen)[None]
    states = {}
    for name, tensor in (("absolute", rows_of_one(signed)), ("positive", np.maximum(signed, 0)), ("effective", None)):
        collector = HeadTargets(groups=False, weights="raw" if tensor is not None else "effective")
        accumulator, _ = opened(collector, causal)
        accumulator.see("pattern.0", pattern if tensor is None else torch.tensor(tensor).float(), words)
        if tensor is None:
            accumulator.see("value.0", values, words)
        states[name] = accumulator.state().arrays
    mine = states["effective"]
    for name in ("all/rows/sums/0", "all/tags/mass/0"):
        np.testing.assert_allclose(mine[name], states["absolute"][name], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mine["all/kinds/sums/0"][:, 1], states["absolute"]["all/kinds/sums/0"][:, 1], atol=1e-6)
    for name in ("all/kinds/spread/0", "all/offsets/sums/0", "all/texts/sums/0"):
        np.testing.assert_allclose(mine[name], states["positive"][name])
    np.testing.assert_array_equal(mine["all/kinds/sums/0"][:, 0], states["positive"]["all/kinds/sums/0"][:, 0])
    assert not np.array_equal(mine["all/offsets/sums/0"], states["absolute"]["all/offsets/sums/0"])


def test_divergences_are_between_absolute_rows():
    words, pattern, values = made(False)
    absolute = torch.tensor(rows_of_one(oracle(pattern, values, False))).float()
    found = []
    for weights in ("raw", "effective"):
        accumulator, _ = opened(HeadDivergence(groups=False, weights=weights), False)
        accumulator.see("pattern.0", absolute if weights == "raw" else pattern, words)
        if weights == "effective":
            accumulator.see("value.0", values, words)
        found.append(accumulator.state().arrays)
    for name, array in found[0].items():
        np.testing.assert_allclose(found[1][name], array, rtol=1e-4, atol=1e-6, err_msg=name)


TEXTS = [" ".join(np.resize(np.random.default_rng(seed).permutation(WORDS), 3 + 5 * (seed % 5))) for seed in range(20)]
"""Texts that begin with different words: a word said twice at the start has ranks at the cut without positions."""


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "deepseek_v3"])
def test_both_weights_of_a_model_stand_in_one_sweep(family):
    """In padded batches, grouped and compressed values too: each text alone through an oracle gives the same sums."""
    model = Model.load(network(family, dtype=torch.float64), tokenizer=word_tokenizer(closing=family == "bert"))
    assert int(model.size("value.0")[-1]) < 20
    both = [HeadCounts(groups=False), HeadCounts(groups=False, weights="effective")]
    found = pl.sweep(model, Corpus.of(TEXTS), both, token_budget=128, progress=False)
    totals = dict.fromkeys(both, 0.0)
    n = 0
    for text in TEXTS:
        batch = model.tokenize([text])
        run = model.run(batch, ["pattern.1", "value.1"])
        keep = (~batch.special[0]).nonzero()[:, 0]
        pattern, values, length = run["pattern.1"][0], run["value.1"][0], batch.ids.shape[1]
        signed = effective_by_svd(pattern, values, sight([1] * length, model.causal))
        n += len(keep)
        for name, weights in zip(both, (pattern.double().numpy(), rows_of_one(signed)), strict=True):
            chosen = weights[:, keep]
            totals[name] += -(chosen * np.log(np.maximum(chosen, 1e-300))).sum((1, 2))
    for collector in both:
        np.testing.assert_allclose(found[collector].mean("entropy", "pattern.1"), totals[collector] / n, atol=2e-5)
    assert found[both[0]].n("pattern.1") == n
    assert np.abs(totals[both[0]] - totals[both[1]]).max() > 5e-4 * n


def test_where_values_are_wider_than_texts_both_weights_are_the_same():
    model = Model.load(network("bert"), tokenizer=word_tokenizer())
    corpus = Corpus.of([" ".join(WORDS[start : start + 7]) for start in range(8)])  # 7 keys, 10 numbers wide
    found = pl.sweep(
        model,
        corpus,
        [
            kind(weights=weights)
            for kind in (HeadCounts, HeadTargets, HeadDivergence)
            for weights in ("raw", "effective")
        ],
        progress=False,
    )
    names = list(found.states)
    for raw, effective in zip(names[0:6:2], names[1:6:2], strict=True):
        one, other = found.states[raw].arrays, found.states[effective].arrays
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_allclose(other[name], one[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_weights_are_part_of_what_a_collector_is():
    for kind in (HeadCounts, HeadTargets, HeadDivergence):
        collector = kind(weights="effective")
        assert collector_of(collector.describe()) == collector != kind()
        assert "weights='effective'" in str(collector)
        assert collector.raw == ("pattern.*", "value.*")
        assert kind().raw == ("pattern.*",)
        before = {name: value for name, value in kind().describe().items() if name != "weights"}
        assert collector_of(before) == kind()  # sweeps kept before there was a choice
        with pytest.raises(SweepError, match=r"no 'Effective' weights of heads; there are raw, effective"):
            kind(weights="Effective")
    assert HeadCounts("encoder.pattern.0,encoder.pattern.2", weights="effective").raw[1] == (
        "encoder.value.0,encoder.value.2"
    )


@pytest.mark.parametrize("broken", ["Attention weights", "Values"])
def test_numbers_that_are_none_are_told_by_layer_and_head(broken):
    words, pattern, values = made(False, groups=HEADS)
    (pattern if broken == "Attention weights" else values)[1, 2, 5] = torch.nan
    accumulator, _ = opened(HeadCounts(weights="effective"), False)
    accumulator.see("value.0", values, words)
    with pytest.raises(ModelError, match=rf"{broken} of pattern\.0 are NaN or infinite in head 2"):
        accumulator.see("pattern.0", pattern, words)
