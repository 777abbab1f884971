"""Figures of information flow: token × source maps of some layers, or layer × source maps of one token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Array, Result
from pellucid.views.bars import cut
from pellucid.views.corpus_shares import signed_colours
from pellucid.views.style import NOTE, house_style, label_ticks, new_figure, sequential, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LAYERS = 4  # maps abreast
_LONGEST = 11  # letters of a token
_TOKENS = 24  # that have a name along a map
_LINE = 0.115  # inches of a token's name
_SIDE = (1.05, 1.75)  # inches of a map, from few tokens to many


def information_flow_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """Every method's maps: at most four layers of it, or all layers of the only token that was looked at."""
    if len(result.axes["token"]) == 1:
        return _one_token(result, width)
    return _several(result, width)


def _several(result: Result, width: float) -> Figure:
    """Methods down, layers across; columns are the sources."""
    methods, sources = result.axes["measure"], _names(result.axes["source"])
    layers = _spread(len(result.axes["layer"]))
    rows = _names(result.axes["token"])
    side = float(np.clip(_LINE * len(rows), *_SIDE))
    with house_style():
        figure = new_figure(width, 1.35 + len(methods) * (side + 0.3))
        grid = figure.subplots(len(methods), len(layers), squeeze=False)
        for row, method in enumerate(methods):
            shown = shares(str(method), result.values[row][layers])
            for column, layer in enumerate(layers):
                axes = grid[row, column]
                image = _map(axes, shown[column], most=float(np.abs(shown).max()), signed=bool((shown < 0).any()))
                axes.set_title(f"{_said(method)}, layer {result.axes['layer'][layer]}", fontsize=7)
                _sources(axes, sources, bottom=row == len(methods) - 1, across=len(layers))
                label_ticks(axes.yaxis, rows if column == 0 else [""] * len(rows), _room(side))
                axes.tick_params(axis="y", labelsize=6, length=0)
                if column == len(layers) - 1:
                    _bar(figure, axes, image)
        return _finished(figure, result)


def _one_token(result: Result, width: float) -> Figure:
    """Methods down; layers up each map, sources across."""
    methods, layers = result.axes["measure"], result.axes["layer"]
    sources = _names(result.axes["source"])
    side = float(np.clip(0.11 * len(layers), 0.7, 1.8))
    with house_style():
        figure = new_figure(width, 1.45 + len(methods) * (side + 0.32))
        grid = figure.subplots(len(methods), 1, squeeze=False)[:, 0]
        for row, (axes, method) in enumerate(zip(grid, methods, strict=True)):
            cells = shares(str(method), result.values[row, :, 0])
            image = _map(axes, cells, most=float(np.abs(cells).max()), signed=bool((cells < 0).any()))
            axes.invert_yaxis()
            axes.set_title(f"{_said(method)} at {cut(str(result.axes['token'][0]), 24)}", fontsize=8, parse_math=False)
            _sources(axes, sources, bottom=row == len(methods) - 1, across=1)
            label_ticks(axes.yaxis, layers, 8)
            axes.set_ylabel("layer")
            _bar(figure, axes, image)
        return _finished(figure, result)


def shares(method: str, values: Array) -> Array:
    """Maps [layers, …] that can be compared: lengths of vectors as shares of a row's sum, attributions over the largest
    of their layer, others as they are."""
    if method == "attribution":
        largest = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True)
        return values / np.maximum(largest, np.finfo(np.float64).tiny)
    if not method.startswith("norms"):
        return values
    return values / np.maximum(values.sum(-1, keepdims=True), np.finfo(np.float64).tiny)


def _finished(figure: Figure, result: Result) -> Figure:
    figure.suptitle(result.title, fontsize=10)
    notes = ["rows: the token that draws, columns: what it draws on"] if len(result.axes["token"]) > 1 else []
    if any(str(method).startswith("norms") for method in result.axes["measure"]):
        notes.append("norms: shares of each row's sum")
    if "attribution" in result.axes["measure"]:
        notes.append("attribution: over the largest of the layer")
    if (result.values < 0).any():
        notes.append("orange speaks for the target, blue against it")
    lines = [notes] if len(notes) < 3 else [notes[:2], notes[2:]]
    told = "\n".join("; ".join(line) for line in lines)
    figure.supxlabel(told, fontsize=7.5, color=NOTE, parse_math=False)
    return settled(figure)


def _spread(count: int) -> list[int]:
    """Some layers, the first and the last among them."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, _LAYERS)).tolist()})


def _names(labels: Sequence[object]) -> list[str]:
    """Tokens without the numbers before them."""
    return [cut(str(label).partition(" ")[2].strip() or "␣", _LONGEST) for label in labels]


def _said(method: object) -> str:
    return str(method).replace("_", " + ")


def _room(side: float) -> int:
    """Names that find room along a map."""
    return max(4, int(side / _LINE))


def _sources(axes: Axes, names: list[str], *, bottom: bool, across: int) -> None:
    """Names below the lowest map of a column."""
    most = min(_TOKENS, 14) if across > 1 else 2 * _TOKENS
    label_ticks(axes.xaxis, names if bottom else [""] * len(names), most)
    axes.tick_params(axis="x", labelsize=6, length=0, labelrotation=90)


def _map(axes: Axes, cells: Array, *, most: float, signed: bool) -> Any:
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    return axes.imshow(
        cells,
        aspect="auto",
        cmap=signed_colours() if signed else sequential(),
        vmin=-(most or 1.0) if signed else 0.0,
        vmax=most or 1.0,
        interpolation="nearest",
        rasterized=True,
    )


def _bar(figure: Figure, axes: Axes, image: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    bar: Any = figure.colorbar(image, cax=axes.inset_axes((1.03, 0, 0.03, 1)))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=6)
    bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
