"""Head divergence: known answers, an oracle in plain loops, padding, merging, and a tiny model swept."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid import sweep
from pellucid.collect.collector import collector_of
from pellucid.collect.divergence import HeadDivergence, HeadDivergenceView, dealt, divergences
from pellucid.collect.state import State, load_states, save_states
from pellucid.errors import SweepError
from tests.collect.batches import copy_of, facts_of, merged, setting_of, words_of
from tests.collect.sweeping import pieces_of, reader, stories
from tests.collect.test_counts import INDEX, MASK, random_weights

Array = np.ndarray[Any, Any]
TWO_LAYERS = setting_of(facts_of({"pattern.0": (2,), "pattern.1": (1,)}, causal=False))
CAUSAL = setting_of(facts_of({"pattern.0": (2,), "pattern.1": (1,)}, causal=True))


def js(p: Array, q: Array) -> float:
    """Lin 1991, term by term."""
    middle = (p + q) / 2
    return sum(
        float(part[place] * np.log(part[place] / middle[place])) / 2
        for part in (p, q)
        for place in range(len(p))
        if part[place] > 0
    )


def distributions(weights: Array, index: Any, mask: Any, counted: Any) -> list[Array]:
    """What every query word of a head looks at, word by word and then token by token: weights [B, T, T]."""
    found: list[Array] = []
    for row, places in enumerate(index):
        length = len(places)
        present = sorted({word for word in places if word >= 0})
        pieces = {word: [t for t in range(length) if places[t] == word] for word in present}
        singles = [t for t in range(length) if places[t] < 0 and mask[row][t]]
        for query in present:
            if all(counted[row][t] for t in pieces[query]):
                token = np.mean([weights[row, t] for t in pieces[query]], axis=0)
                found.append(np.array([*(token[pieces[key]].sum() for key in present), *token[singles]], float))
    return found


def by_loops(layers: list[torch.Tensor], words: Any) -> Array:
    """The mean divergence of all pairs of heads of several layers."""
    counted = words.batch.counted.int().tolist()
    index, mask = words.batch.word_index.tolist(), words.mask.tolist()
    heads = [head for weights in layers for head in weights.transpose(0, 1).numpy()]
    found = [distributions(head, index, mask, counted) for head in heads]
    return np.array([[np.mean([js(p, q) for p, q in zip(a, b, strict=True)]) for b in found] for a in found])


def seen(layers: list[torch.Tensor], words: Any, *, setting: Any = TWO_LAYERS, **options: Any) -> State:
    accumulator = HeadDivergence(**options).open(setting)
    for layer, weights in enumerate(layers):
        accumulator.see(f"pattern.{layer}", weights, words)
    return accumulator.state()


def view_of(state: State, **options: Any) -> HeadDivergenceView:
    return HeadDivergence(**options).view(state, TWO_LAYERS)


def two_layers(words: Any, *, causal: bool = False, seed: int = 0) -> list[torch.Tensor]:
    return [random_weights(words, heads, causal=causal, seed=seed + heads) for heads in (2, 1)]


@pytest.mark.parametrize("causal", [False, True])
def test_every_pair_of_heads_against_loops(causal):
    counted = [[0, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0]]
    words = words_of(INDEX, mask=MASK, counted=counted)
    layers = two_layers(words, causal=causal)
    view = view_of(seen(layers, words, setting=CAUSAL if causal else TWO_LAYERS))
    assert view.n() == 5
    assert view.places() == [("pattern.0", 0), ("pattern.0", 1), ("pattern.1", 0)]
    np.testing.assert_allclose(view.divergence(), by_loops(layers, words), atol=1e-6)
    even = words.mask[:, None, None, :].expand(-1, 1, words.mask.shape[1], -1).float()
    if causal:
        even = even.tril()
    even = even / even.sum(-1, keepdim=True).clamp(min=1)
    np.testing.assert_allclose(view.uniform(), by_loops([*layers, even], words)[:3, 3], atol=1e-6)


def test_layers_may_come_in_any_order():
    words = words_of(INDEX, mask=MASK)
    layers = two_layers(words)
    accumulator = HeadDivergence().open(TWO_LAYERS)
    for layer in (1, 0):
        accumulator.see(f"pattern.{layer}", layers[layer], words)
    assert accumulator.state().same(seen(layers, words))


def test_identical_heads_and_heads_that_share_nothing():
    words = words_of([[-1, 0, 1, 2, 3]])
    weights = torch.zeros(1, 2, 5, 5)
    weights[0, 0, :, 1] = 1
    weights[0, 1, :, 0], weights[0, 1, :, 4] = 0.5, 0.5
    view = view_of(seen([weights, weights[:, 1:]], words))
    np.testing.assert_allclose(view.divergence()[0], [0, np.log(2), np.log(2)], atol=1e-6)
    np.testing.assert_allclose(view.divergence()[1], [np.log(2), 0, 0], atol=1e-6)


def test_chance_is_the_mean_over_all_ways_of_dealing_out():
    """For two heads at one key each, of k keys, dealt weights fall on the same key once in k times."""
    size = 4
    words = words_of([list(range(size))] * 600)
    weights = torch.zeros(600, 2, size, size)
    weights[:, 0, :, 1], weights[:, 1, :, 2] = 1, 1
    view = view_of(seen([weights, weights[:, :1]], words))
    np.testing.assert_allclose(view.chance(), np.full((3, 3), np.log(2) * (1 - 1 / size)), atol=0.02)
    np.testing.assert_allclose(view.chance(), view.chance().T)
    causal = view_of(
        seen([weights * 0 + torch.eye(size), torch.eye(size).expand(600, 1, -1, -1)], words, setting=CAUSAL)
    )
    expected = np.log(2) * np.mean([1 - 1 / (place + 1) for place in range(size)])
    assert causal.chance()[0, 1] == pytest.approx(expected, abs=0.02)
    np.testing.assert_allclose(causal.divergence(), 0, atol=1e-7)


def test_uniform_attention_is_as_alike_when_dealt_out():
    words = words_of([[-1, 0, 1, 1, 2]])
    even = torch.full((1, 2, 5, 5), 0.2)
    view = view_of(seen([even, even[:, :1]], words))
    np.testing.assert_allclose(view.uniform(), 0, atol=1e-6)
    sharp = view_of(seen([torch.eye(5).expand(1, 2, -1, -1), even[:, :1]], words))
    assert (sharp.uniform()[:2] > 0.2).all()


def test_dealing_keeps_what_is_not_visible_and_depends_on_the_word_alone():
    visible = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], bool)
    source = dealt(visible, np.array([7, 9]), 0)
    assert sorted(source[0].tolist()) == sorted(source[1].tolist()) == list(range(5))
    assert source[0][[2, 4]].tolist() == [2, 4]
    ordinal, keys = np.arange(20), [1, 2, 4, 5, 8]
    wider = np.zeros((20, 10), bool)
    wider[:, keys] = True  # the same five keys, elsewhere
    plain = dealt(np.ones((20, 5), bool), ordinal, 0)
    np.testing.assert_array_equal(dealt(wider, ordinal, 0)[:, keys], np.array(keys)[plain])
    many = dealt(np.ones((4000, 3), bool), np.arange(4000), 0)
    for key in range(3):
        assert np.bincount(many[:, key]) / 4000 == pytest.approx([1 / 3] * 3, abs=0.03)
    assert not np.array_equal(many, dealt(np.ones((4000, 3), bool), np.arange(4000), 1))


def test_a_sink_that_takes_weight_is_a_place_of_its_own():
    words = words_of([[0, 1]])
    weights = torch.zeros(1, 2, 2, 2)
    weights[0, 1, :, 0] = 0.5  # the other half goes nowhere, as all of the first head's does
    expected = js(np.array([0.0, 0.0, 1.0]), np.array([0.5, 0.0, 0.5]))
    assert view_of(seen([weights, weights[:, :1]], words)).divergence()[0, 1] == pytest.approx(expected, abs=1e-6)


def test_padding_changes_nothing():
    plain = words_of([[-1, 0, 1, 1, 2, -1]])
    layers = two_layers(plain)
    before = seen(layers, plain)
    for left, right in ((3, 0), (0, 2), (1, 1)):
        index = [[-1] * left + [-1, 0, 1, 1, 2, -1] + [-1] * right]
        padded = words_of(index, mask=[[0] * left + [1] * 6 + [0] * right])
        wide = [torch.rand(1, heads, 6 + left + right, 6 + left + right) for heads in (2, 1)]  # rubbish in the padding
        for some, weights in zip(wide, layers, strict=True):
            some[:, :, left : left + 6, left : left + 6] = weights
        after = seen(wide, padded)
        for name, array in before.arrays.items():
            np.testing.assert_allclose(after.arrays[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


@settings(max_examples=20, deadline=None)
@given(ends=st.sets(st.integers(1, 5), max_size=4), shape=st.lists(st.integers(0, 9), max_size=6), groups=st.booleans())
def test_any_shards_in_any_tree_equal_one_pass(ends, shape, groups):
    collector = HeadDivergence(groups=groups)
    batches = []
    for number in range(6):
        words = words_of(INDEX, mask=MASK, first_sentence=2 * number, group=number % 3)
        batches.append((two_layers(words, seed=10 * number), words))

    def one(part):
        accumulator = collector.open(TWO_LAYERS)
        for layers, words in part:
            for layer in (1, 0):  # in any order
                accumulator.see(f"pattern.{layer}", layers[layer], words)
        return accumulator.state()

    states = [one(batches[start:stop]) for start, stop in pairwise(sorted({0, 6, *ends}))] + [one([])]
    before = [copy_of(state) for state in states]
    found, whole = merged(collector, states, shape), one(batches)
    assert all(state.same(other) for state, other in zip(states, before, strict=True))
    assert found.arrays.keys() == whole.arrays.keys()
    for name, array in whole.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=1e-12, err_msg=name)
    view = view_of(found)
    assert view.n() == 36
    if groups:
        assert view.groups == (0, 1, 2)
        both = 12 * view.group(1).divergence() + 24 * view.without(1).divergence()
        np.testing.assert_allclose(both / 36, view.divergence(), rtol=1e-12)


def test_two_models_are_kept_apart_and_meet_at_no_pair():
    setting = setting_of(facts_of({"pattern.0": (2,)}), facts_of({"pattern.0": (3,)}, causal=False))
    accumulator = HeadDivergence().open(setting)
    words = [words_of([[0, 1, 2]]), words_of([[-1, 0, 1, 2, 2]])]
    mine = [random_weights(words[0], 2, causal=True), random_weights(words[1], 3, causal=False)]
    for number in range(2):
        accumulator.see(f"{number}:pattern.0", mine[number], words[number])
    view = view_of(accumulator.state())
    for number in range(2):
        np.testing.assert_allclose(view.divergence(number), by_loops([mine[number]], words[number]), atol=1e-6)


def test_every_so_many_words_of_the_corpus():
    words = [words_of([[0, 1, 2, 3, 4]] * 2, first_sentence=first) for first in (0, 2)]
    accumulator = HeadDivergence(every=3).open(TWO_LAYERS)
    layers = [two_layers(each, seed=5 * number) for number, each in enumerate(words)]
    for mine, each in zip(layers, words, strict=True):
        for layer in range(2):
            accumulator.see(f"pattern.{layer}", mine[layer], each)
    view = view_of(accumulator.state())
    chosen = [
        number for sentence in range(4) for number in range(100 * sentence, 100 * sentence + 5) if number % 3 == 0
    ]
    assert view.n() == len(chosen)
    found = []
    for mine, each in zip(layers, words, strict=True):
        one, other = (distributions(mine[0][:, h].numpy(), each.batch.word_index.tolist(), each.mask.tolist(),
                                    each.batch.counted.tolist()) for h in (0, 1))  # fmt: skip
        kept = [number % 3 == 0 for number in each.ordinal.flatten().tolist()]
        found += [js(p, q) for p, q, keep in zip(one, other, kept, strict=True) if keep]
    assert view.divergence()[0, 1] == pytest.approx(np.mean(found), abs=1e-6)


def test_a_swept_model_against_its_own_attention_sentence_by_sentence():
    model, corpus = reader("bert"), stories(6)
    found = sweep(model, corpus, [HeadDivergence()], token_budget=64)
    view = found[HeadDivergence]
    total, count = np.zeros((12, 12)), 0
    for sentence in corpus:
        ids, places = pieces_of(model, sentence)
        index = [-1] * len(ids)
        for word, pieces in enumerate(places):
            for place in pieces:
                index[place] = word
        words = words_of([index])
        from pellucid.model import Batch

        run = model.run(Batch.of_ids([ids]), tuple(f"pattern.{layer}" for layer in range(3)))
        here = sum(bool(pieces) for pieces in places)
        total += here * by_loops([run[f"pattern.{layer}"] for layer in range(3)], words)
        count += here
    assert view.n() == count == found.words
    np.testing.assert_allclose(view.divergence(), total / count, atol=2e-5)
    assert (view.chance() > 0).all()


def test_blocks_do_not_change_the_sum(monkeypatch):
    weights = torch.rand(3, 50, 7).softmax(-1)
    whole = divergences(weights, weights)
    monkeypatch.setattr("pellucid.collect.divergence._AT_ONCE", 3 * 7 * 4)
    np.testing.assert_allclose(divergences(weights, weights), whole, rtol=1e-6, atol=1e-6)


def test_states_come_back_and_bad_input_is_refused(tmp_path):
    words = words_of(INDEX, mask=MASK)
    state = seen(two_layers(words), words)
    save_states(tmp_path / "states", {"heads": state})
    assert load_states(tmp_path / "states")["heads"].same(state)
    collector = HeadDivergence(every=2)
    assert collector_of(collector.describe()) == collector
    assert collector.memory(TWO_LAYERS, 1) == state.bytes
    assert collector.memory(TWO_LAYERS, 10) == 10 * state.bytes
    with pytest.raises(SweepError, match=r"3 heads need 1,760 bytes, and memory_limit is 100; take fewer"):
        HeadDivergence(memory_limit=100).memory(TWO_LAYERS, 10)
    with pytest.raises(SweepError, match="every=0 reads no word"):
        HeadDivergence(every=0)
    with pytest.raises(SweepError, match="HeadDivergence reads self-attention patterns"):
        HeadDivergence("resid.0").open(setting_of(facts_of({"resid.0": (4,)})))
    with pytest.raises(SweepError, match="4 queries and 4 keys"):
        seen([torch.ones(1, 2, 4, 4) / 4], words_of([[0, 1, 2]]))
    with pytest.raises(SweepError, match=r"No heads of model 3 were compared"):
        view_of(state).divergence(3)
    with pytest.raises(SweepError, match="No query word of model 0"):
        view_of(seen([], words)).divergence()
    with pytest.raises(SweepError, match="cannot be merged"):
        collector.merge(state, seen(two_layers(words), words, seed=1))
    with pytest.raises(SweepError, match="no document group 7"):
        view_of(state).without(7)


def test_a_batch_without_query_words_adds_nothing():
    words = words_of([[-1, -1, -1]])
    state = seen([torch.ones(1, 2, 3, 3) / 3, torch.ones(1, 1, 3, 3) / 3], words)
    assert view_of(state).n() == 0
    assert not state.arrays["0/js/0"].any()


def test_nan_in_padding_is_not_read_and_elsewhere_is_refused():
    words = words_of(INDEX, mask=MASK)
    layers = [random_weights(words, heads, causal=False, seed=heads) for heads in (2, 1)]

    def state(one, other):
        accumulator = HeadDivergence().open(TWO_LAYERS)
        mine = words_of(INDEX, mask=MASK)
        accumulator.see("pattern.0", one, mine)
        accumulator.see("pattern.1", other, mine)
        return accumulator.state()

    broken = [layer.clone() for layer in layers]
    for layer in broken:
        layer[~words.mask.bool()[:, None].expand(-1, layer.shape[1], -1)] = torch.nan
    wanted = state(*layers)
    for name, array in state(*broken).arrays.items():
        assert np.allclose(array, wanted.arrays[name], atol=1e-6), name
    worse = broken[0].clone()
    worse[1, 1, 3, 4] = torch.nan
    with pytest.raises(SweepError, match=r"'pattern.0' is NaN or infinite in head 1"):
        state(worse, layers[1])
    worse = layers[1].clone()
    worse[0, 0, 1] = torch.inf
    with pytest.raises(SweepError, match=r"'pattern.1' is NaN or infinite in head 0"):
        state(layers[0], worse)
