"""Still figures of neurons: strips and bars that are the queries, keys, products, dot products and weights."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from pellucid.errors import PellucidError
from pellucid.views.interactive.colours import (
    FILL,
    diverging,
)
from pellucid.views.interactive.dot_product import check_softmax, neurons_by_share
from pellucid.views.interactive.figures import draw
from tests.overlaps import faults
from tests.views.interactive.looking import TEXT, boxes, said, texts
from tests.views.interactive.payload_by_hand import (
    attention_view,
    block,
    chunks_of,
    halves,
    panel_of,
    token_list,
    view_of,
)


def neuron_view(count=6, width=4, causal=False, **state):
    """A view whose weights are the softmax of its queries and keys, and those [T, width]."""
    draw_, names = np.random.default_rng(5), [f"t{place}" for place in range(count)]
    query, key = (draw_.normal(0, 1, (1, count, width)).astype(np.float16) for _ in range(2))
    dots = 0.5 * (query.astype(float) @ key.astype(float).transpose(0, 2, 1))
    if causal:
        dots = np.where(np.tri(count, dtype=bool), dots, -np.inf)
    powers = np.exp(dots - dots.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    codes = np.round(255 * np.sqrt(weights)).astype(np.uint8)[None]
    about = block(codes, causal=causal, vectors={"layers": [0], "width": width, "scale": 0.5})
    chunks = chunks_of(about, codes, np.zeros((1, 1, count), np.uint8))
    chunks |= {"q/0/self/0": halves(query), "k/0/self/0": halves(key)}
    view = view_of([panel_of({"text": token_list(names)}, [about])], chunks, mode="neurons", **state)
    return view, query[0].astype(float), key[0].astype(float), weights[0]


def strips(figure):
    """Colours of all strips, by the height and left edge they start at."""
    found = [(image.get_extent(), np.asarray(image.get_array())[0]) for image in figure.axes[0].images]
    return sorted(((extent[3], extent[0], pixels) for extent, pixels in found), key=lambda each: each[:2])[1:]


def test_strips_show_query_keys_and_products_in_the_order_of_their_share():
    view, query, key, weights = neuron_view(left=[2])
    found = strips(draw(view))
    assert len(found) == 1 + 2 * 6
    best = int(np.argmax(weights[2]))
    product = query[2] * key[best]
    order = sorted(range(4), key=lambda neuron: -product[neuron] * np.sign(product.sum()))
    top = diverging(query[2][order] / np.abs(query[2]).max())
    assert np.array_equal(found[0][2], top)
    limit = np.quantile(np.abs(key), 0.99, method="higher")
    assert np.array_equal(found[1][2], diverging(np.clip(key[0][order] / limit, -1, 1)))


def test_bars_are_dot_products_and_weights():
    view, query, key, weights = neuron_view(left=[2])
    figure = draw(view)
    dots = 0.5 * key @ query[2]
    found = texts(figure)
    for dot in dots:
        assert f"{abs(dot):.{2 if abs(dot) >= 0.9995 else 3}f}".join(["−" if dot < 0 else "", ""]) in found
    widths = np.array([box.get_width() for box in boxes(figure, FILL)])
    np.testing.assert_allclose(widths / widths.max(), weights[2] / weights[2].max(), atol=0.01)
    assert "differs" not in said(figure)


def test_causal_queries_reach_only_the_keys_before_them():
    view, _, _, weights = neuron_view(causal=True, left=[3])
    assert [text for text in texts(draw(view)) if re.fullmatch(r"t\d", text)].count("t3") == 2
    assert "t4" not in texts(draw(view))
    assert weights[3, 4] == 0


def test_the_query_is_the_last_word_and_the_key_that_is_chosen_leads():
    view, _, _, weights = neuron_view()
    assert "layer 0, head 0, query “t5”" in said(draw(view))
    best = int(np.argmax(weights[5]))
    assert f"share of q·k with “t{best}” ({best}), which has the weight {weights[5, best]:.2f}" in said(draw(view))
    assert "share of q·k with “t1” (1)" in said(draw(view.with_state(right=[1])))


def test_many_keys_are_cut_to_the_largest_in_the_order_of_the_text():
    view, _, _, weights = neuron_view(count=70, left=[69])
    figure = draw(view)
    largest = sorted(sorted(range(70), key=lambda key: -weights[69, key])[:40])
    names = [text for text in figure.axes[0].texts if re.fullmatch(r"t\d+", text.get_text())]
    names.sort(key=lambda text: text.get_position()[1])
    shown = [int(text.get_text()[1:]) for text in names][1:]  # the first is the query
    assert len(shown) == 40
    assert all(one < other for one, other in pairwise(shown))
    assert len(set(shown) ^ set(largest)) <= 4  # codes cannot tell the nearest apart
    assert "the 40 keys of 70 with the largest weights" in said(figure)
    assert not faults(figure)


def test_weights_that_are_not_the_softmax_are_told_of():
    kept = {"vectors": {"layers": [0], "width": 3, "scale": 1.0}}
    view, _, _ = attention_view(TEXT, layers=1, heads=2, mode="neurons", block_changes=kept)
    assert re.search(r"softmax of q·k × 1.00 differs from the weights by up to 0\.\d+, at “", said(draw(view)))


def test_softmax_over_a_window_is_recognised():
    products = np.array([[1.0], [2.0], [0.5]], np.float32)
    powers = np.exp([1.0, 2.0])
    codes = np.round(255 * np.sqrt([*(powers / powers.sum()), 0.0])).astype(np.uint8)
    assert check_softmax(products, 1.0, codes, 0.0).verdict == "window"
    powers = np.exp([1.0, 2.0, 0.5])
    codes = np.round(255 * np.sqrt(powers / powers.sum())).astype(np.uint8)
    assert check_softmax(products, 1.0, codes, 0.0).verdict == "same"
    wrong = check_softmax(products, 1.0, codes[::-1].copy(), 0.0)
    assert wrong.verdict == "differs"
    assert wrong.key in (0, 2) or wrong.difference > 0.1


def test_neurons_that_work_against_the_sum_come_last():
    assert neurons_by_share(np.array([1.0, -3.0, 5.0], np.float32)).tolist() == [2, 0, 1]
    assert neurons_by_share(np.array([1.0, -3.0, -5.0, 1.0], np.float32)).tolist() == [2, 1, 0, 3]


def test_a_layer_without_vectors_is_refused():
    kept = {"vectors": {"layers": [0], "width": 3, "scale": 1.0}}
    view, _, _ = attention_view(TEXT, mode="neurons", block_changes=kept, layer=1)
    with pytest.raises(PellucidError, match="no queries and keys of layer 1"):
        draw(view)


@pytest.mark.parametrize("width", [3.4, 7.2])
def test_neuron_figures_are_readable(width):
    assert not faults(draw(neuron_view(count=30, width=64)[0], width=width))
