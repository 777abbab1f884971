"""Figures of rankings' worth and of trajectories: every number is a point of a line with its own name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pellucid import neurons
from pellucid.neurons import NeuronSurvey, Ranking
from pellucid.neurons.ranking import overall_table
from pellucid.results import Provenance, ResultError, Table
from pellucid.views.ranking_curves import ranking_curves
from pellucid.views.trajectories import trajectory_figure
from tests.neurons import probe_results
from tests.results_by_hand import trust_by_hand


def test_first_last_and_random_neurons_stand_in_one_panel():
    result = probe_results.curves_by_hand()
    axes = ranking_curves(result).axes
    assert len(axes) == 1
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in axes[0].get_lines()}
    for measure, label in (("top", "first neurons"), ("bottom", "last neurons"), ("random", "as many at random")):
        assert lines[label] == pytest.approx(result.values[result.place("measure", measure)])
    assert lines["all neurons"][0] == pytest.approx(result.table("whole").columns["value"][0])
    assert axes[0].get_ylabel() == "accuracy"


def test_what_first_neurons_cost_beyond_random_ones_stands_beside():
    result = probe_results.curves_by_hand()
    sizes = result.axes["neurons"]
    value = np.arange(2 * len(sizes), dtype=float).reshape(2, -1)
    table = Table(
        {"measure": ("top", "bottom"), "neurons": sizes}, {"value": value, "low": value - 1, "high": value + 1}
    )
    left, right = ranking_curves(replace(result, tables={**result.tables, "beyond random": table})).axes
    assert not left.collections, "the interval is that of the difference"
    assert [np.asarray(line.get_ydata()).tolist() for line in right.get_lines()[:2]] == value.tolist()
    assert len(right.collections) == 2


def test_a_trajectory_is_a_line_for_each_kind_over_its_words():
    result = probe_results.trajectories_by_hand()
    panels = [axes for axes in trajectory_figure(result).axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [str(name) for name in result.axes["measure"]]
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in panels[0].get_lines()}
    for at, kind in enumerate(result.axes["stimulus"]):
        assert lines[str(kind)] == pytest.approx(result.values[0, at])
    words = result.table("words").columns["word"]
    assert panels[0].get_xticklabels()[0].get_text().split("\n")[0] == words[0, 0]


def test_directions_are_drawn_as_neurons_are():
    names = tuple(f"resid.{site}:direction {place}" for site in (0, 1) for place in range(3))
    origin = Provenance("made up", {"method": "svcca", "concept": ""}, ({"name": "m", "fingerprint": "m"},), {})
    score = np.linspace(0.9, 0.1, 6)
    result = Ranking({"class": ("other models",), "neuron": names}, score[None], None, None, None, "none", origin,
                     {"overall": overall_table(names, score, null=None)})  # fmt: skip
    left, right = result.plot().axes
    assert [label.get_text() for label in left.get_yticklabels()] == list(names)
    assert [label.get_text() for label in right.get_yticklabels()] == ["resid.0", "resid.1"]


def test_other_results_are_refused():
    for draw in (ranking_curves, trajectory_figure):
        with pytest.raises(ResultError, match=r"and not a 'neurons\.spread'"):
            draw(probe_results.spread_by_hand())


def test_bars_of_one_site_are_as_thin_as_those_of_many():
    names = tuple(f"resid.0:{place}" for place in range(30))
    origin = Provenance("made up", {"method": "maxcorr", "concept": ""}, ({"name": "m", "fingerprint": "m"},), {})
    score = np.linspace(0.9, 0.1, 30)
    result = Ranking({"class": ("other models",), "neuron": names}, score[None], None, None, None, "none", origin,
                     {"overall": overall_table(names, score, null=None)})  # fmt: skip
    left, right = result.plot().axes
    assert left.get_ylim() == right.get_ylim() == (24.6, -0.6)


def test_a_survey_names_the_first_and_last_site_of_each_kind():
    names = tuple(f"{site}:{unit}" for site in ("resid.0", "resid.1", "resid.2", "neurons.0") for unit in range(4))
    values = np.tile(np.linspace(0.4, 0.05, 4), (3, 4))
    origin = Provenance("made up", {}, ({"name": "m", "fingerprint": "m"},), {})
    result = NeuronSurvey({"measure": ("spread", "position", "frequency"), "neuron": names}, values,
                          np.full_like(values, 0.01), None, None, "none", origin)  # fmt: skip
    figure = result.plot()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["resid.0", "resid.2", "neurons.0", "chance", "counts as a kind beyond"]
    spread, place, _ = figure.axes
    levels = {tuple(line.get_ydata()) for line in spread.get_lines() if line.get_linestyle() == ":"}
    assert levels == {(3.0, 3.0), (1 / 3, 1 / 3)}
    assert place.get_ylim() == pytest.approx((0, 0.42))
    assert len({line.get_color() for line in place.get_lines()[:4]}) == 4


def test_numbers_far_apart_are_drawn_on_a_logarithmic_scale():
    result = trust_by_hand()
    at = result.place("measure", "infidelity")
    far = np.array(result.values)
    far[at] = np.linspace(0.001, 900, far.shape[1])
    panel = next(axes for axes in replace(result, values=far).plot().axes if "infidelity" in axes.get_title())
    assert panel.get_xscale() == "log"
    assert not any("$" in label.get_text() for label in panel.get_xticklabels())
    near = np.array(result.values)
    near[at] = 1.0
    null = np.array(result.null)
    null[at] = 2.0
    panel = next(
        axes for axes in replace(result, values=near, null=null).plot().axes if "infidelity" in axes.get_title()
    )
    assert panel.get_xscale() == "linear"


def test_a_figure_of_one_curve_has_its_title_once():
    rows = np.random.default_rng(0).normal(size=(40, 6))
    ranking = neurons.rank(rows, ["A", "B"] * 20, sentences=np.arange(40) // 4)["probeless"]
    figure = neurons.stability([ranking, ranking], counts=(2, 4)).plot()
    assert figure.get_suptitle() == ""
    assert [axes.get_title() for axes in figure.axes] == [neurons.Stability.title]


def test_curves_of_many_methods_keep_their_room_above_a_long_legend():
    result = trust_by_hand()
    names = tuple(f"a_method_with_a_rather_long_name_{place}" for place in range(15))
    scores = np.repeat(result.table("curves").columns["score"], 5, axis=1) + np.linspace(0, 1, 15)[None, :, None]
    curves = result.table("curves")
    many = Table({**curves.axes, "method": names}, {"score": scores})
    wide = [None if part is None else np.repeat(part, 5, axis=1) for part in (result.null, result.low, result.high)]
    figure = replace(
        result,
        axes={**result.axes, "method": names},
        values=np.repeat(result.values, 5, axis=1),
        **dict(zip(("null", "low", "high"), wide, strict=True)),
        tables={"curves": many, "random curves": result.table("random curves")},
    ).plot()
    panel = next(axes for axes in figure.axes if axes.get_title() == "insertion")
    assert panel.get_window_extent().height / figure.dpi > 1
