"""Figures of attributions: the numbers that are in them, and readable at every size."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pellucid.results import Table
from pellucid.views import attribution_figure, figure_bytes
from pellucid.views.attribution_parts import completeness, layers_and_heads, origin, percent, shown_tokens, strongest
from pellucid.views.interactive.colours import css, diverging, heat
from tests.overlaps import faults
from tests.views.attribution_results import attribution, drawn, with_control, with_interval


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def boxes(figure) -> list:
    return [patch for patch in figure.axes[0].patches if patch.get_fill()]


def grids(figure, rows: int) -> list[np.ndarray]:
    """Pictures of so many rows, as [rows, columns, 3]; the colour scales have one."""
    return [np.asarray(image.get_array()) for image in figure.axes[0].images if image.get_array().shape[0] == rows]


def test_bars_have_the_length_side_and_place_of_their_numbers():
    values = np.array([0.5, -1.0, 0.0, 0.25, 2.0, -0.5, 0.1, -0.1, 1.0, 0.75])
    figure = attribution_figure(attribution(values[None, None, None]))
    bars = boxes(figure)
    assert len(bars) == len(values)
    lines = [line for line in figure.axes[0].lines if len(set(line.get_xdata())) == 1]
    zero = lines[0].get_xdata()[0]
    lengths = np.array([bar.get_width() for bar in bars])
    assert lengths / lengths.max() == pytest.approx(np.abs(values) / 2.0)
    for bar, value in zip(bars, values, strict=True):
        assert bar.get_x() == pytest.approx(zero if value >= 0 else zero - bar.get_width())
    tops = [bar.get_y() for bar in bars]
    assert tops == sorted(tops)
    names = [text for text in figure.axes[0].texts if text.get_text() in {"the", "fi", "ne"}]
    assert [name.get_text() for name in sorted(names, key=lambda text: text.get_position()[1])] == ["the", "fi", "ne"]
    assert to_hex(bars[4].get_facecolor()) == css(diverging(np.array([1.0]))[0])
    blue, orange = to_hex(bars[1].get_facecolor()), to_hex(bars[8].get_facecolor())
    assert int(blue[5:], 16) > int(blue[1:3], 16)
    assert int(orange[1:3], 16) > int(orange[5:], 16)


def test_targets_of_a_method_share_one_length_and_colouring():
    values = np.zeros((1, 2, 1, 10))
    values[0, 0, 0, 1], values[0, 1, 0, 1] = 2.0, 1.0
    figure = attribution_figure(attribution(values, targets=["one", "two"]))
    first, second = (max(half, key=lambda bar: bar.get_width()) for half in (boxes(figure)[:10], boxes(figure)[10:]))
    assert first.get_width() == pytest.approx(2 * second.get_width())
    assert first.get_x() < second.get_x()
    assert first.get_y() == pytest.approx(second.get_y())
    assert {"Integrated gradients: one", "Integrated gradients: two"} <= set(texts(figure))


def test_a_map_has_the_numbers_of_its_places_and_tokens():
    result = drawn(places=5)
    (cells,) = grids(attribution_figure(result), 5)
    values = result.values[0, 0]
    assert np.array_equal(cells, diverging(values / np.abs(values).max()))


def test_methods_without_a_sign_are_coloured_from_zero():
    result = drawn(measures=2, places=4)
    signed, unsigned = grids(attribution_figure(result), 4)
    values = result.values[:, 0]
    assert np.array_equal(signed, diverging(values[0] / np.abs(values[0]).max()))
    assert np.array_equal(unsigned, heat(values[1] / values[1].max()))
    assert "methods without a sign" in " ".join(texts(attribution_figure(result)))
    assert "Orange" not in " ".join(texts(attribution_figure(attribution(values[1:, None, :1], measures=["saliency"]))))


def test_of_many_places_the_strongest_are_drawn_in_their_order():
    values = np.random.default_rng(0).normal(size=(1, 1, 60, 10)) * 0.01
    big = [3, 50, *range(20, 42)]
    values[0, 0, big] += 1.0
    values[0, 0, 50, 0] = -9.0
    result = attribution(values, places=[f"neurons.3:{at}" for at in range(60)], by="unit")
    figure = attribution_figure(result)
    rows = [text for text in texts(figure) if text.startswith("neurons")]
    assert rows == [f"neurons.3:{at}" for at in sorted(big)]
    assert "The 24 strongest of 60 places." in " ".join(texts(figure))
    (cells,) = grids(figure, 24)
    assert np.array_equal(cells, diverging(values[0, 0, sorted(big)] / np.abs(values).max()))


def test_heads_become_layers_by_heads_summed_over_tokens():
    values = np.random.default_rng(1).normal(size=(1, 1, 6, 10))
    places = [f"heads.{layer}:{head}" for layer in (2, 3, 4) for head in (0, 1)]
    figure = attribution_figure(attribution(values, places=places, by="head"))
    sums = values[0, 0].sum(axis=1).reshape(3, 2)
    (cells,) = grids(figure, 3)
    assert np.array_equal(cells, diverging(sums / np.abs(sums).max()))
    assert {"heads.2", "heads.4", "head 0", "head 1"} <= set(texts(figure))
    one = attribution_figure(attribution(values[:, :, :2], places=["heads.2:0", "heads.2:1"], by="head"))
    assert grids(one, 2)[0].shape[1] == 10, "heads of one layer keep their tokens"


def test_layers_without_some_head_leave_its_cell_empty():
    sites, heads, where = layers_and_heads(["heads.0:0", "heads.0:1", "heads.1:1"])
    assert (sites, heads, where.tolist()) == (["heads.0", "heads.1"], [0, 1], [[0, 1], [-1, 2]])
    assert layers_and_heads(["heads.0:0", "embed"]) is None
    values = np.ones((1, 1, 3, 10))
    figure = attribution_figure(attribution(values, places=["heads.0:0", "heads.0:1", "heads.1:1"], by="head"))
    assert grids(figure, 2)[0][1, 0].tolist() == [255, 255, 255]


def test_many_targets_at_one_place_are_the_rows_of_a_map():
    result = drawn(targets=7)
    (cells,) = grids(attribution_figure(result), 7)
    values = result.values[0, :, 0]
    assert np.array_equal(cells, diverging(values / np.abs(values).max()))


def test_long_texts_go_on_in_strips_and_lose_no_token():
    result = drawn(places=3, tokens=120)
    figure = attribution_figure(result)
    strips = grids(figure, 3)
    assert len(strips) > 1
    values = result.values[0, 0]
    assert np.array_equal(np.concatenate(strips, axis=1), diverging(values / np.abs(values).max()))
    upright = [text.get_text() for text in figure.axes[0].texts if text.get_rotation() == 90]
    assert len(upright) == 120


def test_long_texts_at_one_place_are_coloured_text():
    result = drawn(tokens=120)
    figure = attribution_figure(result)
    values = result.values[0, 0, 0]
    colours = [css(colour) for colour in diverging(values / np.abs(values).max())]
    assert [to_hex(box.get_facecolor()) for box in boxes(figure)] == colours


def test_a_control_stands_beside_in_colours_of_its_own():
    result = with_control(drawn(places=4))
    model, control = grids(attribution_figure(result), 4)
    values = result.values[0, 0]
    assert np.array_equal(model, diverging(values / np.abs(values).max()))
    assert np.array_equal(control, diverging(-values / np.abs(values).max()))
    assert "Random model: class 0" in texts(attribution_figure(result))


def test_whiskers_are_the_interval():
    figure = attribution_figure(with_interval(drawn(), 0.25))
    bars = boxes(figure)
    whiskers = [line for line in figure.axes[0].lines if len(set(line.get_ydata())) == 1]
    assert len(whiskers) == len(bars)
    unit = max(bar.get_width() for bar in bars) / np.abs(drawn().values).max()
    for line in whiskers:
        assert np.ptp(line.get_xdata()) == pytest.approx(0.5 * unit)
    still = attribution_figure(with_interval(drawn(), 0.0))
    assert not [line for line in still.axes[0].lines if len(set(line.get_ydata())) == 1]


SIZES = [
    {"tokens": 1},
    {"tokens": 34},
    {"measures": 3, "targets": 3, "tokens": 14},
    {"places": 33, "tokens": 20},
    {"targets": 2, "places": 7, "tokens": 24},
    {"targets": 30, "tokens": 40},
    {"measures": 2, "targets": 9, "places": 24, "tokens": 40},
]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "-".join(f"{value}{key}" for key, value in size.items()))
def test_figures_of_every_size_are_readable(size):
    figure = attribution_figure(drawn(**size))
    assert figure.get_figwidth() == 7.2
    assert not faults(figure)
    assert figure.get_figheight() < 12.5


def test_narrow_figures_are_readable():
    assert not faults(attribution_figure(drawn(targets=2, places=4), width=4.5))


def test_of_very_long_texts_the_strongest_strips_are_drawn():
    values = np.random.default_rng(3).normal(size=(1, 1, 13, 400)) * 0.01
    values[..., 390:] = 1.0
    words = [f" w{at}" for at in range(400)]
    figure = attribution_figure(attribution(values, places=[f"resid.{at}" for at in range(13)], tokens=words))
    assert figure.get_figheight() < 12.5
    upright = [text.get_text() for text in figure.axes[0].texts if text.get_rotation() == 90]
    assert "w399" in upright
    assert len(upright) < 400
    assert "of 400 are drawn, where attributions are largest." in " ".join(texts(figure))


def test_what_does_not_fit_is_said():
    told = " ".join(texts(attribution_figure(drawn(**SIZES[-1]))))
    assert "further panels do not fit" in told


def test_what_stands_below_says_how_it_was_made():
    result = drawn()
    assert origin(result) == "Baseline: zero; 25 steps (gauss); completeness error at most 2.3%; precision: float32."
    bare = Table.of_rows(dict.fromkeys(("measure", "target", "place", "sum", "change", "relative error"), ()))
    without = attribution(result.values)
    object.__setattr__(without, "tables", {**without.tables, "completeness": bare})
    assert "no completeness error" in completeness(without)
    assert percent(3e-6) == "below 0.01%"
    assert percent(0.0123, largest=True) == "at most 1.2%"
    assert percent(17.0) == "1,700%"


def test_tokens_are_readable_and_keep_their_spaces():
    result = drawn()
    told = shown_tokens(result)
    assert told["text"] == ["<s>", "the", "script", "was", "fi", "ne", "but", "dull", ".", "</s>"]
    assert told["space"] == "0111101101"
    assert told["special"] == [0, 9]
    assert told["word"] == [-1, 1, 2, 3, 4, 4, 5, 6, 6, -1]
    odd = attribution(np.zeros((1, 1, 1, 3)), tokens=["a", "\n", " "], side=["source", "source", "target"])
    assert shown_tokens(odd)["text"] == ["a", "⏎", "␣"]
    assert shown_tokens(odd)["segments"] == ["source", "target"]
    assert shown_tokens(odd)["space"][2] == "1"


@pytest.mark.filterwarnings("ignore:Glyph")
def test_nothing_attributed_and_odd_words_are_drawn_too():
    words = ["$x$", "<b>", "日本", " نص", "\\frac", "_a", "%", " long" * 30, "é", "."]
    figure = attribution_figure(attribution(np.zeros((1, 1, 1, 10)), tokens=words, targets=["$\\alpha$ _x_"]))
    assert not faults(figure)
    assert "$x$" in texts(figure)
    assert figure_bytes(figure, "svg") == figure_bytes(figure, "svg")


def test_strongest_keeps_order_and_takes_all_of_few():
    assert strongest(np.array([[1.0], [-5.0], [3.0], [0.0]]), 2) == [1, 2]
    assert strongest(np.array([1.0, 2.0]), 5) == [0, 1]
