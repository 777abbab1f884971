"""Maps of similarity: every site of one model against every site of another, with random models beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Array, Coordinate, Result
from pellucid.views.style import CHANCE, NOTE, house_style, label_ticks, new_figure, sequential, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLES = {"random left": "left model random", "random right": "right model random"}
_MOST_NUMBERS = 8  # sites a side whose scores are written into the cells
_TICKS = 10


def similarity_map(result: Result, *, width: float = WIDTH) -> Figure:
    """A row for every score: its map, and the same map with a randomly initialised model on one side, in one colouring.

    The range of what chance gives is marked on the colour bar.
    """
    measures = [str(name) for name in result.axes["measure"]]
    others = [name for name in _TITLES if name in result.tables]
    across = 1 + len(others)
    with house_style():
        panel = (width - 0.9) / max(across, 2)
        figure = new_figure(width, 0.7 + len(measures) * (panel * _ratio(result) + 0.55))
        grid = figure.subplots(len(measures), across, squeeze=False)
        for row, measure in enumerate(measures):
            maps = [result.values[row], *(result.table(name).columns["value"][row] for name in others)]
            null = None if result.null is None else result.null[row]
            low = min(0.0, *(float(each.min()) for each in maps))
            high = max(1.0, *(float(each.max()) for each in maps))
            images = [_panel(axes, values, low, high) for axes, values in zip(grid[row], maps, strict=True)]
            for place, axes in enumerate(grid[row]):
                axes.set_title(measure if place == 0 else f"{measure}, {_TITLES[others[place - 1]]}", parse_math=False)
                _label(axes, result, first=place == 0, last=row == len(measures) - 1)
            _bar(figure, grid[row][-1], images[-1], null)
        figure.suptitle(result.title, fontsize=10)
        if result.null is not None:
            figure.supxlabel(f"▸ {result.chance}", fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)


def _ratio(result: Result) -> float:
    """Height over width of a map, within reason."""
    left, right = len(result.axes["left"]), len(result.axes["right"])
    return float(np.clip(left / right, 0.35, 1.1)) * 0.92


def _panel(axes: Axes, values: Array, low: float, high: float) -> Any:
    image = axes.imshow(
        values, aspect="auto", cmap=sequential(), vmin=low, vmax=high, interpolation="nearest", rasterized=True
    )
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    if max(values.shape) <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(values):
            light = (float(value) - low) / (high - low) > 0.42
            axes.text(
                column,
                row,
                f"{float(value):.2f}".replace("0.", ".", 1) if 0 <= value < 1 else f"{float(value):.2f}",
                ha="center",
                va="center",
                fontsize=6.5,
                color="white" if light else "#222222",
            )
    return image


def _label(axes: Axes, result: Result, *, first: bool, last: bool) -> None:
    for axis, side, shown in ((axes.yaxis, "left", first), (axes.xaxis, "right", last)):
        kind, names = _short(result.axes[side])
        label_ticks(axis, names, _TICKS)
        axis.set_label_text(f"{side}: {kind}" if shown else "")


def _short(names: Sequence[Coordinate]) -> tuple[str, list[str]]:
    """What all names begin with, and the rest of each: `resid` and 0, 1, 2 …; names that differ stay whole."""
    parts = [str(name).rpartition(".") for name in names]
    if len({part[0] for part in parts}) == 1 and parts[0][0]:
        return parts[0][0], [part[2] for part in parts]
    return "sites", [str(name) for name in names]


def _bar(figure: Figure, axes: Axes, image: Any, null: Array | None) -> None:
    bar: Any = figure.colorbar(image, cax=axes.inset_axes((1.05, 0, 0.05, 1)))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)
    if null is not None:
        for level in sorted({float(null.min()), float(null.max())}):
            bar.ax.axhline(level, color=CHANCE, linewidth=1.2)
            bar.ax.plot(
                0, level, ">", color=CHANCE, markersize=4, clip_on=False, transform=bar.ax.get_yaxis_transform()
            )
