"""Curves: measures over layers or positions, with their interval as a band and what chance gives as a grey line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, Array, Result, ResultError
from pellucid.views.heat_map import panels
from pellucid.views.style import CHANCE, COLOURS, grid_lines, house_style, label_ticks, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 1.9


def curves(result: Result, *, measures: Sequence[str] | None = None, width: float = WIDTH) -> Figure:
    """One panel per measure over the result's last axis, two or three abreast."""
    names, values, null = panels(result, measures)
    if values.ndim != 2:
        raise ResultError(f"A curve needs one axis beside the measures; this {result.kind!r} has {list(result.axes)}.")
    along = list(result.axes)[-1]
    across = len(names) if len(names) < 4 else 2 if len(names) == 4 else 3
    down = -(-len(names) // across)
    with house_style():
        figure = new_figure(width, 0.8 + down * _HEIGHT)
        grid = figure.subplots(down, across, squeeze=False)
        for place, axes in enumerate(grid.ravel()):
            if place >= len(names):
                axes.set_axis_off()
                continue
            at = result.place("measure", names[place]) if "measure" in result.axes else slice(None)
            band = None if result.low is None or result.high is None else (result.low[at], result.high[at])
            _curve(axes, values[place], None if null is None else null[place], band)
            axes.set_title(names[place], parse_math=False)
            label_ticks(axes.xaxis, result.axes[along], 8)
            axes.set_xlabel(along if place + across >= len(names) else "")
        _legend(figure, grid.ravel()[0], result)
        if "measure" in result.axes:  # else the only panel has this title
            figure.suptitle(result.title, fontsize=10)
        return settled(figure)


def _legend(figure: Figure, axes: Axes, result: Result) -> None:
    meanings = {"chance": result.chance, "interval": f"interval over {result.resampled}"}
    handles, labels = axes.get_legend_handles_labels()
    named = [meanings.get(str(label), str(label)) for label in labels]
    figure.legend(handles, named, loc="outside lower center", ncols=1 if len("".join(named)) > 80 else len(named))


def _curve(axes: Axes, values: Array, null: Array | None, band: tuple[Array, Array] | None) -> None:
    x = np.arange(len(values))
    axes.plot(x, values, color=COLOURS[0], linewidth=1.4, marker="o", markersize=2.6, label="measured", zorder=3)
    if band is not None:
        axes.fill_between(x, *band, color=COLOURS[0], alpha=0.2, linewidth=0, label="interval")
    if null is not None:
        axes.plot(x, null, color=CHANCE, linewidth=1.3, linestyle="--", label="chance")
    axes.margins(x=0.03)
    grid_lines(axes, "y")
