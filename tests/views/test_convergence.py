"""Convergence curves: a line for each layer with its band, chance in grey, and marks where layers could be frozen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from pellucid.results import Provenance, ResultError, Table
from pellucid.similarity import Convergence
from pellucid.views import convergence_curves, draw
from pellucid.views.style import CHANCE, COLOURS
from tests.overlaps import faults
from tests.results_by_hand import norms_by_hand


def made(layers: int, steps: int, measures: tuple[str, ...] = ("cka",), *, random: bool = True) -> Convergence:
    """Curves that rise to 1, the lower layers sooner."""
    speed = 1 + np.arange(layers)[:, None] / 2
    rise = 1 - 0.7 * np.exp(-4 * np.arange(steps) / max(1, steps - 1) / speed)
    rise[:, -1] = 1
    values = np.stack([rise] * len(measures))
    axes = {
        "measure": measures,
        "layer": tuple(f"resid.{layer}" for layer in range(layers)),
        "step": tuple(range(0, 10_000 * steps, 10_000)),
    }
    few = {name: axes[name] for name in ("measure", "layer")}
    tables = {"random model": Table(few, {"value": np.full(values.shape[:2], 0.1)})} if random else {}
    result = Convergence(
        axes=axes,
        values=values,
        null=np.full_like(values, 0.05),
        low=values - 0.02,
        high=values + 0.02,
        resampled="10 document groups (jackknife, 95%)",
        provenance=Provenance("similarity.convergence"),
        tables=tables,
    )
    return replace(result, tables={**tables, "freezing": result.freezable()})


SIZES = [(1, 2), (3, 4), (6, 6), (6, 7), (13, 8), (25, 12), (40, 60)]


@pytest.mark.parametrize(("layers", "steps"), SIZES)
def test_figures_of_every_size_are_readable(layers, steps):
    assert not faults(made(layers, steps).plot(width=5.0))
    assert not faults(made(layers, steps, random=False).plot(width=7.2))
    assert not faults(made(layers, steps, ("cka", "svcca")).plot(width=6.0))


def test_lines_bands_chance_and_marks():
    result = made(3, 5)
    axes = draw(result).axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    for place, layer in enumerate(result.axes["layer"]):
        np.testing.assert_array_equal(lines[layer].get_ydata(), result.values[0, place])
        assert to_hex(lines[layer].get_color()).upper() == COLOURS[place]
    for place, band in enumerate(axes.collections[:3]):
        heights = band.get_paths()[0].vertices[:, 1]
        np.testing.assert_allclose(np.unique(heights), np.unique([result.low[0, place], result.high[0, place]]))
    grey = [line for line in axes.lines if to_hex(line.get_color()).upper() == CHANCE]
    assert [line.get_ydata().tolist() for line in grey] == [[pytest.approx(0.05)] * 5]
    diamonds = [line for line in axes.lines if line.get_marker() == "D"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in diamonds] == [(-1, 0.1)] * 3


def test_rings_stand_where_layers_could_be_frozen_before_the_end():
    result = made(3, 9)
    first = [result.axes["step"].index(step) for step in result.table("freezing").columns["step"][0].tolist()]
    assert first[0] < 8  # one at least, before the last step
    assert first[2] == 8
    axes = draw(result).axes[0]
    rings = [line for line in axes.lines if line.get_markersize() == 7]
    assert [(int(line.get_xdata()[0]), line.get_ydata()[0]) for line in rings] == [
        (at, result.values[0, place, at]) for place, at in enumerate(first) if at < 8
    ]


def test_ticks_name_their_own_steps():
    for random in (True, False):
        result = made(2, 30, random=random)
        axes = draw(result).axes[0]
        named = {text.get_text(): place for place, text in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)}
        assert ("random" in named) == random
        assert named.pop("random", -1) == -1
        assert named
        assert all(result.axes["step"][int(place)] == int(name) for name, place in named.items())


def test_the_legend_names_the_first_and_the_last_layer():
    names = [text.get_text() for legend in draw(made(25, 4)).legends for text in legend.get_texts()]
    assert {"resid.0", "resid.24", "could be frozen from here on"} <= set(names)
    assert "a randomly initialised model" in names
    bare = replace(made(2, 3), tables={}, null=None, low=None, high=None, resampled="no interval: why not")
    assert [text.get_text() for legend in draw(bare).legends for text in legend.get_texts()] == ["resid.0", "resid.1"]


def test_other_axes_are_refused():
    with pytest.raises(ResultError, match="needs the axes layer and step"):
        convergence_curves(norms_by_hand())
    with pytest.raises(ResultError, match="no measure 'ckaa'"):
        convergence_curves(made(2, 3), measures=["ckaa"])
