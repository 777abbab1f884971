"""Trust in attributions: insertion and deletion curves over a band of random orders, every measure beside chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Result, ResultError
from pellucid.views.bars import draw_bars
from pellucid.views.style import CHANCE, COLOURS, grid_lines, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CURVES, _ROW, _ACROSS = 2.5, 0.17, {1: 1, 2: 2, 4: 2}
"""Inches of the curves and of a bar; panels side by side, three where nothing else is said."""
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


def trust_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """Curves of all methods above, a grey band for random orders; below, a panel of bars for every measure."""
    if list(result.axes) != ["measure", "method"]:
        raise ResultError(f"A figure of trust needs the axes measure and method; this has {list(result.axes)}.")
    measures, methods = ([str(item) for item in result.axes[name]] for name in ("measure", "method"))
    curves = [str(name) for name in result.tables["curves"].axes["curve"]] if "curves" in result.tables else []
    across = _ACROSS.get(len(measures), 3)
    down = -(-len(measures) // across)
    heights = [*([_CURVES] if curves else []), *[0.75 + _ROW * len(methods)] * down]
    with house_style():
        figure = new_figure(width, 0.9 + sum(heights) + (0.16 * -(-len(methods) // 3) if curves else 0.0))
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        if curves:
            _curves(parts[0], result, curves, methods)
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


def _curves(part: Any, result: Result, curves: list[str], methods: list[str]) -> None:
    table, random = result.table("curves"), result.table("random curves").columns
    shares = np.asarray(table.axes["share"], dtype=np.float64)
    panels = part.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    same = _equal(table.columns["score"])
    handles: list[Any] = []
    for at, (name, axes) in enumerate(zip(curves, panels, strict=True)):
        band = axes.fill_between(
            shares, random["low"][at], random["high"][at], color=CHANCE, alpha=0.35, linewidth=0, zorder=1
        )
        axes.plot(shares, random["score"][at], color=CHANCE, linewidth=1.0, zorder=1)
        lines: list[Any] = [
            axes.plot(shares, table.columns["score"][at, which], **stroke)[0]
            for which, stroke in zip(same, _strokes(len(same), len(shares)), strict=True)
        ]
        handles = [*lines, band]
        axes.set_title(name, parse_math=False)
        axes.set_xlabel(_LABELS[name])
        grid_lines(axes, "y")
    panels[0].set_ylabel("score above the empty text")
    named = [" = ".join(methods[each] for each in (which, *more)) for which, more in same.items()]
    columns = 3 if max(map(len, named)) <= _SHORT else 2
    part.legend(handles, [*named, "random orders (95%)"], loc="outside lower center", ncols=columns, handlelength=3)


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
    axes.set_title(_ARROWS.get(str(result.axes["measure"][place]), ""), fontsize=8, parse_math=False)
    axes.axvline(0, color=CHANCE, linewidth=0.5)
    return marks
