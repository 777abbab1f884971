"""The numbers of the study of identifiability: one file for each model, with everything that its page is drawn from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.saving import write_file
from pellucid.studies.claims import StudyError
from pellucid.uncertainty import Interval, jackknife

Array = np.ndarray[Any, Any]
FORMAT = 1
STUDY = "identifiability"
DECIMALS = 7
"""Decimals of a number on disk."""
CURVES = ("sentences", "lengths", "depth", "tokens", "perceptrons", "mixing", "offsets")
"""What a model's file holds: attention on sentences by layer, on longer texts by the keys in sight, and by layer where
more are in sight than heads are wide; tokens told from states by layer, with perceptrons at some; mixing by layer, and
by distance."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Measures over places (layers, lengths, distances), [rows, places]: values, what chance gives, a random network's.

    `without` [groups, rows, places] are the values without each group of documents, `sizes` [groups] what the groups
    hold; both are empty where there is no interval.
    """

    rows: tuple[str, ...]
    places: tuple[str, ...]
    values: Array
    chance: Array
    without: Array
    sizes: Array
    random: Array | None = None

    def row(self, name: str) -> Array:
        """One measure over all places."""
        return self.values[self.rows.index(name)]

    def interval(self, read: Callable[[Array], Array]) -> Interval:
        """The jackknife interval of something read off the values [rows, places]."""
        return jackknife(read(self.values), [read(each) for each in self.without], self.sizes.tolist())


@dataclass(frozen=True, eq=False)
class Case:
    """All numbers of one model; `facts` tell the model, its texts, sizes and versions."""

    name: str
    facts: Mapping[str, Any]
    curves: Mapping[str, Curve]

    @property
    def width(self) -> int:
        """How wide the values of a head are."""
        return int(self.facts["model"]["head width"])


def file_name(name: str) -> str:
    """The file of a model's numbers."""
    return f"{name.replace(':', '-')}.json"


def write(case: Case, folder: Path) -> Path:
    """Writes the numbers of a model, whole or not at all."""
    told = {
        "format": FORMAT,
        "study": STUDY,
        "case": case.name,
        "facts": dict(case.facts),
        "curves": {name: _plain(curve) for name, curve in case.curves.items()},
    }
    path = folder / file_name(case.name)
    write_file(path, (json.dumps(told, ensure_ascii=False) + "\n").encode())
    return path


def read(path: str | Path) -> Case:
    """The numbers in a file that `write` wrote."""
    place = Path(path)
    try:
        told: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        if told["study"] != STUDY:
            raise KeyError("study")
        if told["format"] > FORMAT:
            raise StudyError(f"{str(place)!r} was written by a newer Pellucid; update.")
        return Case(told["case"], told["facts"], {name: _curve(told["curves"][name]) for name in CURVES})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StudyError(
            f"{str(place)!r} holds no numbers of the study of identifiability ({error}); compute them again."
        ) from error


def read_cases(folder: str | Path) -> tuple[Case, ...]:
    """Every model that a folder holds, the smallest first."""
    found = [read(path) for path in sorted(Path(folder).glob("*.json"))]
    if not found:
        raise StudyError(
            f"There are no numbers of a model in {str(folder)!r}; give a folder that `pellucid study identifiability` "
            "made, or its runs."
        )
    return tuple(sorted(found, key=lambda case: (case.facts["model"]["parameters"], case.name)))


def _plain(curve: Curve) -> dict[str, Any]:
    return {
        name: np.round(each.astype(float), DECIMALS).tolist() if isinstance(each, np.ndarray) else each
        for name, each in vars(curve).items()
    }


def _curve(told: Mapping[str, Any]) -> Curve:
    def array(name: str) -> Array:
        return np.array(told[name], dtype=float)

    rows, places = _names(told["rows"]), _names(told["places"])
    shape = (len(rows), len(places))
    made = Curve(
        rows,
        places,
        array("values"),
        array("chance"),
        array("without").reshape(-1, *shape),
        array("sizes"),
        None if told["random"] is None else array("random"),
    )
    checked = (made.values, made.chance, made.values if made.random is None else made.random)
    if any(each.shape != shape for each in checked) or len(made.without) != len(made.sizes):
        raise ValueError("its numbers do not fit their names")
    return made


def _names(told: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(name) for name in told)
