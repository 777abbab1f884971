"""The numbers of the question-answering study: every question's, a few questions token by token, and on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.saving import write_file
from pellucid.studies.claims import StudyError
from pellucid.studies.qa.measures import Array, Mean, mean_over

FORMAT = 1
NUMBERS = "numbers.json"
ENDS = ("start", "end")
PARTS = ("question", "answer", "rest of the text", "special tokens")
DIGITS = 6
"""Significant digits of a number on disk."""


@dataclass(frozen=True)
class Measured:
    """One question in one network: [ends][places] each, parts [ends][places][parts], overlap of both ends [places]."""

    spread: list[list[float]]
    features: list[list[float]]
    parts: list[list[list[float]]]
    overlap: list[float]


@dataclass(frozen=True)
class Question:
    """A question, what the network answered, and what was measured of its attributions.

    `chances` are the probabilities of the answer's two ends and `ends` their places among the tokens; `frequency` is
    the share of tokens in each part, `error` the largest completeness error, and `random` the same measured in a
    network with random weights, whose own answer is right where `random_right`.
    """

    name: str
    document: str
    form: str
    asked: str
    wanted: str
    answered: str
    right: bool
    random_right: bool
    f1: float
    chances: list[float]
    ends: list[int]
    tokens: int
    frequency: list[float]
    error: float
    trained: Measured
    random: Measured


@dataclass(frozen=True)
class Example:
    """A question token by token: attributions [ends][places][tokens], and features [ends][places][width] of the token
    that is explained; `explained` are the places of the answer's two ends."""

    name: str
    tokens: list[str]
    explained: list[int]
    values: list[list[list[float]]]
    features: list[list[list[float]]]


@dataclass(frozen=True)
class Study:
    """All numbers of a run.

    The facts are `scale`, `model`, `corpus`, `method`, `places`, `width`, `bins`, `normal` (entropy of as many normal
    numbers), `left_out`, `random` (the seed of the random network) and `versions`.
    """

    facts: Mapping[str, Any]
    questions: tuple[Question, ...]
    examples: tuple[Example, ...]

    @property
    def places(self) -> list[str]:
        """Where attributions were measured: the input, then every layer."""
        return list(self.facts["places"])

    def mean(self, read: Callable[[Question], Any], chosen: Callable[[Question], bool] = lambda _: True) -> Mean | None:
        """The mean over questions of what `read` gives, with its interval over stories; None where there are none."""
        kept = [question for question in self.questions if chosen(question)]
        if not kept:
            return None
        values: Array = np.array([read(question) for question in kept], dtype=np.float64)
        return mean_over(values, [question.document for question in kept])


def write(study: Study, folder: Path) -> None:
    """Writes every number to numbers.json."""
    told = {
        "format": FORMAT,
        "facts": dict(study.facts),
        "questions": [asdict(question) for question in study.questions],
        "examples": [asdict(example) for example in study.examples],
    }
    write_file(folder / NUMBERS, (json.dumps(_short(told), ensure_ascii=False) + "\n").encode())


def read(folder: str | Path) -> Study:
    """The numbers that `write` wrote."""
    path = Path(folder) / NUMBERS
    if not path.is_file():
        raise StudyError(f"There is no {NUMBERS} in {str(folder)!r}; give the folder of a finished question study.")
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if told["format"] > FORMAT:
            raise StudyError(f"{str(path)!r} was written by a newer Pellucid; update.")
        questions = tuple(_question(each) for each in told["questions"])
        return Study(told["facts"], questions, tuple(Example(**each) for each in told["examples"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StudyError(f"{str(path)!r} is damaged ({error}); run the study again.") from error


def _question(told: Mapping[str, Any]) -> Question:
    held = dict(told)
    for name in ("trained", "random"):
        held[name] = Measured(**{field.name: told[name][field.name] for field in fields(Measured)})
    return Question(**held)


def _short(value: Any) -> Any:
    """The same with numbers of few digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (list, tuple)):
        return [_short(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value
