"""Pages on the importance of heads: maps by method, the first heads beside chance, and how far the methods agree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.report.cells import beside, resampling
from pellucid.report.html import element, interval, joined
from pellucid.report.page import Written, page
from pellucid.report.pruning import article
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder
from pellucid.written import number

if TYPE_CHECKING:
    from pellucid.heads import HeadImportance

EXPLANATION = "Which attention heads the model needs for its task, by several methods, and whether they agree."
HOW = (
    "Ablation replaces a head's output, by zero or by its mean over this text, and measures the loss again; it is what "
    "happens to the model, but heads can stand in for one another, so that one alone may seem to be worth nothing. The "
    "gradient says, to first order, how much of the loss goes through a head, and is divided by the L2 norm of its "
    "layer, so that it compares heads within a layer better than across layers. Confidence says how sharply a head "
    "looks, whatever comes of it. With grouped queries a head is a query head."
)
SHOWN = 8


def show_importance(sheet: Sheet, result: HeadImportance, *, name: str = "importance") -> None:
    """What was measured, the maps, the first heads of each method, and their agreement."""
    sheet.result(result, name=name)
    sheet.text(_measured(result))
    sheet.html(element("ul", *(element("li", line) for line in told_beyond(result))))
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"Every head by every method; 1 to 3 are the first heads. Chance: {result.chance}. "
        f"{resampling(result)}.",
        alt="Maps of layers by heads, one for each method, coloured by importance.",
    )
    numbers = ["value", "95% interval", "chance"]
    rows = [
        (str(measure), rank, head, *beside(result, (place, result.place("head", head))))
        for place, measure in enumerate(result.axes["measure"])
        for rank, head in enumerate(result.ranking(str(measure))[:SHOWN], start=1)
    ]
    sheet.table(
        ["method", "rank", "head", *numbers],
        rows,
        caption=f"The first {SHOWN} heads of every method.",
        name=f"{name}-first",
        right=["rank", *numbers],
    )
    if "agreement" in result.tables:
        _agreement(sheet, result, name)
    if "changes" in result.tables:
        _changes(sheet, result, name)
    sheet.html(
        joined(
            [
                element("p", element("b", str(measure)), ": ", result.measures[str(measure)], ".")
                for measure in result.axes["measure"]
            ]
        )
    )
    for told in ("note", "lrp note", "notice"):
        if told in result.provenance.arguments:
            sheet.note(f"{result.provenance.arguments[told]}.")
    sheet.note(HOW)


def _measured(result: HeadImportance) -> str:
    """What the model reaches on the text, beside guessing."""
    corpus, task = result.provenance.corpus, result.provenance.arguments["task"]
    told = f"Measured on {corpus['sentences']:,} sentences ({corpus['words']:,} words) of {corpus['name']} as {task}"
    if "task" not in result.tables:
        return told + "."
    table = result.table("task")
    scores = [
        f"{measure} {number(value, digits=4)} (guessing: {number(chance, digits=4)})"
        for measure, value, chance in zip(
            table.axes["measure"], table.columns["value"].tolist(), table.columns["chance"].tolist(), strict=True
        )
    ]
    told_scores = " and ".join(f"{article(score)} {score}" for score in scores)
    return f"{told}, where the model as it is has {told_scores}."


def told_beyond(result: HeadImportance) -> list[str]:
    """For each method, in words, how many heads lie beyond chance by their intervals; none without intervals."""
    if result.low is None:
        return [f"No head can be told from chance: {result.resampled}."]
    count = len(result.axes["head"])
    told: list[str] = []
    for measure in map(str, result.axes["measure"]):
        above, below = result.beyond(measure)
        told.append(f"{measure}: {above} of {count} heads lie above chance beyond their 95% interval, {below} below.")
    return [*told, f"By luck alone about {count / 40:.2g} of {count} would lie on either side."]


def _agreement(sheet: Sheet, result: HeadImportance, name: str) -> None:
    columns = result.agreement.columns
    rows = [
        (
            str(columns["first"][at]),
            str(columns["second"][at]),
            *(part for kind in ("spearman", "kendall") for part in _bounded(columns, kind, at)),
        )
        for at in range(len(columns["first"]))
    ]
    numbers = ["Spearman's ρ", "ρ 95%", "Kendall's τ", "τ 95%"]
    sheet.table(
        ["method", "beside", *numbers],
        rows,
        caption="How far two methods put the heads in the same order: 1 the same, 0 what chance gives.",
        name=f"{name}-agreement",
        right=numbers,
    )


def _bounded(columns: object, kind: str, at: int) -> tuple[float, str]:
    assert isinstance(columns, dict)
    low, high = columns.get(f"{kind} low"), columns.get(f"{kind} high")
    ends = (None, None) if low is None or high is None else (float(low[at]), float(high[at]))
    return float(columns[kind][at]), interval(*ends)


def _changes(sheet: Sheet, result: HeadImportance, name: str) -> None:
    table = result.table("changes")
    kinds = [column for column in table.columns if not column.endswith((" low", " high"))]
    rows = [
        (str(head), str(how), *(float(table.columns[kind][r, h]) for kind in kinds))
        for r, how in enumerate(table.axes["replacement"])
        for h, head in enumerate(table.axes["head"])
    ]
    sheet.table(
        ["head", "replaced by", *(f"change of {kind}" for kind in kinds)],
        rows,
        caption="Loss and score without each head, less those of the model as it is.",
        name=f"{name}-changes",
        right=[f"change of {kind}" for kind in kinds],
        fold="Without every head",
    )


def write_importance(folder: Path, result: HeadImportance, *, title: str, command: str) -> Path:
    """A folder with importance.html, the result, its tables and its figure as SVG and PNG; whole or not at all."""
    from pellucid.views import figure_bytes

    with whole_folder(folder) as work:
        sheet = Sheet(work, command)
        show_importance(sheet, result)
        (work / "figures" / "importance.png").write_bytes(figure_bytes(result.plot(), "png"))
        sheet.files.append("figures/importance.png")
        section = Written.filled("Which heads matter", EXPLANATION, sheet)
        about = "Which attention heads this model needs, by several methods side by side."
        text = page(title, about, (), [section])
        (work / "importance.html").write_text(text, encoding="utf-8")
        (work / "command.txt").write_text(command + "\n", encoding="utf-8", errors="replace")
    return folder / "importance.html"
