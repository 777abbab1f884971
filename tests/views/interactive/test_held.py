"""Reading a view back: every chunk against an encoder that is written out byte by byte."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.errors import PellucidError
from pellucid.views.interactive import payload
from pellucid.views.interactive.held import WEIGHT, Held
from tests.views.interactive.payload_by_hand import (
    attention_view,
    block,
    chunks_of,
    codes_of,
    floats,
    halves,
    panel_of,
    text_view,
    token_list,
    view_of,
)

WORDS = ["a", "b", "c", "d", "e", "f", "g"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("strip", [1, 3, 7])
def test_strips_are_unpacked_and_unfiltered(causal, strip):
    view, codes, dropped = attention_view(WORDS, causal=causal, block_changes={"strip": strip})
    held = Held(view)
    for layer in range(2):
        for head in range(3):
            matrix = held.matrix(held.block("self"), "attention", layer, head)
            assert np.array_equal(matrix.rows(np.arange(7)), codes[layer, head])
            assert np.array_equal(matrix.dropped(np.arange(7)), dropped[layer, head])
            assert np.array_equal(matrix.rows(np.array([5, 0])), codes[layer, head][[5, 0]])


def test_only_the_strips_that_are_asked_for_are_inflated():
    view, codes, _ = attention_view(WORDS, block_changes={"strip": 3})
    del view.payload.chunks["a/0/self/attention/0/0/0"]
    matrix = Held(view).matrix(Held(view).block("self"), "attention", 0, 0)
    assert np.array_equal(matrix.rows(np.array([3, 6])), codes[0, 0][[3, 6]])
    with pytest.raises(PellucidError, match="no chunk 'a/0/self/attention/0/0/0'"):
        matrix.rows(np.array([2]))


def test_what_the_library_writes_is_read_back():
    codes = codes_of(1, 1, 9, 9, causal=True)[0, 0]
    dropped = np.arange(9, dtype=np.uint8)
    about = block(codes[None, None], causal=True, strip=4)
    made = payload.strips(codes, dropped, causal=True, rows=4)
    chunks = {f"a/0/self/attention/0/0/{place}": chunk for place, chunk in enumerate(made)}
    held = Held(view_of([panel_of({"text": token_list(list("abcdefghi"))}, [about])], chunks))
    matrix = held.matrix(about, "attention", 0, 0)
    assert np.array_equal(matrix.rows(np.arange(9)), codes)
    assert np.array_equal(matrix.dropped(np.arange(9)), dropped)


def test_blocks_between_two_texts_keep_their_shape():
    codes = codes_of(1, 2, 3, 5)
    about = block(codes, name="cross", queries="target", keys="source", thumb=5)
    tokens = {"target": token_list(list("xyz")), "source": token_list(list("abcde"))}
    chunks = chunks_of(about, codes, np.zeros((1, 2, 3), np.uint8), panel=1)
    other = panel_of({"text": token_list(["a"])}, [])
    held = Held(view_of([other, panel_of(tokens, [about])], chunks), 1)
    assert np.array_equal(held.matrix(about, "attention", 0, 1).rows(np.arange(3)), codes[0, 1])
    thumbs = held.thumbs(about, "attention")
    assert thumbs.shape == (1, 2, 5, 5)
    assert np.array_equal(thumbs[0, :, :3], codes[0])


def test_statistics_are_found_by_name_and_absent_heads_have_none():
    codes = codes_of(2, 3, 4, 4)
    about = block(codes, heads=[3, 2], statistics={"entropy": "E.", "distance": "D."})
    values = np.arange(12).reshape(2, 2, 3)
    held = Held(view_of([panel_of({"text": token_list(list("abcd"))}, [about])], {"s/0/self": floats(values)}))
    found = held.statistic(about, "distance")
    assert found[0].tolist() == [6, 7, 8]
    assert found[1, :2].tolist() == [9, 10]
    assert np.isnan(found[1, 2])
    with pytest.raises(PellucidError, match=r"no statistic 'entrpy'.*entropy, distance"):
        held.statistic(about, "entrpy")


def test_queries_and_keys_of_a_head():
    codes = codes_of(2, 3, 4, 4)
    about = block(codes, vectors={"layers": [1], "width": 2, "scale": 0.5})
    query, key = np.arange(24).reshape(3, 4, 2), -np.arange(24).reshape(3, 4, 2)
    chunks = {"q/0/self/1": halves(query), "k/0/self/1": halves(key)}
    held = Held(view_of([panel_of({"text": token_list(list("abcd"))}, [about])], chunks))
    found = held.vectors(about, 1, 2)
    assert np.array_equal(found[0], query[2])
    assert np.array_equal(found[1], key[2])
    with pytest.raises(PellucidError, match="no queries and keys of layer 0; it holds those of layers 1"):
        held.vectors(about, 0, 0)


def test_tracks_maps_and_lens():
    held = Held(text_view(WORDS, layers=3, most=2))
    surprise = held.track("surprise")
    assert surprise.shape == (7,)
    assert np.isnan(surprise[0])
    assert (surprise[1:] >= 0).all()
    assert (held.track("unit") < 0).any()
    assert np.array_equal(held.map("norms"), np.arange(21).reshape(3, 7))
    words, ids, probabilities = held.lens()
    assert words == WORDS
    assert ids.shape == probabilities.shape == (3, 7, 2)
    place = (1 * 7 + 4) * 2 + 1  # second prediction of row 1 at token 4
    assert ids[1, 4, 1] == place % 7
    assert probabilities[1, 4, 1] == pytest.approx((place * 7 % 256 / 255) ** 2, rel=1e-6)


def test_bytes_stand_for_squares():
    assert WEIGHT.tolist() == [pytest.approx((b / 255) ** 2, rel=1e-6) for b in range(256)]


def test_what_is_not_there_is_named():
    view, _, _ = attention_view(WORDS)
    held = Held(view)
    with pytest.raises(PellucidError, match="no 'cross' attention; it has self"):
        held.block("cross")
    with pytest.raises(PellucidError, match="no 'norm' weights; it has attention"):
        held.matrix(held.block("self"), "norm", 0, 0)
    with pytest.raises(PellucidError, match="no 'norm' weights"):
        held.thumbs(held.block("self"), "norm")
