"""What pages show of a survey of neurons: its figure, the kinds of every site, and the first neurons of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pellucid.neurons.survey import FOLLOWED, KINDS
from pellucid.report.cells import beside, resampling
from pellucid.report.html import Cell, Row, element, share
from pellucid.report.sheet import WIDTH, Sheet

if TYPE_CHECKING:
    from pellucid.neurons import NeuronSurvey

NAMED = 6
"""Neurons that are named of each kind."""
_SHARES = {"mostly silent": "silent", "saturated": "saturated"}


def draw_survey(sheet: Sheet, result: NeuronSurvey, *, name: str) -> None:
    """All of a survey: the figure, how many neurons of each kind every site has, and the first of each."""
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"Every line is a site; its neurons stand from the highest down. Dashed: {result.chance}. "
        "Dotted: from where on, or up to where, a neuron is counted below.",
        alt=f"Lines: {result.title.lower()}, site by site.",
    )
    show_kinds(sheet, result, what="Neurons of each kind.", name=f"{name}_kinds")
    show_firsts(sheet, result, name=f"{name}_firsts")
    sheet.note(f"{resampling(result)}. The numbers of all neurons are in the files.")


def show_kinds(sheet: Sheet, result: NeuronSurvey, *, what: str, name: str) -> None:
    """How many neurons of each kind every site has, here and in the random model where one was read."""
    table = result.table("sites")
    rows: list[Row] = []
    for at, site in enumerate(table.axes["site"]):
        cells = [_count(table.columns, at, place) for place in range(len(KINDS))]
        rows.append((Cell(element("code", site), site), int(table.columns["of"][at, 0]), *cells))
    both = " In brackets: in the same model with random weights." if (table.columns["random model"] >= 0).any() else ""
    meant = "; ".join(f"{kind}: {told}" for kind, told in KINDS.items())
    numbers = ["neurons", *KINDS]
    sheet.table(["site", *numbers], rows, caption=f"{what}{both} {meant}.", name=name, right=numbers)


def _count(columns: Any, at: int, place: int) -> Cell:
    own, other = int(columns["neurons"][at, place]), int(columns["random model"][at, place])
    return Cell(str(own) if other < 0 else f"{own} ({other})", own)


def show_firsts(sheet: Sheet, result: NeuronSurvey, *, name: str) -> None:
    """The first neurons of each kind, with the number that puts them first, its interval and chance."""
    rows: list[Row] = []
    activity = result.table("activity").columns
    for kind in KINDS:
        for neuron in result.of_kind(kind)[:NAMED]:
            place = result.place("neuron", neuron)
            if kind in _SHARES:
                part = float(activity[_SHARES[kind]][place])
                told = f"{_SHARES[kind]} at", Cell(share(part), part), "none", "not known"
            else:
                measure = kind if kind in FOLLOWED else "spread"
                told = measure, *beside(result, (result.place("measure", measure), place))
            rows.append((kind, Cell(element("code", neuron), neuron), *told))
    if not rows:
        return
    numbers = ["value", "95% interval", "chance"]
    sheet.table(
        ["kind", "neuron", "measure", *numbers],
        rows,
        caption="The first neurons of each kind. spread: the standard deviation over the median one of the site, so 1 "
        "is usual; position, frequency: the share of the variance that they explain (η²); silent at, saturated at: the "
        "share of words.",
        name=name,
        right=numbers,
        fold="The first of each kind",
    )
