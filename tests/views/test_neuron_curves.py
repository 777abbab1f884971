"""Figures of rankings' worth and of trajectories: every number is a point of a line with its own name."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.neurons import Ranking
from pellucid.neurons.ranking import overall_table
from pellucid.results import Provenance, ResultError
from pellucid.views.ranking_curves import ranking_curves
from pellucid.views.trajectories import trajectory_figure
from tests.neurons import probe_results


def test_first_last_and_random_neurons_stand_in_one_panel():
    result = probe_results.curves_by_hand()
    axes = ranking_curves(result).axes
    assert len(axes) == 1
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in axes[0].get_lines()}
    for measure, label in (("top", "first neurons"), ("bottom", "last neurons"), ("random", "as many at random")):
        assert lines[label] == pytest.approx(result.values[result.place("measure", measure)])
    assert lines["all neurons"][0] == pytest.approx(result.table("whole").columns["value"][0])
    assert axes[0].get_ylabel() == "accuracy"


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
