"""Results on neurons as the terminal shows them: one table each; the rest is in JSON, folder and `pellucid show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.cli._neuron_rankings import print_ranking
from pellucid.cli._print import console, print_table
from pellucid.written import number

if TYPE_CHECKING:
    from pellucid.results import Array, Result

_RANKED, _ROWS, _WIDE = 10, 20, 3
"""Neurons of a ranking, and rows of any other result, that are printed; and columns that all have their interval."""


def print_summary(result: Result, heading: str) -> None:
    """A ranking's first neurons, or one table of values beside chance and intervals."""
    from pellucid.neurons import Ranking
    from pellucid.report.neuron_results import explained

    screen = console()
    screen.print(heading, style="bold", markup=False)
    if isinstance(result, Ranking):
        print_ranking(result, _RANKED, classes=False)
        return
    *_, rows_are = result.axes
    names = list(result.axes[rows_are])
    heads, columns = _columns(result)
    rows = [[name, *(column[at] for column in columns)] for at, name in enumerate(names[:_ROWS])]
    print_table([rows_are, *heads], rows, title=explained(result), right=heads)
    if len(names) > _ROWS:
        screen.print(f"… and {len(names) - _ROWS} more, with -o or --json.")
    told = {name: phrase for name, phrase in result.measures.items() if phrase != name}
    if told:
        screen.print("; ".join(f"{name}: {phrase}" for name, phrase in told.items()), markup=False)
    if result.null is not None:
        screen.print(f"chance: {result.chance}", markup=False)
    screen.print(f"interval: {result.resampled}", markup=False)


def _columns(result: Result) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of the columns: one for each place of the first axis, with its interval, and what chance gives.

    Of many columns the first alone has them; chance stands once where it is the same for all.
    """
    first, *rest = result.axes.values()
    names = [str(name) for name in first] if rest else ["value"]
    values, null, low, high = (
        None if part is None else part.reshape(len(names), -1)
        for part in (result.values, result.null, result.low, result.high)
    )
    assert values is not None
    once = null is not None and bool(np.allclose(null, null[:1]))
    told: dict[str, list[str]] = {}
    for at, name in enumerate(names):
        full = at == 0 or len(names) <= _WIDE
        told[name] = _cells(values[at], (low[at], high[at]) if full and low is not None and high is not None else None)
        if null is not None and full and not once:
            told[f"chance ({name})"] = _cells(null[at], None)
    if null is not None and once:
        told["chance"] = _cells(null[0], None)
    return list(told), list(told.values())


def _cells(values: Array, ends: tuple[Array, Array] | None) -> list[str]:
    written = [number(float(value)) for value in values]
    if ends is None:
        return written
    reach = [f" ({number(float(low))} to {number(float(high))})" for low, high in zip(*ends, strict=True)]
    return [f"{value}{told}" for value, told in zip(written, reach, strict=True)]
