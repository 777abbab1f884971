"""Learning curves of one or several trainings: losses, scores beside chance, the learning rate, and what was frozen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import listing
from pellucid.results import WIDTH, Array, Result, ResultError
from pellucid.views.style import CHANCE, COLOURS, INK, grid_lines, house_style, new_figure, sequential, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 2.0
_WIDE = 20.0
"""A score whose largest value is so many times its smallest is drawn on a logarithmic scale."""
_LONGEST, _NAMED = 24, 12
"""Letters of a run's name that the legend shows, and runs that it names at most."""
_EXTRA = {"learning_rate": "learning rate", "frozen": "frozen layers"}
_RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 7,
    "markerfacecolor": "none",
    "markeredgewidth": 1.1,
    "linestyle": "none",
}
_Lines = dict[str, Any]
_VALID: _Lines = {"linewidth": 1.4, "marker": "o", "markersize": 2.2}
_TRAIN: _Lines = {"linewidth": 1.1, "linestyle": ":"}


def learning_curves(
    results: Result | Sequence[Result],
    *,
    names: Sequence[str] | None = None,
    measures: Sequence[str] | None = None,
    width: float = WIDTH,
) -> Figure:
    """One panel per score over the epochs, then the learning rate; a colour for each run, dots for the training loss.

    A ring stands on the validation loss where a further layer was frozen. `names` are those of the runs in the legend
    (default: their own). What a guess scores is grey, where it was recorded.
    """
    runs = [results] if isinstance(results, Result) else list(results)
    called = _called(runs, names)
    shown = _shown(runs, measures)
    extra = [column for column in _EXTRA if any(_moves(run, column) for run in runs)]
    panels = [*shown, *extra]
    across = min(len(panels), 2 if len(panels) in (2, 4) else 3)
    down = -(-len(panels) // across)
    with house_style():
        figure = new_figure(width, 1.1 + down * _HEIGHT)
        grid = figure.subplots(down, across, squeeze=False).ravel()
        for place, axes in enumerate(grid):
            if place >= len(panels):
                axes.set_axis_off()
                continue
            name = panels[place]
            if name in shown:
                _scores(axes, runs, name)
            else:
                _column(axes, runs, name)
            axes.set_title(_EXTRA.get(name, name), parse_math=False)
            axes.set_xlabel("epoch" if place + across >= len(panels) else "")
            _whole_epochs(axes, max(int(epoch) for run in runs for epoch in run.axes["epoch"]))
            grid_lines(axes, "y")
        _legend(figure, runs, called, shown)
        figure.suptitle(runs[0].title, fontsize=10)
        return settled(figure)


def _called(runs: Sequence[Result], names: Sequence[str] | None) -> list[str]:
    """What the legend calls the runs."""
    if not runs:
        raise ResultError("There is nothing to draw: no run was given.")
    for run in runs:
        if list(run.axes) != ["measure", "epoch"]:
            raise ResultError(
                f"Learning curves need the axes measure and epoch; this {run.kind!r} has {list(run.axes)}."
            )
    called = [str(run.provenance.arguments.get("run", "run")) for run in runs] if names is None else list(names)
    if len(called) != len(runs):
        raise ResultError(f"There are {len(called)} names for {len(runs)} runs; give one for each.")
    return [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in called]


def _shown(runs: Sequence[Result], measures: Sequence[str] | None) -> list[str]:
    """The scores to draw: those asked for, else all that any run has."""
    there = list(dict.fromkeys(str(name) for run in runs for name in run.axes["measure"]))
    for name in measures or ():
        if name not in there:
            raise ResultError(f"There is no measure {name!r} in these curves; they have {listing(there)}.")
    return there if measures is None else list(measures)


def _colours(count: int) -> list[Any]:
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    return [sequential()(place) for place in np.linspace(0.2, 1.0, count)]


def _training(run: Result, column: str) -> tuple[Array, Array] | None:
    """Epochs and values of a column of the table `training`, where the run has it."""
    table = run.tables.get("training")
    if table is None or column not in table.columns:
        return None
    return np.asarray(table.axes["epoch"]), table.columns[column]


def _moves(run: Result, column: str) -> bool:
    """Whether a column is worth a panel: learning rates always are, frozen layers where there are any."""
    found = _training(run, column)
    return found is not None and (column != "frozen" or bool(found[1].any()))


def _scores(axes: Axes, runs: Sequence[Result], name: str) -> None:
    """One score of every run, and chance."""
    drawn: list[Array] = []
    chance: set[float] = set()
    for run, colour in zip(runs, _colours(len(runs)), strict=True):
        if name not in run.axes["measure"]:
            continue
        epochs, values = np.asarray(run.axes["epoch"]), run.measure(name)
        axes.plot(epochs, values, color=colour, zorder=3, **_VALID)
        drawn.append(values)
        trained = _training(run, "loss") if name == "loss" else None
        if trained is not None:
            axes.plot(*trained, color=colour, zorder=2, **_TRAIN)
        if name == "loss":
            at = np.isin(epochs, _frozen_at(run))
            axes.plot(epochs[at], values[at], markeredgecolor=colour, zorder=4, **_RING)
        guess = run.tables.get("chance")
        if guess is not None and name in guess.axes["measure"]:
            chance.add(float(guess.columns["value"][guess.axes["measure"].index(name)]))
    for value in sorted(chance):
        axes.axhline(value, color=CHANCE, linewidth=1.3, linestyle="--", zorder=1)
    everything = np.concatenate([*drawn, np.array(sorted(chance))])
    if everything.min() > 0 and everything.max() / everything.min() > _WIDE:
        _logarithmic(axes)


def _frozen_at(run: Result) -> list[int]:
    """The epochs after which one more layer or several were frozen."""
    found = _training(run, "frozen")
    if found is None:
        return []
    more = np.diff(found[1], prepend=0.0) > 0
    return [int(epoch) for epoch in found[0][more]]


def _column(axes: Axes, runs: Sequence[Result], column: str) -> None:
    for run, colour in zip(runs, _colours(len(runs)), strict=True):
        found = _training(run, column)
        if found is not None:
            axes.plot(*found, color=colour, linewidth=1.3, drawstyle="steps-post" if column == "frozen" else "default")
    axes.set_ylim(bottom=0)
    if column == "frozen":
        from matplotlib.ticker import MaxNLocator

        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def _logarithmic(axes: Axes) -> None:
    """A logarithmic scale whose ticks are plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 1e3 else (1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))


def _whole_epochs(axes: Axes, last: int) -> None:
    """The same epochs in every panel, from before training to the last of any run."""
    from matplotlib.ticker import MaxNLocator

    room = 0.03 * max(last, 1)
    axes.set_xlim(-room, max(last, 1) + room)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))


def _legend(figure: Figure, runs: Sequence[Result], called: Sequence[str], shown: Sequence[str]) -> None:
    """The runs by colour where there are several, and what lines, dots, rings and grey are."""
    from matplotlib.lines import Line2D

    if len(runs) > 1:
        chosen = [round(float(place)) for place in np.linspace(0, len(runs) - 1, min(_NAMED, len(runs)))]
        lines = [Line2D([], [], color=colour, linewidth=1.4) for colour in _colours(len(runs))]
        names = [called[place] for place in chosen]
        figure.legend([lines[place] for place in chosen], names, loc="outside right upper")
    ink = COLOURS[0] if len(runs) == 1 else INK
    rows: list[tuple[Any, str]] = [(Line2D([], [], color=ink, **_VALID), "validation text")]
    if "loss" in shown:
        if any(_training(run, "loss") is not None for run in runs):
            rows.append((Line2D([], [], color=ink, **_TRAIN), "training text, with dropout"))
        if any(_frozen_at(run) for run in runs):
            rows.append((Line2D([], [], markeredgecolor=ink, **_RING), "layers frozen from here on"))
    if any("chance" in run.tables for run in runs):
        rows.append((Line2D([], [], color=CHANCE, linestyle="--", linewidth=1.3), runs[0].chance))
    figure.legend(*zip(*rows, strict=True), loc="outside lower center", ncols=1)
