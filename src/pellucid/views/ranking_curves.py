"""Curves of a ranking: what its first, last and random neurons are worth, in one panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, Result, ResultError
from pellucid.views.style import CHANCE, COLOURS, INK, NOTE, grid_lines, house_style, label_ticks, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = {
    "top": ("first neurons", COLOURS[0], "o", "-"),
    "bottom": ("last neurons", COLOURS[1], "s", "-"),
    "random": ("as many at random", CHANCE, "^", "--"),
}


def ranking_curves(result: Result, *, width: float = WIDTH) -> Figure:
    """The score by the number of neurons, with intervals, and the score of the whole as a thin line."""
    from pellucid.neurons import RankingCurves

    if not isinstance(result, RankingCurves):
        raise ResultError(f"This figure shows what a ranking's neurons are worth, and not a {result.kind!r}.")
    x = np.arange(len(result.axes["neurons"]))
    with house_style():
        figure = new_figure(width, 3.1)
        axes = figure.subplots()
        for measure, (label, colour, mark, style) in _LINES.items():
            at = result.place("measure", measure)
            axes.plot(x, result.values[at], color=colour, linewidth=1.4, marker=mark, markersize=3.4, linestyle=style,
                      label=label, zorder=3)  # fmt: skip
            if result.low is not None and result.high is not None and measure != "random":
                axes.fill_between(x, result.low[at], result.high[at], color=colour, alpha=0.15, linewidth=0)
        if "whole" in result.tables:
            whole = float(result.table("whole").columns["value"][0])
            axes.axhline(whole, color=INK, linewidth=0.8, label="as it is" if "model" in result.done else "all neurons")
        label_ticks(axes.xaxis, result.axes["neurons"], 12)
        axes.set_xlabel("neurons")
        axes.set_ylabel(result.score)
        axes.margins(x=0.04)
        grid_lines(axes, "y")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle(f"{result.title}: {result.done}", fontsize=10, parse_math=False)
        if result.low is not None:
            note = f"bands: interval over {result.resampled}"
            axes.set_title(note, fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)
