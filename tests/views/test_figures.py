"""Figures: readable at every size, honest about chance, the same bytes every time, and no trace left behind."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex

from pellucid.results import Provenance, Result, ResultError
from pellucid.views import bars, curves, draw, figure_bytes, figure_svg, heat_map, offset_histogram, scatter
from pellucid.views.style import CHANCE, sequential, thinned
from tests.overlaps import faults
from tests.results_by_hand import many_heads, norms_by_hand, selective_by_hand, surprise_by_hand

SIZES = [(1, 1), (12, 12), (30, 9), (32, 32), (80, 64)]


@pytest.mark.parametrize(("layers", "heads"), SIZES)
def test_maps_of_every_size_are_readable(layers, heads):
    figure = many_heads(layers, heads).plot()
    assert not faults(figure)
    assert figure.get_figheight() < 11  # inches: it fits on a page


@pytest.mark.parametrize("width", [5.0, 10.0])
def test_figures_of_every_width_are_readable(width):
    for make in (norms_by_hand, selective_by_hand, surprise_by_hand):
        figure = make().plot(width=width)
        assert figure.get_figwidth() == width
        assert not faults(figure)


def test_the_checker_sees_what_is_wrong():
    figure = heat_map(many_heads(3, 4), measures=["entropy"])
    axes = figure.axes[0]
    figure.text(0.5, 0.99, "cut off at the top", va="bottom")
    axes.set_xticks([0, 0.05], labels=["long name", "long name"])
    found = " ".join(faults(figure))
    assert "'cut off at the top' is cut" in found
    assert "'long name' overlaps 'long name'" in found


def cells_of(axes) -> np.ndarray:
    return np.asarray(axes.images[0].get_array())


def test_a_map_shows_the_numbers_and_where_chance_stands():
    result = many_heads(12, 5)
    figure = heat_map(result, measures=["entropy", "distance"])
    for axes, name in zip(figure.axes[:2], ("entropy", "distance"), strict=True):
        assert axes.get_title() == name
        assert np.array_equal(cells_of(axes), result.measure(name))
        low, high = axes.images[0].get_clim()
        chance = result.null[result.place("measure", name), 0, 0]
        assert low <= min(result.measure(name).min(), chance)
        assert high >= max(result.measure(name).max(), chance)
        (bar,) = axes.child_axes
        marks = {float(line.get_ydata()[0]) for line in bar.lines if to_hex(line.get_color()).upper() == CHANCE}
        assert marks == {chance}


def test_measures_that_are_zero_everywhere_are_named_not_drawn():
    figure = many_heads(4, 4).plot()
    drawn = [axes.get_title() for axes in figure.axes if axes.axison]
    assert "next" not in drawn
    assert "entropy" in drawn
    assert "zero everywhere: other specials, next" in figure._supxlabel.get_text()
    asked = heat_map(many_heads(4, 4), measures=["next"])
    assert [axes.get_title() for axes in asked.axes if axes.axison] == ["next"]


def test_unknown_measures_and_wrong_axes_are_refused():
    with pytest.raises(ResultError, match="no measure 'entrpy'"):
        heat_map(many_heads(2, 2), measures=["entrpy"])
    with pytest.raises(ResultError, match="needs two axes"):
        heat_map(norms_by_hand())
    with pytest.raises(ResultError, match="needs one axis"):
        curves(many_heads(2, 2))
    with pytest.raises(ResultError, match="nothing to draw"):
        bars([], np.zeros(0), title="", label="")
    with pytest.raises(ResultError, match="no layer 9"):
        offset_histogram(many_heads(2, 2), heads=[(9, 0)])


def test_a_curve_has_band_and_grey_chance():
    result = norms_by_hand()
    axes = result.plot().axes[0]
    blue, grey = axes.lines
    assert np.array_equal(blue.get_ydata(), result.values[0])
    assert np.array_equal(grey.get_ydata(), result.null[0])
    assert to_hex(grey.get_color()).upper() == CHANCE
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == result.low[0].min()
    assert band.max() == result.high[0].max()
    assert axes.get_title() == result.axes["measure"][0]
    bare = replace(result, null=None, low=None, high=None, resampled="no interval: why not").plot().axes[0]
    assert len(bare.lines) == 1
    assert not bare.collections


def test_bars_name_units_words_and_ends():
    result = selective_by_hand()
    figure = result.plot()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == len(result.axes["unit"])
    assert labels[:2] == ["neurons.1:4 ▼ mat", "neurons.1:2 ▲ cat"]
    for axes, measure in zip(figure.axes, ("share", "height"), strict=True):
        assert [patch.get_width() for patch in axes.patches] == result.measure(measure).tolist()
        grey, whiskers = axes.collections
        at = result.place("measure", measure)
        assert [segment[0][0] for segment in grey.get_segments()] == result.null[at].tolist()
        assert to_hex(grey.get_color()[0]).upper() == CHANCE
        assert [tuple(segment[:, 0]) for segment in whiskers.get_segments()] == list(
            zip(result.low[at], result.high[at], strict=True)
        )


def test_a_word_that_surprises_often_has_one_bar():
    result = surprise_by_hand()
    axes = result.plot().axes[1]
    table = result.table("words").to_frame().query("surprising == 'most'").groupby("word")["nats"].max()
    shown = dict(
        zip(
            [label.get_text() for label in axes.get_yticklabels()],
            [bar.get_width() for bar in axes.patches],
            strict=True,
        )
    )
    assert shown == table.to_dict()


@pytest.mark.filterwarnings("error")  # letters that the drawing font lacks are the browser's to draw
def test_words_are_never_read_as_formulas():
    figure = bars(["$\\frac$ a_b $", "<b> & 日本", "ن" * 80], np.ones(3), title="$1 and $2", label="x")
    texts = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert texts[0] == "$\\frac$ a_b $"
    assert texts[2].endswith("…")
    ElementTree.fromstring(figure_svg(figure))
    assert "$\\frac$ a_b $" in figure_svg(figure)


def test_offsets_show_the_most_positional_heads_first():
    result = many_heads(6, 4)
    share = result.table("offsets").columns["share"]
    figure = offset_histogram(result, most=3)
    best = np.sort(share.max(axis=0).ravel())[::-1][:3]
    shown = [max(patch.get_height() for patch in axes.patches) for axes in figure.axes]
    assert shown == best.tolist()
    layer, head = np.unravel_index(share.max(axis=0).argmax(), share.shape[1:])
    assert figure.axes[0].get_title() == f"layer {layer}, head {head}"
    assert not faults(figure)
    one = offset_histogram(result, heads=[(2, 3)]).axes[0]
    assert [patch.get_height() for patch in one.patches] == share[:, 2, 3].tolist()


def test_a_kind_without_a_figure_of_its_own_is_drawn_by_its_axes():
    def made(axes, values):
        return Result(axes, values, None, None, None, "no interval: made by hand", Provenance("f"))

    Result.kind = "test.bare"
    try:
        assert draw(made({"layer": (0, 1), "head": (0, 1)}, np.eye(2))).axes[0].images
        assert draw(made({"layer": (0, 1)}, np.ones(2))).axes[0].lines
        assert len(draw(made({"word": ("a", "b")}, np.ones(2))).axes[0].patches) == 2
        with pytest.raises(ResultError, match=r"no figure for a 'test.bare' result with the axes"):
            draw(made({"a": (0,), "b": (0,), "c": (0,)}, np.ones((1, 1, 1))))
    finally:
        del Result.kind


def test_the_svg_is_one_element_without_time_and_the_same_in_any_state():
    def drawn() -> str:
        return figure_svg(heat_map(many_heads(3, 4), measures=["entropy"]))

    before = drawn()
    assert before.startswith("<svg")
    assert not re.search(r"20\d\d-\d\d-\d\d", before)
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": "x", "axes.facecolor": "red"}):
        assert drawn() == before
    root = ElementTree.fromstring(before)
    assert root.tag.endswith("svg")
    assert set(re.findall(r'"(https?://[^"]*)"', before)) == {
        "http://www.w3.org/1999/xlink",
        "http://www.w3.org/2000/svg",
    }


@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_same_bytes_in_every_format(kind, magic):
    result = norms_by_hand()
    first = figure_bytes(result.plot(), kind)
    assert first.startswith(magic)
    assert first == figure_bytes(result.plot(), kind)


def test_other_formats_are_refused_by_name():
    with pytest.raises(ResultError, match="'gif'; use one of svg, png, pdf"):
        figure_bytes(norms_by_hand().plot(), "gif")


def test_drawing_leaves_the_callers_settings_alone():
    before = dict(matplotlib.rcParams)
    figure_bytes(norms_by_hand().plot(), "png")
    assert dict(matplotlib.rcParams) == before


def test_colours_grow_darker_step_by_step():
    colours = sequential()(np.linspace(0, 1, 64))[:, :3]
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    light = np.cbrt(linear @ [0.2126, 0.7152, 0.0722])
    steps = np.diff(light)
    assert (steps < 0).all()
    assert steps.min() > 3 * steps.max()  # no step is three times another: even to the eye


def test_ticks_are_thinned_to_round_steps():
    assert thinned(range(7), 8) == list(range(7))
    assert thinned(range(30), 8) == [0, 5, 10, 15, 20, 25]
    assert thinned(range(144), 8) == [0, 20, 40, 60, 80, 100, 120, 140]
    assert thinned(range(1), 8) == [0]


@pytest.mark.parametrize("width", [3.4, 7.2])
@pytest.mark.parametrize(("layers", "heads"), [(1, 2), (12, 12), (30, 9)])
def test_a_scatter_has_a_point_for_every_head_and_names_the_outermost(layers, heads, width):
    result = many_heads(layers, heads)
    figure = scatter(result, "entropy", "distance", width=width)
    assert not faults(figure)
    (axes,) = figure.axes
    grey, points = axes.collections
    expected = np.column_stack([result.measure("entropy").ravel(), result.measure("distance").ravel()])
    np.testing.assert_allclose(points.get_offsets(), expected)
    assert to_hex(grey.get_edgecolor()[0]).upper() == CHANCE
    np.testing.assert_allclose(
        np.unique(grey.get_offsets(), axis=0)[0][0], result.null[result.place("measure", "entropy"), 0, 0]
    )
    names = {text.get_text(): text.xy for text in axes.texts}
    assert 1 <= len(names) <= 6
    for name, place in names.items():
        layer, head = map(int, name.split("."))
        assert place == (result.measure("entropy")[layer, head], result.measure("distance")[layer, head])
    far = ((expected - expected.mean(0)) / expected.std(0)) ** 2
    outermost = divmod(int(far.sum(1).argmax()), heads)
    assert f"{outermost[0]}.{outermost[1]}" in names


def test_a_scatter_needs_two_measures():
    with pytest.raises(ResultError, match="given twice"):
        scatter(many_heads(2, 2), "entropy", "entropy")
    with pytest.raises(ResultError):
        scatter(many_heads(2, 2), "entropy", "nothing")
