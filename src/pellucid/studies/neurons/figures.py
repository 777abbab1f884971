"""Figures of the study of neurons, from its numbers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pellucid.neurons import RankingCurves
from pellucid.provenance import Provenance
from pellucid.report.sheet import WIDTH
from pellucid.studies.neurons.claims_methods import faithful_in_probe
from pellucid.studies.neurons.tables import CONCEPTS, METHODS, Case, Grid
from pellucid.views import heads_compared as views
from pellucid.views.heads_compared import Band

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def layer_names(grid: Grid) -> list[str]:
    """The layers of sites of the stream: `resid.3` is 3."""
    return [str(site).rpartition(".")[2] for site in grid.columns]


def layers(cases: Sequence[Case], concept: str) -> Figure:
    """Accuracy of probes on each site beside the controls."""
    panels: dict[str, tuple[Sequence[str], dict[str, Band], dict[str, np.ndarray]]] = {}
    for case in cases:
        grid = case.grids[f"layers {concept}"]
        lines = {"probe": _band(grid, "accuracy"), "random model": _band(grid, "random model")}
        assert grid.null is not None
        controls = {"control task": grid.row("control task"), "most frequent class": grid.null[0]}
        panels[case.model] = (layer_names(grid), lines, controls)
    return views.depth_lines(panels, title=f"Telling the {CONCEPTS[concept]} from each layer", label="accuracy")


def _band(grid: Grid, row: str) -> Band:
    place = grid.rows.index(row)
    low, high = (None if part is None else part[place] for part in (grid.low, grid.high))
    return Band(grid.values[place], low, high)


def where(cases: Sequence[Case]) -> Figure:
    """Where the first neurons of each concept stand."""
    panels: dict[str, tuple[Sequence[str], dict[str, Band], dict[str, np.ndarray]]] = {}
    for case in cases:
        lines = {told: Band(case.grids[f"where {name}"].row("value")) for name, told in CONCEPTS.items()}
        grid = case.grids["where pos"]
        assert grid.null is not None
        panels[case.model] = (layer_names(grid), lines, {"all neurons": grid.null[0]})
    return views.depth_lines(panels, title="Where the first neurons of a probe stand", label="share of the first 5%")


def sets(case: Case, concept: str) -> Figure:
    """What probes of the first, last and random neurons reach."""
    told = {"done": "read alone by a probe trained anew", "score": "accuracy"}
    return _curves(case.grids[f"anew {concept}"], told).plot(width=WIDTH)


def _curves(grid: Grid, told: dict[str, str]) -> RankingCurves:
    axes = {"measure": grid.rows, "neurons": grid.columns}
    origin = Provenance("neurons.evaluation", told)
    return RankingCurves(axes, grid.values, grid.null, grid.low, grid.high, "document groups (jackknife, 95%)", origin)


def classes(cases: Sequence[Case]) -> Figure:
    """How many neurons each class takes, beside the model's other classes."""
    names = list(dict.fromkeys(str(name) for case in cases for name in case.grids["spread"].columns))
    cells = np.zeros((len(names), len(cases)))
    for at, case in enumerate(cases):
        grid = case.grids["spread"]
        sizes = np.log2(np.maximum(grid.row("effective"), 1))
        for name, size in zip(grid.columns, sizes - sizes.mean(), strict=True):
            cells[names.index(str(name)), at] = size
    return views.signed_maps(
        {"": (names, [case.model for case in cases], cells)},
        title="Which classes take many neurons, and which few",
        label="doublings of the model's mean",
        across="model",
        note="effective number of neurons of a probe's weights; orange: more than other classes, blue: fewer",
    )


def faithful(cases: Sequence[Case]) -> Figure:
    """What a probe reads from the first neurons of every ranking above random ones."""
    made = {name: told for name, told in METHODS.items() if any(name in case.methods for case in cases)}
    cells = np.array([[_gain(case, method) for case in cases] for method in made])
    return views.signed_maps(
        {"": (list(made.values()), [case.model for case in cases], cells)},
        title="What a probe tells from the first 5% of the neurons alone, less as many at random",
        label="difference of accuracies",
        across="model",
        note="orange: the ranking's first neurons tell more than random ones, blue: less",
    )


def _gain(case: Case, method: str) -> float:
    if method not in case.methods:
        return math.nan
    first, _ = faithful_in_probe(case, method)
    return first.value - first.chance
