"""Pages on similarity: a map of a score with what chance and random models give, and a page of several scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pellucid.report.cells import beside
from pellucid.report.html import number
from pellucid.report.page import Written, page
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.results import Array, Coordinate, Result
    from pellucid.similarity import SimilarityGrid

MOST_ROWS = 400


def show_grid(sheet: Sheet, result: SimilarityGrid, *, name: str) -> None:
    """One score: its map, what it says in a sentence, and every number behind a fold."""
    measure = str(result.axes["measure"][0])
    values, left, right = result.values[0], result.axes["left"], result.axes["right"]
    sheet.result(result, name=name)
    sheet.text(_told(result))
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"Rows are sites of the left model, columns of the right. Chance, marked on the colour bar: "
        f"{result.chance}. Interval of the numbers below: {result.resampled}.",
        alt=f"Heat map of {measure} between {len(left)} and {len(right)} sites.",
    )
    if values.size > MOST_ROWS:
        sheet.note(f"All {values.size} numbers, with intervals, are in tables/{name}.csv.")
        return
    chance = result.table("chance").columns
    rows = [
        (str(one), str(other), *beside(result, (0, i, j)), float(chance["z"][0, i, j]), *_random(result, i, j))
        for i, one in enumerate(left)
        for j, other in enumerate(right)
    ]
    heads = ["left", "right", measure, "95% interval", "chance", "z", *(_named(each) for each in _tables(result))]
    sheet.table(
        heads,
        rows,
        caption="z is the distance from chance in its standard deviations: a scale, not a test.",
        right=heads[2:],
        fold="All numbers of this figure",
    )


def _tables(result: Result) -> list[str]:
    return [name for name in ("random left", "random right") if name in result.tables]


def _named(table: str) -> str:
    return f"{table.removeprefix('random ')} side random"


def _random(result: Result, i: int, j: int) -> tuple[float, ...]:
    return tuple(float(result.table(name).columns["value"][0, i, j]) for name in _tables(result))


def _told(result: SimilarityGrid) -> str:
    """What the map shows, in a sentence: neighbours and ends, the same layers of two models, or the best partners."""
    values = result.values[0]
    left, right = result.axes["left"], result.axes["right"]
    sides = result.provenance.arguments["sides"]
    if left == right and sides[0] != sides[1]:
        told = [_same_layers(np.diagonal(values), left)]
    elif left == right and len(left) > 1:
        told = [_neighbours(values, left)]
    else:
        best = values.max(1)
        one, other = _argmax(values)
        most = f"Most alike are {left[one]} and {right[other]} ({number(float(values.max()))})"
        reach = f"{number(float(best.min()))} to {number(float(best.max()))}"
        told = [f"{most}; the best partner of a left site scores {reach}."]
    for name in _tables(result):
        other = result.table(name).columns["value"][0]
        side = name.removeprefix("random ")
        told.append(
            f"With a randomly initialised model on the {side}, scores are {number(float(other.min()))} to "
            f"{number(float(other.max()))}: that, not 0, is what unlearned layers have in common on this text."
        )
    return " ".join(told)


def _neighbours(values: Array, names: Sequence[Coordinate]) -> str:
    """Of the layers of one model: how alike neighbours are, where the largest step is, and the two ends."""
    steps = np.diagonal(values, 1)
    at = int(steps.argmin())
    return (
        f"Neighbouring layers score {number(float(steps.min()))} to {number(float(steps.max()))}; the largest step is "
        f"from {names[at]} to {names[at + 1]}. First and last score {number(float(values[0, -1]))}."
    )


def _same_layers(same: Array, names: Sequence[Coordinate]) -> str:
    """Of two models: how alike the same layers of both are, and where they part."""
    told = (
        f"The same layer of both models scores from {number(float(same.max()))} ({names[int(same.argmax())]}) down to "
        f"{number(float(same.min()))} ({names[int(same.argmin())]})."
    )
    if len(same) < 2:
        return told
    falls = same[:-1] - same[1:]
    at = int(falls.argmax())
    return f"{told} The largest fall is from {names[at]} to {names[at + 1]}." if falls[at] > 0 else told


def _argmax(values: Array) -> tuple[int, int]:
    row, column = np.unravel_index(int(values.argmax()), values.shape)
    return int(row), int(column)


def write_comparison(
    folder: Path,
    grids: Sequence[SimilarityGrid],
    tests: Sequence[Result],
    *,
    title: str,
    about: str,
    notes: Sequence[str],
    command: str,
) -> Path:
    """A folder with comparison.html, one section per score, and results, tables and figures; whole or not at all."""
    with whole_folder(folder) as work:
        written: list[Written] = []
        for result in grids:
            measure = str(result.axes["measure"][0])
            sheet = Sheet(work, command)
            show_grid(sheet, result, name=_file(measure))
            written.append(Written.filled(measure, result.measures[measure] + ".", sheet))
        for result in tests:
            sheet = Sheet(work, command)
            _show_test(sheet, result)
            explanation = "How often documents that have nothing to do with each other look as alike as these."
            written.append(Written.filled("p-values", explanation, sheet))
        (work / "comparison.html").write_text(page(title, about, notes, written), encoding="utf-8")
        (work / "command.txt").write_text(command + "\n", encoding="utf-8", errors="replace")
    return folder / "comparison.html"


def _file(measure: str) -> str:
    return measure.replace(":", "-")


def _show_test(sheet: Sheet, result: Result) -> None:
    sheet.result(result, name="p-values")
    sheet.text(f"From {result.resampled}. A small p says that the two sides share more than chance would give.")
    scores = result.table("scores").columns
    rows = [
        (str(measure), str(one), str(other), float(result.values[m, i, j]), float(scores["value"][m, i, j]),
         float(scores["mean"][m, i, j]), float(scores["sd"][m, i, j]))
        for m, measure in enumerate(result.axes["measure"])
        for i, one in enumerate(result.axes["left"])
        for j, other in enumerate(result.axes["right"])
    ]  # fmt: skip
    heads = ["score", "left", "right", "p", "value", "mean when shuffled", "sd when shuffled"]
    sheet.table(heads, rows[:MOST_ROWS], caption="Values are those of the sampled words.", right=heads[3:])
