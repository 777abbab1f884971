"""Claims of studies: what is said, the rule that it is judged by, the numbers, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pellucid.errors import PellucidError
from pellucid.studies.rules import Number

VERDICTS = {True: "stands", False: "does not stand", None: "cannot be told"}


class StudyError(PellucidError):
    """A study that cannot be run, or whose numbers cannot be read."""


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


@dataclass(frozen=True)
class CaseClaim(Claim):
    """A claim judged on one case (or on several), with where it is made and what was published there."""

    case: str
    source: str
    published: str
    number: Number


def told(number: Number, *, per_cent: bool = False, against: str = "chance") -> str:
    """A number with its interval and what it is held against: 0.62 (0.55 to 0.69), chance 0.50."""
    if not math.isfinite(number.value):
        return "too few to compare"
    write = _per_cent if per_cent else _places
    shown = write(number.value)
    if number.low is not None and number.high is not None:
        shown += f" ({write(number.low)} to {write(number.high)})"
    chance = f"{against} {write(number.chance)}"
    if number.band is not None:
        chance += f" ({write(number.band[0])} to {write(number.band[1])})"
    return f"{shown}, {chance}"


def _places(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _per_cent(value: float) -> str:
    shown = f"{100 * value:.{0 if abs(value) >= 0.0995 or value == 0 else 1}f}%"
    return "0.0%" if shown == "-0.0%" else shown.replace("-", "−")
