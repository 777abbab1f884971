"""Still figures of models: every head where its numbers say, ranked or coloured by a statistic."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pellucid.views.interactive.colours import (
    heat,
    of_codes,
)
from pellucid.views.interactive.figures import draw
from pellucid.views.interactive.sheet import DOTS
from tests.overlaps import faults
from tests.views.interactive.looking import STATISTICS, TEXT, said, texts
from tests.views.interactive.payload_by_hand import (
    attention_view,
    block,
    chunks_of,
    codes_of,
    panel_of,
    token_list,
    view_of,
)


def mosaic(figure):
    """The picture of all thumbnails: its pixels, and the inches of its corner."""
    image = max(figure.axes[0].images, key=lambda image: image.get_array().size)
    left, _, _, top = image.get_extent()
    return np.asarray(image.get_array()), left, top


def test_every_thumbnail_stands_beside_its_numbers():
    view, codes, _ = attention_view(list("abcd"), layers=3, heads=5, mode="model")
    figure = draw(view)
    pixels, left, top = mosaic(figure)
    places = {
        side: {text.get_text(): text.get_position() for text in figure.axes[0].texts if text.get_ha() == side}
        for side in ("center", "right")
    }
    for layer in range(3):
        for head in range(5):
            x = (places["center"][str(head)][0] - left) * DOTS
            y = (places["right"][str(layer)][1] - top) * DOTS
            for query, key in np.ndindex(2, 2):  # the four tiles around the middle
                pixel = pixels[int(y) - 10 + 20 * query, int(x) - 10 + 20 * key, :3]
                assert pixel.tolist() == of_codes(codes[layer, head, 1 + query, 1 + key]).tolist()


def test_a_layer_with_fewer_heads_leaves_gaps():
    codes = codes_of(2, 3, 4, 4)
    about = block(codes, heads=[3, 1])
    chunks = chunks_of(about, codes, np.zeros((2, 3, 4), np.uint8))
    pixels, _, _ = mosaic(draw(view_of([panel_of({"text": token_list(list("abcd"))}, [about])], chunks, mode="model")))
    rows, columns = pixels.shape[0] // 2, pixels.shape[1] // 3
    there = [[bool(pixels[r * rows :, c * columns :][:rows, :columns, 3].any()) for c in range(3)] for r in range(2)]
    assert there == [[True, True, True], [True, False, False]]


def test_ranked_heads_go_from_the_largest_value_on():
    view, _, _ = attention_view(TEXT, layers=3, heads=4, mode="model", block_changes=STATISTICS, sort="distance")
    values = np.random.default_rng(2).uniform(0, 3, (2, 3, 4))[1].astype(np.float32)
    order = sorted(np.ndindex(3, 4), key=lambda place: -values[place])
    figure = draw(view)
    names = [text for text in figure.axes[0].texts if re.fullmatch(r"L\d H\d", text.get_text())]
    names.sort(key=lambda text: (round(text.get_position()[1], 3), text.get_position()[0]))
    assert [text.get_text() for text in names] == [f"L{layer} H{head}" for layer, head in order]
    largest = values[order[0]]
    assert f"{largest:.2f}" in texts(figure)
    assert "Sorted by distance: How far." in said(figure)
    assert not faults(figure)


def test_colours_of_a_statistic_stand_under_the_heads():
    view, _, _ = attention_view(TEXT, layers=2, heads=2, mode="model", block_changes=STATISTICS, colour="entropy")
    values = np.random.default_rng(2).uniform(0, 3, (2, 2, 2))[0].astype(np.float32)
    figure = draw(view)
    pixels, _, _ = mosaic(figure)
    rows, columns = pixels.shape[0] // 2, pixels.shape[1] // 2
    share = (values - values.min()) / (values.max() - values.min())
    for layer, head in np.ndindex(2, 2):
        cell = pixels[layer * rows : (layer + 1) * rows, head * columns : (head + 1) * columns]
        band = [line[5, :3] for line in cell if line[5, 3]][-1]
        assert band.tolist() == heat(np.array(share[layer, head])).tolist()
    assert "Entropy" in texts(figure)
    assert "Coloured by entropy: How spread out." in said(figure)
    assert f"{values.max():.2f}" in texts(figure)


@pytest.mark.parametrize("width", [3.4, None])
@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (30, 9), (12, 12), (24, 16), (32, 32)])
def test_grids_of_every_size_are_readable(layers, heads, width):
    view, _, _ = attention_view(
        list("abcd"), layers=layers, heads=heads, mode="model", block_changes=STATISTICS, colour="entropy"
    )
    figure = draw(view, width=width)
    assert not faults(figure)
    assert figure.get_figheight() < 11


def test_a_ranking_that_is_longer_than_a_page_says_so():
    view, _, _ = attention_view(
        list("abcd"), layers=24, heads=16, mode="model", block_changes=STATISTICS, sort="entropy", colour="distance"
    )
    figure = draw(view)
    names = [text for text in texts(figure) if re.fullmatch(r"L\d+ H\d+", text)]
    assert len(names) < 384
    assert f"the {len(names)} heads of 384 with the largest entropy" in said(figure)
    assert not faults(figure)
    assert figure.get_figheight() < 11
