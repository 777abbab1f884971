"""Learning curves drawn: every run's numbers in its own colour, chance in grey, rings where layers were frozen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pellucid.results import ResultError
from pellucid.train.curves import LearningCurves
from pellucid.train.curves import learning_curves as read
from pellucid.views.learning import learning_curves
from pellucid.views.style import CHANCE, COLOURS, figure_svg
from tests.overlaps import faults
from tests.results_by_hand import norms_by_hand
from tests.train.runs_by_hand import rows, written


@pytest.fixture
def made(tmp_path):
    """Makes curves of a run so long."""

    def make(epochs: int, name: str = "run", *, start: float = 10.0, frozen: bool = False, **changes) -> LearningCurves:
        return read(written(tmp_path / name, rows(epochs, start=start, frozen=frozen), **changes))

    return make


def panels(figure) -> dict:
    return {axes.get_title(): axes for axes in figure.axes if axes.axison}


def in_colour(axes, colour: str) -> list:
    return [line for line in axes.lines if to_hex(line.get_color()).upper() == colour]


def legend(figure) -> list[str]:
    return [text.get_text() for each in figure.legends for text in each.get_texts()]


def test_lines_are_the_numbers_of_the_log(made):
    curves = made(6)
    found = panels(learning_curves(curves))
    assert list(found) == ["loss", "perplexity", "learning rate"]
    valid, training, *_ = found["loss"].lines
    assert valid.get_xdata().tolist() == list(range(7))
    assert valid.get_ydata().tolist() == curves.measure("loss").tolist()
    assert training.get_xdata().tolist() == list(range(1, 7))
    assert training.get_ydata().tolist() == curves.table("training").columns["loss"].tolist()
    assert training.get_linestyle() != valid.get_linestyle()
    assert found["perplexity"].lines[0].get_ydata().tolist() == curves.measure("perplexity").tolist()
    rate = found["learning rate"].lines[0]
    assert rate.get_ydata().tolist() == curves.table("training").columns["learning_rate"].tolist()


def test_chance_is_one_grey_line_for_runs_that_share_it(made):
    figure = learning_curves([made(4, "a"), made(6, "b", start=9)])
    for name, value in (("loss", 6.9), ("perplexity", np.exp(6.9))):
        (grey,) = in_colour(panels(figure)[name], CHANCE)
        assert list(grey.get_ydata()) == [value, value]
    assert not in_colour(panels(figure)["learning rate"], CHANCE)
    two = learning_curves([made(4, "a"), made(6, "c", chance={"loss": 5.5, "perplexity": 99.0})])
    assert [line.get_ydata()[0] for line in in_colour(panels(two)["loss"], CHANCE)] == [5.5, 6.9]
    none = learning_curves(made(4, "d", chance=None))
    assert not in_colour(panels(none)["loss"], CHANCE)
    assert not any("guess" in text for text in legend(none))


def test_runs_of_other_lengths_have_their_own_colours_and_names(made):
    short, long = made(3, "short"), made(9, "long", start=8)
    figure = learning_curves([short, long])
    for run, colour in ((short, COLOURS[0]), (long, COLOURS[1])):
        line = in_colour(panels(figure)["loss"], colour)[0]
        assert line.get_xdata().tolist() == list(run.axes["epoch"])
        assert line.get_ydata().tolist() == run.measure("loss").tolist()
    assert legend(figure)[:2] == ["short", "long"]
    assert legend(learning_curves([short, long], names=["one", "two"]))[:2] == ["one", "two"]
    assert "short" not in legend(learning_curves(short))


def test_frozen_layers_are_ringed_and_counted(made):
    curves = made(7, frozen=True)
    figure = learning_curves(curves)
    rings = [line for line in panels(figure)["loss"].lines if line.get_markersize() == 7]
    assert [list(line.get_xdata()) for line in rings] == [[3, 5]]  # where the number of them rose
    assert rings[0].get_ydata().tolist() == curves.measure("loss")[[3, 5]].tolist()
    assert panels(figure)["frozen layers"].lines[0].get_ydata().tolist() == [0, 0, 2, 2, 3, 3, 3]
    assert "layers frozen from here on" in legend(figure)
    without = learning_curves(made(7, "other"))
    assert "frozen layers" not in panels(without)
    assert "layers frozen from here on" not in legend(without)


def test_a_wide_score_is_drawn_on_a_logarithmic_scale_with_plain_ticks(made):
    found = panels(learning_curves(made(9)))
    assert found["perplexity"].get_yscale() == "log"
    assert found["loss"].get_yscale() == "linear"
    ticks = [text.get_text() for text in found["perplexity"].get_yticklabels()]
    assert "1,000" in ticks
    assert not [text for text in ticks if "$" in text]


@pytest.mark.parametrize(("epochs", "width"), [(0, 7.2), (1, 5.0), (300, 5.0), (12, 10.0)])
def test_figures_of_every_size_are_readable(made, epochs, width):
    several = [made(epochs, f"run {number}", start=9 - number / 4, frozen=epochs > 3) for number in range(9)]
    assert not faults(learning_curves(several[0], width=width))
    assert not faults(learning_curves(several, width=width))


def test_one_panel_and_two_runs_are_readable(made):
    two = [made(8, "first"), made(12, "second", frozen=True)]
    assert not faults(learning_curves(two, measures=["loss"], width=5.0))


def test_every_panel_has_the_epochs_of_the_longest_run(made):
    ends = {axes.get_xlim() for axes in panels(learning_curves([made(3, "a"), made(20, "b")])).values()}
    assert len(ends) == 1
    (low, high) = ends.pop()
    assert low < 0 < 20 < high < 21


def test_the_same_curves_give_the_same_bytes(made):
    curves = made(5, frozen=True)
    assert figure_svg(learning_curves(curves)) == figure_svg(learning_curves(curves))


def test_long_and_strange_names_are_cut_and_taken_literally(made):
    figure = learning_curves([made(3, "a"), made(3, "b")], names=["$x$ " * 30, "b"])
    assert any(text.startswith("$x$") and text.endswith("…") for text in legend(figure))
    assert not faults(figure)


def test_what_cannot_be_drawn_is_refused(made):
    with pytest.raises(ResultError, match="no run was given"):
        learning_curves([])
    with pytest.raises(ResultError, match="need the axes measure and epoch"):
        learning_curves(norms_by_hand())
    with pytest.raises(ResultError, match="no measure 'acuracy' in these curves; they have loss, perplexity"):
        learning_curves(made(2), measures=["acuracy"])
    with pytest.raises(ResultError, match="1 names for 2 runs"):
        learning_curves([made(2, "a"), made(2, "b")], names=["a"])


def test_a_score_that_one_run_lacks_is_drawn_for_the_other(made):
    one, other = made(3, "a"), made(3, "b")
    axes = {**other.axes, "measure": ("loss",)}
    less = replace(other, axes=axes, values=other.values[:1], null=None)
    found = panels(learning_curves([one, less]))
    assert len(found["perplexity"].lines) == 2  # one run, and chance
