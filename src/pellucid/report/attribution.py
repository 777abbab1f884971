"""The page on one attribution: its figure, the text to click through, and how far the sums can be believed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pellucid.report.html import number
from pellucid.report.page import Written, page
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder
from pellucid.views.attribution_parts import completeness, percent

if TYPE_CHECKING:
    from pellucid.attribution import Attribution
    from pellucid.results import Array, Coordinate

PAGE, NAME = "attribution.html", "attribution"
MOST_ROWS = 20
_SCORES = {"baseline": "at the baseline"}
READING = (
    "An attribution shares the change of the target's score, from the baseline to the text, among tokens or places. It "
    "says what this score was computed from on this one text, not what would happen if a token were another one, and "
    "methods differ: compare several, and look at what a randomly initialised model gives."
)


def write_attribution(folder: Path, result: Attribution, *, command: str) -> Path:
    """A folder with attribution.html, result.json and arrays, figures (svg, pdf, png), tables and the command.

    It is written whole or not at all; `pellucid show FOLDER` reads it again.
    """
    from pellucid.views import attribution_view, figure_bytes

    result = replace(result, provenance=replace(result.provenance, command=command))
    with whole_folder(folder) as work:
        result.save(work)
        (work / "tables").mkdir()
        result.save_table(work / "tables" / f"{NAME}.csv")
        sheet = Sheet(work, command)
        figure = result.plot(width=WIDTH)
        sheet.figure(figure, name=NAME, caption=caption(result), alt=alt_text(result))
        for kind in ("pdf", "png"):
            (work / "figures" / f"{NAME}.{kind}").write_bytes(figure_bytes(figure, kind))
        told = Sheet(work, command)
        told.view(
            attribution_view(result),
            name=NAME,
            caption="Choose a method, target and place; point at a token or a cell to read its number.",
        )
        tables = Sheet(work, command)
        show_scores(tables, result)
        show_completeness(tables, result)
        tables.files += [f"tables/{NAME}.csv", "result.json", "arrays.safetensors", "command.txt"]
        sheet.files += [f"figures/{NAME}.{kind}" for kind in ("pdf", "png")]
        written = [
            Written.filled(title, explanation, each)
            for title, explanation, each in (
                ("What made the prediction", "Every token's part in each target, by each method.", sheet),
                ("The text", "The same numbers on the text itself.", told),
                ("Scores and sums", "What was explained, and whether the parts add up to it.", tables),
            )
        ]
        about = " · ".join(f"“{text}”" for text in _read(result)) or "One text."
        name = result.provenance.models[0]["name"]
        (work / PAGE).write_text(page(name, about, [READING], written), encoding="utf-8", errors="replace")
        (work / "command.txt").write_text(command + "\n", encoding="utf-8", errors="replace")
    return folder / PAGE


def caption(result: Attribution) -> str:
    """What the numbers of a figure are."""
    compared = "baseline" in result.targets.columns
    told = "a part of the target's change from baseline to text" if compared else "for the text as it is"
    return f"Each number is {told}; colours are centred on zero."


def show_scores(sheet: Sheet, result: Attribution) -> None:
    """The targets with their scores, and the strongest places where there are several."""
    log = result.provenance.arguments.get("log")
    columns = {_SCORES.get(name, name): column.tolist() for name, column in result.targets.columns.items()}
    sheet.table(
        list(columns),
        list(zip(*columns.values(), strict=True)),
        caption="Scores are log-probabilities." if log else "Scores are logits unless the target says otherwise.",
        name="targets",
        right=list(columns)[1:],
    )
    if len(result.axes["place"]) > 1:
        heads = ["method", "target", "place", "sum over tokens", "sum of sizes", "strongest token"]
        rows = [
            (str(measure), str(target), *row)
            for measure in result.axes["measure"]
            for target in result.axes["target"]
            for row in strongest_places(result, measure, target, MOST_ROWS)
        ]
        caption = f"The strongest places by the sum of sizes over tokens, at most {MOST_ROWS} for each target."
        sheet.table(heads, rows, caption=caption, name="places", right=heads[3:5])


def strongest_places(
    result: Attribution, measure: Coordinate, target: Coordinate, most: int
) -> list[tuple[str, float, float, str]]:
    """Places by the size of their attributions, the largest first: name, sum, sum of sizes, strongest token."""
    values: Array = result.values[result.place("measure", measure), result.place("target", target)]
    sizes = np.abs(values).sum(axis=1)
    return [
        (
            str(result.axes["place"][at]),
            float(values[at].sum()),
            float(sizes[at]),
            str(result.axes["token"][int(np.abs(values[at]).argmax())]),
        )
        for at in np.argsort(-sizes, kind="stable")[:most].tolist()
    ]


def show_completeness(sheet: Sheet, result: Attribution) -> None:
    """Whether the attributions add up, in a sentence and as a table."""
    columns = {name: column.tolist() for name, column in result.completeness.columns.items()}
    told = completeness(result)
    sheet.text(f"{told[:1].upper()}{told[1:]}.")
    rows = list(zip(*(columns[name] for name in ("measure", "target", "place", "sum", "change")), strict=True))
    if rows:
        sheet.table(
            ["method", "target", "place", "sum", "change of the target", "error"],
            [(*row, percent(error)) for row, error in zip(rows, columns["relative error"], strict=True)],
            caption="Complete methods only, at places through which all must pass. The error is relative to the "
            "target's change (to a tenth of the sizes' sum where attributions cancel).",
            name="completeness",
            right=["sum", "change of the target", "error"],
        )


def largest(result: Attribution, measure: Coordinate, place: Coordinate, count: int, *, target: int = 0) -> str:
    """The tokens with the largest attributions at a place, with their numbers, as a phrase."""
    values = result.values[result.place("measure", measure), target, result.place("place", place)]
    texts = [str(text) for text in result.tokens.columns["token"].tolist()]
    order = np.argsort(-np.abs(values), kind="stable")[:count].tolist()
    return ", ".join(f"“{texts[at].strip() or texts[at]}” ({number(float(values[at]))})" for at in order)


def _read(result: Attribution) -> list[str]:
    given = result.provenance.corpus
    return [str(given[name]) for name in ("text", "pair", "decoder") if name in given]


def alt_text(result: Attribution) -> str:
    """The figure for those who do not see it."""
    sizes = {axis: len(coordinates) for axis, coordinates in result.axes.items()}
    return (
        f"Attributions by {sizes['measure']} method(s) for {sizes['target']} target(s) at {sizes['place']} place(s) of "
        f"{sizes['token']} tokens."
    )
