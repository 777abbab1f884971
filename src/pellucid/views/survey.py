"""A survey of neurons: spread, place and frequency of every neuron, sorted, one line per site."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, Result
from pellucid.views.style import CHANCE, grid_lines, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {
    "spread": "sd over the site's median",
    "position": "explained by place (η²)",
    "frequency": "explained by frequency (η²)",
}


def survey_figure(result: Result, *, width: float = WIDTH) -> Figure:
    """One panel per measure: the neurons of every site from the highest down, deeper sites darker, chance dashed."""
    from matplotlib import colormaps

    owner = np.array([str(name).rpartition(":")[0] for name in result.axes["neuron"]])
    sites = list(dict.fromkeys(owner.tolist()))
    with house_style():
        figure = new_figure(width, 2.8)
        for place, (axes, measure) in enumerate(zip(figure.subplots(1, len(_TITLES)), _TITLES, strict=True)):
            at = result.place("measure", measure)
            for number, site in enumerate(sites):
                values = np.sort(result.values[at, owner == site])[::-1]
                colour = colormaps["viridis"](0.9 - 0.8 * number / max(1, len(sites) - 1))
                share = np.linspace(0, 1, len(values))
                label = site if number in (0, len(sites) - 1) else None
                axes.plot(share, values, color=colour, linewidth=1.1, label=label)
            if result.null is not None:
                axes.axhline(float(result.null[at].mean()), color=CHANCE, linestyle="--", linewidth=0.9, label="chance")
            if place:
                axes.set_ylim(0, 1)
            axes.set_title(_TITLES[measure], parse_math=False)
            axes.set_xlabel("neurons, highest first")
            axes.set_xticks([0, 0.5, 1], ["0", "½", "all"])
            grid_lines(axes, "y")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=7.5, frameon=False)
        figure.suptitle(result.title, fontsize=10)
        return settled(figure)
