"""Pages on trust: what each measure says of each method of attribution, beside chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.report.cells import beside, resampling
from pellucid.report.html import element, joined
from pellucid.report.page import Written, page
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.attribution import Trust

EXPLANATION = "Whether attributions say what the model really uses: every method tried against random numbers."
HOW = (
    "Attributions are judged by what the model does. Insertion and deletion put tokens in or take them away in the "
    "order of attribution; infidelity and unexplained ask whether attributions foretell what removing random sets of "
    "tokens does, in their own unit and at their best scale; completeness whether they add up to the prediction; "
    "sensitivity whether they jump when the input hardly moves; randomisation whether they change when the weights are "
    "made random. Removed tokens stand at the baseline, which the model never saw in training: a score beside chance "
    "tells about the method, a score alone does not."
)


def show_trust(sheet: Sheet, result: Trust, *, name: str = "trust") -> None:
    """Verdicts in words, the figure, and every number behind a fold."""
    from pellucid.attribution.trials.verdicts import verdicts

    sheet.result(result, name=name)
    corpus = result.provenance.corpus
    skipped = int(result.table("skipped").columns["sentences"].sum())
    told = f" {skipped} more were skipped (too short or too long)." if skipped else ""
    sheet.text(f"Tried on {corpus['sentences']:,} sentences ({corpus['tokens']:,} tokens) of {corpus['name']}.{told}")
    sheet.html(
        element("ul", *(element("li", element("code", each.method), ": ", each.sentence) for each in verdicts(result)))
    )
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"Above: the target's score while tokens are put in or removed, the highest attribution first; 0 is "
        f"the empty text, 1 the whole one. Below: every measure. Grey: {result.chance}. {resampling(result)}.",
        alt="Insertion and deletion curves over a band of random orders, and bars for every measure and method.",
    )
    rows = [
        (str(measure), str(method), *beside(result, (m, at)))
        for m, measure in enumerate(result.axes["measure"])
        for at, method in enumerate(result.axes["method"])
    ]
    numbers = ["value", "95% interval", "chance"]
    sheet.table(
        ["measure", "method", *numbers],
        rows,
        caption="Every measure of every method.",
        right=numbers,
        fold="All numbers of this figure",
    )
    if "cascade" in result.tables:
        _cascade(sheet, result)
    sheet.html(
        joined([element("p", element("b", measure), ": ", phrase, ".") for measure, phrase in result.measures.items()])
    )
    sheet.note(HOW)


def _cascade(sheet: Sheet, result: Trust) -> None:
    table = result.table("cascade")
    methods = [str(method) for method in table.axes["method"]]
    rows = [
        (str(stage), *(float(value) for value in table.columns["correlation"][at]))
        for at, stage in enumerate(table.axes["stage"])
    ]
    sheet.table(
        ["random weights in", *methods],
        rows,
        caption="Rank correlation of the attributions' sizes with those of the trained model, while weights become "
        "random from the top.",
        right=methods,
        fold="While weights become random",
    )


def write_trust(folder: Path, result: Trust, *, title: str, command: str) -> Path:
    """A folder with trust.html, the result, its tables and its figure as SVG and PNG; whole or not at all."""
    from pellucid.views import figure_bytes

    with whole_folder(folder) as work:
        sheet = Sheet(work, command)
        show_trust(sheet, result)
        (work / "figures" / "trust.png").write_bytes(figure_bytes(result.plot(), "png"))
        sheet.files.append("figures/trust.png")
        section = Written.filled("Whether to believe the attributions", EXPLANATION, sheet)
        about = "Which methods of attribution can be believed for this model, and how far."
        text = page(title, about, (), [section])
        (work / "trust.html").write_text(text, encoding="utf-8")
        (work / "command.txt").write_text(command + "\n", encoding="utf-8", errors="replace")
    return folder / "trust.html"
