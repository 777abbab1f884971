"""Surprise: −log p of words against plain loops, its bounds and chance, refusals and merging."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.collect import surprise
from pellucid.collect.collector import collector_of
from pellucid.collect.state import load_states, save_states
from pellucid.collect.surprise import Surprise
from pellucid.errors import SiteError, SweepError
from tests.collect.batches import copy_of, facts_of, merged, setting_of, words_of

VOCABULARY = 11
SETTING = setting_of(facts_of({"logits": (VOCABULARY,)}))

# no BOS, a three-piece word, right padding; BOS and EOS, left padding, a token of no word, a word that is context only
INDEX = [[0, 1, 1, 1, 2, 3, -1, -1, -1], [-1, -1, 0, 0, -1, 2, 3, 4, -1]]
MASK = [[1] * 6 + [0] * 3, [0] + [1] * 8]
COUNTED = [[1] * 6 + [0] * 3, [0, 0, 1, 1, 0, 1, 0, 1, 0]]


def made(seed: int, *, group: int = 0):
    """Logits with rubbish at the padding, and their words."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(0, VOCABULARY, (2, 9)).tolist()
    words = words_of(INDEX, ids=ids, mask=MASK, counted=COUNTED, first_sentence=2 * seed, group=group)
    return torch.tensor(draw.normal(size=(2, 9, VOCABULARY)) * 3, dtype=torch.float32), words


def by_loops(logits, words) -> list[tuple[int, int, float, int]]:
    """(sentence, word, nats, pieces) of every word that can be predicted."""
    found = []
    for row, places in enumerate(INDEX):
        for word in sorted({place for place in places if place >= 0}):
            tokens = [t for t, place in enumerate(places) if place == word]
            if not all(COUNTED[row][t] for t in tokens) or any(t == 0 or not MASK[row][t - 1] for t in tokens):
                continue
            nats = 0.0
            for t in tokens:
                line = logits[row, t - 1].double().numpy()
                nats += np.log(np.exp(line).sum()) - line[int(words.batch.ids[row, t])]
            found.append((int(words.numbers[row]), word, nats, len(tokens)))
    return found


def swept(collector: Surprise, batches):
    accumulator = collector.open(SETTING)
    for logits, words in batches:
        accumulator.see("logits", logits, words)
    return accumulator.state()


def test_words_are_surprising_as_plain_loops_say():
    batches = [made(seed) for seed in range(3)]
    collector = Surprise(k=4)
    view = collector.view(swept(collector, batches), SETTING)
    expected = [item for logits, words in batches for item in by_loops(logits, words)]
    nats = np.array([item[2] for item in expected])
    assert len(expected) == 3 * 6  # the first word of the first text and the context word are not among them
    assert (view.words("logits"), view.tokens("logits")) == (len(expected), sum(item[3] for item in expected))
    assert view.per_word("logits") == pytest.approx(nats.mean(), rel=1e-6)
    assert view.per_token("logits") == pytest.approx(nats.sum() / view.tokens("logits"), rel=1e-6)
    assert view.perplexity("logits") == pytest.approx(np.exp(nats.sum() / view.tokens("logits")), rel=1e-5)
    counts, edges = view.histogram("logits")
    np.testing.assert_array_equal(counts, np.histogram(nats, [*edges, np.inf])[0])
    few = Surprise(k=4, bins=3)  # the last one is open, and has some
    counts, edges = few.view(swept(few, batches), SETTING).histogram("logits")
    np.testing.assert_array_equal(counts, np.histogram(nats, [*edges, np.inf])[0])
    assert counts[-1] > 0
    words_at, nats_at = view.by_position("logits")
    buckets = {0: [0], 1: [1], 2: [2, 3], 3: [4, 5, 6, 7]}
    for bucket, positions in buckets.items():
        inside = [item[2] for item in expected if item[1] in positions]
        assert words_at[bucket] == len(inside)
        assert nats_at[bucket] == pytest.approx(sum(inside), rel=1e-6)
    order = np.argsort(-nats)
    for found, chosen in ((view.most("logits"), order[:4]), (view.least("logits"), order[::-1][:4])):
        np.testing.assert_allclose(found.value[0], nats[chosen], rtol=1e-5)
        assert found.sentence[0].tolist() == [expected[place][0] for place in chosen]
        assert found.position[0].tolist() == [expected[place][1] for place in chosen]
        assert found.ordinal[0].tolist() == [expected[place][0] * 100 + expected[place][1] for place in chosen]
    state = swept(collector, batches)
    shown = {expected[place][0] for place in (*order[:4], *order[-4:])}
    assert collector.sentences(state) == shown


def test_uniform_logits_are_at_chance():
    _, words = made(0)
    view = Surprise().view(swept(Surprise(), [(torch.zeros(2, 9, VOCABULARY), words)]), SETTING)
    assert view.per_token("logits") == pytest.approx(np.log(VOCABULARY))
    assert view.chance("logits") == pytest.approx(np.log(VOCABULARY))


def test_a_model_that_knows_the_next_token_is_never_surprised():
    _, words = made(0)
    logits = torch.zeros(2, 9, VOCABULARY)
    for row in range(2):
        for t in range(1, 9):
            logits[row, t - 1, words.batch.ids[row, t]] = 60.0
    view = Surprise().view(swept(Surprise(), [(logits, words)]), SETTING)
    assert view.per_word("logits") == pytest.approx(0, abs=1e-6)
    assert view.histogram("logits")[0][0] == view.words("logits")


def test_logits_are_widened_a_few_rows_at_a_time(monkeypatch):
    whole = swept(Surprise(), [made(0)])
    monkeypatch.setattr(surprise, "_AT_ONCE", 2 * VOCABULARY)
    assert swept(Surprise(), [made(0)]).same(whole)


def test_the_first_token_after_padding_has_no_prediction():
    logits = torch.tensor(np.random.default_rng(2).normal(size=(1, 3, VOCABULARY)), dtype=torch.float32)
    plain = words_of([[0, 1, 2]], ids=[[3, 4, 5]])
    padded = words_of([[-1, -1, 0, 1, 2]], ids=[[0, 0, 3, 4, 5]], mask=[[0, 0, 1, 1, 1]])
    wide = torch.cat([torch.full((1, 2, VOCABULARY), 9.0), logits], dim=1)
    state = swept(Surprise(), [(logits, plain)])
    assert state.arrays["0/words"].tolist() == [2]
    assert swept(Surprise(), [(wide, padded)]).same(state)


def test_with_all_every_token_stands_for_itself():
    ids = [[3, 4, 5, 6]]
    words = words_of([[-1, 0, 0, 1]], ids=ids, counted=[[1, 1, 1, 1]], special=[[1, 0, 0, 0]], pooling="all")
    logits = torch.tensor(np.random.default_rng(1).normal(size=(1, 4, VOCABULARY)), dtype=torch.float32)
    view = Surprise(k=3).view(swept(Surprise(k=3), [(logits, words)]), SETTING)
    expected = -torch.log_softmax(logits.double(), -1)[0, torch.arange(3), torch.tensor(ids[0][1:])]
    assert view.words("logits") == view.tokens("logits") == 3  # the first token has nothing before it
    assert view.per_token("logits") == pytest.approx(float(expected.mean()), rel=1e-6)
    assert sorted(view.most("logits").position[0].tolist()) == [0, 0, 1]


@settings(max_examples=25, deadline=None)
@given(ends=st.sets(st.integers(1, 6), max_size=5), shape=st.lists(st.integers(0, 9), max_size=8), groups=st.booleans())
def test_any_shards_in_any_tree_equal_one_pass(ends, shape, groups):
    collector = Surprise(groups=groups, k=5, bins=6)
    batches = [made(seed, group=seed % 2) for seed in range(7)]
    states = [swept(collector, batches[start:stop]) for start, stop in pairwise(sorted({0, 7, *ends}))]
    states.append(swept(collector, []))
    before = [copy_of(state) for state in states]
    found, whole = merged(collector, states, shape), swept(collector, batches)
    assert all(state.same(other) for state, other in zip(states, before, strict=True))
    assert found.arrays.keys() == whole.arrays.keys()
    for name, array in whole.arrays.items():
        if array.dtype == np.int64:
            np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)
        else:
            np.testing.assert_allclose(found.arrays[name], array, rtol=1e-12, err_msg=name)
    if groups:
        view = collector.view(found, SETTING)
        odd = [item for logits, words in batches[1::2] for item in by_loops(logits, words)]
        assert view.group(1).per_word("logits") == pytest.approx(np.mean([item[2] for item in odd]), rel=1e-6)
        assert view.without(1).words("logits") == view.words("logits") - len(odd)


def test_models_that_predict_no_next_word_are_refused_by_name():
    with pytest.raises(SweepError, match=r"causal language model, and 'logits' of 'bert' is not that"):
        Surprise().open(setting_of(facts_of({"logits": (5,)}, causal=False, name="bert")))
    both = setting_of(facts_of({"logits": (5,)}), facts_of({"logits": (5,)}, causal=False, name="bert"))
    with pytest.raises(SweepError, match=r"'1:logits' of 'bert'"):
        Surprise().open(both)
    Surprise("0:logits").open(both)
    with pytest.raises(SiteError, match=r"No site matches 'logits'"):
        Surprise().open(setting_of(facts_of({"resid.0": (5,)})))


def test_words_without_probability_are_refused():
    logits, words = made(1)
    logits[1, 3] = float("nan")  # predicts a token of no word
    swept(Surprise(), [(logits, words)])
    logits[1, 4] = float("nan")
    with pytest.raises(SweepError, match=r"a word of sentence 's3' no probability"):
        swept(Surprise(), [(logits, words)])


def test_states_come_back_and_nothing_is_said_of_nothing(tmp_path):
    collector = Surprise()
    state = swept(collector, [made(0), made(1, group=3)])
    save_states(tmp_path / "states", {"surprise": state})
    assert load_states(tmp_path / "states")["surprise"].same(state)
    assert collector_of(collector.describe()) == collector
    assert collector.memory(SETTING, 2) == state.bytes
    empty = collector.view(swept(collector, []), SETTING)
    assert empty.words("logits") == 0
    with pytest.raises(SweepError, match=r"No word was predicted at 'logits'"):
        empty.per_token("logits")
