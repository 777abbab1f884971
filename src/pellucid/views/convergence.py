"""Convergence: a score over the steps of training, a line for each layer, its interval as a band and chance in grey."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Array, Result, ResultError
from pellucid.views.heat_map import panels
from pellucid.views.style import (
    CHANCE,
    COLOURS,
    INK,
    grid_lines,
    house_style,
    new_figure,
    sequential,
    settled,
    thinned,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 2.6
_NAMED = 6
"""Lines that the legend names at most; with more, colours run from light for the first layer to dark for the last."""
_LETTER = 0.07
"""Inches of a letter, for ticks."""
_RANDOM = -1
"""Where the randomly initialised model stands, before the first step."""
_BAND = 0.01
"""Layers whose chance differs by more than this show a band that the legend names."""


def convergence_curves(result: Result, *, measures: Sequence[str] | None = None, width: float = WIDTH) -> Figure:
    """One panel per measure: its score at every step, a line for each layer; where a layer could be frozen, a ring.

    Small diamonds before the first step are the scores of a randomly initialised model, where there is one.
    """
    names, values, null = panels(result, measures)
    if list(result.axes)[-2:] != ["layer", "step"]:
        raise ResultError(
            f"A curve per layer needs the axes layer and step; this {result.kind!r} has {list(result.axes)}."
        )
    across = min(len(names), 2)
    down = -(-len(names) // across)
    with house_style():
        figure = new_figure(width, 1.1 + down * _HEIGHT)
        grid = figure.subplots(down, across, squeeze=False)
        for place, axes in enumerate(grid.ravel()):
            if place >= len(names):
                axes.set_axis_off()
                continue
            at = result.place("measure", names[place])
            _panel(axes, result, at, values[place], None if null is None else null[place], (width - 1.2) / across - 0.5)
            axes.set_title(names[place], parse_math=False)
            axes.set_xlabel("step" if place + across >= len(names) else "")
        _legend(figure, grid.ravel()[0], result)
        figure.suptitle(result.title, fontsize=10)
        return settled(figure)


def _colours(count: int) -> list[Any]:
    if count <= _NAMED:
        return list(COLOURS[:count])
    return [sequential()(place) for place in np.linspace(0.2, 1.0, count)]


def _panel(axes: Axes, result: Result, at: int, values: Array, null: Array | None, inches: float) -> None:
    """Lines, bands and marks of one measure, in a panel so wide; values and null are [layer, step]."""
    x, layers = np.arange(values.shape[1]), result.axes["layer"]
    random, first = _marks(result, at)
    for number, colour in enumerate(_colours(len(layers))):
        if result.low is not None and result.high is not None:
            low, high = result.low[at, number], result.high[at, number]
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, values[number], color=colour, linewidth=1.3, marker="o", markersize=2.2, label=str(layers[number]))
        if random is not None:
            axes.plot([_RANDOM], [random[number]], color=colour, marker="D", markersize=2.8, linestyle="none")
        if first is not None:
            place = int(first[number])
            if place < x[-1]:  # at the last step there is nothing left to spare
                axes.plot([place], [values[number, place]], markeredgecolor=colour, zorder=4, **_RING)
    if null is not None:
        axes.fill_between(x, null.min(0), null.max(0), color=CHANCE, alpha=0.25, linewidth=0)
        axes.plot(x, null.mean(0), color=CHANCE, linewidth=1.3, linestyle="--")
    _ticks(axes, [str(step) for step in result.axes["step"]], inches, before=random is not None)
    axes.margins(x=0.04)
    grid_lines(axes, "y")


def _ticks(axes: Axes, steps: Sequence[str], inches: float, *, before: bool) -> None:
    """Steps by name, as many as find room, and the place before them where there is one."""
    longest = max(len(step) for step in steps)
    shown = thinned(steps, max(1, int(inches / (_LETTER * (longest + 2)))))
    apart = inches / (len(steps) + 1)
    if before:
        shown = [place for place in shown if (place - _RANDOM) * apart > _LETTER * (longest + 8) / 2]
    names = [steps[place] for place in shown]
    axes.set_xticks(
        [*([_RANDOM] if before else []), *shown], labels=[*(["random"] if before else []), *names], parse_math=False
    )


_RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 7,
    "markerfacecolor": "none",
    "markeredgewidth": 1.1,
    "linestyle": "none",
}


def _marks(result: Result, at: int) -> tuple[Array | None, Array | None]:
    """Scores of the randomly initialised model and places of the steps to freeze at, by layer, where there are any."""
    random, freezing = result.tables.get("random model"), result.tables.get("freezing")
    first = None
    if freezing is not None:
        steps = [str(step) for step in result.axes["step"]]
        first = np.array([steps.index(str(step)) for step in freezing.columns["step"][at].tolist()])
    return None if random is None else random.columns["value"][at], first


def _legend(figure: Figure, axes: Axes, result: Result) -> None:
    """Some of the layers by name, and what rings, diamonds, bands and grey are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles, labels = axes.get_legend_handles_labels()
    shown = sorted({round(place) for place in np.linspace(0, len(labels) - 1, min(_NAMED, len(labels)))})
    rows: list[tuple[Any, str]] = [(handles[place], labels[place]) for place in shown]
    about: list[tuple[Any, str]] = []
    if result.null is not None:
        about.append((Line2D([], [], color=CHANCE, linestyle="--", linewidth=1.3), result.chance))
        if np.ptp(result.null, axis=-2).max() > _BAND:
            about.append((Patch(color=CHANCE, alpha=0.25, linewidth=0), "chance, from its lowest layer to its highest"))
    if result.low is not None:
        about.append((Patch(color=COLOURS[0], alpha=0.3, linewidth=0), f"interval over {result.resampled}"))
    if "freezing" in result.tables:
        about.append((Line2D([], [], markeredgecolor=INK, **_RING), "could be frozen from here on"))
    if "random model" in result.tables:
        mark = Line2D([], [], color=INK, marker="D", markersize=2.8, linestyle="none")
        about.append((mark, "a randomly initialised model"))
    figure.legend(*zip(*rows, strict=True), loc="outside right upper", title="layer", title_fontsize=7.5)
    if about:
        figure.legend(*zip(*about, strict=True), loc="outside lower center", ncols=1)
