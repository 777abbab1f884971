"""Figures of the study of identifiability, from its numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pellucid.studies.identifiability.measures import CEILING
from pellucid.studies.identifiability.tables import Array, Case, Curve
from pellucid.views.heads_compared import Band
from pellucid.views.style import CHANCE, COLOURS, grid_lines, house_style, label_ticks, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.2
ACROSS = 3
"""Panels in a row."""
Bounds = tuple[float, float | None]
_GREY = ("--", ":", "-.")
_TICKS = 8


@dataclass(frozen=True, eq=False)
class Panel:
    """Lines with bands over places, and grey lines of what they are held against."""

    places: Sequence[str]
    lines: Mapping[str, Band]
    beside: Mapping[str, Array]


def band(curve: Curve, read: Callable[[Array], Array], *, bounds: Bounds = (0, 1)) -> Band:
    """A line [places] read off a curve, with its interval over documents, which ends at its bounds."""
    values, found = read(curve.values), curve.interval(read)
    if found.low is None or found.high is None:
        return Band(values)
    low, high = (np.clip(end, *bounds) for end in (found.low, found.high))
    return Band(values, low, high)


def row(curve: Curve, name: str, *, bounds: Bounds = (0, 1)) -> Band:
    """One measure of a curve with its interval."""
    at = curve.rows.index(name)
    return band(curve, lambda values: values[at], bounds=bounds)


def lines(panels: Mapping[str, Panel], *, title: str, across: str, label: str) -> Figure:
    """A panel for every model, all with the same measures and one scale."""
    columns = min(ACROSS, len(panels))
    down = -(-len(panels) // columns)
    with house_style():
        figure = new_figure(WIDTH, 0.9 + 2.3 * down)
        grid = figure.subplots(down, columns, squeeze=False, sharey=True)
        cells = [axes for own in grid for axes in own]
        for axes in cells[len(panels) :]:
            axes.set_axis_off()
        for number, (axes, (name, panel)) in enumerate(zip(cells, panels.items(), strict=False)):
            _draw(axes, panel)
            axes.set_title(name, parse_math=False)
            axes.set_xlabel(across)
            if number % columns == 0:
                axes.set_ylabel(label)
        handles: dict[str, Artist] = {}
        for axes in cells:
            handles |= {name: drawn for drawn, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=min(5, len(handles)))
        figure.suptitle(title, fontsize=10, parse_math=False)
        return settled(figure)


def _draw(axes: Axes, panel: Panel) -> None:
    places = np.arange(len(panel.places))
    for colour, (name, own) in zip(COLOURS, panel.lines.items(), strict=False):
        axes.plot(places, own.values, color=colour, marker="o", markersize=2.6, linewidth=1.4, label=name)
        if own.low is not None and own.high is not None:
            axes.fill_between(places, own.low, own.high, color=colour, alpha=0.2, linewidth=0)
    for style, (name, values) in zip(_GREY, panel.beside.items(), strict=False):
        axes.plot(places, values, color=CHANCE, linestyle=style, linewidth=1.3, label=name)
    label_ticks(axes.xaxis, panel.places, _TICKS)
    axes.set_xlim(-0.4, len(places) - 0.6)
    grid_lines(axes, "y")


# -- the figures -------------------------------------------------------------------------------------------------------


FREE = {"free": "free dimensions", "free_with_sum": "the same with weights that sum to one"}
"""Dimensions of the null space, in words."""


def null_space(cases: Sequence[Case]) -> Figure:
    """Dimensions in which attention may move, by the keys in sight."""
    panels = {
        f"{case.name}, heads {case.width} wide": Panel(
            _from(curve := case.curves["lengths"]),
            {told: row(curve, name, bounds=(0, None)) for name, told in FREE.items() if name in curve.rows},
            {"keys in sight less the width": np.maximum(curve.row("sees") - case.width, 0)},
        )
        for case in cases
    }
    title = "How many dimensions of attention have no effect, by the length of the text"
    return lines(panels, title=title, across="keys in sight, from", label="dimensions")


EFFECT = {
    "moved": "length of the part without effect",
    "shifted": "attention that lies elsewhere",
    "argmax": "largest weight stands elsewhere",
}
"""How effective attention differs from attention, in words."""


def by_length(cases: Sequence[Case]) -> Figure:
    """Effective attention beside attention, by the keys in sight."""
    panels = {case.name: _effect(case.curves["lengths"], _from(case.curves["lengths"])) for case in cases}
    title = "Effective attention beside attention, by the length of the text"
    return lines(panels, title=title, across="keys in sight, from", label="share")


def by_depth(cases: Sequence[Case]) -> Figure:
    """The same by layer, of queries with more keys in sight than heads are wide."""
    panels = {case.name: _effect(case.curves["depth"], case.curves["depth"].places) for case in cases}
    title = "The same by layer, where more keys are in sight than a head is wide"
    return lines(panels, title=title, across="layer", label="share")


def _effect(curve: Curve, places: Sequence[str]) -> Panel:
    beside = {"such a length, random direction": curve.chance[curve.rows.index("moved")]}
    return Panel(places, {told: row(curve, name) for name, told in EFFECT.items()}, beside)


def _from(curve: Curve) -> list[str]:
    return [length.partition("–")[0] for length in curve.places]


def tokens(cases: Sequence[Case], distance: str) -> Figure:
    """Tokens found again, by layer."""
    panels: dict[str, Panel] = {}
    for case in cases:
        curve = case.curves["tokens"]
        held = {name: row(curve, f"{name} {distance}") for name in ("identity", "linear")}
        trained = case.curves["perceptrons"]
        if f"mlp {distance}" in trained.rows:
            held["perceptron"] = _placed(row(trained, f"mlp {distance}"), trained.places, curve.places)
        beside = {"chance": curve.chance[0]}
        if curve.random is not None:
            beside["random network, linear"] = curve.random[curve.rows.index(f"linear {distance}")]
        panels[case.name] = Panel(curve.places, held, beside)
    title = f"Tokens that are found again from their states, by {'the cosine' if distance == 'cosine' else 'distance'}"
    return lines(panels, title=title, across="layer", label="share of tokens")


def _placed(own: Band, places: Sequence[str], among: Sequence[str]) -> Band:
    """A line over some of the places, with gaps at the others."""
    at = [list(among).index(place) for place in places]

    def wide(values: Array | None) -> Array | None:
        if values is None:
            return None
        found = np.full(len(among), np.nan)
        found[at] = values
        return found

    whole = wide(own.values)
    assert whole is not None
    return Band(whole, wide(own.low), wide(own.high))


MIXING = {
    "own": ("A token's own share in what its state reacts to", "share"),
    "not largest": ("Tokens that are not their own largest contributor", "share of tokens"),
    "near": ("Share of the nearest four tokens in what is not a token's own", "share"),
    "reach": ("How far away contributors are", "tokens"),
}
"""Measures of mixing: the title of each figure, and what its axis says."""


def mixing(cases: Sequence[Case], measure: str) -> Figure:
    """One measure of mixing, by layer."""
    panels: dict[str, Panel] = {}
    for case in cases:
        curve = case.curves["mixing"]
        at = curve.rows.index(measure)
        first = 1 if measure == "near" else 0  # the input has nothing but its own
        bounds = (0, None if measure == "reach" else 1)
        held = band(curve, lambda values, at=at, first=first: values[at, first:], bounds=bounds)
        beside = {"equal shares": curve.chance[at, first:]}
        if curve.random is not None:
            beside["random network"] = curve.random[at, first:]
        panels[case.name] = Panel(curve.places[first:], {"measured": held}, beside)
    title, label = MIXING[measure]
    return lines(panels, title=title, across="layer", label=label)


def offsets(cases: Sequence[Case]) -> Figure:
    """What stands so many tokens before or after contributes, after the first, the middle and the last layer."""
    panels: dict[str, Panel] = {}
    for case in cases:
        curve = case.curves["offsets"]
        held = {name: band(curve, lambda values, at=at: values[at]) for at, name in enumerate(curve.rows)}
        panels[case.name] = Panel(curve.places, held, {"equal shares": curve.chance[-1]})
    title = "What stands so many tokens before (−) or after a token contributes to its state"
    return lines(panels, title=title, across="distance in tokens", label="share")


FLOW = {
    "attention": "attention",
    "rollout": "rollout",
    "flow": "flow",
    "norms": "norms",
    "norms_layernorm": "norms, residual and norm",
    "attribution": "attribution",
}
"""Maps of attention in the figure, in words; those with the residual stream alone are nearly the last ones."""


def flow(cases: Sequence[Case]) -> Figure:
    """How maps of attention agree with what states react to, by layer."""
    panels: dict[str, Panel] = {}
    for case in cases:
        if "flow" not in case.curves:
            continue
        curve = case.curves["flow"]
        held = {told: row(curve, name, bounds=(-1, 1)) for name, told in FLOW.items() if name in curve.rows}
        beside = {"nearness alone": curve.row("nearness"), "own token alone": curve.row("own token")}
        panels[case.name] = Panel(curve.places, held, {**beside, "ceiling": curve.row(CEILING)})
    title = "Maps of attention and what states react to, rank correlation by layer"
    return lines(panels, title=title, across="layer", label="rank correlation")
