"""Importance of heads as maps: layers × heads, a panel for every method or change, its first heads marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Array, Coordinate, Result, ResultError
from pellucid.views.interactive.colours import diverging
from pellucid.views.style import CHANCE, INK, NOTE, house_style, label_ticks, new_figure, sequential, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKED = 3
_MOST_ACROSS = 3
_SIGNED = ("zero", "mean", "bleu")


def importance_maps(result: Result, *, width: float = WIDTH) -> Figure:
    """One map per method (and, for ablations alone, per measure and replacement), side by side.

    Amounts are light to dark; changes are blue below zero and orange above it. The first heads carry their rank, and
    what chance gives is marked on the colour bar.
    """
    names, values, null, signed = _panels(result)
    layers, places = _grid(result.axes["head"])
    across = min(len(names), _MOST_ACROSS) if len(names) != 4 else 2
    down = -(-len(names) // across)
    height = float(np.clip(0.75 + 0.15 * len(layers), 1.5, 4.2))
    with house_style():
        figure = new_figure(width, 0.75 + down * (height + 0.35))
        grid = figure.subplots(down, across, squeeze=False)
        for at, axes in enumerate(grid.ravel()):
            if at >= len(names):
                axes.set_axis_off()
                continue
            _panel(figure, axes, _spread(values[at], places), null[at], signed=signed[at])
            _mark(axes, values[at] if not names[at].startswith(("accuracy", "f1", "bleu")) else -values[at], places)
            axes.set_title(names[at], parse_math=False)
            label_ticks(axes.yaxis, layers, 16)
            label_ticks(axes.xaxis, range(places.max(axis=0)[1] + 1), 12)
            axes.set_xlabel("head" if at + across >= len(names) else "")
            axes.set_ylabel("layer" if at % across == 0 else "")
        figure.suptitle(result.title, fontsize=10)
        figure.supxlabel(
            f"1 to {_MARKED}: the heads that matter most        ▸ what chance gives",
            fontsize=7.5,
            color=NOTE,
            parse_math=False,
        )
        return settled(figure)


def _panels(result: Result) -> tuple[list[str], Array, Array, list[bool]]:
    """Names, values and chance of the panels [panel, head], and which hold changes that may go either way."""
    if "head" not in result.axes or result.null is None:
        raise ResultError(f"Maps of importance need an axis 'head'; this {result.kind!r} has {list(result.axes)}.")
    measures = [str(name) for name in result.axes["measure"]]
    if "replacement" not in result.axes:
        return measures, result.values, result.null, [name in _SIGNED for name in measures]
    names = [f"{measure}, {how}" for measure in measures for how in result.axes["replacement"]]
    count = len(result.axes["head"])
    return names, result.values.reshape(-1, count), result.null.reshape(-1, count), [True] * len(names)


def _grid(heads: Sequence[Coordinate]) -> tuple[list[str], Array]:
    """The layers, in order, and the row and column [heads, 2] of every head, named LAYER.HEAD."""
    parts = [str(head).rpartition(".") for head in heads]
    layers = list(dict.fromkeys(layer for layer, _, _ in parts))
    return layers, np.array([(layers.index(layer), int(head)) for layer, _, head in parts])


def _spread(values: Array, places: Array) -> Array:
    """Values [heads] as a map [layers, most heads], empty where a layer has fewer."""
    grid = np.full(places.max(axis=0) + 1, np.nan)
    grid[places[:, 0], places[:, 1]] = values
    return grid


def _panel(figure: Figure, axes: Axes, values: Array, null: Array, *, signed: bool) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import MaxNLocator

    low, high = float(min(np.nanmin(values), null.min())), float(max(np.nanmax(values), null.max()))
    colours: Any = sequential()
    if signed:
        most = max(abs(low), abs(high)) or 1.0
        low, high = -most, most
        colours = ListedColormap(diverging(np.linspace(-1, 1, 256)) / 255, "changes")  # pyright: ignore[reportArgumentType]
    elif high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        low, high = low - 0.5, high + 0.5
    elif 0 <= low < high / 4:
        low = 0.0
    axes.set_facecolor("#F2F2F2")
    image = axes.imshow(
        values, aspect="auto", cmap=colours, vmin=low, vmax=high, interpolation="nearest", rasterized=True
    )
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    bar: Any = figure.colorbar(image, cax=axes.inset_axes((1.04, 0, 0.04, 1)))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)
    bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    for level in sorted({float(null.min()), float(null.max())}):
        bar.ax.axhline(level, color=CHANCE, linewidth=1.2)
        bar.ax.plot(0, level, ">", color=CHANCE, markersize=4, clip_on=False, transform=bar.ax.get_yaxis_transform())


def _mark(axes: Axes, values: Array, places: Array) -> None:
    """The ranks of the first heads, in their cells."""
    for rank, head in enumerate(np.argsort(-values, kind="stable")[:_MARKED], start=1):
        row, column = places[head]
        axes.text(
            column,
            row,
            str(rank),
            ha="center",
            va="center",
            fontsize=6.5,
            color=INK,
            bbox={"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
        )
