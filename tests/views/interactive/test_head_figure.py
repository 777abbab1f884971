"""Still figures of heads: lines for what the cut keeps, names of the tokens, and what the notes say."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pellucid.errors import PellucidError
from pellucid.views.interactive.colours import (
    ACCENT,
    head_colour,
)
from pellucid.views.interactive.figures import draw
from tests.overlaps import faults
from tests.views.interactive.looking import TEXT, boxes, curves, heads_view, said, texts, weights_of
from tests.views.interactive.payload_by_hand import (
    attention_view,
)


def kept(row, mass):
    """Places of the largest weights up to a share of the row."""
    order = sorted(range(len(row)), key=lambda place: (-row[place], place))
    reached, found = 0.0, []
    for place in order:
        if reached >= mass * sum(row):
            break
        found.append(place)
        reached += row[place]
    return found


def test_a_line_for_every_weight_that_the_cut_keeps():
    view, codes, _ = heads_view(layer=1, mass=0.8)
    figure = draw(view)
    weights = weights_of(codes[1])
    assert len(curves(figure)) == 3
    power = 0.75 + 0.6 * (2 / 6)
    for head, drawn in enumerate(curves(figure)):
        expected = [
            (query, key, 0.92 * weights[head][query][key] ** power)
            for query in range(7)
            for key in sorted(kept(weights[head][query], 0.8))
        ]
        assert len(drawn.get_paths()) == len(expected)
        assert {to_hex(colour) for colour in drawn.get_edgecolors()} == {head_colour(head, 3)}
        np.testing.assert_allclose(drawn.get_edgecolors()[:, 3], [alpha for *_, alpha in expected], rtol=1e-4)
        rows = np.array([(path.vertices[0, 1], path.vertices[-1, 1]) for path in drawn.get_paths()])
        steps = (rows - rows.min()) / 0.175  # rows of tokens below the first line
        np.testing.assert_allclose(steps[:, 0] - steps[:, 1], [query - key for query, key, _ in expected], atol=1e-6)


def test_both_columns_name_the_tokens_and_the_legend_the_heads():
    view, _, _ = heads_view(heads=[0, 2])
    figure = draw(view)
    found = texts(figure)
    for token in TEXT:
        assert found.count(token) == 2
    assert found.count("0") == found.count("2") == 1
    assert "1" not in found
    for head in (0, 2):
        assert len(boxes(figure, head_colour(head, 3))) == 1
    left = [text for text in figure.axes[0].texts if text.get_ha() == "right" and text.get_text() in TEXT]
    assert [text.get_text() for text in sorted(left, key=lambda text: text.get_position()[1])] == TEXT


def test_the_note_names_what_is_dropped_hidden_and_not_kept():
    view, codes, dropped = heads_view(heads=[1], hideSpecial=True, mass=0.7)
    rows = weights_of(codes[0][1])[1:6]
    cut = [sum(row[1:6]) - sum(row[1 + key] for key in kept(row[1:6], 0.7)) for row in rows]
    hidden = [row[0] + row[6] for row in rows]
    unkept = np.mean(weights_of(dropped[0][1][1:6]))
    note = said(draw(view))
    assert f"{np.mean(cut):.2f} is not drawn" in note
    assert "up to 70%" in note
    assert f"{np.mean(hidden):.2f} goes to hidden tokens" in note
    assert f"{unkept:.{2 if unkept >= 0.01 else 3}f} is not kept in this view" in note


def test_pinned_tokens_are_bold_and_have_the_only_lines():
    view, codes, _ = heads_view(heads=[1], left=[3], mass=1.0)
    figure = draw(view)
    bold = [text.get_text() for text in figure.axes[0].texts if text.get_fontweight() == "bold"]
    assert bold == ["dog"]
    (drawn,) = curves(figure)
    row = weights_of(codes[0][1][3])
    assert len(drawn.get_paths()) == sum(0.92 * value**0.65 >= 0.012 for value in row)
    assert len({path.vertices[0, 1] for path in drawn.get_paths()}) == 1
    best = int(np.argmax(row))
    assert f"“dog” looks at “{TEXT[best]}” {row[best]:.2f}" in said(figure)
    bars = [box for box in boxes(figure, head_colour(1, 3)) if box.get_x() > 3.2]
    widths = np.array([box.get_width() for box in bars])
    np.testing.assert_allclose(widths / widths.max(), row[row > 0] / row.max(), rtol=1e-4)


def test_pinned_keys_show_who_looks_at_them():
    view, codes, _ = heads_view(heads=[0, 2], right=[1, 4])
    figure = draw(view)
    column = weights_of(codes[0][[0, 2]])[:, :, [1, 4]].sum(-1).mean(0)
    best = int(np.argmax(column))
    assert f"“the” + “sleeps” are looked at by “{TEXT[best]}” {column[best]:.2f}" in said(figure)
    assert f"{column[best]:.2f}" in texts(figure)  # the number of its bar: a mean over heads
    for drawn in curves(figure):
        assert len({path.vertices[-1, 1] for path in drawn.get_paths()}) == 2


def test_pins_on_both_sides_join_only_each_other():
    view, _, _ = heads_view(heads=[0], left=[1, 2], right=[3], mass=0.1)
    figure = draw(view)
    (drawn,) = curves(figure)
    assert len(drawn.get_paths()) == 2
    heights = {(text.get_text(), text.get_ha()): text.get_position()[1] for text in figure.axes[0].texts}
    ends = [(path.vertices[0, 1], path.vertices[-1, 1]) for path in drawn.get_paths()]
    np.testing.assert_allclose(ends, [(heights[name, "right"], heights["dog", "left"]) for name in ("the", "old")])


def test_means_are_one_colour_with_their_name():
    figure = draw(heads_view(average="layers")[0])
    (drawn,) = curves(figure)
    assert {to_hex(colour) for colour in drawn.get_edgecolors()} == {ACCENT}
    assert "mean of 3 heads over 2 layers" in texts(figure)


def test_long_texts_show_the_neighbourhood_of_what_is_pinned():
    words = [f"w{place}" for place in range(200)]
    view, codes, _ = attention_view(words, layers=1, heads=1, mode="heads", left=[150], mass=1.0)
    figure = draw(view)
    found = texts(figure)
    assert found.count("w150") == 2
    assert found.count("w120") == found.count("w179") == 2
    assert "w119" not in found
    assert "w180" not in found
    assert "queries 121 to 180 of 200 and keys 121 to 180 of 200" in said(figure)
    away = weights_of(codes[0][0][150])
    assert f"{away[:120].sum() + away[180:].sum():.2f} goes to tokens left out" in said(figure)
    assert not faults(figure)
    first = draw(view.with_state(left=[]))
    assert "queries 1 to 60 of 200" in said(first)


def test_nothing_to_show_is_refused():
    view, _, _ = heads_view(heads=[])
    with pytest.raises(PellucidError, match="No head is shown"):
        draw(view)
    alone, _, _ = attention_view(["[CLS]"], layers=1, heads=1, changes={"special": [0]}, mode="heads", hideSpecial=True)
    with pytest.raises(PellucidError, match="Everything is hidden"):
        draw(alone)


@pytest.mark.parametrize(("width", "heads"), [(3.4, 32), (None, 1), (7.2, 12)])
def test_head_figures_are_readable(width, heads):
    words = [f"token{place}" if place % 3 else "incomprehensibilities" for place in range(38)]
    view, _, _ = attention_view(words, layers=1, heads=heads, mode="heads", mass=0.02)
    for state in ({}, {"left": [3, 7]}, {"left": [3], "right": [9]}):
        figure = draw(view.with_state(**state), width=width)
        assert not faults(figure)
        assert figure.get_figwidth() == (4.8 if width is None else width)
