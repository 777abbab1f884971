"""Explained neurons: a point for every neuron, how well a concept explains it against how often answers are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.results import WIDTH, Result
from pellucid.views.style import CHANCE, COLOURS, grid_lines, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def explained_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """Accuracy where each neuron fires over its best score; dashed, the accuracy of all answers."""
    columns = result.table("neurons").columns
    there = columns["answers"] > 0
    with house_style():
        figure = new_figure(width, 3.2)
        axes = figure.subplots()
        axes.scatter(
            columns["score"][there], columns["accuracy"][there], s=9, color=COLOURS[0], alpha=0.6, linewidths=0
        )
        axes.axhline(float(result.provenance.arguments["right"]), color=CHANCE, linestyle="--", linewidth=1.0,
                     label="accuracy of all answers")  # fmt: skip
        axes.set_title(f"rank correlation {float(result.values[0]):+.2f}, chance 0", parse_math=False)
        axes.set_xlabel("how well its best class explains it")
        axes.set_ylabel("accuracy where it fires")
        axes.margins(0.05)
        grid_lines(axes, "both")
        figure.legend(loc="outside lower center")
        figure.suptitle(result.title, fontsize=10)
        return settled(figure)
