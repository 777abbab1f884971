"""Still figures of views: comparisons, files, notes and the colours that figures share with the page."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from pellucid.errors import PellucidError
from pellucid.views.interactive.colours import (
    diverging,
    head_colour,
    heat,
    of_codes,
    scale_of,
)
from pellucid.views.interactive.figures import draw, full_state
from pellucid.views.interactive.sheet import fitted, quoted, text_width, visible, wrapped
from pellucid.views.style import figure_bytes, figure_svg, house_style
from tests.overlaps import faults
from tests.views.interactive.looking import TEXT, heads_view, said, texts
from tests.views.interactive.payload_by_hand import (
    attention_view,
    block,
    chunks_of,
    codes_of,
    panel_of,
    text_view,
    token_list,
    view_of,
)

COLOUR_TS = Path(__file__).parents[3] / "web" / "src" / "colour.ts"


WORDS = ["The", "farmer", "offered"]


def two_panels(other=TEXT, layers=2, **state):
    panels, chunks = [], {}
    for number, (name, text, count) in enumerate((("one", TEXT, 2), ("other", other, layers))):
        codes = codes_of(count, 3, len(text), len(text), seed=number)
        about = block(codes)
        panels.append(panel_of({"text": token_list(text)}, [about], name))
        chunks |= chunks_of(about, codes, np.zeros((count, 3, len(text)), np.uint8), panel=number)
    return view_of(panels, chunks, **state)


def test_two_panels_stand_side_by_side_or_below_each_other():
    for width, beside in ((7.2, True), (3.4, False)):
        figure = draw(two_panels(mode="heads", heads=[0], left=[1]), width=width)
        names = {text.get_text(): text.get_position() for text in figure.axes[0].texts}
        assert (names["one"][1] == names["other"][1]) == beside
        assert (names["one"][0] < names["other"][0]) == beside
        assert texts(figure).count("sleeps") == 4
        assert "one: “the” looks at" in said(figure)
        assert "other: “the” looks at" in said(figure)
        assert not faults(figure)
    assert not faults(draw(two_panels(mode="model")))


def test_pins_mean_nothing_where_the_tokens_differ():
    figure = draw(two_panels(["another", "text"], mode="heads", left=[1]))
    assert [text.get_text() for text in figure.axes[0].texts if text.get_fontweight() == "bold"] == ["the"]


def test_a_panel_that_lacks_a_layer_says_so():
    assert "other has no layer 1; it has 0." in said(draw(two_panels(layers=1, mode="heads", layer=1)))
    with pytest.raises(PellucidError, match="one has no 'cross' attention"):
        draw(view_of(two_panels().header["panels"], {}, mode="model", block="cross"))


def test_the_views_notes_are_told_but_not_those_on_sinks_that_nobody_sees():
    from pellucid.views.interactive.statistics import SINKS

    view, _, _ = heads_view()
    view = view_of(view.header["panels"], view.payload.chunks, ["The text was cut.", SINKS], mode="heads", heads=[0])
    assert "The text was cut." in said(draw(view))
    assert "counts as a sink" not in said(draw(view))
    assert "counts as a sink" in said(draw(view.with_state(hideSinks=True)))


def test_letters_stay_text_and_the_same_view_gives_the_same_bytes():
    words = ["农夫", "סוס", "$a_b$", "<b>", "क"]
    view, _, _ = attention_view(words, layers=1, heads=2, mode="heads", left=[1])
    svg = figure_svg(draw(view))
    for word in ("农夫", "סוס", "$a_b$", "&lt;b&gt;", "क"):
        assert f">{word}</text>" in svg
    plain, _, _ = heads_view(heads=[1])
    for kind in ("svg", "png", "pdf"):
        assert figure_bytes(draw(plain), kind) == figure_bytes(draw(plain), kind)
    assert "<path" in figure_svg(draw(plain))
    assert "<image" not in figure_svg(draw(plain))


def test_drawing_leaves_no_settings_behind():
    before = dict(matplotlib.rcParams)
    draw(heads_view()[0])
    assert dict(matplotlib.rcParams) == before


def test_the_state_is_completed_like_the_pages():
    view, _, _ = attention_view(TEXT, layers=2, heads=3, block_changes={"layers": [4, 7]})
    state = full_state(view.header)
    assert (state["mode"], state["block"], state["layer"], state["heads"]) == ("model", "self", 4, [0, 1, 2])
    assert (state["mass"], state["unit"], state["average"], state["left"]) == (0.95, "tokens", "none", [])
    assert full_state(view.with_state(layer=7, heads=[2, 0]).header)["heads"] == [0, 2]
    assert full_state(text_view(WORDS).header)["mode"] == "text"
    for given, mass in (
        ({"heads": [0, 1, 2, 3]}, 0.5),
        ({"heads": [0, 1, 2, 3], "left": [1]}, 0.95),
        ({"heads": [0, 1, 2, 3], "average": "heads"}, 0.95),
        ({"heads": [0, 1, 2, 3], "mass": 0.7}, 0.7),
    ):
        assert full_state({**view.header, "state": given})["mass"] == mass  # as usualMass of the page


def test_views_draw_themselves():
    view, _, _ = heads_view()
    assert texts(view.figure()) == texts(draw(view))


@pytest.mark.parametrize(
    ("head", "heads", "colour"),
    [
        (0, 4, "#bc4945"),
        (3, 4, "#7c5ec2"),
        (7, 9, "#ab82d8"),
        (11, 12, "#d6749c"),
        (31, 32, "#b17278"),
        (17, 32, "#6b5200"),
    ],
)
def test_heads_have_the_pages_colours(head, heads, colour):
    assert head_colour(head, heads) == colour


def test_scales_have_the_pages_stops():
    source = COLOUR_TS.read_text()

    def stops(name):
        inside = re.search(rf"const {name}_LIGHT: Rgb\[\] = \[(.*?)\];", source, re.DOTALL).group(1)
        return [[int(part) for part in each.split(",")] for each in re.findall(r"\[([^\]]*)\]", inside)]

    assert heat(np.linspace(0, 1, 4)).tolist() == stops("HEAT")
    assert diverging(-np.array([1 / 3, 2 / 3, 1])).tolist() == stops("BLUE")[1:]
    assert diverging(np.linspace(0, 1, 4)).tolist() == stops("ORANGE")
    teal = stops("TEAL")
    assert of_codes(np.array([0, 255])).tolist() == [teal[0], teal[-1]]
    share = 100 / 255 * 4 - 1
    assert of_codes(np.array(100)).tolist() == [
        round(a + (b - a) * share) for a, b in zip(teal[1], teal[2], strict=True)
    ]


def test_scales_reach_from_zero_or_around_it():
    assert scale_of(np.array([2.0, 5.0, np.nan]), signed=False).low == 0
    assert scale_of(np.array([2.0, 5.0]), signed=False).high == 5
    signed = scale_of(np.array([-7.0, 5.0]), signed=True)
    assert (signed.low, signed.high) == (-7, 7)
    assert signed.colours(np.array([np.nan])).tolist() == [[255, 255, 255]]


def test_texts_are_cut_and_wrapped_by_their_width():
    with house_style():
        cut = fitted("incomprehensibilities", 0.6)
        assert cut.endswith("…")
        assert text_width(cut) <= 0.6
        assert text_width("incomprehensibilities"[: len(cut)] + "…") > 0.6
        assert fitted("short", 2) == "short"
        lines = wrapped("a few words and /a/very/long/path/that/never/ends/anywhere", 1.0, 8)
        assert "".join(lines).replace(" ", "") == "afewwordsand/a/very/long/path/that/never/ends/anywhere"
        assert all(text_width(line, 8) <= 1.0 for line in lines)
        assert text_width("农夫", 7.2) == pytest.approx(0.2)


def test_white_space_is_seen_and_quoted_text_keeps_its_direction():
    assert visible("a\nb") == "a↵b"
    assert visible("  ") == "␣␣"
    assert visible("") == "∅"
    assert quoted("dog") == "“dog”"
    assert quoted("סוס") == "“\u2068סוס\u2069”"
