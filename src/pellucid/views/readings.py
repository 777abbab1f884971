"""Readings of neurons: how much the word, its place and its frequency say about each, and how values are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, Result
from pellucid.views.bars import FILL, draw_bars, height_of
from pellucid.views.style import NOTE, grid_lines, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABELS = {"word": "share of variance (η²)", "position": "size of correlation", "frequency": "size of correlation"}


def reading_figure(result: Result, *, most: int = 25, width: float = WIDTH) -> Figure:
    """What the word, its place and its frequency say about the first `most` neurons, beside chance."""
    names = [str(name) for name in result.axes["neuron"][:most]]
    with house_style():
        figure = new_figure(width, height_of(max(len(names), 4)) + 0.4)
        for place, axes in enumerate(figure.subplots(1, len(_LABELS), width_ratios=(4, 3, 3))):
            measure = list(_LABELS)[place]
            at = result.place("measure", measure)
            cells = [None if part is None else part[at, :most] for part in (result.null, result.low, result.high)]
            draw_bars(axes, names if place == 0 else [""] * len(names), result.values[at, :most], *cells)
            axes.set_title(measure)
            axes.set_xlabel(_LABELS[measure])
        figure.suptitle(result.title, fontsize=10)
        figure.supxlabel(f"grey: {result.chance}", fontsize=7.5, color=NOTE)
        return settled(figure)


def histogram_figure(result: Result, neuron: str, *, width: float = WIDTH) -> Figure:
    """How often one neuron has which activation, over all words that were read."""
    table, place = result.table("histogram").columns, result.place("neuron", neuron)
    counts, left, right = (table[name][place] for name in ("count", "from", "to"))
    with house_style():
        figure = new_figure(width, 1.9)
        axes = figure.subplots()
        axes.bar(left, np.asarray(counts), width=right - left, align="edge", color=FILL, linewidth=0)
        axes.set_title(f"activations of {neuron}", parse_math=False)
        axes.set_xlabel("activation")
        axes.set_ylabel("words")
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        grid_lines(axes, "y")
        return settled(figure)
