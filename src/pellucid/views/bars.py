"""Bars: one horizontal bar per named thing, with its interval as a whisker and what chance gives as a grey mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Array, ResultError
from pellucid.views.style import CHANCE, INK, grid_lines, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW = 0.19
LONGEST = 44
FILL = "#6BA6CD"  # pale enough for the whisker and the grey mark to stand out


def bars(
    names: Sequence[str],
    values: Array,
    *,
    null: Array | None = None,
    low: Array | None = None,
    high: Array | None = None,
    title: str,
    label: str,
    chance: str = "chance",
    width: float = WIDTH,
) -> Figure:
    """Bars from the top down in the order given; `values`, `null`, `low` and `high` have one number per name."""
    if not len(names):
        raise ResultError("There is nothing to draw: the list of bars is empty.")
    with house_style():
        figure = new_figure(width, height_of(len(names)))
        axes = figure.subplots()
        marks = draw_bars(axes, names, values, null, low, high)
        if marks is not None:
            figure.legend([marks], [chance], loc="outside lower center")
        axes.set_xlabel(label)
        axes.set_title(title, parse_math=False)
        return settled(figure)


def height_of(count: int) -> float:
    """Inches that so many bars need, with what stands above and below them."""
    return 1.0 + _ROW * count


def draw_bars(
    axes: Axes, names: Sequence[str], values: Array, null: Array | None, low: Array | None, high: Array | None
) -> Any:
    """Bars on axes that are there already; the grey marks of chance, for a legend, or None."""
    places = np.arange(len(names))
    axes.barh(places, values, height=0.7, color=FILL, linewidth=0)
    marks = None
    if null is not None:
        marks = axes.vlines(null, places - 0.5, places + 0.5, color=CHANCE, linewidth=1.6)
    if low is not None and high is not None:
        axes.hlines(places, low, high, color=INK, linewidth=0.9)
    axes.set_yticks(places, labels=[cut(name, LONGEST) for name in names], parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    grid_lines(axes, "x")
    return marks


def cut(name: str, longest: int) -> str:
    """A name that leaves room for its bar, on one line."""
    line = " ".join(name.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
