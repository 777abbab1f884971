"""Probes: accuracy by class or layer beside the controls, a panel each, with what guessing gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.results import WIDTH, Result, ResultError
from pellucid.views.bars import draw_bars, height_of
from pellucid.views.style import NOTE, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 40


def probe_bars(result: Result, *, width: float = WIDTH) -> Figure:
    """A bar for each class (or site), in a panel for each measure; the first 40 of more."""
    others = [name for name in result.axes if name != "measure"]
    if len(others) != 1 or "measure" not in result.axes:
        raise ResultError(f"These bars need one axis beside the measures; {result.kind!r} has {list(result.axes)}.")
    names = [str(name) for name in result.axes[others[0]]][:_MOST]
    measures = [str(name) for name in result.axes["measure"]]
    with house_style():
        figure = new_figure(width, height_of(len(names)) + 0.25)
        for at, axes in enumerate(figure.subplots(1, len(measures), squeeze=False)[0]):
            cells = [
                None if part is None else part[at, : len(names)] for part in (result.null, result.low, result.high)
            ]
            draw_bars(axes, names if at == 0 else [""] * len(names), result.values[at, : len(names)], *cells)
            axes.set_title(measures[at], parse_math=False)
            axes.locator_params(axis="x", nbins=4)
        figure.suptitle(result.title, fontsize=10)
        figure.supxlabel(f"grey: {result.chance}", fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)
