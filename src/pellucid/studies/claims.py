"""Claims of studies: what is said, the rule that it is judged by, the numbers, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.errors import PellucidError

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
