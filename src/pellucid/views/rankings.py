"""Rankings of neurons: the most important ones with their best class, and how the most important lie over the sites."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from pellucid.results import WIDTH, ResultError
from pellucid.views.bars import draw_bars, height_of
from pellucid.views.style import NOTE, house_style, new_figure, settled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pellucid.neurons.ranking import Ranking
    from pellucid.results import Result

_SHARE = 0.01
_LEAST = 20
"""The right panel counts the sites of so large a share of all neurons, and of so many at least."""
_ROWS = 11
"""Rows that the figure has at least, for its notes to stand beside."""


def ranking_figure(result: Result, *, most: int = 25, width: float = WIDTH) -> Figure:
    """The first `most` neurons across classes, and the number of the best 1% at each site."""
    from pellucid.neurons.ranking import Ranking

    if not isinstance(result, Ranking):
        raise ResultError(f"This figure shows a ranking of neurons, and not a {result.kind!r}.")
    names = result.order()[:most]
    place = {name: number for number, name in enumerate(result.neurons)}
    at = [place[name] for name in names]
    columns = result.overall.columns
    told = bool(result.concept and result.classes_apart)
    labels = [f"{name} {_best(result, name)}" if told else name for name in names]
    best = result.order()[: max(_LEAST, round(_SHARE * len(result.neurons)))]
    counts = Counter(name.rpartition(":")[0] for name in best)  # directions of a site have names like neurons'
    sites = [site for site in dict.fromkeys(name.rpartition(":")[0] for name in result.neurons) if site in counts]
    with house_style():
        rows = max(len(names), len(sites), _ROWS)
        figure = new_figure(width, height_of(rows) + 0.3)
        left, right = figure.subplots(1, 2, width_ratios=(5, 2))
        cells = [columns[name][at] if name in columns else None for name in ("null", "low", "high")]
        draw_bars(left, labels, columns["score"][at], *cells)
        left.set_title(f"most important neurons{', with their best class' if told else ''}")
        left.set_xlabel("score across classes" if result.concept else "score")
        draw_bars(right, sites, np.array([counts[site] for site in sites], dtype=np.float64), None, None, None)
        for axes in (left, right):
            axes.set_ylim(rows - 0.4, -0.6)  # bars of few rows are no thicker
        right.set_title(f"sites of the best {len(best)}")
        right.set_xlabel("neurons")
        figure.suptitle(result.title, fontsize=10, parse_math=False)
        notes = ["▲ fires for the class, ▼ is low for it"] if told else []
        notes += [f"grey: {result.chance}"] if "null" in columns else []
        figure.supxlabel("\n".join(notes), fontsize=7.5, color=NOTE, parse_math=False)
        return settled(figure)


def _best(result: Ranking, neuron: str) -> str:
    """The class that a neuron carries most, and its side."""
    best, score = result.best_class(neuron)
    return f"{'▲' if score >= 0 else '▼'} {best}"
