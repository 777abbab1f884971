"""Token rows: windows in which every word counts once, cuts that are counted, and readings that mean nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pellucid.collect.encode import Encoder, Reading
from pellucid.collect.sweep import sweep
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import SweepError, TextError
from tests.collect.sweeping import Patterned, Rows, alone, by_hand, in_order, pieces_of, pooled, reader, stories

TEXT = "the old dog sleeps near a red table and the cat runs to the farmer of village"
LONG = Sentence.of_words(
    TEXT.split() * 2,
    id="long",
    labels={"n": tuple(str(number) for number in range(34))},
)
SHORT = Sentence.of_words(["a", "dog"], id="short", labels={"n": ("a", "b")})
CORPUS = Corpus.of([SHORT, LONG, SHORT])


def windows_by_hand(model, overlap: int) -> list[tuple[list[int], list[list[int]], list[int]]]:
    """Windows of the long sentence, greedily: ids, the token places of each word that counts, and which words."""
    ids, places = pieces_of(model, LONG)
    opening, closing = (ids[:1], ids[-1:]) if ids[0] == 1 else ([], [])
    room = model.limit - len(opening) - len(closing)
    found, new = [], 0
    while new < len(places):
        first = new
        while first > 0 and sum(len(each) for each in places[first - 1 : new]) <= min(overlap, room - len(places[new])):
            first -= 1
        last = new
        while last < len(places) and sum(len(each) for each in places[first : last + 1]) <= room:
            last += 1
        begin = places[first][0] - len(opening)
        body = [ids[place] for word in places[first:last] for place in word]
        counted = [[place - begin for place in each] for each in places[new:last]]
        found.append(([*opening, *body, *closing], counted, list(range(new, last))))
        new = last
    return found


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
@pytest.mark.parametrize(("name", "overlap"), [("gpt2", 0), ("gpt2", 6), ("bert", 0), ("bert", None)])
def test_every_word_counts_once_in_the_first_window_that_holds_it(name, overlap, pooling):
    model = reader(name, limit=24)
    found = in_order(
        sweep(
            model, CORPUS, Rows(("resid.2",), ("n",)), long="window", overlap=overlap, pooling=pooling, token_budget=48
        )
    )
    room = 24 - (2 if name == "bert" else 0)
    parts = windows_by_hand(model, room // 4 if overlap is None else overlap)
    assert len(parts) > 2
    short = by_hand(model, [SHORT], "resid.2", pooling)
    long = [pooled(alone(model, ids, "resid.2"), places, pooling) for ids, places, _ in parts]
    np.testing.assert_allclose(found["resid.2"], np.concatenate([short, *long, short]), atol=1e-5)
    assert found["n"] == ["a", "b", *LONG.labels["n"], "a", "b"]
    assert found["ordinal"].tolist() == list(range(38))
    assert found["position"].tolist() == [0, 1, *range(34), 0, 1]


def test_context_changes_what_comes_after_it():
    """Else the overlap would do nothing."""
    model = reader("gpt2", limit=24)
    one, other = (
        in_order(sweep(model, CORPUS, Rows(("resid.2",)), long="window", overlap=overlap))["resid.2"]
        for overlap in (0, 8)
    )
    assert np.abs(one - other).max() > 1e-3


def test_subwords_of_windows_are_numbered_on():
    model = reader("bert", limit=24)
    done = sweep(model, CORPUS, Rows(("resid.1",), ("n",)), long="window", pooling="all", special=True)
    found = in_order(done)
    ids, places = pieces_of(model, LONG)
    inner = [word for word, each in enumerate(places) for _ in each]
    short = [-1, *(word for word, each in enumerate(pieces_of(model, SHORT)[1]) for _ in each), -1]
    assert found["position"].tolist() == [*short, -1, *inner, -1, *short]
    assert found["ordinal"].tolist() == list(range(len(ids) + 2 * len(short)))
    assert done.counts.windowed == 1


def test_patterns_of_a_window_take_no_more_room_than_its_words():
    model = reader("gpt2", limit=24)
    found = sweep(model, Corpus.of([LONG]), Patterned("pattern.0"), long="window", overlap=6, token_budget=24)
    last = found.states["0-test-patterns"].arrays["pattern.0@0"]  # each window overwrites the one before
    _, _, words = windows_by_hand(model, 6)[-1]
    width = last.shape[-1]
    assert len(words) < width < words[-1]  # its own words and their context, not all that stood before
    own = list(range(width - len(words), width))
    assert not last[:, : own[0]].any()
    assert (last[:, own].sum(-1) > 0.99).all()  # a causal model without special tokens looks at words alone
    assert last[:, own[0], own[0] - 1].all()  # context is looked at


def test_a_cut_sentence_keeps_its_beginning_and_what_is_lost_is_counted():
    model = reader("bert", limit=24)
    done = sweep(model, CORPUS, Rows(("resid.2",), ("n",)), long="truncate")
    found = in_order(done)
    ids, places = pieces_of(model, LONG)
    kept = max(count for count in range(35) if sum(len(each) for each in places[:count]) <= 22)
    cut = [ids[0], *(ids[place] for each in places[:kept] for place in each), ids[-1]]
    expected = pooled(alone(model, cut, "resid.2"), places[:kept], "mean")
    np.testing.assert_allclose(found["resid.2"][2:-2], expected, atol=1e-5)
    assert found["ordinal"].tolist() == [0, 1, *range(2, 2 + kept), 36, 37]
    assert (done.counts.truncated, done.counts.lost_words) == (1, 34 - kept)
    assert any(f"{34 - kept} words are lost" in note for note in done.about["notes"])


def test_an_over_long_sentence_is_refused_by_name():
    with pytest.raises(SweepError, match=r"^Sentence 'long' has \d+ tokens and .* takes at most 24; .*long='window'"):
        sweep(reader("gpt2", limit=24), CORPUS, Rows(("resid.1",)))


def test_an_over_long_translation_is_refused_by_name():
    corpus = Corpus.of([Sentence.of_words(["dog"], id="x", second=Sentence.of_words(["cat"] * 90))])
    with pytest.raises(SweepError, match=r"^Sentence 'x' or its translation has more than the 70 tokens"):
        sweep(reader("bart"), corpus, Rows(("decoder.resid.1",)), side="target")


def test_a_sentence_without_a_translation_is_named():
    with pytest.raises(SweepError, match=r"^Sentence '1' has no translation"):
        sweep(reader("t5"), Corpus.of(["a dog"]), Rows(("decoder.resid.1",)), side="target")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "max"}, "There is no pooling='max'; use one of first, last, mean, all."),
        ({"long": "cut"}, "There is no long='cut'; use one of refuse, truncate, window."),
        ({"side": "left"}, "There is no side='left'; use one of source, target."),
        ({"special": True}, "Special tokens are no words"),
        ({"special": True, "pooling": "all", "side": "target"}, "Special tokens are no words"),
    ],
)
def test_readings_that_mean_nothing_are_refused(options, message):
    with pytest.raises(SweepError, match=message):
        Reading(**options)


def test_a_model_without_offsets_is_refused():
    slow = SimpleNamespace(tokenizer=SimpleNamespace(is_fast=False), name="slow", hf=SimpleNamespace())
    with pytest.raises(TextError, match=r"^'slow' has no tokenizer that tells where its tokens stand"):
        Encoder(slow, Reading())
    with pytest.raises(SweepError, match=r"side='target' looks at a decoder's text, and .* is no encoder–decoder"):
        Encoder(reader("gpt2"), Reading(side="target"))


def test_batches_are_padded_to_the_planned_length():
    encoder = Encoder(reader("bert"), Reading())
    encoded = encoder.encode(list(stories(3)))
    rows = [each.rows[0] for each in encoded]
    batch = encoder.batch(rows, [None] * 3, 60)
    for tensor in (batch.ids, batch.mask, batch.special, batch.types, batch.word_index, batch.counted):
        assert tensor.shape == (3, 60)
    sizes = [len(row.ids) for row in rows]
    assert batch.mask.sum(1).tolist() == sizes
    for row, size in enumerate(sizes):
        assert batch.special[row, size:].all()
        assert (batch.word_index[row, size:] == -1).all()
        assert not batch.counted[row, size:].any()
        assert batch.special[row, [0, size - 1]].all()


def test_segment_ids_go_to_those_models_only_that_were_trained_with_them():
    """GPT-2 accepts segment ids and would embed them as if they were tokens."""
    assert Encoder(reader("gpt2"), Reading()).batch([*_rows("gpt2")], [None], 9).types is None
    assert Encoder(reader("bert"), Reading()).batch([*_rows("bert")], [None], 9).types is not None


def _rows(name):
    return Encoder(reader(name), Reading()).encode([SHORT])[0].rows
