"""The figure of ablations: layers × heads in colours centred on zero, or bars of the places that count most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.model.sites import HEAD_KINDS
from pellucid.results import WIDTH, Array, Result
from pellucid.views.attribution_parts import layers_and_heads, strongest
from pellucid.views.bars import cut, draw_bars, height_of
from pellucid.views.interactive.colours import diverging
from pellucid.views.style import NOTE, house_style, label_ticks, new_figure, settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 25
MOST_TARGETS = 4
_LONGEST = 40


def ablation_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """A panel for each of the first targets: how far it falls when a place is taken away.

    Heads of several layers are a map; anything else is a bar for each of the places with the largest effects.
    """
    grid = layers_and_heads(result.axes["place"])
    mapped = grid is not None and bool((grid[2] >= 0).all()) and all(_of_heads(site) for site in grid[0])
    targets = [str(name) for name in result.axes["target"][:MOST_TARGETS]]
    kept = strongest(result.values.T, MOST_BARS)
    height = 1.2 + 0.16 * len(grid[0]) if grid is not None and mapped else height_of(len(kept))
    with house_style():
        figure = new_figure(width, 0.5 + len(targets) * (height + 0.25))
        panels = figure.subplots(len(targets), 1, squeeze=False)[:, 0]
        for axes, target, values in zip(panels, targets, result.values, strict=False):
            if grid is not None and mapped:
                _map(figure, axes, values[grid[2]], grid[0], grid[1])
            else:
                draw_bars(axes, [str(result.axes["place"][at]) for at in kept], values[kept], None, None, None)
                axes.set_xlabel("fall of the target")
            axes.set_title(cut(target, _LONGEST), parse_math=False)
        figure.suptitle(result.title, fontsize=10)
        figure.supxlabel(_note(result, len(kept), mapped=mapped), fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)


def _of_heads(site: str) -> bool:
    """Whether the units of a site, by its name, are heads."""
    return bool(HEAD_KINDS & set(site.split(".")))


def _map(figure: Figure, axes: Axes, values: Array, sites: Sequence[str], heads: Sequence[int]) -> None:
    from matplotlib.colors import ListedColormap

    colours: Any = diverging(np.linspace(-1, 1, 256)) / 255
    most = float(np.abs(values).max()) or 1.0
    image = axes.imshow(
        values,
        aspect="auto",
        cmap=ListedColormap(colours, "effects"),
        vmin=-most,
        vmax=most,
        interpolation="nearest",
        rasterized=True,
    )
    label_ticks(axes.yaxis, sites, 12)
    label_ticks(axes.xaxis, heads, 16)
    axes.set_xlabel("head")
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    bar: Any = figure.colorbar(image, cax=axes.inset_axes((1.02, 0, 0.02, 1)))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2)


def _note(result: Result, kept: int, *, mapped: bool) -> str:
    notes = ["Orange: the target falls without it; blue: it rises."] if mapped else []
    count = len(result.axes["place"])
    if not mapped and kept < count:
        notes.append(f"The {kept} places with the largest effects of {count:,}.")
    if len(result.axes["target"]) > MOST_TARGETS:
        notes.append(f"The first {MOST_TARGETS} of {len(result.axes['target'])} targets.")
    return " ".join(notes)
