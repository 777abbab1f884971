"""Still figures of texts: tokens on the colour of their value, and tables by layer."""

from __future__ import annotations

import re

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pellucid.views.interactive.colours import (
    ACCENT,
    diverging,
    heat,
    ink_on,
)
from pellucid.views.interactive.figures import draw
from tests.overlaps import faults
from tests.views.interactive.looking import said, texts
from tests.views.interactive.payload_by_hand import (
    text_view,
)

WORDS = ["The", "farmer", "offered", "apples", "to", "the", "housekeeper", "."]


def test_every_token_stands_on_the_colour_of_its_value():
    view = text_view(WORDS, track="unit", map="norms")
    figure = draw(view)
    values = np.random.default_rng(0).normal(0, 1, (2, 8))[0].astype(np.float32)
    colours = diverging(values / np.abs(values).max())
    patches = [patch for patch in figure.axes[0].patches if patch.get_fill()]
    assert [to_hex(patch.get_facecolor()) for patch in patches] == [
        "#" + "".join(f"{part:02x}" for part in colour) for colour in colours
    ]
    flow = [text for text in figure.axes[0].texts if text.get_fontsize() == 8.5]
    assert [text.get_text() for text in flow] == WORDS
    for text, patch, colour in zip(flow, patches, colours, strict=True):
        assert patch.get_x() < text.get_position()[0] < patch.get_x() + patch.get_width()
        assert to_hex(text.get_color()) == ink_on(colour)
    assert {"Unit", "A unit.", "Norms", "Lengths."} <= set(texts(figure))


def test_a_token_without_a_value_has_no_colour():
    figure = draw(text_view(WORDS, track="surprise", map="norms"))
    assert len([patch for patch in figure.axes[0].patches if patch.get_fill()]) == len(WORDS) - 1


def names_above(figure):
    """The tokens' names above the columns of tables."""
    return [text for text in figure.axes[0].texts if text.get_fontsize() == 6.4 and text.get_ha() == "center"]


def test_the_map_of_a_short_text_fills_the_width_and_that_of_a_longer_one_turns_its_names_up():
    for words, upright in ((WORDS[:6], False), ([f"word{place}" for place in range(40)], True)):
        figure = draw(text_view(words, map="norms", layers=3))
        (image,) = [image for image in figure.axes[0].images if image.get_array().shape[0] == 3]
        left, right = image.get_extent()[:2]
        assert right - left > 0.8 * figure.get_size_inches()[0]
        assert {text.get_rotation() for text in names_above(figure)} == {90.0 if upright else 0.0}


def test_tables_show_their_numbers_and_what_comes_true():
    figure = draw(text_view(WORDS, layers=3))
    tables = [np.asarray(image.get_array()) for image in figure.axes[0].images if image.get_array().shape[0] == 3]
    assert [table.shape[:2] for table in tables] == [(3, 8), (3, 8)]
    assert np.array_equal(tables[0], heat(np.arange(24).reshape(3, 8) / 23))
    codes = np.arange(48).reshape(3, 8, 2)[:, :, 0] * 7 % 256
    assert np.array_equal(tables[1], heat(((codes / 255.0) ** 2).astype(np.float32)))
    predicted = np.arange(48).reshape(3, 8, 2)[:, :, 0] % 8
    true = [place for row in range(3) for place in range(7) if predicted[row, place] == place + 1]
    frames = [each for each in figure.axes[0].patches if not each.get_fill() and to_hex(each.get_edgecolor()) == ACCENT]
    labels = [text.get_position()[0] for text in names_above(figure)][-8:]
    middles = [frame.get_x() + frame.get_width() / 2 for frame in frames]
    np.testing.assert_allclose(middles, [labels[place] for place in true])
    assert true


def test_the_state_chooses_map_or_lens():
    assert "Predictions" not in texts(draw(text_view(WORDS, map="norms")))
    assert "Norms" not in texts(draw(text_view(WORDS, map="lens")))
    assert {"Norms", "Predictions"} <= set(texts(draw(text_view(WORDS))))


def test_right_to_left_text_runs_that_way():
    figure = draw(text_view(["אחת", "שתיים", "שלוש"], rtl=True, map="norms"))
    flow = [text for text in figure.axes[0].texts if text.get_fontsize() == 8.5]
    places = [text.get_position()[0] for text in flow]
    assert places == sorted(places, reverse=True)
    assert [text.get_text() for text in sorted(names_above(figure), key=lambda text: text.get_position()[0])] == [
        "שלוש",
        "שתיים",
        "אחת",
    ]
    (table,) = [np.asarray(image.get_array()) for image in figure.axes[0].images if image.get_array().shape[0] == 3]
    assert np.array_equal(table, heat(np.arange(9).reshape(3, 3)[:, ::-1] / 8))


def test_long_texts_say_what_is_left_out():
    words = [f"word{place}" for place in range(600)]
    figure = draw(text_view(words, layers=14, left=[450]))
    found = said(figure)
    assert re.search(r"Text: tokens \d+ to \d+ of 600; the others are left out", found)
    for name in ("Norms", "Predictions"):
        first, last = map(int, re.search(name + r": tokens (\d+) to (\d+) of 600", found).groups())
        assert first <= 451 <= last
    assert texts(figure).count("word450") >= 3
    assert not faults(figure)


@pytest.mark.parametrize("width", [3.4, 7.2])
def test_text_figures_are_readable(width):
    figure = draw(text_view(WORDS * 3, layers=13, track="surprise"), width=width)
    assert not faults(figure)
    assert figure.get_figheight() < 11
