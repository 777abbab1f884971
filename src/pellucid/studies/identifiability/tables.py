"""The numbers of the study of identifiability: one file for each model, with everything that its page is drawn from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from pellucid.saving import write_file
from pellucid.studies.claims import StudyError
from pellucid.uncertainty import Interval, jackknife

Array = np.ndarray[Any, Any]
FORMAT = 2
STUDY = "identifiability"
DECIMALS = 5
"""Decimals of a number on disk."""
CURVES = ("sentences", "lengths", "depth", "tokens", "perceptrons", "mixing", "offsets", "flow")
"""What a model's file holds: attention on sentences by layer, on longer texts by the keys in sight, and by layer where
more are in sight than heads are wide; tokens told from states by layer, with perceptrons at some; mixing by layer, and
by distance; and how maps of attention agree with what states react to, by layer."""


ENDS = ("after the first layer", "after the middle layer", "after the last layer")
"""The layers whose contributions by distance are kept."""
NEAREST = 10
"""The distances that are kept: up to so many tokens to either side."""


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
    write_file(path, (json.dumps(told, ensure_ascii=False, separators=(",", ":")) + "\n").encode())
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
        held = _migrated(told)
        return Case(told["case"], told["facts"], {name: _curve(held[name]) for name in CURVES if name in held})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StudyError(
            f"{str(place)!r} holds no numbers of the study of identifiability ({error}); compute them again."
        ) from error


def _migrated(told: Mapping[str, Any]) -> dict[str, Any]:
    """The curves of a file; one of the first format has offsets of all layers, and no maps of attention."""
    held = {name: told["curves"][name] for name in CURVES if told["format"] > 1 or name != "flow"}
    if told["format"] == 1:
        last = len(held["offsets"]["rows"]) - 1
        kept = [min(1, last), (last + 1) // 2, last]
        own = held["offsets"]
        near = nearest(own["places"])
        held["offsets"] = {**own, "rows": ENDS, "places": [own["places"][at] for at in near]} | {
            name: [[own[name][layer][at] for at in near] for layer in kept] for name in ("values", "chance")
        }
    return held


def nearest(offsets: Sequence[Any]) -> list[int]:
    """The places of the distances that are kept."""
    written = [str(offset).replace("−", "-") for offset in offsets]
    return [at for at, told in enumerate(written) if told.lstrip("-").isdigit() and abs(int(told)) <= NEAREST]


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
        name: _short(np.round(each.astype(float), DECIMALS).tolist()) if isinstance(each, np.ndarray) else each
        for name, each in vars(curve).items()
    }


def _short(numbers: Any) -> Any:
    """Nested numbers, whole ones without decimals."""
    if isinstance(numbers, list):
        return [_short(each) for each in cast("list[Any]", numbers)]
    return int(numbers) if numbers == int(numbers) else numbers


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
