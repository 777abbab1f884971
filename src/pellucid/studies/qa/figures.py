"""Figures and tables of the question-answering study, from its numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pellucid.report.html import Cell, bounds
from pellucid.studies.qa.measures import Mean
from pellucid.studies.qa.tables import ENDS, PARTS, Example, Measured, Question, Study
from pellucid.views.qa_maps import Line, answer_maps, feature_panels, layer_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RANDOM = "random network"
SPREAD_COLUMNS = ("end", "layer", "spread", "interval", "random network", "entropy, bits", "random network, bits")
PART_COLUMNS = ("end", "layer", "part", "share", "interval", "random network", "share of tokens")
NUMBERS = ("spread", "random network", "entropy, bits", "random network, bits", "share", "share of tokens")


def _line(mean: Mean | None, *at: int) -> Line:
    assert mean is not None
    ends = [None if end is None else end[at] for end in (mean.low, mean.high)]
    return mean.value[at], ends[0], ends[1]


def _beside(study: Study, read: Callable[[Measured], list[list[float]]]) -> dict[str, dict[str, Line]]:
    """Both ends of the answers, each in the trained and in the random network."""
    trained, random = study.mean(lambda one: read(one.trained)), study.mean(lambda one: read(one.random))
    name = "trained network"
    return {end: {name: _line(trained, which), RANDOM: _line(random, which)} for which, end in enumerate(ENDS)}


def spreads(study: Study) -> Figure:
    """Spread over tokens by layer."""
    return layer_lines(
        _beside(study, lambda one: one.spread),
        study.places,
        title="How many tokens an answer rests on",
        label="spread: entropy over log n",
        grey=[RANDOM],
        marks={"equal shares": 1.0},
    )


def features(study: Study) -> Figure:
    """Entropy of the explained token's features by layer."""
    facts = study.facts
    return layer_lines(
        _beside(study, lambda one: one.features),
        study.places,
        title="How a token's attribution is distributed over the features of a layer",
        label="entropy in bits",
        grey=[RANDOM],
        marks={"normal numbers": float(facts["normal"]), "equal masses": float(np.log2(facts["bins"]))},
        note=f"{facts['width']} features in {facts['bins']} bins of their range; so many normal numbers give "
        f"{facts['normal']:.2f} bits",
    )


def overlaps(study: Study) -> Figure:
    """What start and end have in common by layer."""
    trained, random = study.mean(lambda one: one.trained.overlap), study.mean(lambda one: one.random.overlap)
    assert trained is not None and random is not None
    panel: dict[str, Line] = {
        "trained network": (trained.value, trained.low, trained.high),
        RANDOM: (random.value, random.low, random.high),
    }
    return layer_lines(
        {"start and end": panel},
        study.places,
        title="Whether start and end rest on the same tokens",
        label="shares in common",
        grey=[RANDOM],
    )


def parts(study: Study) -> Figure:
    """Shares of the parts by layer."""
    mean = study.mean(lambda one: np.array(one.trained.parts).transpose(0, 2, 1))  # [ends, parts, places]
    frequency = study.mean(lambda one: one.frequency)
    assert frequency is not None
    panels = {
        end: {part: _line(mean, which, place) for place, part in enumerate(PARTS)} for which, end in enumerate(ENDS)
    }
    return layer_lines(
        panels,
        study.places,
        title="Where the attribution lies",
        label="share of the layer's attribution",
        levels={part: float(frequency.value[at]) for at, part in enumerate(PARTS)},
        note="dotted: shares of all tokens, "
        + ", ".join(f"{part} {frequency.value[at]:.0%}" for at, part in enumerate(PARTS)),
    )


def right_and_wrong(study: Study) -> Figure:
    """Spread over tokens by layer, of right and of wrong answers."""
    means = {
        name: study.mean(lambda one: one.trained.spread, lambda one, kind=kind: one.right is kind)
        for name, kind in (("right answers", True), ("wrong answers", False))
    }
    panels = {end: {name: _line(mean, which) for name, mean in means.items()} for which, end in enumerate(ENDS)}
    return layer_lines(panels, study.places, title="Right and wrong answers", label="spread: entropy over log n")


def maps(study: Study, example: Example, question: Question) -> Figure:
    """Tokens × layers of one question."""
    first, second = (f"P({end}) = {chance:.2f}" for end, chance in zip(ENDS, question.chances, strict=True))
    return answer_maps(
        example.tokens,
        study.places,
        np.array(example.values),
        example.explained,
        title=f"{question.asked} → {question.answered or '(none)'}  ({first}, {second})",
    )


def token_features(study: Study, example: Example, question: Question) -> Figure:
    """The explained token's features of one question."""
    return feature_panels(
        np.array(example.features),
        study.places,
        np.array(question.trained.features),
        [f"“{example.tokens[place]}”" for place in example.explained],
        most=float(np.log2(study.facts["bins"])),
        title="The token that is explained, over the features of each layer",
    )


def spread_rows(study: Study) -> list[tuple[str | Cell, ...]]:
    """Spread and entropy of every layer, in the trained and in the random network."""
    spread, random = (study.mean(lambda one, kind=kind: getattr(one, kind).spread) for kind in ("trained", "random"))
    bits, other = (study.mean(lambda one, kind=kind: getattr(one, kind).features) for kind in ("trained", "random"))
    rows: list[tuple[str | Cell, ...]] = []
    for which, end in enumerate(ENDS):
        for place, name in enumerate(study.places):
            at = (which, place)
            rows.append(
                (
                    end,
                    name,
                    _cell(spread, at),
                    _interval(spread, at),
                    _cell(random, at),
                    _cell(bits, at),
                    _cell(other, at),
                )
            )
    return rows


def part_rows(study: Study) -> list[tuple[str | Cell, ...]]:
    """The share of every part at every layer, beside the random network and the part's share of all tokens."""
    trained, random = (study.mean(lambda one, kind=kind: getattr(one, kind).parts) for kind in ("trained", "random"))
    frequency = study.mean(lambda one: one.frequency)
    rows: list[tuple[str | Cell, ...]] = []
    for which, end in enumerate(ENDS):
        for place, name in enumerate(study.places):
            for number_, part in enumerate(PARTS):
                at = (which, place, number_)
                cells = (_cell(trained, at), _interval(trained, at), _cell(random, at), _cell(frequency, (number_,)))
                rows.append((end, name, part, *cells))
    return rows


def _cell(mean: Mean | None, at: tuple[int, ...]) -> Cell:
    assert mean is not None
    value = float(mean.value[at])
    return Cell(f"{value:.3f}", value)


def _interval(mean: Mean | None, at: tuple[int, ...]) -> Cell:
    assert mean is not None
    low, high = (None if end is None else float(end[at]) for end in (mean.low, mean.high))
    return bounds(low, high, write=lambda value: f"{value:.3f}")
