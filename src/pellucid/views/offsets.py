"""Offsets: how far, and on which side, stands the word that a head attends to most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, Coordinate, Result, ResultError
from pellucid.views.style import CHANCE, COLOURS, grid_lines, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def offset_histogram(
    result: Result, *, heads: Sequence[tuple[Coordinate, int]] | None = None, most: int = 9, width: float = WIDTH
) -> Figure:
    """Histograms of the argmax offset (key − query, in words), one per head given as (layer, head).

    Without `heads`, those `most` heads are shown whose argmax stands at one offset most often. Where the table has a
    column `chance`, it is drawn in grey.
    """
    table = result.table("offsets")
    share = table.columns["share"]  # [offset, layer, head]
    layers, numbers, offsets = table.axes["layer"], table.axes["head"], table.axes["offset"]
    if heads is None:
        order = np.argsort(-share.max(axis=0).ravel(), kind="stable")[:most]
        chosen = [divmod(int(place), len(numbers)) for place in order]
    else:
        chosen = [(result.place("layer", layer), result.place("head", head)) for layer, head in heads]
    if not chosen:
        raise ResultError("There is nothing to draw: no head was chosen.")
    middle, step = len(offsets) // 2, max(1, (len(offsets) - 3) // 4)
    ticks = [0, middle - step, middle, middle + step, len(offsets) - 1]
    across = min(3, len(chosen))
    down = -(-len(chosen) // across)
    with house_style():
        figure = new_figure(width, 0.6 + 1.45 * down)
        grid = figure.subplots(down, across, squeeze=False, sharey=True)
        for place, axes in enumerate(grid.ravel()):
            if place >= len(chosen):
                axes.set_axis_off()
                continue
            layer, head = chosen[place]
            axes.bar(range(len(offsets)), share[:, layer, head], width=0.8, color=COLOURS[0], linewidth=0)
            if "chance" in table.columns:
                chance = table.columns["chance"][:, layer, head]
                axes.step(range(len(offsets)), chance, where="mid", color=CHANCE, linewidth=1.2)
            axes.set_title(f"layer {layers[layer]}, head {numbers[head]}")
            axes.set_xticks(ticks, labels=[str(offsets[tick]).replace("-", "−") for tick in ticks])
            axes.set_xlabel("offset in words" if place + across >= len(chosen) else "")
            axes.set_ylabel("share" if place % across == 0 else "")
            grid_lines(axes, "y")
        figure.suptitle("Where the largest weight goes, by distance", fontsize=10)
        if "chance" in table.columns:
            handle = grid.ravel()[0].lines[0]
            figure.legend([handle], ["a randomly initialised model's"], loc="outside lower center")
        return settled(figure)
