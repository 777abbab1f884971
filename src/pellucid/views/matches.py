"""Matches of units: how nearly each unit of a layer is found in other models, the best first, with chance in grey."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, Result, ResultError
from pellucid.views.style import CHANCE, COLOURS, grid_lines, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 1.9
_ACROSS = 3


def match_curves(result: Result, *, width: float = WIDTH) -> Figure:
    """One panel per site: the score of every unit from the highest down, its interval as a band, chance dashed.

    A dotted line shows the units' scores against randomly initialised models, sorted too, where the sweep had them.
    """
    if list(result.axes) != ["measure", "site", "unit"]:
        raise ResultError(
            f"Sorted units need the axes measure, site and unit; this {result.kind!r} has {list(result.axes)}."
        )
    sites = result.axes["site"]
    across = min(len(sites), _ACROSS)
    down = -(-len(sites) // across)
    with house_style():
        figure = new_figure(width, 1.1 + down * _HEIGHT)
        grid = figure.subplots(down, across, squeeze=False, sharey=True)
        for place, axes in enumerate(grid.ravel()):
            if place >= len(sites):
                axes.set_axis_off()
                continue
            _panel(axes, result, place)
            axes.set_title(f"{sites[place]}: median {np.median(result.values[0, place]):.2f}", parse_math=False)
            axes.set_xlabel("unit, best first" if place + across >= len(sites) else "")
            axes.set_ylabel(str(result.axes["measure"][0]) if place % across == 0 else "")
        _legend(figure, grid.ravel()[0], result)
        figure.suptitle(result.title, fontsize=10)
        return settled(figure)


def _panel(axes: Axes, result: Result, site: int) -> None:
    """The units of one site, sorted by their score."""
    from matplotlib.ticker import MaxNLocator

    values = result.values[0, site]
    order = np.argsort(-values, kind="stable")
    rank = np.arange(1, len(values) + 1)
    axes.plot(rank, values[order], color=COLOURS[0], linewidth=1.4, label="measured", zorder=3)
    if result.low is not None and result.high is not None:
        low, high = result.low[0, site][order], result.high[0, site][order]
        axes.fill_between(rank, low, high, color=COLOURS[0], alpha=0.2, linewidth=0, label="interval")
    if "random model" in result.tables:
        others = np.sort(result.table("random model").columns["value"][0, site])[::-1]
        axes.plot(rank, others, color=COLOURS[1], linewidth=1.2, linestyle=":", label="random")
    if result.null is not None:
        axes.plot(rank, result.null[0, site][order], color=CHANCE, linewidth=1.3, linestyle="--", label="chance")
    axes.set_ylim(0.0, 1.02)
    axes.margins(x=0.03)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    grid_lines(axes, "y")


def _legend(figure: Figure, axes: Axes, result: Result) -> None:
    meanings = {
        "measured": "trained models",
        "interval": f"interval over {result.resampled}",
        "random": "randomly initialised models",
        "chance": result.chance,
    }
    handles, labels = axes.get_legend_handles_labels()
    named = [meanings[str(label)] for label in labels]
    figure.legend(handles, named, loc="outside lower center", ncols=1 if len("".join(named)) > 80 else len(named))
