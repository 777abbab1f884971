"""What the question-answering study finds, as claims in plain words, each judged by a stated rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.report.html import number
from pellucid.studies.qa_measures import Array, Mean
from pellucid.studies.qa_tables import ENDS, PARTS, Study, difference

VERDICTS = {True: "stands", False: "does not stand", None: "cannot be told from these questions"}
FEWEST = 5
"""Questions of a kind, right or wrong, below which the two kinds are not compared."""


@dataclass(frozen=True)
class Claim:
    """A claim, the rule that it is judged by, the numbers, and what the rule says: None where it cannot be told."""

    claim: str
    rule: str
    found: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """Whether the claim stands, in a few words."""
        return VERDICTS[self.holds]


def claims(study: Study) -> list[Claim]:
    """Every claim of the study."""
    return [_reading(study), _deeper(study), _apart(study), _question(study), _gathered(study), _wrong(study)]


def judged(mean: Mean | None, wanted: int) -> bool | None:
    """True where every interval lies on the wanted side of zero, False where one lies on the other side."""
    if mean is None:
        return None
    signs = mean.sign()
    if bool((signs == wanted).all()):
        return True
    return False if bool((signs == -wanted).any()) else None


def told(mean: Mean | None, names: Sequence[str] = ENDS) -> str:
    """Means with their intervals, one for each name."""
    if mean is None:
        return "no questions"
    values: Array = np.atleast_1d(mean.value)
    parts: list[str] = []
    for place, name in enumerate(names):
        shown = f"{name} {_signed(float(values[place]))}"
        if mean.low is not None and mean.high is not None:
            low, high = (float(np.atleast_1d(end)[place]) for end in (mean.low, mean.high))
            shown += f" ({_signed(low)} to {_signed(high)})"
        parts.append(shown)
    return "; ".join(parts)


def _signed(value: float) -> str:
    shown = number(value, digits=2)
    return f"+{shown}" if value > 0 and not shown.startswith("<") else shown


def _reading(study: Study) -> Claim:
    mean = study.mean(lambda one: difference(one.trained.spread, one.random.spread)[:, 0])
    return Claim(
        "The answer is found by reading other tokens than its own.",
        "Spread over tokens at the input, less that in a network with random weights, where a place rests mostly on "
        "its own token: the intervals of both ends lie above zero.",
        told(mean),
        judged(mean, 1),
    )


def _last(study: Study) -> int:
    """The last layer but one: in the last, the answer's ends are read at their own token alone, in every network."""
    return max(1, len(study.places) - 2)


def _deeper(study: Study) -> Claim:
    last = _last(study)
    mean = study.mean(lambda one: np.array(one.trained.spread)[:, last] - np.array(one.trained.spread)[:, 0])
    return Claim(
        "Attribution gathers on fewer tokens with depth.",
        f"Change of the spread from the input to {study.places[last]}, the last layer but one: both intervals below "
        "zero.",
        told(mean),
        judged(mean, -1),
    )


def _apart(study: Study) -> Claim:
    last = _last(study)
    mean = study.mean(
        lambda one: one.trained.overlap[last] - one.trained.overlap[0], lambda one: len(set(one.ends)) > 1
    )
    return Claim(
        "Start and end of an answer rest on the same words at first, and part with depth.",
        f"Change from the input to {study.places[last]} of what the shares of both ends have in common, in answers of "
        "several tokens: the interval lies below zero.",
        told(mean, ("overlap",)),
        judged(mean, -1),
    )


def _question(study: Study) -> Claim:
    part = PARTS.index("question")
    mean = study.mean(lambda one: np.array(one.trained.parts)[:, 0, part] - one.frequency[part])
    return Claim(
        "Words of the question matter more than their number.",
        "Share of the question's tokens at the input, less their share of all tokens: both intervals above zero.",
        told(mean),
        judged(mean, 1),
    )


def _gathered(study: Study) -> Claim:
    part, last = PARTS.index("answer"), _last(study)
    mean = study.mean(
        lambda one: np.array(one.trained.parts)[:, last, part] - np.array(one.trained.parts)[:, 0, part],
        lambda one: bool(one.answered),
    )
    return Claim(
        "With depth, attribution moves to the answer's own tokens.",
        f"Change of the share of the answer's tokens from the input to {study.places[last]}: both intervals lie above "
        "zero.",
        told(mean),
        judged(mean, 1),
    )


def _wrong(study: Study) -> Claim:
    """Right and wrong answers are different questions, so that their intervals are compared, not their differences."""
    right, wrong = (
        study.mean(lambda one: np.array(one.trained.spread)[:, 0], lambda one, kind=kind: one.right is kind)
        for kind in (True, False)
    )
    count = sum(one.right for one in study.questions)
    claim, rule = (
        "Wrong answers rest on more tokens than right ones.",
        "Spread over tokens at the input: the interval of wrong answers lies above that of right ones, at both ends.",
    )
    if right is None or wrong is None or min(count, len(study.questions) - count) < FEWEST:
        few = f"{count} right and {len(study.questions) - count} wrong answers: too few of one kind"
        return Claim(claim, rule, few, None)
    found = f"right: {told(right)}; wrong: {told(wrong)}".replace("+", "")
    if right.low is None or right.high is None or wrong.low is None or wrong.high is None:
        return Claim(claim, rule, found, None)
    above, below = wrong.low > right.high, wrong.high < right.low
    return Claim(claim, rule, found, True if bool(above.all()) else False if bool(below.any()) else None)
