"""Tables of the study of identifiability, from its numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.report.html import Cell, bounds, number
from pellucid.studies.identifiability.tables import Case, Curve

Rows = list[tuple[str | int | Cell, ...]]


def curve_rows(case: Case, curve: Curve, measures: Sequence[str] | None = None) -> Rows:
    """Every measure at every place, with its interval, chance and the random network's."""
    found = curve.interval(lambda values: values)
    made: Rows = []
    for at, name in enumerate(curve.rows):
        if measures is not None and name not in measures:
            continue
        for place, told in enumerate(curve.places):
            value, chance = float(curve.values[at, place]), float(curve.chance[at, place])
            ends = [None if end is None else float(end[at, place]) for end in (found.low, found.high)]
            cells = [Cell(number(each), each) for each in (value, chance)]
            random = "" if curve.random is None else _cell(float(curve.random[at, place]))
            made.append((case.name, name, told, cells[0], bounds(ends[0], ends[1]), cells[1], random))
    return made


def _cell(value: float) -> Cell:
    return Cell(number(value), value)


def model_rows(cases: Sequence[Case]) -> Rows:
    """The models: their size, and what was read."""
    made: Rows = []
    for case in cases:
        model, size, counts = case.facts["model"], case.facts["size"], case.facts["counts"]
        queries = int(case.curves["lengths"].row("queries").sum())
        cells = (model["parameters"], model["layers"], model["head width"])
        made.append(
            (
                case.name,
                *(int(each) for each in cells),
                queries,
                int(counts["tokens asked about"]),
                int(counts["tokens mixed"]),
                int(size["probes"]),
                Cell(f"{counts['error of the norms']:.1%}", float(counts["error of the norms"])),
            )
        )
    return made


def perceptron_rows(cases: Sequence[Case]) -> Rows:
    """Perceptrons less linear maps, at the layers that have them."""
    made: Rows = []
    for case in cases:
        curve = case.curves["perceptrons"]
        for distance in ("cosine", "l2"):
            one, other = (curve.rows.index(f"{name} {distance}") for name in ("mlp", "linear"))
            apart = curve.values[one] - curve.values[other]
            found = curve.interval(lambda values, one=one, other=other: values[one] - values[other])
            for place, layer in enumerate(curve.places):
                ends = [None if end is None else float(end[place]) for end in (found.low, found.high)]
                cells = [_cell(float(each[place])) for each in (curve.values[one], curve.values[other], apart)]
                chance = _cell(float(np.asarray(curve.chance)[one, place]))
                made.append((case.name, layer, distance, *cells, bounds(ends[0], ends[1]), chance))
    return made
