"""The page on pruning: how few heads a model needs, which they are, and what a smaller model costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.report.cells import beside, resampling
from pellucid.report.html import number, share
from pellucid.report.page import Written, page
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pellucid.collect.found import Found
    from pellucid.heads import Pruning

PAGE, TITLE = "pruning.html", "How few heads are needed"
EXPLANATION = "How few attention heads the model needs for its task, and which ones."
HOW = (
    "Every head's output is multiplied by a gate between 0 and 1, which starts open. Gates are trained on the task's "
    "loss plus a price for every open head that rises meanwhile, so that heads close one after another; a closed head "
    "gives nothing and can be removed. Heads that stay open count in full, unless the weights were trained along with "
    "the gates. Beside it, as many heads are removed by an order (the least important first), and in random orders; "
    "those models keep their weights as they are. With grouped queries a head is a query head."
)


def show_pruning(sheet: Sheet, result: Pruning, *, name: str = "pruning") -> None:
    """What was found in words, the figure, the survivors, and every number behind a fold."""
    sheet.result(result, name=name)
    sheet.text(" ".join(sentences(result)))
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"Above: {result.score} with so many heads left. Bands: {result.resampled}. Chance: {result.chance}. "
        f"Below: the gates where {result.chosen} heads are left.",
        alt=f"Curves of {result.score} over the number of heads left, by three ways to choose them, and a cell for "
        "every head.",
    )
    _tables(sheet, result)
    rows = [
        (str(method), int(count), *beside(result, (at, place)))
        for at, method in enumerate(result.axes["method"])
        for place, count in enumerate(result.axes["heads"])
    ]
    numbers = ["heads left", result.score, "95% interval", "chance"]
    sheet.table(
        ["method", *numbers],
        rows,
        caption=f"Every number of this figure. {resampling(result)}.",
        right=numbers,
        name=f"{name}-curve",
        fold="All numbers of this figure",
    )
    sheet.note(HOW)


def section_of(result: Pruning) -> Section:
    """A section of a report that shows a pruning which was made before."""

    def render(sheet: Sheet, subject: Subject, found: Found) -> None:
        show_pruning(sheet, result)
        corpus = result.provenance.corpus
        told = f"{corpus['sentences']:,} sentences of {corpus['name']}"
        sheet.note(f"Measured apart from the rest of this report, on {told}.")

    return Section(TITLE, 53, EXPLANATION, render=render)


def sentences(result: Pruning) -> list[str]:
    """What a pruning found, in a few sentences."""
    total, left = len(result.gates_at()), result.chosen
    whole, at = float(result.values[0, 0]), result.place("heads", left)
    gated, ordered, drawn = (float(value) for value in result.values[:, at])
    assert result.null is not None
    chance = number(float(result.null[0, 0]))
    score = f"{article(result.score)} {result.score}"
    told = [f"With all {total} heads the model has {score} of {number(whole)} (chance: {chance})."]
    if len(result.axes["heads"]) == 1:
        told.append("No gate closed: a higher price of open heads (strength) or more epochs will close some.")
        return told
    if left == total:
        fewest = min(int(count) for count in result.axes["heads"])
        told.append(f"Gates closed until {fewest} heads were left, but no head without losing more than was allowed.")
        return told
    by = "the given order" if result.provenance.arguments["order"] == "given" else "gradient importance"
    told.append(
        f"With {left} ({share(left / total)}) it has {number(gated)} if learned gates choose them, {number(ordered)} "
        f"by {by}, and {number(drawn)} on average if they are drawn at random."
    )
    told += _main_score(result)
    if result.biased:
        told.append(
            "The point was chosen by the scores that are shown, so that they are a little too good there; a text to "
            "test on (test, --test) gives scores by which nothing was chosen."
        )
    if result.provenance.arguments["settings"]["tune"]:
        told.append("The weights were trained along with the gates, but not for the other two ways.")
    return told


NAMES = {"bleu": "BLEU", "f1": "F1"}


def _main_score(result: Pruning) -> list[str]:
    """What became of the task's main score, where it is another than the curve's; at the chosen point alone."""
    if "scores" not in result.tables:
        return []
    columns = result.table("scores").columns
    found = dict(zip(columns["method"].tolist(), columns["score"].tolist(), strict=True))
    name = NAMES[str(columns["of"][0])]
    whole, gated, ordered, drawn = (number(found[method]) for method in found)
    return [f"{name} there: {gated}, {ordered} and {drawn}; with all heads {whole}."]


def article(word: str) -> str:
    """a or an."""
    return "an" if word[:1] in "aeiou" else "a"


def _tables(sheet: Sheet, result: Pruning) -> None:
    layers = result.table("layers").columns
    sheet.table(
        ["layer", "heads", "left"],
        [(str(layer), int(had), int(left)) for layer, had, left in zip(*layers.values(), strict=True)],
        caption="Heads left in every layer.",
        right=["heads", "left"],
        name="pruning-layers",
    )
    if "scores" in result.tables:
        columns = result.table("scores").columns
        name = NAMES[str(columns["of"][0])]
        parts = ("method", "heads", "score", "lowest", "highest", "chance")
        sheet.table(
            ["method", "heads left", name, "lowest", "highest", "chance"],
            [tuple(cell.item() for cell in row) for row in zip(*(columns[part] for part in parts), strict=True)],
            caption=f"{name} with all heads and at the chosen point alone, since it takes long to measure; at random: "
            "mean, lowest and highest of up to three draws. Without intervals.",
            right=["heads left", name, "lowest", "highest", "chance"],
            name="pruning-scores",
        )
    if "functions" in result.tables:
        columns = result.table("functions").columns
        numbers = ["heads", "left", "left by chance", "95% of draws"]
        sheet.table(
            ["function", *numbers],
            [
                (str(name), int(had), int(left), float(chance), f"{int(low)} to {int(high)}")
                for name, had, left, chance, low, high in zip(*columns.values(), strict=True)
            ],
            caption="Survivors by function; by chance: if survivors were drawn from all heads whose functions were "
            "read.",
            right=numbers,
            name="pruning-functions",
        )
    survivors = result.table("survivors").columns
    rows = [tuple(cell.item() for cell in row) for row in zip(*survivors.values(), strict=True)]
    sheet.table(
        list(survivors),
        rows,
        caption="Every head that is left: its gate, and its rank (1: most important) in the order compared with.",
        right=["gate", "rank"],
        name="pruning-survivors",
        fold="All heads that are left",
    )


def write_pruning(folder: Path, result: Pruning, *, title: str, command: str, notes: Sequence[str] = ()) -> Path:
    """A folder with pruning.html, the result, its tables and its figure as SVG and PNG; whole or not at all."""
    from pellucid.views import figure_bytes

    with whole_folder(folder) as work:
        sheet = Sheet(work, command)
        show_pruning(sheet, result)
        (work / "figures" / "pruning.png").write_bytes(figure_bytes(result.plot(), "png"))
        sheet.files.append("figures/pruning.png")
        section = Written.filled(TITLE, EXPLANATION, sheet)
        about = "Attention heads removed one after another, and what the model can still do."
        (work / PAGE).write_text(page(title, about, notes, [section]), encoding="utf-8")
        (work / "command.txt").write_text(command + "\n", encoding="utf-8", errors="replace")
    return folder / PAGE
