"""The models beside this file: a folder with a card.json is a model, and the card says what it is and scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.errors import ModelError, listing

FOLDER = Path(__file__).parent
FORMAT = 2
"""The newest form of card.json that can be read here; from form 2 on, a card names its main score."""
SHARES = ("accuracy", "f1", "exact")
"""Scores between 0 and 1, which are shown in per cent."""
TITLES = {"f1": "F1", "bleu": "BLEU", "exact": "exact match"}


@dataclass(frozen=True)
class Score:
    """One score of a model on its test text, and what chance gives."""

    metric: str
    value: float
    chance: float

    def __str__(self) -> str:
        return f"{title(self.metric)} {shown(self.metric, self.value)}"


@dataclass(frozen=True)
class Card:
    """What a shipped model is and what it scores; `facts` holds everything that its card.json says."""

    name: str
    kind: str
    parameters: int
    size: int  # bytes of all its files
    licence: str
    main: Score
    scores: Mapping[str, Any]
    sha256: Mapping[str, str]
    facts: Mapping[str, Any]


def title(metric: str) -> str:
    """The name of a score as people write it."""
    return TITLES.get(metric, metric.replace("_", " "))


def shown(metric: str, value: float) -> str:
    """A score as people read it."""
    if metric in SHARES:
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}" if metric == "loss" else f"{value:.1f}"


def models() -> tuple[Card, ...]:
    """The cards of all models that come with Pellucid, by name."""
    return tuple(card(name) for name in _names())


def path(name: str) -> Path:
    """The folder of a shipped model."""
    if name not in _names():
        raise ModelError(f"There is no zoo model called {name!r}; the zoo has {listing(_names())}.")
    return FOLDER / name


def card(name: str) -> Card:
    """The card of a shipped model."""
    folder = path(name)
    try:
        facts = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        if facts["format"] > FORMAT:
            raise ModelError(
                f"The card of zoo:{name} has format {facts['format']}, and this Pellucid reads up to {FORMAT}; update "
                "Pellucid."
            )
        return Card(
            name=facts["name"],
            kind=facts["kind"],
            parameters=facts["parameters"],
            size=sum(item.stat().st_size for item in folder.iterdir() if item.is_file()),
            licence=facts["licence"],
            main=_main(facts),
            scores=facts["scores"],
            sha256=facts["sha256"],
            facts=facts,
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ModelError(f"The card.json of zoo:{name} is damaged; install Pellucid again.") from None


def verify(name: str) -> tuple[str, ...]:
    """The files of a shipped model whose content was compared with its card; one that differs raises."""
    folder, wanted = path(name), card(name).sha256
    for file, digest in wanted.items():
        if not (folder / file).is_file():
            raise ModelError(f"The file {file} of zoo:{name} is missing; install Pellucid again.")
        if hashlib.sha256((folder / file).read_bytes()).hexdigest() != digest:
            raise ModelError(
                f"The file {file} of zoo:{name} is damaged (it is not the one that its card names); install Pellucid "
                "again."
            )
    return tuple(wanted)


def _main(facts: Mapping[str, Any]) -> Score:
    """The score that stands for a model; the one card of form 1 is a language model's."""
    scores = facts["scores"]
    if facts["format"] == 1:
        metric, chance = "perplexity_per_token", scores["unigram"]["test"]
    else:
        metric, chance = facts["main"], scores["chance"]["test"]
    return Score(metric, float(scores["test"][metric]), float(chance[metric]))


def _names() -> list[str]:
    return sorted(item.parent.name for item in FOLDER.glob("*/card.json"))
