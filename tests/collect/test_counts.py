"""Head counts: known answers on attention written by hand, an oracle in plain loops, and merging."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.collect.collector import collector_of
from pellucid.collect.counts import MEASURES, HeadCounts
from pellucid.collect.state import load_states, save_states
from pellucid.errors import SweepError
from tests.collect.batches import copy_of, facts_of, merged, setting_of, words_of

BIDIRECTIONAL = setting_of(facts_of({"pattern.0": (2,)}, causal=False))
CAUSAL = setting_of(facts_of({"pattern.0": (2,)}, causal=True))

# [CLS] a b b c [SEP] pad; the second row is padded on the left and has no opening special token
INDEX = [[-1, 0, 1, 1, 2, -1, -1], [-1, -1, 0, 1, 1, 2, -1]]
MASK = [[1, 1, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1, 1]]


def random_weights(words, heads: int, *, causal: bool, seed: int = 0) -> torch.Tensor:
    """Attention over real tokens; padded queries hold rubbish, as they may."""
    torch.manual_seed(seed)
    size, length = words.mask.shape
    scores = torch.randn(size, heads, length, length) * 2
    scores = scores.masked_fill(~words.mask.bool()[:, None, None, :], -torch.inf)
    if causal:
        scores = scores.masked_fill(~torch.ones(length, length).tril().bool(), -torch.inf)
    return scores.softmax(-1).nan_to_num(0.37)


def by_loops(weights, index, mask, counted, special, offsets):
    """Every measure of one head summed over the query words, written out word by word."""
    sums, hist, n = dict.fromkeys(MEASURES, 0.0), np.zeros(2 * offsets + 3, int), 0
    for row, places in enumerate(index):
        length = len(places)
        present = sorted({w for w in places if w >= 0})
        pieces = {w: [t for t in range(length) if places[t] == w] for w in present}
        singles = [t for t in range(length) if places[t] < 0 and mask[row][t]]
        specials = [t for t in singles if special[row][t]]
        start = next(t for t in range(length) if mask[row][t])
        for query in present:
            if not all(counted[row][t] for t in pieces[query]):
                continue
            n += 1
            token = np.mean([weights[row, t] for t in pieces[query]], axis=0)
            word = {key: sum(token[t] for t in pieces[key]) for key in present}
            parts = [*word.values(), *(token[t] for t in singles)]
            entropy = -sum(p * np.log(p) for p in parts if p > 0)
            best = max(present, key=lambda key: (word[key], -key))
            sums["confidence"] += word[best]
            sums["confidence2"] += word[best] ** 2
            sums["entropy"] += entropy
            sums["entropy2"] += entropy**2
            sums["distance"] += sum(abs(key - query) * p for key, p in word.items())
            sums["words"] += sum(word.values())
            sums["first"] += token[specials[0]] if specials else 0
            sums["other"] += sum(token[t] for t in singles if not specials or t != specials[0])
            sums["sink"] += token[start]
            for name, step in (("self", 0), ("previous", -1), ("next", 1)):
                sums[name] += word.get(query + step, 0.0)
            hist[int(np.clip(best - query, -offsets - 1, offsets + 1)) + offsets + 1] += 1
    return n, [sums[name] for name in MEASURES], hist


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("offsets", [1, 8])
def test_every_measure_is_that_of_plain_loops(causal, offsets):
    index = [[-1, 0, 1, 1, 2, 3, 4, 4, -1, -1], [-1, -1, 0, 1, 1, -1, 3, 5, 5, -1]]
    mask = [[1] * 8 + [0] * 2, [0] * 2 + [1] * 8]
    special = [[1] + [0] * 9, [0] * 9 + [1]]  # the second row has a token of no word in its middle
    counted = [[0, 1, 1, 1, 0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0, 1, 1, 1, 0]]
    words = words_of(index, mask=mask, special=special, counted=counted)
    weights = random_weights(words, 2, causal=causal)
    collector = HeadCounts(offsets=offsets, groups=False)
    accumulator = collector.open(CAUSAL if causal else BIDIRECTIONAL)
    accumulator.see("pattern.0", weights, words)
    state = accumulator.state()
    for head in range(2):
        n, sums, hist = by_loops(weights[:, head].double().numpy(), index, mask, counted, special, offsets)
        assert state.arrays["all/n"].tolist() == [n]
        np.testing.assert_allclose(state.arrays["all/sums/0"][head], sums, rtol=1e-5)
        np.testing.assert_array_equal(state.arrays["all/offsets/0"][head], hist)
    real = np.array(mask)[:, None, :] * np.ones((1, 10, 1))
    uniform = np.tril(real) if causal else real
    uniform = uniform / np.maximum(1, uniform.sum(-1, keepdims=True))
    chance = by_loops(uniform, index, mask, counted, special, offsets)[1]
    np.testing.assert_allclose(state.arrays["all/chance"][0], chance, rtol=1e-5)


def test_known_heads():
    """A previous-word head and a head on [CLS], over a sentence of five one-piece words."""
    words = words_of([[-1, 0, 1, 2, 3, 4, -1]])
    weights = torch.zeros(1, 2, 7, 7)
    weights[0, 0, torch.arange(1, 7), torch.arange(6)] = 1.0  # the token before
    weights[0, 1, :, 0] = 0.75
    weights[0, 1, :, 3] = 0.25
    collector = HeadCounts()
    accumulator = collector.open(BIDIRECTIONAL)
    accumulator.see("pattern.0", weights, words)
    view = collector.view(accumulator.state(), BIDIRECTIONAL)
    np.testing.assert_allclose(view.mean("previous", "pattern.0"), [0.8, 0.05])
    np.testing.assert_allclose(view.mean("first", "pattern.0"), [0.2, 0.75])
    np.testing.assert_allclose(view.mean("other", "pattern.0"), [0, 0])
    np.testing.assert_allclose(view.mean("confidence", "pattern.0"), [0.8, 0.25])  # not renormalised
    np.testing.assert_allclose(view.variance("confidence", "pattern.0"), [0.16, 0], atol=1e-9)
    h = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    np.testing.assert_allclose(view.mean("entropy", "pattern.0"), [0, h], atol=1e-7)
    np.testing.assert_allclose(view.mean("distance", "pattern.0"), [1.0, 6 / 5])
    assert view.offsets("pattern.0")[0, 8] == 4  # −1, four times: the first word looks at [CLS], at no word at all
    assert view.offsets("pattern.0").sum(1).tolist() == [4, 5]
    assert view.chance("confidence", "pattern.0") == pytest.approx(1 / 7)
    assert view.chance("entropy", "pattern.0") == pytest.approx(np.log(7))
    assert view.chance("previous", "pattern.0") == pytest.approx(4 / 35)


def test_causal_chance_knows_no_future():
    words = words_of([[0, 1, 2, 3]])
    collector = HeadCounts()
    accumulator = collector.open(CAUSAL)
    accumulator.see("pattern.0", random_weights(words, 2, causal=True), words)
    view = collector.view(accumulator.state(), CAUSAL)
    assert view.chance("next", "pattern.0") == 0
    assert view.chance("self", "pattern.0") == pytest.approx(np.mean([1, 1 / 2, 1 / 3, 1 / 4]))
    assert view.chance("entropy", "pattern.0") == pytest.approx(np.mean(np.log([1, 2, 3, 4])))


def test_padding_changes_nothing():
    plain = words_of([[-1, 0, 1, 1, 2, -1]])
    weights = random_weights(plain, 2, causal=False)
    for left, right in ((3, 0), (0, 2), (1, 1)):
        index = [[-1] * left + [-1, 0, 1, 1, 2, -1] + [-1] * right]
        padded = words_of(index, mask=[[0] * left + [1] * 6 + [0] * right])
        wide = torch.rand(1, 2, 6 + left + right, 6 + left + right)  # rubbish at padded queries and at padded keys
        wide[:, :, left : left + 6, left : left + 6] = weights
        found = []
        for tensor, words in ((weights, plain), (wide, padded)):
            accumulator = HeadCounts().open(BIDIRECTIONAL)
            accumulator.see("pattern.0", tensor, words)
            found.append(accumulator.state())
        for name, array in found[0].arrays.items():
            np.testing.assert_allclose(found[1].arrays[name], array, rtol=1e-6, err_msg=name)


def test_special_tokens_that_count_are_neither_queries_nor_word_keys():
    index, special = [[-1, 0, 1, 1, -1]], [[1, 0, 0, 0, 1]]
    weights = random_weights(words_of(index), 2, causal=False)
    states = []
    for counted in ([[0, 1, 1, 1, 0]], [[1, 1, 1, 1, 1]]):
        words = words_of(index, special=special, counted=counted, pooling="all")
        accumulator = HeadCounts().open(BIDIRECTIONAL)
        accumulator.see("pattern.0", weights, words)
        states.append(accumulator.state())
    assert states[0].arrays["0/n"].tolist() == [3]
    for name, array in states[0].arrays.items():
        np.testing.assert_allclose(states[1].arrays[name], array, rtol=1e-6, err_msg=name)


@settings(max_examples=25, deadline=None)
@given(
    ends=st.sets(st.integers(1, 7), max_size=5),
    shape=st.lists(st.integers(0, 9), max_size=8),
    groups=st.booleans(),
)
def test_any_shards_in_any_tree_equal_one_pass(ends, shape, groups):
    collector = HeadCounts(groups=groups)
    batches = []
    for number in range(8):
        words = words_of(INDEX, mask=MASK, first_sentence=2 * number, group=number % 3)
        batches.append((random_weights(words, 2, causal=False, seed=number), words))

    def one(part):
        accumulator = collector.open(BIDIRECTIONAL)
        for weights, words in part:
            accumulator.see("pattern.0", weights, words)
        return accumulator.state()

    states = [one(batches[start:stop]) for start, stop in pairwise(sorted({0, 8, *ends}))] + [one([])]
    before = [copy_of(state) for state in states]
    found, whole = merged(collector, states, shape), one(batches)
    assert all(state.same(other) for state, other in zip(states, before, strict=True))
    assert found.arrays.keys() == whole.arrays.keys()
    for name, array in whole.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=1e-12, err_msg=name)
    view = collector.view(found, BIDIRECTIONAL)
    assert view.n("pattern.0") == 48
    if groups:
        assert view.groups == (0, 1, 2)
        assert view.group(1).n("pattern.0") + view.without(1).n("pattern.0") == 48
        both = 18 * view.group(1).mean("self", "pattern.0") + 30 * view.without(1).mean("self", "pattern.0")
        np.testing.assert_allclose(both / 48, view.mean("self", "pattern.0"), rtol=1e-12)


def test_two_models_have_their_own_words_and_chances():
    setting = setting_of(facts_of({"pattern.0": (1,)}, causal=True), facts_of({"pattern.0": (1,)}, causal=False))
    words = [words_of([[0, 1, 2]]), words_of([[-1, 0, 1, 2, 2]])]
    collector = HeadCounts()
    accumulator = collector.open(setting)
    for number, each in enumerate(words):
        accumulator.see(f"{number}:pattern.0", random_weights(each, 1, causal=number == 0), each)
    view = collector.view(accumulator.state(), setting)
    assert view.chance("self", "0:pattern.0") == pytest.approx(np.mean([1, 1 / 2, 1 / 3]))
    assert view.chance("self", "1:pattern.0") == pytest.approx(np.mean([1 / 5, 1 / 5, 2 / 5]))


def test_what_is_not_self_attention_is_refused():
    setting = setting_of(facts_of({"encoder.pattern.0": (1,), "cross.pattern.0": (1,), "resid.0": (4,)}))
    for sites in ("*.pattern.*", "resid.0"):
        with pytest.raises(SweepError, match=r"reads self-attention patterns, and '(cross.pattern|resid).0' is none"):
            HeadCounts(sites).open(setting)
    accumulator = HeadCounts("encoder.pattern.0").open(setting)
    with pytest.raises(SweepError, match=r"'encoder.pattern.0' is of 4 queries and 4 keys.*3 tokens"):
        accumulator.see("encoder.pattern.0", torch.ones(1, 1, 4, 4) / 4, words_of([[0, 1, 2]]))


def test_a_stack_says_itself_what_may_be_seen():
    setting = setting_of(facts_of({"encoder.pattern.0": (1,), "decoder.pattern.0": (1,)}, causal=False))
    words = words_of([[0, 1, 2]])
    accumulator = HeadCounts("*.pattern.*").open(setting)
    for key in ("encoder.pattern.0", "decoder.pattern.0"):
        accumulator.see(key, torch.ones(1, 1, 3, 3) / 3, words)
    view = HeadCounts("*.pattern.*").view(accumulator.state(), setting)
    assert view.chance("next", "encoder.pattern.0") == pytest.approx(2 / 9)
    assert view.chance("next", "decoder.pattern.0") == 0


def test_states_come_back_and_unknown_names_are_refused(tmp_path):
    words = words_of(INDEX, mask=MASK)
    collector = HeadCounts()
    accumulator = collector.open(BIDIRECTIONAL)
    accumulator.see("pattern.0", random_weights(words, 2, causal=False), words)
    state = accumulator.state()
    save_states(tmp_path / "states", {"heads": state})
    assert load_states(tmp_path / "states")["heads"].same(state)
    assert collector_of(collector.describe()) == collector
    assert collector.memory(BIDIRECTIONAL, 1) == state.bytes
    view = collector.view(state, BIDIRECTIONAL)
    with pytest.raises(SweepError, match=r"no measure 'entropie' of heads; there are confidence, entropy, distance"):
        view.mean("entropie", "pattern.0")
    with pytest.raises(SweepError, match=r"No heads of 'pattern.9'"):
        view.offsets("pattern.9")
    with pytest.raises(SweepError, match=r"No query word was counted at 'pattern.0'"):
        collector.view(collector.open(BIDIRECTIONAL).state(), BIDIRECTIONAL).mean("entropy", "pattern.0")


def test_every_batch_brings_its_own_words():
    collector = HeadCounts(groups=False)
    several = (words_of(INDEX, mask=MASK), words_of([[0, 1, 1, -1]]))
    batches = [(random_weights(words, 2, causal=False), words) for words in several]
    one = collector.open(BIDIRECTIONAL)
    states = []
    for weights, words in batches:
        one.see("pattern.0", weights, words)
        alone = collector.open(BIDIRECTIONAL)
        alone.see("pattern.0", weights, words)
        states.append(alone.state())
    both = collector.merge(*states)
    for name, array in one.state().arrays.items():
        np.testing.assert_allclose(both.arrays[name], array, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("causal", [True, False])
def test_nan_in_padding_on_either_side_is_not_read_and_elsewhere_is_refused(causal):
    """The second row is padded on the left, so that its first token is none; the first word of the third is context."""
    index, mask = [*INDEX, [-1, -1, 0, 1, 1, 2, -1]], [*MASK, MASK[1]]
    counted = [*([[1] * 7] * 2), [1, 1, 0, 1, 1, 1, 1]]
    words = words_of(index, mask=mask, counted=counted)
    collector, setting = HeadCounts(), CAUSAL if causal else BIDIRECTIONAL
    weights = random_weights(words, 2, causal=causal)

    def state(tensor):
        accumulator = collector.open(setting)
        accumulator.see("pattern.0", tensor, words_of(index, mask=mask, counted=counted))
        return accumulator.state()

    broken = weights.clone()
    broken[~words.mask.bool()[:, None].expand(-1, 2, -1)] = torch.nan
    found, wanted = state(broken), state(weights)
    assert set(found.arrays) == set(wanted.arrays)
    for name, array in wanted.arrays.items():
        assert np.allclose(found.arrays[name], array, atol=1e-6), name
    broken[0, 1, 2] = torch.nan
    with pytest.raises(SweepError, match=r"'pattern.0' is NaN or infinite in head 1"):
        state(broken)
