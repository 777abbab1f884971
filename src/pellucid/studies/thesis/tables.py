"""The study's numbers: every score with its layout, layers, epochs, chance, random networks and interval, on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pellucid.errors import listing
from pellucid.saving import write_file
from pellucid.studies.claims import StudyError

FORMAT = 1
TABLES, CURVES = "tables.json", "curves.json"
DIGITS = 6
"""Significant digits of a number on disk."""

KINDS = {
    "between": "layers of the trained tagger against those of the trained language model",
    "shifted": "the same, with the tagger's text laid in columns as in the thesis: other words at the same places",
    "within": "layers of the trained language model against each other",
    "final": "a layer at an epoch against the same layer at the end",
    "target": "a layer of the tagger at an epoch against the same layer of the trained language model",
    "epochs": "a layer of the tagger at an epoch against the same layer of the language model at that epoch",
}
LAYOUTS = {
    "thesis": "places in the text as rows, columns × features as columns: the layout of the thesis",
    "words": "words as rows, features as columns",
}


@dataclass(frozen=True)
class Score:
    """One number: what was compared under which score, what chance gives, and the same with random networks.

    `shuffled` is the score once one side was dealt out at random; `random_left`, `random_right` and `random_both` those
    with randomly initialised networks of the same architecture in place of one side or of both. `without` are the
    scores without each group of documents, from which the interval comes.
    """

    kind: str
    layout: str
    score: str
    left: str
    left_epoch: int
    right: str
    right_epoch: int
    value: float
    chance: float
    sd: float
    shuffled: float | None = None
    random_left: float | None = None
    random_right: float | None = None
    random_both: float | None = None
    low: float | None = None
    high: float | None = None
    without: tuple[float, ...] = ()

    @property
    def random(self) -> float | None:
        """The largest score that random networks give, in place of one side or of both."""
        found = (self.random_left, self.random_right, self.random_both)
        return max((each for each in found if each is not None), default=None)


Place = tuple[str, str, str, str, int, str, int]
"""Kind, layout, score, and both layers with their epochs."""


@dataclass(frozen=True)
class Study:
    """All numbers of a run: `facts` on text, networks, training and noise, scores of the trained networks, and curves.

    The facts are `scale`, `text`, `layout`, `training`, `noise`, `spectra`, `groups` (words of each group of documents,
    all and sampled) and `versions`.
    """

    facts: Mapping[str, Any]
    scores: tuple[Score, ...]
    curves: tuple[Score, ...]

    @property
    def last(self) -> int:
        """The last epoch."""
        return max(score.left_epoch for score in self.scores)

    @property
    def depth(self) -> dict[str, int]:
        """How many layers each network has."""
        names = {name for score in self.scores for name in (score.left, score.right)}
        return {kind: sum(name.startswith(f"{kind}.") for name in names) for kind in ("lm", "tagger")}

    def of(self, kind: str, layout: str, score: str) -> list[Score]:
        """All numbers of a kind under one score; where there are none, what exists is said."""
        held = self.scores + self.curves
        found = [each for each in held if (each.kind, each.layout, each.score) == (kind, layout, score)]
        if not found:
            known = sorted({f"{each.kind}/{each.layout}/{each.score}" for each in held})
            raise StudyError(f"The study has no numbers {kind}/{layout}/{score}; it has {listing(known, most=60)}.")
        return found

    def one(self, kind: str, layout: str, score: str, left: str, right: str) -> Score:
        """The number of two layers of the trained networks, in either order."""
        for each in self.of(kind, layout, score):
            if each.left_epoch == each.right_epoch == self.last and {each.left, each.right} == {left, right}:
                return each
        raise StudyError(f"The study did not compare {left} and {right} under {kind}/{layout}/{score}.")

    def curve(self, kind: str, layout: str, score: str, left: str) -> list[Score]:
        """The numbers of one layer over the epochs, from the first."""
        found = [each for each in self.of(kind, layout, score) if each.left == left]
        return sorted(found, key=lambda each: each.left_epoch)


def write(study: Study, folder: Path) -> None:
    """tables.json and curves.json in a folder that exists."""
    write_file(folder / TABLES, _written({"format": FORMAT, "study": "thesis", **study.facts}, study.scores))
    write_file(folder / CURVES, _written({"format": FORMAT, "study": "thesis"}, study.curves))


def read(folder: str | Path) -> Study:
    """The study in a folder; what is no study, or of another version, is refused."""
    facts, scores = _read(Path(folder) / TABLES)
    _, curves = _read(Path(folder) / CURVES)
    return Study(facts, scores, curves)


def _written(facts: Mapping[str, Any], scores: Iterable[Score]) -> bytes:
    """JSON with a line for every score, so that two runs can be compared line by line."""
    columns = [field.name for field in fields(Score)]
    told = json.dumps({**_rounded(facts), "columns": columns}, ensure_ascii=False, indent=1)
    rows = ",\n".join(json.dumps(_rounded([getattr(score, name) for name in columns])) for score in scores)
    return f'{told.removesuffix("}").rstrip()},\n "scores": [\n{rows}\n]}}\n'.encode()


def _rounded(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (float, Mapping, list, tuple)):
        return value
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value]


def _read(path: Path) -> tuple[dict[str, Any], tuple[Score, ...]]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StudyError(f"{str(path)!r} does not exist; give a folder that `pellucid study thesis` made.") from None
    except (OSError, ValueError):
        raise StudyError(f"{str(path)!r} is damaged and cannot be read; run the study again.") from None
    if not isinstance(told, dict) or told.get("study") != "thesis" or told.get("format") != FORMAT:
        raise StudyError(
            f"{str(path)!r} does not hold a thesis study of format {FORMAT}; read it with the Pellucid that made it."
        )
    columns: Sequence[str] = told.pop("columns")
    rows = told.pop("scores")
    known = [field.name for field in fields(Score)]
    if list(columns) != known:
        raise StudyError(f"{str(path)!r} has the columns {listing(columns, most=30)}; this Pellucid reads {known}.")
    return told, tuple(Score(*row[:-1], without=tuple(row[-1])) for row in rows)
