"""Selective units: how often one word stands among the contexts that move a unit most, and how far they move it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.results import WIDTH, Result
from pellucid.views.bars import draw_bars, height_of
from pellucid.views.style import house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABELS = {"share": "share of the unit's strongest contexts", "height": "standard deviations"}


def unit_bars(result: Result, *, most: int = 25, width: float = WIDTH) -> Figure:
    """Share and height of the first `most` units of the ranking, with their word; ▲ largest, ▼ smallest activations."""
    words, ends = (result.table("units").columns[name].tolist()[:most] for name in ("word", "end"))
    units = [str(unit) for unit in result.axes["unit"][:most]]
    names = [
        f"{unit} {'▲' if end == 'largest' else '▼'} {word}" for unit, end, word in zip(units, ends, words, strict=True)
    ]
    with house_style():
        figure = new_figure(width, height_of(len(names)) + 0.2)
        for place, axes in enumerate(figure.subplots(1, len(_LABELS), width_ratios=(3, 2))):
            measure = list(_LABELS)[place]
            at = result.place("measure", measure)
            cells = [None if part is None else part[at, :most] for part in (result.null, result.low, result.high)]
            draw_bars(axes, names if place == 0 else [""] * len(names), result.values[at, :most], *cells)
            axes.set_title(measure)
            axes.set_xlabel(_LABELS[measure])
        figure.suptitle(result.title, fontsize=10)
        figure.supxlabel(f"▲ largest, ▼ smallest activations\ngrey: {result.chance}", fontsize=7.5)
        return settled(figure)
