"""Printing a result: its numbers beside chance, its tables, its origin."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from pellucid.cli._print import console, print_table

if TYPE_CHECKING:
    from pellucid.results import Array, Result

_MOST_CELLS = 60
_MOST_ROWS = 10


def print_result(result: Result) -> None:
    """A result as a person reads it: every cell of a small one, a summary per measure of a large one."""
    screen = console()
    screen.print(result.title or result.kind, style="bold")
    sizes = " × ".join(f"{name} ({len(coordinates)})" for name, coordinates in result.axes.items())
    screen.print(f"{result.kind}: {sizes}")
    if result.values.size <= _MOST_CELLS:
        _print_cells(result)
    else:
        _print_summary(result)
    for name, meaning in result.measures.items():
        screen.print(f"{name}: {meaning}")
    if result.null is not None:
        screen.print(f"chance: {result.chance}")
    screen.print(f"interval: {result.resampled}")
    for name in result.tables:
        _print_rows(result, name)
    _print_origin(result)


def _print_cells(result: Result) -> None:
    cells = [part for part in (result.values, result.null, result.low, result.high) if part is not None]
    heads = [
        "value",
        *(["chance"] if result.null is not None else []),
        *(["low", "high"] if result.low is not None else []),
    ]
    flat = [[_number(item) for item in part.ravel().tolist()] for part in cells]
    rows = [(*place, *row) for place, row in zip(product(*result.axes.values()), zip(*flat, strict=True), strict=True)]
    print_table([*result.axes, *heads], rows, right=heads)


def _print_summary(result: Result) -> None:
    """Mean, smallest and largest value of each measure, with their places."""
    measured = "measure" in result.axes
    names = [str(name) for name in result.axes["measure"]] if measured else [result.title]
    axes = {name: coordinates for name, coordinates in result.axes.items() if name != "measure"}
    rows: list[list[str]] = []
    for at, name in enumerate(names):
        values = result.values[at] if measured else result.values
        null = None if result.null is None else (result.null[at] if measured else result.null)
        chance = "" if null is None else _number(float(null.mean()))
        ends = [_extreme(values, axes, int(place)) for place in (values.argmin(), values.argmax())]
        rows.append([name, _number(float(values.mean())), chance, *ends])
    print_table(["measure", "mean", "chance", "smallest", "largest"], rows, right=["mean", "chance"])


def _extreme(values: Array, axes: dict[str, Any], place: int) -> str:
    import numpy as np

    where = [int(at) for at in np.unravel_index(place, values.shape)]
    named = ", ".join(f"{name} {axes[name][at]}" for name, at in zip(axes, where, strict=True))
    return f"{_number(float(values.ravel()[place]))} ({named})"


def _print_rows(result: Result, name: str) -> None:
    table = result.tables[name]
    total = next(iter(table.columns.values())).size if table.columns else 0
    columns = [[_number(item) for item in part.ravel()[:_MOST_ROWS].tolist()] for part in table.columns.values()]
    places = [place for place, _ in zip(product(*table.axes.values()), range(_MOST_ROWS), strict=False)]
    rows = [(*place, *row) for place, row in zip(places, zip(*columns, strict=True), strict=True)]
    right = [column for column, part in table.columns.items() if part.dtype.kind != "U"]
    more = f" (first {_MOST_ROWS} of {total} rows; --json prints all)" if total > _MOST_ROWS else ""
    if not total:
        console().print(f"{name}: none")
        return
    print_table([*table.axes, *table.columns], rows, title=name + more, right=right)


def _print_origin(result: Result) -> None:
    screen, origin = console(), result.provenance
    arguments = ", ".join(f"{name}={value!r}" for name, value in origin.arguments.items())
    screen.print(f"made by {origin.function}({arguments})")
    for model in origin.models:
        screen.print(f"model: {model['name']} ({model['fingerprint']})")
    if origin.corpus:
        known = dict(origin.corpus)
        named = f"{known.pop('name', 'unnamed')} ({known.pop('fingerprint', 'no fingerprint')})"
        screen.print(f"corpus: {named}" + "".join(f"; {name}: {value}" for name, value in known.items()))
    if origin.seed is not None:
        screen.print(f"seed: {origin.seed}")
    screen.print("versions: " + ", ".join(f"{name} {value}" for name, value in origin.versions.items()))
    if origin.command is not None:
        screen.print(f"command: {origin.command}")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
