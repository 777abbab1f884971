"""Pruning: quality over the number of heads left, for every way to choose them, above the gates of the heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Result, ResultError
from pellucid.views.style import CHANCE, COLOURS, INK, grid_lines, house_style, new_figure, sequential, settled
from pellucid.written import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CURVE, _ROW, _MOST_ROWS = 2.7, 0.17, 48
_NAMES = {"gates": "learned gates", "importance": "least important first", "random": "random order (mean)"}
_MARKS = {"gates": "o", "importance": "s", "random": "^"}
_WIDEST = 0.42  # inches of a cell


def pruning_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """Curves with their intervals and chance; below, a row of cells for every layer: the gates at the chosen point."""
    if list(result.axes) != ["method", "heads"]:
        raise ResultError(f"A figure of pruning needs the axes method and heads; this has {list(result.axes)}.")
    rows = _rows(result)
    shown = len(rows) <= _MOST_ROWS
    below = 0.65 + _ROW * len(rows)
    with house_style():
        figure = new_figure(width, 1.0 + _CURVE + (below if shown else 0.0))
        heights = [_CURVE, below] if shown else [_CURVE]
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        _curves(parts[0].subplots(), result)
        parts[0].legend(loc="outside lower center", ncols=3)
        if shown:
            _gates(parts[1], result, rows, width)
        figure.suptitle(result.title, fontsize=10)
        return settled(figure)


def _curves(axes: Axes, result: Result) -> None:
    from matplotlib.ticker import MaxNLocator

    counts = np.asarray(result.axes["heads"], dtype=np.float64)
    alone = len(counts) == 1
    for at, method in enumerate(str(item) for item in result.axes["method"]):
        colour = COLOURS[at]
        if result.low is not None and result.high is not None and not alone:
            axes.fill_between(counts, result.low[at], result.high[at], color=colour, alpha=0.15, linewidth=0, zorder=1)
        axes.plot(
            counts,
            result.values[at],
            color=colour,
            linewidth=1.4,
            marker=_MARKS.get(method, "o"),
            markersize=3.2,
            label=_NAMES.get(method, method),
            zorder=4 - at,
        )
    told = result.provenance.arguments
    if result.null is not None:
        level = float(result.null[0, 0])
        if _near(result):
            axes.axhline(level, color=CHANCE, linewidth=1.2, linestyle="--", label="chance")
        else:
            axes.plot(
                [],
                [],
                color=CHANCE,
                linewidth=1.2,
                linestyle="--",
                label=f"chance: {number(level, digits=4)} (off the scale)",
            )
    chosen = told.get("chosen")
    if chosen is not None:
        axes.axvline(chosen, color=INK, linewidth=0.8, linestyle=":", label=f"chosen: {chosen} heads")
    axes.set_xlim(counts.max() + 0.4, max(counts.min() - 0.4, -0.4))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("heads left")
    score = str(told.get("score", "score"))
    if score == "perplexity":
        axes.set_yscale("log")
        _plain_logs(axes)
    axes.set_ylabel(f"{score} ({'lower' if score == 'perplexity' else 'higher'} is better)")
    axes.set_title(f"{score} with ever fewer heads", parse_math=False)
    grid_lines(axes, "y")


def _plain_logs(axes: Axes) -> None:
    """Numbers as people write them along a logarithmic axis, also where it spans less than a power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    near = high / low < 8
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 7, 8) if near else (1, 2, 5), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _near(result: Result) -> bool:
    """Whether the line of chance would not push the curves into a corner; the page tells the number anyway."""
    assert result.null is not None
    if result.provenance.arguments.get("score") != "perplexity":
        return True
    return float(result.null[0, 0]) < 20 * float(result.values.max())


def _rows(result: Result) -> dict[str, list[float]]:
    """The gates of every layer's heads at the chosen point, in the model's order."""
    table = result.table("gates")
    at = result.place("heads", int(result.provenance.arguments["chosen"]))
    found: dict[str, list[float]] = {}
    for name, gate in zip(table.axes["head"], table.columns["gate"][at].tolist(), strict=True):
        found.setdefault(str(name).rpartition(".")[0], []).append(gate)
    return found


def _gates(part: Any, result: Result, rows: dict[str, list[float]], width: float) -> None:
    """A cell for every head: dark where its gate is open, empty with a frame where it is closed."""
    from matplotlib.patches import Rectangle

    across = max(len(gates) for gates in rows.values())
    colours, most = sequential(), min(_WIDEST * max(across, 4) / (width - 1.5), 0.99)
    axes, rest = part.subplots(1, 2, width_ratios=[most, 1 - most])
    rest.set_axis_off()
    for at, gates in enumerate(rows.values()):
        for head, gate in enumerate(gates):
            face = colours(0.25 + 0.6 * gate) if gate > 0 else "white"
            axes.add_patch(Rectangle((head - 0.46, at - 0.42), 0.92, 0.84, facecolor=face, edgecolor=CHANCE, lw=0.5))
    axes.set_xlim(-0.5, max(across, 4) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), labels=[_layer(name) for name in rows])
    step = max(1, across // 16)
    axes.set_xticks(range(0, across, step))
    axes.set_xlabel("head (empty: closed; light: nearly)")
    left, total = len([gate for gates in rows.values() for gate in gates if gate > 0]), sum(map(len, rows.values()))
    axes.set_title(f"{left} of {total} heads left")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _layer(name: str) -> str:
    stack, _, layer = name.rpartition(".")
    return f"{stack} layer {layer}" if stack else f"layer {layer}"
