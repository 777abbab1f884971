"""Figures that set heads of several models side by side: fewer heads, when each goes, signed maps, lines by depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import Array
from pellucid.views.corpus_shares import signed_colours
from pellucid.views.head_map import FUNCTIONS
from pellucid.views.style import (
    CHANCE,
    COLOURS,
    FAINT,
    INK,
    NOTE,
    grid_lines,
    house_style,
    label_ticks,
    new_figure,
    sequential,
    settled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.2
_MARKS = ("o", "s", "^")
_OWN: dict[str, str] = dict(zip(FUNCTIONS[:3], COLOURS, strict=False))
"""The colours that positional, syntactic and rare-word heads have in all maps."""


@dataclass(frozen=True, eq=False)
class Band:
    """A line [n] with both ends of its interval."""

    values: Array
    low: Array | None = None
    high: Array | None = None


def kept_curves(
    panels: Mapping[str, tuple[Sequence[int], Mapping[str, Band], int]], *, level: float, title: str
) -> Figure:
    """What is kept over the number of heads left, a panel for each model: (counts, lines, the chosen count).

    The last line of each panel is a control, in grey; `level` is drawn across.
    """
    from matplotlib.ticker import MaxNLocator

    least = min(float(np.min(band.values)) for _, lines, _ in panels.values() for band in lines.values())
    lowest = float(np.clip(least - 0.08, -0.35, 0.6))
    with house_style():
        figure = new_figure(WIDTH, 3.5)
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (name, (counts, lines, chosen)) in zip(grid, panels.items(), strict=True):
            for at, (told, band) in enumerate(lines.items()):
                control = at == len(lines) - 1
                colour = CHANCE if control else COLOURS[at]
                style = {"linestyle": "--" if control else "-", "marker": _MARKS[at], "markersize": 3.2}
                axes.plot(counts, band.values, color=colour, linewidth=1.3, label=told, zorder=4 - at, **style)
                if band.low is not None and band.high is not None:
                    axes.fill_between(counts, band.low, band.high, color=colour, alpha=0.16, linewidth=0)
            axes.axhline(level, color=INK, linewidth=0.8, linestyle=":", label=f"{level:.0%}")
            axes.axvline(chosen, color=COLOURS[0], linewidth=0.8, linestyle=":", label="chosen")
            axes.set_title(name, parse_math=False)
            axes.set_xlabel("heads left")
            axes.set_xlim(max(counts) * 1.03, -0.03 * max(counts))
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axes.set_ylim(lowest, 1.08)
            grid_lines(axes, "y")
        grid[0].set_ylabel("kept of what it is better than chance")
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle(title, fontsize=10, parse_math=False)
        return settled(figure)


def lasting_maps(panels: Mapping[str, Mapping[str, tuple[float, str]]], *, title: str) -> Figure:
    """Layers × heads, {head: (share of the way that it was open, its function or nothing)}, a panel for each model.

    Dark heads stayed open for long; a square in the colour of a function marks heads that have one.
    """
    grids = [_placed(held) for held in panels.values()]
    rows = max(len(layers) for layers, _ in grids)
    used = [name for name in _OWN if any(own == name for held in panels.values() for _, own in held.values())]
    with house_style():
        figure = new_figure(WIDTH, 1.5 + float(np.clip(0.26 * rows, 1.6, 6.0)))
        parts = figure.subplots(
            1, len(panels), squeeze=False, width_ratios=[_across(held) for held in panels.values()]
        )[0]
        image: Any = None
        for axes, (name, held), (layers, places) in zip(parts, panels.items(), grids, strict=True):
            image = _lasting(axes, held, layers, places)
            axes.set_title(name, parse_math=False)
            axes.set_xlabel("head")
        bar: Any = figure.colorbar(image, ax=list(parts), pad=0.01, fraction=0.03)
        bar.outline.set_visible(False)
        bar.set_label("share of the way that it is open")
        _function_legend(figure, used)
        figure.suptitle(title, fontsize=10, parse_math=False)
        return settled(figure)


def _across(held: Mapping[str, Any]) -> float:
    return 3.0 + 1 + max(int(name.rpartition(".")[2]) for name in held)


def _placed(held: Mapping[str, Any]) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """The layers in order, and the row and column of every head, named LAYER.HEAD."""
    parts = {name: name.rpartition(".") for name in held}
    layers = list(dict.fromkeys(layer for layer, _, _ in parts.values()))
    return layers, {name: (layers.index(layer), int(head)) for name, (layer, _, head) in parts.items()}


def _lasting(
    axes: Axes, held: Mapping[str, tuple[float, str]], layers: list[str], places: Mapping[str, tuple[int, int]]
) -> Any:
    from matplotlib.patches import Rectangle

    cells = np.full((len(layers), 1 + max(column for _, column in places.values())), np.nan)
    for name, place in places.items():
        cells[place] = held[name][0]
    axes.set_facecolor("white")
    image = axes.imshow(
        cells, aspect="auto", cmap=sequential(), vmin=0, vmax=1, interpolation="nearest", rasterized=True
    )
    for name, (row, column) in places.items():
        if held[name][1]:
            own = _OWN[held[name][1]]
            square = Rectangle((column - 0.22, row - 0.22), 0.44, 0.44, facecolor=own, edgecolor="white", linewidth=0.8)
            axes.add_patch(square)
    for edge in range(1, cells.shape[0]):
        axes.axhline(edge - 0.5, color="white", linewidth=0.8)
    for edge in range(1, cells.shape[1]):
        axes.axvline(edge - 0.5, color="white", linewidth=0.8)
    label_ticks(axes.yaxis, layers, 16)
    label_ticks(axes.xaxis, range(cells.shape[1]), 12)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image


def _function_legend(figure: Figure, used: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    if used:
        handles = [Patch(color=_OWN[name], label=name) for name in used]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def signed_maps(
    panels: Mapping[str, tuple[Sequence[str], Sequence[str], Array]],
    *,
    title: str,
    label: str,
    across: str,
    note: str = "",
) -> Figure:
    """Signed numbers as maps side by side, {name: (rows, columns, numbers [rows, columns])}: blue is below 0,
    and a number that is not there stays empty."""
    reach = max((float(np.nanmax(np.abs(cells))) for _, _, cells in panels.values()), default=0.0) or 1.0
    rows = max(len(names) for names, _, _ in panels.values())
    with house_style():
        figure = new_figure(WIDTH, 1.5 + float(np.clip(0.2 * rows, 1.6, 6.0)))
        parts = figure.subplots(1, len(panels), squeeze=False)[0]
        image: Any = None
        for axes, (name, (down, over, cells)) in zip(parts, panels.items(), strict=True):
            image = axes.imshow(
                cells,
                aspect="auto",
                cmap=signed_colours(),
                vmin=-reach,
                vmax=reach,
                interpolation="nearest",
                rasterized=True,
            )
            label_ticks(axes.yaxis, down, 24)
            label_ticks(axes.xaxis, over, 10)
            axes.tick_params(length=0)
            for spine in axes.spines.values():
                spine.set_visible(False)
            axes.set_title(name, parse_math=False)
            axes.set_xlabel(across)
        bar: Any = figure.colorbar(image, ax=list(parts), pad=0.01, fraction=0.03)
        bar.outline.set_visible(False)
        bar.set_label(label)
        figure.suptitle(title, fontsize=10, parse_math=False)
        figure.supxlabel(note, fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)


def depth_lines(
    panels: Mapping[str, tuple[Sequence[str], Mapping[str, Band], Mapping[str, Array]]], *, title: str, label: str
) -> Figure:
    """Lines over the layers of each model, {name: (layers, lines with bands, controls)}; controls are grey."""
    with house_style():
        figure = new_figure(WIDTH, 3.2)
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (name, (layers, lines, controls)) in zip(grid, panels.items(), strict=True):
            across = np.arange(len(layers))
            middle = (across + 0.5) / len(layers)
            inside = across[(middle > 1 / 3) & (middle < 2 / 3)]
            if len(inside):
                axes.axvspan(
                    inside[0] - 0.5, inside[-1] + 0.5, color=FAINT, alpha=0.35, linewidth=0, label="middle third"
                )
            for at, (told, band) in enumerate(lines.items()):
                axes.plot(across, band.values, color=COLOURS[at], marker="o", markersize=2.8, linewidth=1.4, label=told)
                if band.low is not None and band.high is not None:
                    axes.fill_between(across, band.low, band.high, color=COLOURS[at], alpha=0.2, linewidth=0)
            for (told, values), style in zip(controls.items(), ("--", ":"), strict=False):
                axes.plot(across, values, color=CHANCE, linestyle=style, linewidth=1.3, label=told)
            axes.set_title(name, parse_math=False)
            axes.set_xlabel("layer")
            label_ticks(axes.xaxis, layers, 10)
            axes.set_xlim(-0.5, len(layers) - 0.5)
            grid_lines(axes, "y")
        grid[0].set_ylabel(label)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle(title, fontsize=10, parse_math=False)
        return settled(figure)
