"""Surprise: nats by the word's position in its sentence, and the words that surprise most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, Result
from pellucid.views.bars import cut, draw_bars
from pellucid.views.style import CHANCE, COLOURS, INK, grid_lines, house_style, label_ticks, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WORDS = 10


def surprise_curve(result: Result, *, width: float = WIDTH) -> Figure:
    """On the left nats per word by position with their mean and chance, on the right the most surprising words."""
    with house_style():
        figure = new_figure(width, 3.1)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _by_position(left, result)
        _most(right, result)
        handles, labels = left.get_legend_handles_labels()
        figure.suptitle(result.title, fontsize=10)
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        return settled(figure)


def _by_position(axes: Axes, result: Result) -> None:
    units = [str(unit) for unit in result.axes["unit"]]
    whole, rest = units.index("word"), [place for place, unit in enumerate(units) if unit not in ("word", "token")]
    nats, x = result.place("measure", "nats"), np.arange(len(rest))
    axes.plot(
        x, result.values[nats, rest], color=COLOURS[0], marker="o", markersize=3, linewidth=1.4, label="by position"
    )
    axes.axhline(result.values[nats, whole], color=INK, linewidth=0.9, linestyle=":", label="all words")
    if result.low is not None and result.high is not None:
        low, high = result.low[nats, rest], result.high[nats, rest]
        label = f"interval over {result.resampled}"
        axes.fill_between(x, low, high, color=COLOURS[0], alpha=0.2, linewidth=0, label=label)
    if result.null is not None:
        axes.plot(x, result.null[nats, rest], color=CHANCE, linestyle="--", linewidth=1.3, label=result.chance)
    axes.set_title("nats per word")
    axes.set_xlabel("position in the sentence")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.04)
    label_ticks(axes.xaxis, [units[place].removeprefix("words ").removeprefix("word ") for place in rest], 9)
    grid_lines(axes, "y")


def _most(axes: Axes, result: Result) -> None:
    """The most surprising words, each once, at its most surprising."""
    columns = result.table("words").columns
    every = np.flatnonzero(columns["surprising"] == "most")
    first = np.sort(np.unique(columns["word"][every], return_index=True)[1])[:_WORDS]
    words, nats = columns["word"][every[first]].tolist(), columns["nats"][every[first]]
    draw_bars(axes, [cut(word, 16) for word in words], nats, None, None, None)
    if result.null is not None:
        level = result.null[result.place("measure", "nats"), result.place("unit", "word")]
        axes.axvline(level, color=CHANCE, linewidth=1.3, linestyle="--")
    axes.set_title("most surprising words")
    axes.set_xlabel("nats")
