"""Norms: how long the vectors in the stream are at each layer, and which dimensions stand out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.report.cells import beside, resampling
from pellucid.report.html import number
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import WIDTH, Sheet

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.overview import Norms

SHOWN = 12
"""Outlier dimensions that the page shows; all are in the file."""


def collectors(subject: Subject) -> tuple[Collector, ...]:
    """Sums per dimension of the stream."""
    from pellucid.collect.moments import Moments

    return (Moments("*.resid.*", pairs="units", groups=True),)


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """The curves over layers, their numbers, and the outlier dimensions."""
    from pellucid.overview import norms

    result = norms(found)
    sheet.result(result, name="norms")
    layers = result.axes["layer"]
    lengths = result.measure("mean norm")
    sheet.text(
        "From the first layer to the last, the mean length of a word's vector goes from "
        f"{number(float(lengths[0]))} to {number(float(lengths[-1]))}{_control(result)}."
    )
    sheet.figure(
        result.plot(width=WIDTH),
        name="norms",
        caption=f"Length of the vectors and concentration of their variance by layer. Grey: {result.chance}. "
        f"{resampling(result)}.",
        alt=f"Curves over {len(layers)} layers: {', '.join(map(str, result.axes['measure']))}.",
    )
    rows = [
        (str(layer), str(measure), *beside(result, (which, place)))
        for place, layer in enumerate(layers)
        for which, measure in enumerate(result.axes["measure"])
    ]
    sheet.table(
        ["layer", "measure", "value", "95% interval", "control model"],
        rows,
        caption="Every number of the figure.",
        right=["value", "95% interval", "control model"],
        fold="All numbers of this figure",
    )
    _outliers(sheet, subject, result)


def _control(result: Norms) -> str:
    if result.null is None:
        return ""
    lengths = result.null[result.place("measure", "mean norm")]
    return f"; in the control model from {number(float(lengths[0]))} to {number(float(lengths[-1]))}"


def _outliers(sheet: Sheet, subject: Subject, result: Norms) -> None:
    columns = {name: column.tolist() for name, column in result.outliers.columns.items()}
    away = [max(pair) for pair in zip(columns["mean, robust sds away"], columns["sd, robust sds away"], strict=True)]
    own = [place for place, name in enumerate(columns["model"]) if name == subject.model.name]
    others = [place for place in range(len(away)) if place not in set(own)]
    control = f"; the control model has {number(len(others))}" if subject.twin is not None else ""
    sheet.heading("Outlier dimensions")
    sheet.text(
        "A dimension stands out at a layer where its mean or its standard deviation over all words lies more than 6 "
        "robust standard deviations from that of the layer's other dimensions. This model has "
        f"{number(len(own))} such cases, counted at every layer{control}."
    )
    sheet.highlight(
        "Dimensions that stand out at some layer",
        number(len({columns["dimension"][place] for place in own})),
        chance="no control model"
        if subject.twin is None
        else f"control model: {number(len({columns['dimension'][place] for place in others}))}",
    )
    if not own:
        return
    farthest = f"at most {number(max(away[place] for place in others))}" if others else "none beyond 6"
    shown = sorted(own, key=lambda place: -away[place])[:SHOWN]
    sheet.table(
        ["layer", "dimension", "mean", "sd", "robust sds away"],
        [(*(columns[name][place] for name in ("layer", "dimension", "mean", "sd")), away[place]) for place in shown],
        caption=f"The {len(shown)} that stand out most"
        + (f" (in the control model: {farthest})." if subject.twin is not None else "."),
        name="outliers",
        right=["dimension", "mean", "sd", "robust sds away"],
    )


SECTION = Section(
    title="The stream, layer by layer",
    order=40,
    explanation="How long the vectors are that run through the model, and whether a few dimensions dominate them.",
    render=render,
    collectors=collectors,
)
