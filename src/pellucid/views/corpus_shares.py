"""Attribution over a corpus as a figure: bars of shares beside chance at one place, a map of lifts over many."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Array, Result
from pellucid.views.bars import cut, draw_bars, height_of
from pellucid.views.interactive.colours import diverging
from pellucid.views.style import NOTE, house_style, label_ticks, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS, MOST_PLACES = 3, 40
_STRONGEST = 2.0
"""Doublings of chance at which the colours of a map end."""
_LABELS = {
    "share": "share of a sentence's attribution",
    "signed": "signed share",
    "lift": "share, over what chance gives",
}
_OTHER = "(other)"


def signed_colours() -> Any:
    """Colours for signed numbers: blue below zero, orange above."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(diverging(np.linspace(-1, 1, 257)) / 255, "pellucid signed")


def corpus_shares(result: Result, *, width: float = WIDTH) -> Figure:
    """Shares and signed shares by group at the only place, or lifts of groups × places: the first methods and targets.

    Where rarer groups are one, lifts are drawn, the largest first: the shares of single ones are too small to compare.
    Colours of lifts go by doublings: twice the share that chance gives is as far from white as half of it.
    """
    aims = list(product(range(len(result.axes["method"])), range(len(result.axes["target"]))))
    names = [_name(result, method, target) for method, target in aims]
    one = len(result.axes["place"]) == 1
    shown = 1 if one and len(aims) == 1 else min(MOST_PANELS, len(aims))
    notes = [f"{'grey' if one else 'white'}: {result.chance}"]
    if one and result.low is not None:
        notes.append(f"lines: interval over {result.resampled}")
    if len(aims) > shown:
        notes.append(f"not drawn: {', '.join(names[shown:])}")
    with house_style():
        figure = _bars(result, aims[:shown], names, width) if one else _maps(result, aims[:shown], names, notes, width)
        figure.suptitle(f"{result.title}, by {result.provenance.arguments['group']}", fontsize=10)
        figure.supxlabel("\n".join(notes), fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)


def _name(result: Result, method: int, target: int) -> str:
    told = (str(result.axes["method"][method]), str(result.axes["target"][target]))
    several = [name for name, axis in zip(told, ("method", "target"), strict=True) if len(result.axes[axis]) > 1]
    return " · ".join(several) or told[0]


def _bars(result: Result, aims: list[tuple[int, int]], names: list[str], width: float) -> Figure:
    groups = [str(group) for group in result.axes["group"]]
    rare = _OTHER in groups
    measures = ["lift"] if rare else ["share"] if len(aims) > 1 else ["share", "signed"]
    panels = [(aim, measure) for aim in aims for measure in measures]
    kept = [place for place, group in enumerate(groups) if group != _OTHER]
    if rare:
        lifts = result.values[(result.place("measure", "lift"), *aims[0], 0)]
        kept.sort(key=lambda place: -lifts[place])
    figure = new_figure(width, height_of(len(kept)) + 0.45)
    for place, axes in enumerate(figure.subplots(1, len(panels), squeeze=False)[0]):
        (method, target), measure = panels[place]
        at = (result.place("measure", measure), method, target, 0)
        cells = [None if part is None else part[at][kept] for part in (result.null, result.low, result.high)]
        shown = [groups[each] if place == 0 else "" for each in kept]
        draw_bars(axes, shown, result.values[at][kept], *cells)
        axes.set_title(measure if len(aims) == 1 else names[place], parse_math=False)
        axes.set_xlabel(_LABELS[measure])
        if measure == "signed":
            axes.axvline(0, color=NOTE, linewidth=0.6)
    return figure


def _maps(result: Result, aims: list[tuple[int, int]], names: list[str], notes: list[str], width: float) -> Figure:
    groups = [cut(str(group), 24) for group in result.axes["group"]]
    places = list(result.axes["place"])
    if len(places) > MOST_PLACES:
        held = result.table("places").columns["share"].mean(axis=(0, 1))
        kept = sorted(np.argsort(-held, kind="stable")[:MOST_PLACES].tolist())
        notes.append(f"the {MOST_PLACES} places that hold most, of {len(places)}")
    else:
        kept = list(range(len(places)))
    figure = new_figure(width, min(9.0, 1.3 + 0.16 * len(groups)))
    grid = figure.subplots(1, len(aims), squeeze=False)[0]
    for place, (axes, (method, target)) in enumerate(zip(grid, aims, strict=True)):
        lift = result.values[result.place("measure", "lift"), method, target][kept]  # [P, G]
        _panel(axes, np.log2(np.maximum(lift, 1e-9)).T)
        axes.set_title(names[place], parse_math=False)
        label_ticks(axes.xaxis, [places[at] for at in kept], 40 // len(aims))
        axes.tick_params(axis="x", rotation=90)
        axes.set_yticks(range(len(groups)), labels=groups if place == 0 else [""] * len(groups), parse_math=False)
    bar: Any = figure.colorbar(grid[-1].images[0], ax=list(grid), shrink=0.6, aspect=25, label="lift")
    bar.set_ticks([-2, -1, 0, 1, 2], labels=["≤ ¼", "½", "1", "2", "≥ 4"])
    bar.outline.set_visible(False)
    return figure


def _panel(axes: Axes, doublings: Array) -> None:
    axes.imshow(
        doublings,
        aspect="auto",
        cmap=signed_colours(),
        vmin=-_STRONGEST,
        vmax=_STRONGEST,
        interpolation="nearest",
        rasterized=True,
    )
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
