"""Alignment and windows, against slow and simple versions written here."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.corpus import Cut, Window, common, dropped, pieces, truncated, windows, word_index
from pellucid.errors import CorpusError


def slow_word_index(offsets, spans):
    found = []
    for start, stop in offsets:
        shared = [len(set(range(start, stop)) & set(range(*span))) for span in spans]
        most = max(shared, default=0)
        found.append(shared.index(most) if most else -1)
    return found


@st.composite
def spans_and_offsets(draw):
    text_length = draw(st.integers(0, 30))
    cuts = sorted(draw(st.lists(st.integers(0, text_length), max_size=12)))
    spans = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False) if a < b]
    if spans and draw(st.booleans()):
        spans.insert(draw(st.integers(0, len(spans) - 1)), spans[0])  # two words that share their characters
        spans.sort()
    token = st.tuples(st.integers(0, text_length), st.integers(0, 6)).map(lambda t: (t[0], t[0] + t[1]))
    offsets = draw(st.lists(token, max_size=15))
    if draw(st.booleans()):
        offsets.sort()
    return offsets, spans


@given(spans_and_offsets())
def test_word_index_equals_the_slow_version(case):
    offsets, spans = case
    assert word_index(offsets, spans) == slow_word_index(offsets, spans)


def test_word_index_of_a_known_sentence():
    #        "Don't panic , 我"
    spans = [(0, 5), (6, 11), (12, 13), (14, 15)]
    bert = [(0, 0), (0, 3), (3, 4), (4, 5), (6, 9), (9, 11), (12, 13), (14, 15), (0, 0)]
    assert word_index(bert, spans) == [-1, 0, 0, 0, 1, 1, 2, 3, -1]
    byte_level = [(0, 3), (3, 5), (5, 11), (11, 13), (13, 14), (14, 15), (14, 15), (14, 15)]  # spaces lead; 3 bytes
    assert word_index(byte_level, spans) == [0, 0, 1, 2, -1, 3, 3, 3]
    across = [(3, 8), (4, 8), (4, 7)]  # 2:2 is a tie, 1:2, 1:1 is a tie
    assert word_index(across, spans) == [0, 1, 0]
    assert word_index([], spans) == []
    assert word_index([(0, 4)], []) == [-1]


def test_dropped_and_common_words():
    assert dropped([-1, 0, 0, 2, -1], 4) == (1, 3)
    assert dropped([], 2) == (0, 1)
    assert common([[0, 1, 3], [-1, 1, 1, 3, 2]], 5) == (1, 3)
    assert common([[0, 1]], 2) == (0, 1)


def test_pieces_of_words():
    index = [-1, 0, 0, 2, 3, 3, 3, -1]
    assert pieces(index, "first") == {0: (1,), 2: (3,), 3: (4,)}
    assert pieces(index, "last") == {0: (2,), 2: (3,), 3: (6,)}
    assert pieces(index, "mean") == pieces(index, "all") == {0: (1, 2), 2: (3,), 3: (4, 5, 6)}
    assert list(pieces([1, 0], "first")) == [0, 1]
    with pytest.raises(CorpusError, match="'max'; the ways are first, last, mean, all"):
        pieces(index, "max")


@st.composite
def rows(draw, longest=9):
    """A word index as tokenizers give it: words in order, some without tokens, tokens of no word in between."""
    index, word = [], 0
    for _ in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["word", "word", "word", "none", "dropped", "split"]))
        size = draw(st.integers(1, longest))
        if kind == "none":
            index.append(-1)
        elif kind == "split":  # a word with a space inside
            index += [word] * size + [-1, word]
            word += 1
        else:
            index += [word] * (size if kind == "word" else 0)
            word += 1
    return index


sizes = st.tuples(st.integers(1, 12), st.integers(0, 11), st.integers(0, 2), st.integers(0, 2))


def extent(index, word):
    places = [place for place, found in enumerate(index) if found == word]
    return places[0], places[-1] + 1


@given(rows(), sizes)
def test_windows(index, size):
    body, overlap, opening, closing = size
    overlap = min(overlap, body - 1)
    limit = body + opening + closing
    found = windows(index, limit=limit, overlap=overlap, opening=opening, closing=closing)
    assert all(window.stop - window.start + opening + closing <= limit for window in found)
    assert all(window.start <= window.counted_from <= window.stop for window in found)
    assert found[0].start == 0
    assert found[-1].stop == len(index)
    for before, after in itertools.pairwise(found):
        assert before.start < after.start <= before.stop < after.stop
        assert before.stop - after.start <= overlap
        assert after.counted_from >= before.stop
    counted = [set(index[window.counted_from : window.stop]) - {-1} for window in found]
    for word in set(index) - {-1}:
        start, stop = extent(index, word)
        inside = [number for number, words in enumerate(counted) if word in words]
        assert len(inside) == 1
        whole = [number for number, window in enumerate(found) if window.start <= start and stop <= window.stop]
        if stop - start <= body:
            assert inside[0] == whole[0]
            assert found[inside[0]].counted_from <= start
            for window in found:  # never cut
                assert stop <= window.start or start >= window.stop or window.start <= start < stop <= window.stop
        else:
            assert found[inside[0]].counted_from == start


@given(rows(longest=3), st.integers(8, 14), st.integers(0, 7))
def test_windows_are_not_smaller_than_needed(index, body, overlap):
    """No window could have taken the next word as well, and the context is as long as allowed."""
    found = windows(index, limit=body, overlap=overlap)
    for before, after in itertools.pairwise(found):
        following = index[before.stop]
        size = 1 if following < 0 else extent(index, following)[1] - before.stop
        assert before.stop - before.start + size > body
        if after.start > 0:
            previous = index[after.start - 1]
            longer = before.stop - (after.start - 1 if previous < 0 else extent(index, previous)[0])
            assert longer > min(overlap, body - size)


def test_known_windows():
    index = [0, 0, 1, 1, 1, 2, -1, 3]
    assert windows(index, limit=8) == [Window(0, 8, 0)]
    assert windows(index, limit=5) == [Window(0, 5, 0), Window(5, 8, 5)]
    assert windows(index, limit=7, overlap=4, opening=1, closing=1) == [
        Window(0, 5, 0),
        Window(2, 7, 5),
        Window(5, 8, 7),
    ]
    assert windows([0] * 5 + [1], limit=3) == [Window(0, 3, 0), Window(3, 6, 5)]
    assert windows([], limit=3) == [Window(0, 0, 0)]


@given(rows(), sizes)
def test_truncation(index, size):
    body, _, opening, closing = size
    cut = truncated(index, limit=body + opening + closing, opening=opening, closing=closing)
    assert cut.stop <= body
    assert cut.tokens_lost == len(index) - cut.stop
    kept, words = set(index[: cut.stop]), set(index) - {-1}
    assert cut.words_lost == len(words - kept)
    for word in words & kept:
        start, stop = extent(index, word)
        assert stop <= cut.stop or (start == 0 and stop > body)
    if len(index) <= body:
        assert cut == Cut(len(index), 0, 0)
    else:
        following = index[cut.stop]
        assert (cut.stop + 1 if following < 0 else extent(index, following)[1]) > body


def test_known_cuts():
    assert truncated([0, 0, 1, 1, 2], limit=5, opening=1, closing=1) == Cut(2, 3, 2)
    assert truncated([0, 0, 1, 1, 2], limit=4) == Cut(4, 1, 1)
    assert truncated([0, 0, 0, 1], limit=2) == Cut(2, 2, 1)


def test_impossible_limits_say_so():
    with pytest.raises(CorpusError, match="limit of 2 tokens leaves no room for words beside 2 special"):
        windows([0], limit=2, opening=1, closing=1)
    with pytest.raises(CorpusError, match="leaves no room"):
        truncated([0], limit=0)
    with pytest.raises(CorpusError, match="can overlap by 0 to 3 tokens, not by 4"):
        windows([0], limit=6, overlap=4, opening=1, closing=1)
    with pytest.raises(CorpusError, match="not by -1"):
        windows([0], limit=6, overlap=-1)
