"""Figure of flow agreement: every method's rank correlation by layer, beside baselines and a random model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, Array, Result
from pellucid.views.style import CHANCE, COLOURS, INK, NOTE, grid_lines, house_style, label_ticks, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 3.6
_STYLES = {"own token": ":", "nearness": "--"}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def agreement_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """A line for every method with its interval as a band, grey ones for baselines; a random model's in a panel."""
    twin = result.tables["random model"].columns["value"] if "random model" in result.tables else None
    band = None if result.low is None or result.high is None else (result.low, result.high)
    with house_style():
        figure = new_figure(width, _HEIGHT)
        grid = figure.subplots(1, 1 if twin is None else 2, squeeze=False, sharey=True)[0]
        _lines(grid[0], result, result.values, band)
        _baselines(grid[0], result)
        grid[0].set_title("this model")
        grid[0].set_ylabel("rank correlation")
        if twin is not None:
            _lines(grid[1], result, twin, None)
            grid[1].set_title("random weights")
        for axes in grid:
            if result.null is not None:
                axes.plot(result.null.mean(0), color=CHANCE, linewidth=1.0, label="chance")
            label_ticks(axes.xaxis, result.axes["layer"], 12)
            axes.set_xlabel("layer")
            axes.margins(x=0.03)
            grid_lines(axes, "y")
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper")
        figure.suptitle(result.title, fontsize=10)
        notes = f"chance: {result.chance}" + (f"\nbands: {result.resampled}" if band is not None else "")
        figure.supxlabel(notes, fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)


def _lines(axes: Axes, result: Result, values: Array, band: tuple[Array, Array] | None) -> None:
    """Methods by layer; where a method told nothing, there is a gap."""
    told = result.table("positions").columns["positions"] > 0
    palette = (*COLOURS, INK)
    for row, method in enumerate(result.axes["measure"]):
        colour, marker = palette[row % len(palette)], _MARKERS[row % len(_MARKERS)]
        across = np.arange(values.shape[1])
        name = str(method).replace("_", " + ")
        shown = np.where(told[row], values[row], np.nan)
        style = "--" if method == "norms_layernorm" else "-"  # without a norm after the sum it covers another line
        axes.plot(across, shown, style, color=colour, linewidth=1.3, marker=marker, markersize=3, label=name, zorder=3)
        if band is not None:
            low, high = (np.where(told[row], end[row], np.nan) for end in band)
            axes.fill_between(across, low, high, color=colour, alpha=0.14, linewidth=0)


def _baselines(axes: Axes, result: Result) -> None:
    """Maps that look at no weights; the one that ranks nothing is zero, where chance is."""
    table = result.table("baselines")
    for row, name in enumerate(table.axes["baseline"]):
        if str(name) in _STYLES:
            style = _STYLES[str(name)]
            axes.plot(table.columns["value"][row], color=CHANCE, linewidth=1.3, linestyle=style, label=str(name))
