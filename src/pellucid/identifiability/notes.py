"""Notes of a result: what was cut, left out or taken for granted on the way to it, one sentence each; and a warning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pellucid.results import Table

if TYPE_CHECKING:
    from pellucid.results import Result

NOTES = "notes"


class IdentifiabilityWarning(UserWarning):
    """A result that was made, and what to know about it; Python's `warnings` can silence it."""


def notes_table(lines: Sequence[str]) -> dict[str, Table]:
    """A table of notes, where there are any."""
    return {NOTES: Table.of_rows({"note": list(dict.fromkeys(lines))})} if lines else {}


def notes_of(result: Result) -> list[str]:
    """The notes of a result."""
    return [str(line) for line in result.tables[NOTES].columns["note"]] if NOTES in result.tables else []


def rounding_told(dtype: str) -> list[str]:
    """What is to be said of ranks of values in half precision."""
    short = dtype.removeprefix("torch.")
    if short not in ("float16", "bfloat16"):
        return []
    line = (
        f"Values were computed in {short}: its rounding counts in their ranks, and ranks that it may have made larger "
        "count as uncertain; run the model in float32 to be sure."
    )
    return [line]
