"""Trajectories of neurons: the mean at every word, one line for each kind of sentence, with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Result, ResultError
from pellucid.views.style import CHANCE, COLOURS, NOTE, grid_lines, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 2.3
_MARKS = ("o", "s", "^", "D", "v", "P")


def trajectory_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """One panel per neuron, two abreast; an example of the words of every kind stands below."""
    from pellucid.neurons import Trajectories

    if not isinstance(result, Trajectories):
        raise ResultError(f"This figure shows trajectories of neurons, and not a {result.kind!r}.")
    neurons = [str(name) for name in result.axes["measure"]]
    across = min(2, len(neurons))
    down = -(-len(neurons) // across)
    words = result.table("words").columns["word"]  # [kind, position]
    labels = ["\n".join(dict.fromkeys(words[:, place].tolist())) for place in range(words.shape[1])]
    with house_style():
        figure = new_figure(width, 0.8 + down * _HEIGHT)
        grid: Any = figure.subplots(down, across, squeeze=False)
        for place, axes in enumerate(grid.ravel()):
            if place >= len(neurons):
                axes.set_axis_off()
                continue
            _lines(axes, result, place)
            axes.set_title(neurons[place], parse_math=False)
            axes.set_xticks(range(len(labels)), labels, parse_math=False)
        handles, names = grid.ravel()[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names))
        figure.suptitle(result.title, fontsize=10)
        figure.supylabel("activation", fontsize=8.5, color=NOTE)
        return settled(figure)


def _lines(axes: Axes, result: Result, neuron: int) -> None:
    """The lines of one neuron over words, and the mean of all kinds."""
    assert result.null is not None
    x = np.arange(result.values.shape[2])
    for kind, name in enumerate(result.axes["stimulus"]):
        colour, mark = COLOURS[kind % len(COLOURS)], _MARKS[kind % len(_MARKS)]
        axes.plot(x, result.values[neuron, kind], color=colour, linewidth=1.4, marker=mark, markersize=3,
                  label=str(name), zorder=3)  # fmt: skip
        if result.low is not None and result.high is not None:
            ends = result.low[neuron, kind], result.high[neuron, kind]
            axes.fill_between(x, *ends, color=colour, alpha=0.2, linewidth=0)
    axes.plot(x, result.null[neuron, 0], color=CHANCE, linewidth=1.2, linestyle="--", label="mean of all kinds")
    axes.margins(x=0.05)
    grid_lines(axes, "y")
