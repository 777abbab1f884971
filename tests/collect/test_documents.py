"""Document samples: equally long blocks from the right documents and words, however the corpus is cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.collect.collector import collector_of
from pellucid.collect.documents import DocumentSample
from pellucid.collect.sample import name_hash, sentence_hash
from pellucid.collect.state import load_states, save_states
from pellucid.collect.words import WordBatch
from pellucid.corpus import Sentence
from pellucid.errors import SweepError
from tests.collect.batches import copy_of, facts_of, merged, setting_of, shard
from tests.collect.test_sample import rows_of, splitmix

SETTING = setting_of(facts_of({"resid.0": (3,), "resid.1": (2,)}))
SHORT = 4
"""Words of every sentence but a document's last."""
LENGTHS = tuple(int(length) for length in np.random.default_rng(0).integers(1, 15, size=30))
"""Words of each document; sentences of four words, and what is left."""


def words_of(lengths: tuple[int, ...] = LENGTHS) -> list[tuple[int, Sentence, int]]:
    """Every word of the corpus: the number of its sentence, the sentence, and its place in it."""
    found: list[tuple[int, Sentence, int]] = []
    number = 0
    for document, length in enumerate(lengths):
        for start in range(0, length, SHORT):
            size = min(SHORT, length - start)
            sentence = Sentence.of_words(["w"] * size, id=f"s{start}", document=f"document {document}")
            found += [(number, sentence, place) for place in range(size)]
            number += 1
    return found


def batches(cuts: list[int] | tuple[int, ...], lengths: tuple[int, ...] = LENGTHS) -> list[WordBatch]:
    """The corpus in batches that end at `cuts`, also in the midst of documents and sentences."""
    words = words_of(lengths)
    rows = rows_of(len(words))
    made: list[WordBatch] = []
    for start, stop in pairwise([0, *cuts, len(words)]):
        part = words[start:stop]
        made.append(
            WordBatch(
                {key: torch.tensor(value[start:stop], dtype=torch.float32) for key, value in rows.items()},
                np.array([number for number, _, _ in part], np.int64),
                np.array([place for _, _, place in part], np.int64),
                np.arange(start, stop, dtype=np.int64),
                0,
                {number: sentence for number, sentence, _ in part},
            )
        )
    return made


def blocks_by_hand(collector: DocumentSample, lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    """The ordinals of every block: documents by their hash, three times as many as asked for, the long ones of them."""
    by_document: dict[str, list[tuple[int, int]]] = {}
    for ordinal, (_, sentence, place) in enumerate(words_of(lengths)):
        hashed = splitmix(sentence_hash(collector.seed, sentence), place)
        by_document.setdefault(sentence.document, []).append((hashed, ordinal))
    order = sorted(by_document, key=lambda name: name_hash(str(collector.seed), name))[: 3 * collector.documents]
    long = [name for name in order if len(by_document[name]) >= collector.words][: collector.documents]
    return [sorted(ordinal for _, ordinal in sorted(by_document[name])[: collector.words]) for name in long]


OPTIONS = [{}, {"words": 3}, {"documents": 5}, {"documents": 4, "words": 5, "seed": 9}, {"documents": 6, "words": 11}]


@pytest.mark.parametrize("options", OPTIONS)
def test_blocks_are_those_found_by_hand(options):
    collector = DocumentSample("resid.*", **options)
    view = collector.view(shard(collector, SETTING, batches((40, 100))), SETTING)
    expected = np.array(blocks_by_hand(collector))
    assert len(expected) > 2
    assert view.documents == len(expected)
    for key, rows in rows_of(len(words_of())).items():
        np.testing.assert_array_equal(view.rows(key), rows[expected].astype(np.float32))


def test_short_documents_are_left_out():
    lengths = (3, 9, 4, 5, 2, 8, 5)
    collector = DocumentSample("resid.0", words=5)
    view = collector.view(shard(collector, SETTING, batches((), lengths)), SETTING)
    edges = np.cumsum((0, *lengths))
    found = {
        int(np.searchsorted(edges, ordinal, side="right")) - 1 for ordinal in view.rows("resid.0")[:, :, 0].ravel()
    }
    assert view.rows("resid.0").shape == (4, 5, 3)
    assert found == {1, 3, 5, 6}
    none = DocumentSample("resid.0", words=10)
    assert none.view(shard(none, SETTING, batches((), lengths)), SETTING).documents == 0


def test_a_document_over_several_shards_is_one():
    """Its words are chosen among all, also where no shard alone has enough of them."""
    lengths = (2, 12, 2)
    collector = DocumentSample("resid.*", words=9)
    parts = [[batch] for batch in batches((6, 10), lengths)]  # 4 + 4 + 4 words of the long document
    found = merged(collector, [shard(collector, SETTING, part) for part in parts], [0])
    view = collector.view(found, SETTING)
    expected = np.array(blocks_by_hand(collector, lengths))
    assert expected.shape == (1, 9)
    assert view.rows("resid.0")[..., 0].tolist() == expected.tolist()


@pytest.mark.parametrize("seed", range(12))
def test_words_that_come_one_by_one_find_the_last_document_that_can_be_chosen(seed):
    """Of 20 documents the sixth by its hash alone is long; the six may all be known before its own words are."""
    collector = DocumentSample("resid.*", documents=2, words=9, seed=seed)
    order = sorted(range(20), key=lambda number: name_hash(str(seed), f"document {number}"))
    lengths = tuple(9 if number == order[5] else 1 for number in range(20))
    view = collector.view(shard(collector, SETTING, batches(tuple(range(1, 28)), lengths)), SETTING)
    start = order[5]
    np.testing.assert_array_equal(view.rows("resid.0"), rows_of(28)["resid.0"][None, start : start + 9])


@settings(max_examples=40, deadline=None)
@given(
    documents=st.sampled_from([2, 5, 40]),
    words=st.sampled_from([1, 4, 9]),
    cuts=st.lists(st.integers(1, sum(LENGTHS) - 1), max_size=8, unique=True).map(sorted),
    ends=st.sets(st.integers(1, 8), max_size=4),
    shape=st.lists(st.integers(0, 9), max_size=8),
    late=st.randoms(use_true_random=False),
)
def test_any_shards_in_any_tree_and_order_give_the_same_bytes(documents, words, cuts, ends, shape, late):
    collector = DocumentSample("resid.*", documents=documents, words=words)
    made = batches(cuts)
    edges = sorted({0, *(end for end in ends if end < len(made)), len(made)})
    parts = [made[start:stop] for start, stop in pairwise(edges)]
    for part in parts:
        late.shuffle(part)
    states = [shard(collector, SETTING, part) for part in [*parts, []]]
    before = [copy_of(state) for state in states]
    found = merged(collector, states, shape)
    assert all(state.same(other) for state, other in zip(states, before, strict=True))
    assert found.same(shard(collector, SETTING, batches(())))


def test_seeds_choose_other_documents_and_words():
    def chosen(seed: int) -> np.ndarray:
        collector = DocumentSample("resid.0", documents=6, words=3, seed=seed)
        return collector.view(shard(collector, SETTING, batches(())), SETTING).rows("resid.0")[..., 0]

    assert np.array_equal(chosen(1), chosen(1))
    assert set(chosen(1).ravel()) != set(chosen(2).ravel())
    assert (np.diff(chosen(1), axis=1) > 0).all()  # in the order of the text


def test_states_come_back_and_unlike_samples_do_not_merge(tmp_path):
    collector = DocumentSample("resid.*", documents=10, words=2)
    state = shard(collector, SETTING, batches(()))
    save_states(tmp_path / "states", {"blocks": state})
    assert load_states(tmp_path / "states")["blocks"].same(state)
    assert collector_of(collector.describe()) == collector
    assert collector.memory(SETTING, 1) == state.bytes  # 30 documents: all the candidates there can be
    other = DocumentSample("resid.*", documents=10, words=2, seed=3)
    with pytest.raises(SweepError, match=r"cannot be merged"):
        collector.merge(state, shard(other, SETTING, []))
    with pytest.raises(SweepError, match=r"No blocks of 'resid.4' were gathered; there are those of resid.0, resid.1"):
        collector.view(state, SETTING).rows("resid.4")
    for options in ({"documents": 1}, {"words": 0}):
        with pytest.raises(SweepError, match="cannot change places"):
            DocumentSample("resid.*", **options)
