"""A claim and its verdict, and how its numbers are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pellucid.studies.thesis.tables import Score

VERDICTS: dict[tuple[bool | None, bool | None], str] = {
    (True, True): "stands",
    (None, True): "stands",
    (False, True): "stands, though the thesis's layout does not show it",
    (True, False): "only in the thesis's layout",
    (False, False): "does not stand",
    (None, False): "does not stand",
    (False, None): "does not stand",
    (True, None): "only in the thesis's layout",
    (None, None): "cannot be told from this run",
}


@dataclass(frozen=True)
class Claim:
    """A claim, where it is made, the rule that it is judged by, the numbers, and what the rule says in each layout.

    `thesis` and `right` are True, False, or None where the rule cannot be asked.
    """

    claim: str
    where: str
    rule: str
    found: str
    thesis: bool | None
    right: bool | None

    @property
    def verdict(self) -> str:
        """Whether the claim stands, in a few words."""
        return VERDICTS[self.thesis, self.right]


def two_places(value: float) -> str:
    """A number to two places."""
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def signed(value: float) -> str:
    """The same, always with its sign."""
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def range_of(values: Sequence[float]) -> str:
    """The smallest and the largest of some numbers, to two places."""
    low, high = two_places(min(values)), two_places(max(values))
    return low if low == high else f"{low} to {high}"


def corrected(score: Score) -> float:
    """A score as a share of the way from chance to 1."""
    return (score.value - score.chance) / (1 - score.chance)
