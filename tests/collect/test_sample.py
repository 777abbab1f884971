"""Token samples: the same words for every model and cutting, chosen evenly, with the right rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.collect.collector import collector_of
from pellucid.collect.sample import TokenSample, mixed, row_hashes, sentence_hash
from pellucid.collect.state import load_states, save_states
from pellucid.collect.words import WordBatch
from pellucid.corpus import Sentence
from pellucid.errors import SweepError
from tests.collect.batches import batches_of, copy_of, facts_of, merged, setting_of, shard

SETTING = setting_of(facts_of({"resid.0": (3,), "resid.1": (2,)}))
MASK = 2**64 - 1


def rows_of(count: int) -> dict[str, np.ndarray]:
    """Rows that tell their own ordinal."""
    ordinal = np.arange(count, dtype=float)[:, None]
    return {"resid.0": ordinal * [1, 2, 3], "resid.1": -ordinal * [1, 0.5]}


def splitmix(base: int, number: int) -> int:
    """SplitMix64 in Python's own whole numbers."""
    z = (base + (number + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_the_mixing_is_splitmix64():
    """The first numbers of SplitMix64 from the state 0, as published with it."""
    assert mixed(np.zeros(2, np.uint64), np.array([0, 1])).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    bases = np.array([5, MASK, 2**63], np.uint64)
    numbers = np.array([0, 17, -1])
    expected = [splitmix(int(base), int(number)) for base, number in zip(bases, numbers, strict=True)]
    assert mixed(bases, numbers).tolist() == expected


def test_the_sample_is_the_bottom_of_the_hashes():
    count, size = 400, 37
    (batch,) = batches_of(rows_of(count), ())
    hashes = [splitmix(sentence_hash(3, batch.sentences[ordinal // 5]), ordinal % 5) for ordinal in range(count)]
    chosen = np.sort(np.argsort(np.array(hashes, np.uint64))[:size])
    collector = TokenSample("resid.*", size=size, seed=3)
    view = collector.view(shard(collector, SETTING, batches_of(rows_of(count), (90, 300), groups=(0, 4, 2))), SETTING)
    np.testing.assert_array_equal(view.ordinal, chosen)
    np.testing.assert_array_equal(view.sentence, chosen // 5)
    np.testing.assert_array_equal(view.position, chosen % 5)
    np.testing.assert_array_equal(view.group, np.where(chosen < 90, 0, np.where(chosen < 300, 4, 2)))
    for key, rows in rows_of(count).items():
        np.testing.assert_array_equal(view.rows(key), rows[chosen].astype(np.float32))


def test_names_are_hashed_apart_and_by_seed():
    def one(document: str, name: str, seed: int = 0) -> int:
        return sentence_hash(seed, Sentence.of_words(["a"], id=name, document=document))

    assert len({one("a", "bc"), one("ab", "c"), one("a", "b"), one("a", "bc", 1), one("", "abc")}) == 5
    assert one("d", "é") == one("d", "é")


def test_the_choice_is_even():
    """Every word is as likely as any other: positions and halves of the corpus come in their shares."""
    collector = TokenSample("resid.0", size=2000)
    view = collector.view(shard(collector, SETTING, batches_of(rows_of(10000), (5000,))), SETTING)
    shares = np.bincount(view.position, minlength=5) / 2000
    assert np.abs(shares - 0.2).max() < 0.04  # over four standard deviations
    assert abs((view.ordinal < 5000).mean() - 0.5) < 0.05
    other = TokenSample("resid.0", size=2000, seed=1)
    again = other.view(shard(other, SETTING, batches_of(rows_of(10000), ())), SETTING)
    assert 250 < len(np.intersect1d(view.ordinal, again.ordinal)) < 550  # independent samples share 400


@settings(max_examples=40, deadline=None)
@given(
    size=st.sampled_from([1, 10, 60, 500]),
    cuts=st.lists(st.integers(1, 199), max_size=6, unique=True).map(sorted),
    ends=st.sets(st.integers(1, 6), max_size=4),
    shape=st.lists(st.integers(0, 9), max_size=8),
    late=st.randoms(use_true_random=False),
)
def test_any_shards_in_any_tree_and_order_equal_one_pass(size, cuts, ends, shape, late):
    collector = TokenSample("resid.*", size=size)
    batches = batches_of(rows_of(200), cuts)
    edges = sorted({0, *(end for end in ends if end < len(batches)), len(batches)})
    parts = [batches[start:stop] for start, stop in pairwise(edges)]
    for part in parts:
        late.shuffle(part)
    states = [shard(collector, SETTING, part) for part in [*parts, []]]
    before = [copy_of(state) for state in states]
    found = merged(collector, states, shape)
    assert all(state.same(other) for state, other in zip(states, before, strict=True))
    whole = shard(collector, SETTING, batches_of(rows_of(200), ()))
    assert found.same(whole)
    assert len(whole.arrays["hash"]) == min(size, 200)
    assert collector.sentences(found) == set((whole.arrays["ordinal"] // 5).tolist())


def test_other_models_give_the_same_words():
    collector = TokenSample("resid.*", size=20)
    two = setting_of(facts_of({"resid.0": (3,)}), facts_of({"resid.0": (2,)}))
    rows = rows_of(100)
    first = shard(collector, SETTING, batches_of(rows, (30,)))
    second = shard(collector, two, batches_of({"0:resid.0": rows["resid.0"], "1:resid.0": rows["resid.1"]}, (60,)))
    np.testing.assert_array_equal(first.arrays["ordinal"], second.arrays["ordinal"])


def test_tokens_of_one_word_are_chosen_apart():
    """With the pooling `all` several rows stand at one position."""
    (batch,) = batches_of(rows_of(100), ())
    position = np.repeat([0, 1, -1, -1, 2], 20).reshape(5, 20).T.ravel()
    tokens = WordBatch(batch.rows, batch.sentence, position, batch.ordinal, 0, batch.sentences)
    hashes = row_hashes(tokens, 0)
    assert len(set(hashes.tolist())) == 100
    plain = row_hashes(batch, 0)
    np.testing.assert_array_equal(hashes[0::5], plain[0::5])  # the first of its position hashes as a word does


def test_half_precision_is_kept_and_overflow_refused():
    rows = rows_of(50)
    collector = TokenSample("resid.*", size=10, dtype="float16")
    state = shard(collector, SETTING, batches_of(rows, (7,)))
    assert state.arrays["rows/0"].dtype == np.float16
    assert collector.memory(SETTING, 1) == state.bytes
    view = collector.view(state, SETTING)
    assert view.rows("resid.0").dtype == np.float32
    np.testing.assert_array_equal(view.rows("resid.1"), rows["resid.1"][view.ordinal].astype(np.float16))
    with pytest.raises(SweepError, match=r"'resid.0' has values over 65,504"):
        shard(collector, SETTING, batches_of({"resid.0": rows["resid.0"] + 7e4, "resid.1": rows["resid.1"]}, ()))


def test_states_come_back_and_unlike_samples_do_not_merge(tmp_path):
    collector = TokenSample("resid.*", size=30)
    state = shard(collector, SETTING, batches_of(rows_of(100), ()))
    save_states(tmp_path / "states", {"sample": state})
    assert load_states(tmp_path / "states")["sample"].same(state)
    assert collector_of(collector.describe()) == collector
    assert collector.memory(SETTING, 1) == state.bytes
    other = TokenSample("resid.*", size=30, seed=9)
    with pytest.raises(SweepError, match=r"seed 0\) and of .*seed 9\) cannot be merged"):
        collector.merge(state, shard(other, SETTING, []))
    with pytest.raises(SweepError, match=r"No sample of 'resid.4'"):
        collector.view(state, SETTING).rows("resid.4")
    with pytest.raises(SweepError, match=r"dtype='int8' is not kept"):
        TokenSample("resid.*", dtype="int8")
