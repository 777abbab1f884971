"""The page of results on neurons: one section each, with its figure, its numbers beside chance and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pellucid.neurons import NeuronSurvey, Ranking
from pellucid.report.cells import beside, resampling
from pellucid.report.html import Cell, Row, element, number
from pellucid.report.neurons import draw_ranking
from pellucid.report.origin import origin_of
from pellucid.report.page import Written, page
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.report.survey import draw_survey
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.results import Result, Table

CELLS, ROWS = 240, 40
"""The most numbers of a result, and rows of a table, that the page shows; files hold all."""


def write_results(
    folder: Path, results: Mapping[str, Result], *, model: str, about: str, headings: Mapping[str, str] | None = None
) -> Path:
    """A folder with every result under its name, and neurons.html that shows them; whole or not at all.

    The last section and command.txt tell what they were made from.
    Sections are headed by the names of results, or by what `headings` has for them.
    """
    with whole_folder(folder) as work:
        written: list[Written] = []
        for name, result in results.items():
            result.save(work / name)
            sheet = Sheet(work)
            sheet.files.append(f"{name}/")
            show_result(sheet, result, name=name)
            written.append(Written.filled((headings or {}).get(name, name), explained(result), sheet))
        written.append(origin_of(results.values(), work))
        (work / "neurons.html").write_text(page(model, about, (), written), encoding="utf-8")
    return folder / "neurons.html"


def explained(result: Result) -> str:
    """What a section shows, in a line."""
    told = result.provenance.arguments
    if "done" in told:
        return f"{result.title}: {told['score']} with neurons {told['done']}."
    return f"{result.title}."


def show_result(sheet: Sheet, result: Result, *, name: str) -> None:
    """A result's figure, numbers and tables."""
    if isinstance(result, Ranking):
        draw_ranking(sheet, result, name=name)
        return
    if isinstance(result, NeuronSurvey):
        draw_survey(sheet, result, name=name)
        return
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"Grey: {result.chance}. {resampling(result)}.",
        alt=result.title,
    )
    _tell_measures(sheet, dict(result.measures))
    if result.values.size <= CELLS:
        _cells(sheet, result, name)
    for key, table in result.tables.items():
        _table(sheet, table, key, f"{name}_{key}".replace(" ", "_"))


def _tell_measures(sheet: Sheet, phrases: dict[str, str]) -> None:
    """What measures mean, each by itself; once, where all mean the same."""
    if len(phrases) > 1 and len(set(phrases.values())) == 1:
        sheet.text(f"Values: {next(iter(phrases.values()))}.")
    elif phrases:
        sheet.html(element("ul", *(element("li", element("b", key), f": {told}") for key, told in phrases.items())))


def _cells(sheet: Sheet, result: Result, name: str) -> None:
    places = np.ndindex(*result.values.shape)
    rows: list[Row] = [
        (*map(str, where), *beside(result, place))
        for where, place in zip(product(*result.axes.values()), places, strict=True)
    ]
    numbers = ["value", "95% interval", "chance"]
    sheet.table([*result.axes, *numbers], rows, caption=f"{result.title}: all numbers.", name=name, right=numbers,
                fold="All numbers")  # fmt: skip


def _table(sheet: Sheet, table: Table, key: str, name: str) -> None:
    """The first rows of a table; one that is too wide for the page is left to its files."""
    columns = {column: part.ravel() for column, part in table.columns.items()}
    count = len(next(iter(columns.values()))) if columns else 0
    where = list(product(*table.axes.values()))
    rows: list[Row] = []
    for at in range(min(count, ROWS)):
        cells = [_cell(part[at].item()) for part in columns.values()]
        rows.append((*map(str, where[at]), *cells))
    if not rows:
        return
    right = [column for column, part in columns.items() if part.dtype.kind != "U"]
    more = f"the first {ROWS} of {count:,} rows" if count > ROWS else f"{count:,} rows"
    sheet.table([*table.axes, *columns], rows, caption=f"{key}: {more}.", name=name, right=right,
                fold=f"Table: {key}")  # fmt: skip


def _cell(value: str | float) -> str | Cell:
    return Cell(number(value), value) if isinstance(value, float) else str(value)
