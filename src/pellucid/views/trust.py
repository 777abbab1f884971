"""Trust in attributions: insertion and deletion curves over a band of random orders, every measure beside chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Array, Result, ResultError
from pellucid.views.bars import draw_bars
from pellucid.views.style import CHANCE, COLOURS, grid_lines, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CURVES, _LINE, _ROW, _ACROSS = 2.2, 0.16, 0.17, {1: 1, 2: 2, 4: 2}
"""Inches of curves, of a line of their legend and of a bar; panels side by side, three where nothing else is said."""
_ARROWS = {
    "completeness": "completeness error (lower is better)",
    "infidelity": "infidelity (lower is better)",
    "unexplained": "unexplained (lower is better)",
    "sensitivity": "sensitivity (lower is better)",
    "insertion": "insertion (higher is better)",
    "deletion": "deletion (lower is better)",
    "randomisation": "randomisation (near 0 is better)",
}
_LABELS = {"insertion": "share of tokens put in", "deletion": "share of tokens removed"}
_DASHES: tuple[Any, ...] = ("-", (0, (4, 2.5)), (0, (1, 1.6)), (0, (6, 2, 1, 2)))
_MARKS = "os^Dv*PX"
_SHORT = 30
_LONGEST = 22
_APART = 1000


def trust_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """Curves of all methods above, a grey band for random orders; below, a panel of bars for every measure."""
    if list(result.axes) != ["measure", "method"]:
        raise ResultError(f"A figure of trust needs the axes measure and method; this has {list(result.axes)}.")
    measures, methods = ([str(item) for item in result.axes[name]] for name in ("measure", "method"))
    curves = [str(name) for name in result.tables["curves"].axes["curve"]] if "curves" in result.tables else []
    across = _ACROSS.get(len(measures), 3)
    down = -(-len(measures) // across)
    same = _equal(result.table("curves").columns["score"]) if curves else {}
    named = [" = ".join(methods[each] for each in (which, *more)) for which, more in same.items()]
    lines = -(-(len(named) + 1) // _columns(named)) if curves else 0
    heights = [*([_CURVES + _LINE * lines] if curves else []), *[0.75 + _ROW * len(methods)] * down]
    with house_style():
        figure = new_figure(width, 0.9 + sum(heights))
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        if curves:
            _curves(parts[0], result, curves, dict(zip(same, named, strict=True)))
        chance: Any = None
        for row, part in enumerate(parts[1:] if curves else parts):
            panels = part.subplots(1, across, squeeze=False)[0]
            for column, axes in enumerate(panels):
                place = row * across + column
                if place >= len(measures):
                    axes.set_axis_off()
                    continue
                chance = _bars(axes, result, place, methods, named=column == 0)
        if chance is not None:
            figure.legend([chance], [f"chance: {result.chance}"], loc="outside lower center")
        figure.suptitle(result.title, fontsize=10)
        return settled(figure)


def _strokes(count: int, points: int) -> list[dict[str, Any]]:
    """A colour, a dash and a mark for every method.

    Curves may lie on one another: those above have gaps through which the ones below are seen, and marks stand at
    points of their own.
    """
    apart = max(2, min(count, points // 2))
    return [
        {
            "color": COLOURS[at % len(COLOURS)],
            "linestyle": _DASHES[at % len(_DASHES)],
            "linewidth": 1.9 if at % len(_DASHES) == 0 else 1.4,
            "marker": _MARKS[at % len(_MARKS)],
            "markevery": (at % apart, apart),
            "markersize": 4,
            "zorder": 3 + at % len(_DASHES) / 10,
        }
        for at in range(count)
    ]


def _columns(names: list[str]) -> int:
    """Columns of a legend with such names."""
    return 3 if max(map(len, names)) <= _SHORT else 2


def _curves(part: Any, result: Result, curves: list[str], named: dict[int, str]) -> None:
    """The curves of the methods whose places have names, above their legend."""
    table, random = result.table("curves"), result.table("random curves").columns
    shares = np.asarray(table.axes["share"], dtype=np.float64)
    panels = part.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    handles: list[Any] = []
    for at, (name, axes) in enumerate(zip(curves, panels, strict=True)):
        band = axes.fill_between(
            shares, random["low"][at], random["high"][at], color=CHANCE, alpha=0.35, linewidth=0, zorder=1
        )
        axes.plot(shares, random["score"][at], color=CHANCE, linewidth=1.0, zorder=1)
        lines: list[Any] = [
            axes.plot(shares, table.columns["score"][at, which], **stroke)[0]
            for which, stroke in zip(named, _strokes(len(named), len(shares)), strict=True)
        ]
        handles = [*lines, band]
        axes.set_title(name, parse_math=False)
        axes.set_xlabel(_LABELS[name])
        grid_lines(axes, "y")
    panels[0].set_ylabel("score above the empty text")
    labels = [*named.values(), "random orders (95%)"]
    part.legend(handles, labels, loc="outside lower center", ncols=_columns(labels[:-1]), handlelength=3)


def _equal(scores: Any) -> dict[int, list[int]]:
    """Methods whose curves [curve, method, share] can be told apart, each with the further ones that lie on it."""
    found: dict[int, list[int]] = {}
    for at in range(scores.shape[1]):
        first = next((other for other in found if np.allclose(scores[:, at], scores[:, other], atol=2e-3)), None)
        if first is None:
            found[at] = []
        else:
            found[first].append(at)
    return found


def _bars(axes: Axes, result: Result, place: int, methods: list[str], *, named: bool) -> Any:
    """One measure of every method; the grey marks of chance."""
    ends = [None if end is None else end[place] for end in (result.low, result.high)]
    null = None if result.null is None else result.null[place]
    names = [name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…" for name in methods]
    marks = draw_bars(axes, names, result.values[place], null, *ends)
    if not named:
        axes.set_yticks(range(len(methods)), labels=[""] * len(methods))
    measure = str(result.axes["measure"][place])
    axes.set_title(_ARROWS.get(measure, ""), fontsize=8, parse_math=False)
    if measure == "infidelity" and _far_apart(result.values[place], null):
        _logarithmic(axes)
    else:
        axes.axvline(0, color=CHANCE, linewidth=0.5)
    return marks


def _far_apart(values: Array, null: Array | None) -> bool:
    """Whether numbers are so far apart that all but the largest bars could not be seen."""
    every = np.concatenate([values, values if null is None else null])
    every = every[np.isfinite(every)]
    return bool(len(every) and every.min() > 0 and every.max() > _APART * every.min())


def _logarithmic(axes: Axes) -> None:
    """A logarithmic scale with few ticks, whose numbers are plain text."""
    from matplotlib.ticker import LogLocator

    axes.set_xscale("log")
    axes.set_xlabel("on a logarithmic scale")
    axes.xaxis.set_major_locator(LogLocator(numticks=5))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.minorticks_off()
