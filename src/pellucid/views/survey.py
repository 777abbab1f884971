"""A survey of neurons: spread, place and frequency of every neuron, sorted, one line per site."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.results import WIDTH, Result
from pellucid.views.style import CHANCE, INK, grid_lines, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {
    "spread": "spread (sd over the site's median)",
    "position": "explained by place (η²)",
    "frequency": "explained by frequency (η²)",
}
_MAPS = ("Blues", "Oranges", "Greens", "Purples")
_LEAST = 0.25
"""The scale of a share reaches at least so far."""


def survey_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """One panel per measure: the neurons of every site from the highest down, deeper sites darker, chance dashed.

    Sites of a kind share a hue, whose first and last are named; dotted: from where on neurons count as of a kind.
    """
    from pellucid.neurons.survey import FOLLOWS, NARROW, WIDE

    owner = np.array([str(name).rpartition(":")[0] for name in result.axes["neuron"]])
    strokes = _strokes(list(dict.fromkeys(owner.tolist())))
    with house_style():
        figure = new_figure(width, 2.9)
        for axes, measure in zip(figure.subplots(1, len(_TITLES)), _TITLES, strict=True):
            at = result.place("measure", measure)
            for site, stroke in strokes.items():
                values = np.sort(result.values[at, owner == site])[::-1]
                axes.plot(np.linspace(0, 1, len(values)), values, linewidth=1.1, **stroke)
            if result.null is not None:
                axes.axhline(float(result.null[at].mean()), color=CHANCE, linestyle="--", linewidth=0.9, label="chance")
            counted = (WIDE, NARROW) if measure == "spread" else (FOLLOWS,)
            for place, bound in enumerate(counted):
                label = None if place else "counts as a kind beyond"
                axes.axhline(bound, color=INK, linestyle=":", linewidth=0.8, label=label)
            if measure != "spread":
                axes.set_ylim(0, min(1.0, max(_LEAST, 1.05 * float(result.values[at].max()))))
            axes.set_title(_TITLES[measure], parse_math=False)
            axes.set_xlabel("neurons, highest first")
            axes.set_xticks([0, 0.5, 1], ["0", "½", "all"])
            grid_lines(axes, "y")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), fontsize=7.5)
        figure.suptitle(result.title, fontsize=10)
        return settled(figure)


def _strokes(sites: list[str]) -> dict[str, dict[str, Any]]:
    """A colour for every site, and a name in the legend for the first and the last of each kind."""
    from matplotlib import colormaps

    kinds: dict[str, list[str]] = {}
    for site in sites:
        kinds.setdefault(site.partition(".")[0], []).append(site)
    found: dict[str, dict[str, Any]] = {}
    for hue, own in zip(cycle(_MAPS), kinds.values()):
        for place, site in enumerate(own):
            colour = colormaps[hue](0.4 + 0.55 * place / max(1, len(own) - 1))
            found[site] = {"color": colour, "label": site if site in (own[0], own[-1]) else None}
    return found
