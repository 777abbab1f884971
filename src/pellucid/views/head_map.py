"""Maps of heads: every head coloured by its function, where attention goes by layer, and clusters on a plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Result, ResultError
from pellucid.views.style import CHANCE, COLOURS, INK, NOTE, house_style, label_ticks, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FUNCTIONS = ("positional", "syntactic", "rare words", "sink", "induction", "duplicate")
"""Functions in the order of their colours."""
NONE_COLOUR = "#EDEDED"
_COLOURS: dict[str, str] = dict(zip(FUNCTIONS, (*COLOURS[:3], COLOURS[5], COLOURS[3], COLOURS[4]), strict=True))
_WIDE_CELL = 0.45  # inches from which on a cell has room for a word
_MOST_TARGETS = 40
_MOST_NAMES = 24


def function_map(result: Result, *, width: float = WIDTH, links: Mapping[tuple[int, ...], str] | None = None) -> Figure:
    """Layers × heads, each cell in the colour of the head's main function; a smaller square is its second one.

    Where cells are wide enough, they also tell the offset or relation. `links` are addresses that cells lead to in an
    SVG file, by their place (row, column).
    """
    labels = result.table("labels").columns
    layers, heads = result.axes["layer"], result.axes["head"]
    height = float(np.clip(0.28 * len(layers), 0.9, 7.0))
    with house_style():
        figure = new_figure(width, 1.25 + height)
        axes: Axes = figure.subplots()
        wide = (width - 1.0) / len(heads) >= _WIDE_CELL and height / len(layers) >= 0.2
        for place in np.argwhere(np.isfinite(result.values[0])):  # a layer may have fewer heads than others
            row, column = place.tolist()
            _cell(axes, (row, column), labels, wide=wide, link=(links or {}).get((row, column)))
        _grid(axes, result)
        _legend(figure, labels["all"])
        axes.set_title(result.title, fontsize=10, parse_math=False)
        return settled(figure)


def changed_map(result: Result, *, width: float = WIDTH) -> Figure:
    """Functions of heads by raw and by effective attention, side by side; heads whose main one changes have a frame."""
    from matplotlib.patches import Rectangle

    labels = result.table("heads").columns
    height = float(np.clip(0.28 * len(result.axes["layer"]), 0.9, 7.0))
    with house_style():
        figure = new_figure(width, 1.35 + height)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, weights in zip(panels, ("raw", "effective"), strict=True):
            for place in np.argwhere(np.isfinite(result.values[0])):
                row, column = place.tolist()
                _cell(axes, (row, column), {"all": labels[weights]}, wide=False, link=None)
                if result.measure("changed")[row, column]:
                    corner = (column - 0.46, row - 0.44)
                    axes.add_patch(Rectangle(corner, 0.92, 0.88, fill=False, edgecolor=INK, linewidth=1.4))
            _grid(axes, result)
            axes.set_title(f"{weights} attention", parse_math=False)
        panels[1].set_ylabel("")
        _legend(figure, np.concatenate([labels["raw"], labels["effective"]]), counted=False)
        figure.suptitle(result.title, fontsize=10, parse_math=False)
        return settled(figure)


def _grid(axes: Axes, result: Result) -> None:
    """Axes of layers and heads, the first layer on top."""
    layers, heads = result.axes["layer"], result.axes["head"]
    axes.set_xlim(-0.5, len(heads) - 0.5)
    axes.set_ylim(len(layers) - 0.5, -0.5)
    label_ticks(axes.yaxis, layers, 16)
    label_ticks(axes.xaxis, heads, 24)
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")


def _cell(axes: Axes, place: tuple[int, int], labels: Any, *, wide: bool, link: str | None) -> None:
    from matplotlib.patches import Rectangle

    row, column = place
    own = [name for name in str(labels["all"][place]).split("; ") if name in _COLOURS]
    colour = _COLOURS[own[0]] if own else NONE_COLOUR
    axes.add_patch(Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, facecolor=colour, linewidth=0, url=link))
    for number, name in enumerate(own[1:3]):
        side = Rectangle(
            (column + 0.22 - 0.24 * number, row + 0.14),
            0.2,
            0.26,
            facecolor=_COLOURS[name],
            edgecolor="white",
            linewidth=0.8,
        )
        axes.add_patch(side)
    told = {"positional": "offset", "syntactic": "relation"}.get(own[0] if own else "")
    if wide and told is not None:
        text = str(labels[told][place]).removesuffix(" to head").removesuffix(" to dependent").replace("-", "−")
        size = 7.0 if len(text) <= 6 else 5.0
        axes.text(
            column,
            row,
            text[:12],
            ha="center",
            va="center",
            fontsize=size,
            color="white",
            parse_math=False,
            clip_on=True,
        )


def _legend(figure: Figure, every: Any, *, counted: bool = True) -> None:
    """One entry for each function that some head has, with how many (or not), and for those without."""
    from matplotlib.patches import Patch

    counts = {name: sum(name in str(each).split("; ") for each in every.ravel()) for name in FUNCTIONS}
    none = int((every == "none").sum())
    told = {name: f"{name} ({count})" if counted else name for name, count in [*counts.items(), ("none", none)]}
    handles = [Patch(color=_COLOURS[name], label=told[name]) for name, count in counts.items() if count]
    if none:
        handles.append(Patch(color=NONE_COLOUR, label=told["none"].replace("none", "none of these")))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(4, max(1, len(handles))))


def alignment_map(result: Result, *, width: float = WIDTH) -> Figure:
    """Targets × layers: the mean share of a layer's heads above uniform attention; the targets that stand out most."""
    table = result.table("layers")
    above = table.columns["share"] - table.columns["chance"]  # [target, layer]
    chosen = np.sort(np.argsort(-np.abs(above).max(1), kind="stable")[:_MOST_TARGETS])
    names = [str(result.axes["target"][at]) for at in chosen]
    reach = float(np.abs(above).max()) or 1.0
    with house_style():
        figure = new_figure(width, 1.0 + 0.2 * len(names))
        axes: Axes = figure.subplots()
        image = axes.imshow(above[chosen], aspect="auto", cmap="RdBu_r", vmin=-reach, vmax=reach, rasterized=True)
        axes.set_yticks(range(len(names)), labels=names, parse_math=False)
        label_ticks(axes.xaxis, result.axes["layer"], 24)
        axes.set_xlabel("layer")
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        bar: Any = figure.colorbar(image, ax=axes, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label("share of attention above uniform attention")
        axes.set_title(result.title, fontsize=10, parse_math=False)
        if len(chosen) < len(above):
            figure.supxlabel(f"the {len(chosen)} of {len(above)} that stand out most", fontsize=7.5, color=NOTE)
        return settled(figure)


def cluster_plane(result: Result, *, width: float = WIDTH) -> Figure:
    """Every head as a point, near those whose attention is alike, in the colour of its cluster."""
    columns = result.table("places").columns
    if not len(columns["x"]):
        raise ResultError("There are no heads to draw.")
    numbers = [int(number) for number in np.unique(columns["cluster"])]
    with house_style():
        figure = new_figure(width, 0.62 * width)
        axes: Axes = figure.subplots()
        for number in numbers:
            mine = columns["cluster"] == number
            alone = number > len(COLOURS)
            axes.scatter(
                columns["x"][mine],
                columns["y"][mine],
                s=26,
                color=CHANCE if alone else COLOURS[number - 1],
                edgecolors="white",
                linewidths=0.4,
                label=None if alone else f"cluster {number} ({int(mine.sum())} heads)",
            )
        _names(axes, result, columns)
        axes.set_xlabel("distances kept as well as a plane can")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.margins(0.12)
        rest = [number for number in numbers if number > len(COLOURS)]
        if rest:
            axes.scatter([], [], s=26, color=CHANCE, label=f"{len(rest)} smaller clusters")
        figure.legend(loc="outside lower center", ncols=4)
        axes.set_title(result.title, fontsize=10, parse_math=False)
        return settled(figure)


def _names(axes: Axes, result: Result, columns: Any) -> None:
    """Names of heads, each only where no other name is near."""
    x, y = columns["x"], columns["y"]
    scale = max(float(np.ptp(x)), 1e-9), max(float(np.ptp(y)), 1e-9)
    taken: list[tuple[float, float]] = []
    for at in np.argsort(-(x**2 + y**2), kind="stable"):
        here = float(x[at]) / scale[0], float(y[at]) / scale[1]
        if len(taken) >= _MOST_NAMES:
            break
        if all(abs(here[0] - other[0]) > 0.09 or abs(here[1] - other[1]) > 0.06 for other in taken):
            taken.append(here)
            name = str(result.axes["head"][at])
            axes.annotate(
                name, (x[at], y[at]), (3, 3), textcoords="offset points", fontsize=6.5, color=INK, parse_math=False
            )
