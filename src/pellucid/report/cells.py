"""Tables of results: every number with what chance gives and its interval in the columns beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pellucid.report.html import Cell, bounds, interval, number

if TYPE_CHECKING:
    from pellucid.results import Result
    from pellucid.uncertainty import Interval

Place = tuple[int, ...]


def value_at(result: Result, place: Place) -> float:
    """The value of a cell."""
    return float(result.values[place])


def chance_at(result: Result, place: Place) -> float | None:
    """What chance gives for a cell; None where the result has no chance level."""
    return None if result.null is None else float(result.null[place])


def interval_at(result: Result, place: Place, *, write: Callable[[float], str] = number) -> str:
    """The interval of a cell, as text."""
    low, high = (None if end is None else float(end[place]) for end in (result.low, result.high))
    return interval(low, high, write=write)


def beside(result: Result, place: Place, *, write: Callable[[float], str] = number) -> tuple[Cell, Cell, Cell]:
    """A cell's value, its interval and its chance level, to stand in one row."""
    value, chance = value_at(result, place), chance_at(result, place)
    low, high = (None if end is None else float(end[place]) for end in (result.low, result.high))
    return (
        Cell(write(value), value),
        bounds(low, high, write=write),
        Cell("not known" if chance is None else write(chance), chance),
    )


def resampling(result: Result | Interval) -> str:
    """What intervals come from, or why there is none, to stand in a caption."""
    told = result.resampled
    return f"N{told[1:]}" if told.startswith("no interval") else f"Interval: {told}"
