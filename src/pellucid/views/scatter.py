"""Scatter: one measure of a result against another, a point for every head, layer or unit, chance as grey crosses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, Array, Result, ResultError
from pellucid.views.heat_map import panels
from pellucid.views.style import CHANCE, INK, grid_lines, house_style, new_figure, sequential, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 3.2
_NAMED = 6
_ROOM = (0.16, 0.07)
"""Shares of the width and height that a name takes."""
_PALE, _DARK = 0.12, 0.88  # ends of the colour map that print well


def scatter(result: Result, x: str, y: str, *, named: int = _NAMED, width: float = WIDTH) -> Figure:
    """Measure `y` over measure `x`, coloured along the result's first other axis (its layers).

    The `named` points that stand farthest from the middle, in standard deviations, are written out.
    """
    if x == y:
        raise ResultError(f"A scatter needs two measures; {x!r} was given twice.")
    names, values, null = panels(result, [x, y])
    across, up = (values[names.index(name)].ravel() for name in (x, y))
    axes_of = [name for name in result.axes if name != "measure"]
    if not axes_of:
        raise ResultError(f"A scatter needs several points; this {result.kind!r} has {list(result.axes)}.")
    along = np.indices(values.shape[1:])[0].ravel()
    with house_style():
        figure = new_figure(width, _HEIGHT)
        axes = figure.subplots()
        if null is not None:
            grey = [np.broadcast_to(null[names.index(name)], values.shape[1:]).ravel() for name in (x, y)]
            axes.scatter(grey[0], grey[1], marker="x", s=14, color=CHANCE, linewidths=0.8, label=result.chance)
        _points(axes, across, up, along)
        for place in _outermost(across, up, named):
            axes.annotate(
                _name(result, axes_of, np.unravel_index(place, values.shape[1:])),
                (across[place], up[place]),
                xytext=(4, 3),
                textcoords="offset points",
                fontsize=7,
                color=INK,
                parse_math=False,
            )
        axes.set_xlabel(x, parse_math=False)
        axes.set_ylabel(y, parse_math=False)
        axes.margins(0.08)
        grid_lines(axes, "both")
        if null is not None:
            figure.legend(loc="outside lower center")
        figure.suptitle(result.title, fontsize=10, parse_math=False)
        return settled(figure)


def _points(axes: Axes, across: Array, up: Array, along: Array) -> None:
    shade = _PALE + (_DARK - _PALE) * along / max(1, along.max())
    axes.scatter(across, up, s=16, c=sequential()(shade), linewidths=0.4, edgecolors="white", zorder=3)


def _outermost(across: Array, up: Array, count: int) -> list[int]:
    """Places of the points farthest from the middle, in standard deviations, whose names do not stand in their way."""
    far, places = np.zeros(len(across)), np.zeros((len(across), 2))
    for side, (values, room) in enumerate(((across, _ROOM[0]), (up, _ROOM[1]))):
        spread, span = np.nanstd(values), np.nanmax(values) - np.nanmin(values)
        if spread > 0:
            far += np.nan_to_num(((values - np.nanmean(values)) / spread) ** 2)
            places[:, side] = np.nan_to_num((values - np.nanmin(values)) / span) / room
    found: list[int] = []
    for place in np.argsort(-far, kind="stable"):
        if len(found) >= count or far[place] == 0:
            break
        if all(np.abs(places[place] - places[other]).max() >= 1 for other in found):
            found.append(int(place))
    return found


def _name(result: Result, axes_of: list[str], place: tuple[np.intp, ...]) -> str:
    return ".".join(str(result.axes[name][int(at)]) for name, at in zip(axes_of, place, strict=True))
