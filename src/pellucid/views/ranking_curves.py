"""Curves of a ranking: what its first, last and random neurons are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, Result, ResultError
from pellucid.views.style import CHANCE, COLOURS, INK, NOTE, grid_lines, house_style, label_ticks, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pellucid.results import Table

_LINES = {
    "top": ("first neurons", COLOURS[0], "o", "-"),
    "bottom": ("last neurons", COLOURS[1], "s", "-"),
    "random": ("as many at random", CHANCE, "^", "--"),
}


def ranking_curves(result: Result, *, width: float = WIDTH) -> Figure:
    """The score by the number of neurons, with intervals, and the score of the whole as a thin line.

    Where first and last neurons were compared with random ones in the same documents, that difference stands beside,
    and has the intervals: those of the scores themselves tell how far documents differ.
    """
    from pellucid.neurons import RankingCurves

    if not isinstance(result, RankingCurves):
        raise ResultError(f"This figure shows what a ranking's neurons are worth, and not a {result.kind!r}.")
    paired = "beyond random" in result.tables
    x = np.arange(len(result.axes["neurons"]))
    with house_style():
        figure = new_figure(width, 3.1)
        panels = figure.subplots(1, 2 if paired else 1, squeeze=False)[0]
        axes = panels[0]
        for measure, (label, colour, mark, style) in _LINES.items():
            at = result.place("measure", measure)
            axes.plot(x, result.values[at], color=colour, linewidth=1.4, marker=mark, markersize=3.4, linestyle=style,
                      label=label, zorder=3)  # fmt: skip
            if result.low is not None and result.high is not None and measure != "random" and not paired:
                axes.fill_between(x, result.low[at], result.high[at], color=colour, alpha=0.15, linewidth=0)
        if "whole" in result.tables:
            whole = float(result.table("whole").columns["value"][0])
            axes.axhline(whole, color=INK, linewidth=0.8, label="as it is" if "model" in result.done else "all neurons")
        axes.set_ylabel(result.score)
        if paired:
            _beyond_random(panels[1], result.table("beyond random"))
        for panel in panels:
            label_ticks(panel.xaxis, result.axes["neurons"], 12)
            panel.set_xlabel("neurons")
            panel.margins(x=0.04)
            grid_lines(panel, "y")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle(f"{result.title}: {result.done}", fontsize=10, parse_math=False)
        if result.low is not None:
            note = "bands: 95% over documents" if paired else f"bands: interval over {result.resampled}"
            panels[-1].set_title(note, fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)


def _beyond_random(axes: Axes, table: Table) -> None:
    """What first and last neurons cost more than random ones, which are the line at 0."""
    found, x = table.columns, np.arange(len(table.axes["neurons"]))
    for at, measure in enumerate(table.axes["measure"]):
        _, colour, mark, style = _LINES[str(measure)]
        axes.plot(x, found["value"][at], color=colour, linewidth=1.4, marker=mark, markersize=3.4, linestyle=style)
        if "low" in found:
            axes.fill_between(x, found["low"][at], found["high"][at], color=colour, alpha=0.15, linewidth=0)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_ylabel("more than random (nats)")
