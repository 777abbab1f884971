"""The numbers of the study of neurons: one file for each model, with everything that its page is drawn from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from pellucid.errors import listing
from pellucid.results import Result
from pellucid.saving import write_file
from pellucid.studies.claims import StudyError
from pellucid.studies.rules import Number

Array = np.ndarray[Any, Any]
FORMAT = 3
"""Since 2 the smallest sets are chosen on documents to learn from, and probes of few neurons have their controls; since
3 they are chosen by three folds, every draw of random neurons is kept, probes have their margins, chance deals out
whole units, and experts have intervals over documents."""
STUDY = "neurons"
CONCEPTS = {"pos": "part of speech", "number": "number", "relation": "syntactic relation"}
"""What is told from neurons, and what it is called; the corpus decides by which label."""
METHODS = {
    "probeless": "Probeless",
    "selectivity": "selectivity (d′)",
    "iou": "overlap (IoU)",
    "precision": "average precision",
    "probe": "weights of a probe",
    "gaussian": "Gaussians",
    "forest": "random forests",
    "ablation": "ablation one by one",
    "vote": "a vote of all but ablation (Borda)",
}
"""The rankings that are compared, by name; forests need scikit-learn, and ablation a task of the model's own."""
STREAMED = ("probeless", "selectivity", "iou", "precision")
"""Those of them that need one pass and nothing learned."""
UNORDERED = frozenset({"gaussian"})
"""Rankings that order only the neurons that they choose: of the others, none is the last."""
BARS = (0.5, 0.7, 0.9)
"""Average precisions from which a neuron is an expert of a class."""
DIGITS = 6
"""Significant digits of a number on disk."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Numbers in rows and columns, with chance and both ends of the interval where there are any, all [rows, columns].

    Rows are names; columns are sites, classes, numbers of neurons or names.
    """

    rows: tuple[str, ...]
    columns: tuple[Any, ...]
    values: Array
    null: Array | None = None
    low: Array | None = None
    high: Array | None = None

    @staticmethod
    def of(result: Result) -> Grid:
        """The numbers of a result with one axis or two."""
        axes = [tuple(coordinates) for coordinates in result.axes.values()]
        rows, columns = axes if len(axes) == 2 else [("value",), *axes]
        shape = len(rows), len(columns)
        cells = [
            None if part is None else np.asarray(part, float).reshape(shape)
            for part in (result.null, result.low, result.high)
        ]
        return Grid(tuple(map(str, rows)), columns, np.asarray(result.values, float).reshape(shape), *cells)

    @staticmethod
    def beside(parts: Sequence[Grid]) -> Grid:
        """Grids with the same rows, one beside the other."""

        def joined(name: str) -> Array | None:
            cells = [getattr(part, name) for part in parts]
            return None if any(each is None for each in cells) else np.concatenate(cells, axis=1)

        columns = tuple(column for part in parts for column in part.columns)
        values = joined("values")
        assert values is not None
        return Grid(parts[0].rows, columns, values, joined("null"), joined("low"), joined("high"))

    def row(self, name: str) -> Array:
        """The values of a row, [columns]."""
        return self.values[self.rows.index(name)]

    def at(self, row: str, column: Any, *, chance: float | None = None) -> Number:
        """One number with its interval, beside its own chance or another."""
        place = self.rows.index(row), self.columns.index(column)
        low, high = (None if part is None else float(part[place]) for part in (self.low, self.high))
        own = float("nan") if self.null is None else float(self.null[place])
        return Number(float(self.values[place]), own if chance is None else chance, low, high)


@dataclass(frozen=True, eq=False)
class Case:
    """All numbers of one model: facts (the model, texts, sizes), grids and single numbers, by name.

    Grids: `layers CONCEPT` and `probe CONCEPT` (accuracy and controls), `margins CONCEPT` (accuracy less each control),
    `anew CONCEPT` (probes of the first neurons
    alone), `beside CONCEPT` (their controls) and `smallest CONCEPT` (the smallest sets that are enough), `draws pos`
    (probes of sets of random neurons), `where CONCEPT` and `sub-layers` (first neurons by site), `spread` (neurons that
    each class takes), `polysemy`, `in probe METHOD` (the first neurons alone; `beside in probe`: controls, `draws in
    probe`: every draw of random ones, by ranking), `loss METHOD` and `accuracy METHOD` of the model's own task (without
    them and without one draw of random ones, by document group), the same of `class CLASS`, `agreement`, `stability
    METHOD`, `experts`. Numbers: `whole CONCEPT` and `whole in probe` (all neurons), and beside deals of whole units
    `depth CONCEPT`, `depth relation less pos`, `hidden units`, `several classes`.
    """

    name: str
    facts: Mapping[str, Any]
    grids: Mapping[str, Grid]
    numbers: Mapping[str, Number]
    format: int = FORMAT

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.facts["model"]["name"])

    @property
    def neurons(self) -> int:
        """How many neurons of the stream were read."""
        return int(self.facts["neurons"]["stream"])

    @property
    def methods(self) -> dict[str, str]:
        """The rankings that were made, and what they are called."""
        return {name: told for name, told in METHODS.items() if f"in probe {name}" in self.grids}

    @property
    def causal(self) -> bool:
        """Whether the model reads from left to right alone."""
        return bool(self.facts["model"]["causal"])


def write(case: Case, folder: Path) -> Path:
    """Writes NAME.json, whole or not at all."""
    told = {
        "format": case.format,
        "study": STUDY,
        "case": case.name,
        "facts": dict(case.facts),
        "grids": {name: _plain(vars(grid)) for name, grid in case.grids.items()},
        "numbers": {name: _plain(vars(number)) for name, number in case.numbers.items()},
    }
    path = folder / f"{case.name}.json"
    write_file(path, (json.dumps(_short(told), ensure_ascii=False, allow_nan=False) + "\n").encode())
    return path


def read(path: str | Path) -> Case:
    """The case in a file that `write` wrote; one of an older format lacks some grids and numbers."""
    place = Path(path)
    try:
        told: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        if told["study"] != STUDY:
            raise KeyError("study")
        if told["format"] > FORMAT:
            raise StudyError(f"{str(place)!r} was written by a newer Pellucid; update.")
        grids = {name: _grid(each) for name, each in told["grids"].items()}
        numbers = {name: _number(each) for name, each in told["numbers"].items()}
        return Case(told["case"], told["facts"], grids, numbers, int(told["format"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StudyError(f"{str(place)!r} is no case of the study of neurons ({error}); compute it again.") from error


def read_cases(folder: str | Path) -> tuple[Case, ...]:
    """Every case that a folder holds, by name; models of the zoo come last."""
    found = sorted(Path(folder).glob("*.json"), key=lambda path: (path.name.startswith("zoo-"), path.name))
    if not found:
        raise StudyError(
            f"There is no NAME.json in {str(folder)!r}; give a folder that `pellucid study neurons` made, or its runs."
        )
    cases = tuple(read(path) for path in found)
    twice = [case.name for place, case in enumerate(cases) if case.name in {each.name for each in cases[:place]}]
    if twice:
        raise StudyError(f"Several files in {str(folder)!r} hold the model {listing(twice)}; leave one of them.")
    return cases


def _grid(told: Mapping[str, Any]) -> Grid:
    rows, columns, values = tuple(told["rows"]), tuple(told["columns"]), np.array(told["values"], float)
    rest = [None if told[name] is None else np.array(told[name], float) for name in ("null", "low", "high")]
    if any(each is not None and each.shape != (len(rows), len(columns)) for each in (values, *rest)):
        raise ValueError("a grid has another shape than its names")
    return Grid(rows, columns, values, *rest)


def _number(told: Mapping[str, Any]) -> Number:
    value, chance = (float("nan") if told[name] is None else float(told[name]) for name in ("value", "chance"))
    band = None if told["band"] is None else (float(told["band"][0]), float(told["band"][1]))
    return Number(value, chance, told["low"], told["high"], band)


def _plain(held: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each.tolist() if isinstance(each, np.ndarray) else each for name, each in held.items()}


def _short(value: Any) -> Any:
    """The same with numbers of few digits; what is not a number becomes null."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _short(each) for name, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_short(each) for each in cast("Sequence[Any]", value)]
    return value
