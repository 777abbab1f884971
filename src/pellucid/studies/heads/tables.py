"""The numbers of the study of heads: one file for each case, with everything that its page is drawn from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from pellucid.errors import PellucidError
from pellucid.heads import HeadFunctions, HeadImportance, Pruning
from pellucid.provenance import Provenance
from pellucid.results import Result, Table, kinds
from pellucid.saving import write_file
from pellucid.studies.claims import StudyError

Array = np.ndarray[Any, Any]
FORMAT = 2
CASES = {
    "translate": "a translator",
    "lm": "a language model",
    "classify": "a classifier",
}
"""The cases of the study, in order; each is a file CASE.json."""
WAYS = ("gates", "importance", "random")
"""How heads are chosen on the way to fewer: by learned gates, the least important first, and in random orders."""
SPECIALISED = ("positional", "syntactic", "rare words")
"""The functions of Voita et al. (2019)."""
LINKS = ("antecedent", "rival")
DIGITS = 6
"""Significant digits of a number on disk."""


@dataclass(frozen=True, eq=False)
class Profile:
    """A measure by layer [rows, layers]: its values, what uniform attention gives, and the values of a random network.

    `without` [groups, rows, layers] are the values without each document group, `sizes` [groups] the words of the
    groups; `rows` are names, such as tags.
    """

    rows: tuple[str, ...]
    layers: tuple[str, ...]
    values: Array
    chance: Array
    random: Array
    without: Array
    sizes: Array


@dataclass(frozen=True)
class Drawn:
    """Functions in random networks: the best score of heads of one that have each, how many heads of another have it
    once they must beat that, as those of the model must, and how many of them are specialised."""

    counts: Mapping[str, int]
    best: Mapping[str, float]
    specialised: int


@dataclass(frozen=True, eq=False)
class Links:
    """Pronouns whose largest weight is on the antecedent and on the rival, in every document group.

    `hits` [groups, links, layers, heads], `expected` [groups, links] hits of a largest weight on a random word in
    sight, and `pronouns` [groups].
    """

    layers: tuple[str, ...]
    hits: Array
    expected: Array
    pronouns: Array


@dataclass(frozen=True, eq=False)
class Curve:
    """The model with ever fewer heads, on text that neither gates nor choice have seen: [ways, counts].

    `scores` are accuracies or perplexities; `kept` is what is left of what the model is better than `chance`, 1 for the
    model as it is, with intervals over documents (of random orders: the lowest and the highest).
    """

    score: str
    chance: float
    counts: tuple[int, ...]
    scores: Array
    kept: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class Case:
    """All numbers of one model with its task.

    `facts` tell the model, its task, texts, sizes and versions; `functions` are those of the heads that read text, by
    text, beyond what heads of a random network do; `random` are the same functions in random networks. `written` holds
    translations, {"source", "right", "groups", and the network that wrote them: texts}, where there are any.
    """

    name: str
    facts: Mapping[str, Any]
    functions: Mapping[str, HeadFunctions]
    random: Mapping[str, Drawn]
    importance: HeadImportance
    pruning: Pruning
    curve: Curve
    profiles: Mapping[str, Profile]
    pronouns: Mapping[str, Links]
    written: Mapping[str, Sequence[Any]]


def write(case: Case, folder: Path) -> Path:
    """Writes CASE.json, whole or not at all."""
    told = {
        "format": FORMAT,
        "study": "heads",
        "case": case.name,
        "facts": dict(case.facts),
        "functions": {text: found.to_json() for text, found in case.functions.items()},
        "random": {text: dict(vars(drawn)) for text, drawn in case.random.items()},
        "importance": case.importance.to_json(),
        "pruning": case.pruning.to_json(),
        "curve": _plain(case.curve),
        "profiles": {name: _plain(profile) for name, profile in case.profiles.items()},
        "pronouns": {form: _plain(links) for form, links in case.pronouns.items()},
        "written": {name: list(texts) for name, texts in case.written.items()},
    }
    path = folder / f"{case.name}.json"
    write_file(path, (json.dumps(_short(told), ensure_ascii=False) + "\n").encode())
    return path


def read(path: str | Path) -> Case:
    """The case in a file that `write` wrote."""
    place = Path(path)
    try:
        told: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        if told["study"] != "heads":
            raise KeyError("study")
        if told["format"] != FORMAT:
            raise StudyError(f"{str(place)!r} was written by another version of Pellucid; compute the case again.")
        return Case(
            told["case"],
            told["facts"],
            {text: cast(HeadFunctions, _restored(each)) for text, each in told["functions"].items()},
            {text: Drawn(**each) for text, each in told["random"].items()},
            cast(HeadImportance, _restored(told["importance"])),
            cast(Pruning, _restored(told["pruning"])),
            Curve(**_arrays(told["curve"])),
            {name: Profile(**_arrays(each)) for name, each in told["profiles"].items()},
            {form: Links(**_arrays(each)) for form, each in told["pronouns"].items()},
            told["written"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StudyError(f"{str(place)!r} is no case of the study of heads ({error}); compute it again.") from error
    except StudyError:
        raise
    except PellucidError as error:
        raise StudyError(f"{str(place)!r} is damaged ({error}); compute the case again.") from error


def read_cases(folder: str | Path) -> tuple[Case, ...]:
    """Every case that a folder holds, in order."""
    found = [path for name in CASES if (path := Path(folder) / f"{name}.json").is_file()]
    if not found:
        raise StudyError(
            f"There is none of {', '.join(f'{name}.json' for name in CASES)} in {str(folder)!r}; give a folder that "
            "`pellucid study heads` made, or its runs."
        )
    return tuple(read(path) for path in found)


def slim(result: Any, tables: Sequence[str]) -> Any:
    """A result with some of its tables only: the others are large and not drawn."""
    return replace(result, tables={name: table for name, table in result.tables.items() if name in tables})


def _restored(told: Mapping[str, Any]) -> Result:
    """The result that `Result.to_json` told."""
    tables = {
        name: Table(_axes(each["axes"]), {column: np.array(cells) for column, cells in each["columns"].items()})
        for name, each in told["tables"].items()
    }
    cells = {
        name: None if told[name] is None else np.array(told[name], dtype=float) for name in ("null", "low", "high")
    }
    return kinds()[told["kind"]](
        axes=_axes(told["axes"]),
        values=np.array(told["value"], dtype=float),
        **cells,
        resampled=told["resampled"],
        provenance=Provenance.of_json(told["provenance"]),
        tables=tables,
    )


def _axes(told: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(coordinates) for name, coordinates in told.items()}


def _plain(holder: Profile | Links | Curve) -> dict[str, Any]:
    return {name: each.tolist() if isinstance(each, np.ndarray) else each for name, each in vars(holder).items()}


def _arrays(told: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of numbers as arrays; names and counts of heads as tuples."""
    named = ("rows", "layers", "counts")
    return {
        name: (tuple(each) if name in named else np.array(each, dtype=float)) if isinstance(each, list) else each
        for name, each in told.items()
    }


def _short(value: Any) -> Any:
    """The same with numbers of few digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _short(each) for name, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_short(each) for each in cast("Sequence[Any]", value)]
    return value
