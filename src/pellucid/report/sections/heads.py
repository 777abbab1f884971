"""Attention heads: how sharply each looks, how far, and at what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.report.cells import beside, chance_at, value_at
from pellucid.report.heads import UNEVEN
from pellucid.report.html import Cell, Row, element, number
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import WIDTH, Sheet

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.heads import HeadStatistics
    from pellucid.results import Array

MOST_ROWS = 400
"""Heads that the page lists one by one; with more, the file alone has them."""


def absent(subject: Subject) -> str | None:
    """Why there is nothing to say about heads."""
    from pellucid.heads.roles.sweeping import reading_stack

    if reading_stack(subject.model.sites) is None:
        missing = [f"{name}: {reason}" for name, reason in subject.model.missing.items() if "pattern" in name]
        return f"this model shows no self-attention weights ({'; '.join(missing) or 'it has none'})."
    return None


def collectors(subject: Subject) -> tuple[Collector, ...]:
    """Sums per head over the words of the text."""
    from pellucid.heads import head_collectors

    return head_collectors(subject.model)


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """Maps of all heads, those at the ends of each measure, and where the largest weight goes."""
    from pellucid.heads import statistics
    from pellucid.views import heat_map, offset_histogram

    result = statistics(found)
    sheet.result(result, name="heads")
    layers, heads, every = len(result.axes["layer"]), len(result.axes["head"]), int(_present(result).sum())
    each = f"{layers} layers with {heads} heads each, so {every} in all"
    told = each if every == layers * heads else f"{layers} layers with up to {heads} heads, {every} in all"
    sheet.text(f"{told}. Attention is between words: weights on the pieces of a word are added up.")
    if every < layers * heads:
        sheet.note(UNEVEN)
    live = _live(result)
    dead = [str(measure) for measure in result.axes["measure"] if measure not in live]
    if dead:
        sheet.note(
            "Left out, because no head can have any of it on this text (there are no such tokens, or they are not yet "
            f"read): {', '.join(dead)}."
        )
    sheet.figure(
        heat_map(result, measures=live, width=WIDTH),
        name="heads",
        caption=f"Every cell is one head: rows are layers, columns heads. Grey on the colour bar: {result.chance}. "
        f"Interval of the numbers below: {result.resampled}.",
        alt=f"Heat maps of {layers} layers by {heads} heads: {', '.join(live)}.",
    )
    _ends(sheet, result, live)
    _all(sheet, result, live)
    _functions(sheet, subject, found)
    sheet.heading("Where the largest weight goes")
    grey = "; grey: the control model" if subject.twin is not None else ""
    sheet.figure(
        offset_histogram(result, width=WIDTH),
        name="head_offsets",
        caption="The heads whose largest weight stands at one fixed distance most often. An offset of −1 is the word "
        f"before{grey}.",
        alt="Histograms of the offset of the largest weight, for the heads with the most fixed one.",
    )


def _functions(sheet: Sheet, subject: Subject, found: Found) -> None:
    """What the heads do, or why that cannot be told."""
    from pellucid.heads import functions
    from pellucid.heads.roles.examples import examples
    from pellucid.report.heads import show_functions
    from pellucid.results import ResultError

    sheet.heading("What they do")
    try:
        result = functions(found)
    except ResultError as error:
        sheet.note(str(error))
        return
    shown = examples(subject.model, subject.corpus, result, found.corpus_words)
    show_functions(sheet, result, model=subject.model, found=shown)


def _live(result: HeadStatistics) -> list[str]:
    """The measures that are not 0 everywhere, by chance too."""
    return [
        str(measure)
        for which, measure in enumerate(result.axes["measure"])
        if np.nan_to_num(result.values[which]).any() or (result.null is not None and result.null[which].any())
    ]


def _present(result: HeadStatistics) -> Array:
    """Which heads there are, [layer, head]: a layer may have fewer than others."""
    return np.isfinite(result.values[0])


def _where(values: Array, place: int) -> tuple[int, int]:
    """Layer and head of a flat place in [layer, head]."""
    return divmod(place, values.shape[1])


def _head(result: HeadStatistics, layer: int, head: int) -> str:
    return f"layer {result.axes['layer'][layer]}, head {result.axes['head'][head]}"


def _ends(sheet: Sheet, result: HeadStatistics, live: list[str]) -> None:
    """The heads with the largest and the smallest value of every measure."""
    control = result.tables["random model"].columns["value"] if "random model" in result.tables else None
    rows: list[Row] = []
    for measure in live:
        which = result.place("measure", measure)
        for end, at in (
            ("largest", int(np.nanargmax(result.values[which]))),
            ("smallest", int(np.nanargmin(result.values[which]))),
        ):
            layer, head = _where(result.values[which], at)
            others = None if control is None else control[which][_present(result)]
            extreme = None if others is None else getattr(others, "max" if end == "largest" else "min")()
            shown = "no control" if extreme is None else number(float(extreme))
            place = (which, layer, head)
            rows.append(
                (
                    measure,
                    end,
                    Cell(element("span", _head(result, layer, head), class_="nowrap"), _head(result, layer, head)),
                    *beside(result, place),
                    Cell(shown, None if extreme is None else float(extreme)),
                )
            )
    sheet.heading("Heads at the ends of each measure")
    sheet.table(
        ["measure", "end", "head", "value", "95% interval", "uniform attention", "control's own end"],
        rows,
        caption="The heads with the largest and the smallest value. The last column is the largest or smallest of "
        "any head of the control model: an end that the control reaches too was not learned.",
        name="head_ends",
        right=["value", "95% interval", "uniform attention", "control's own end"],
    )
    sheet.html(
        element(
            "dl",
            *(
                element("div", element("dt", name), element("dd", meaning))
                for name, meaning in result.measures.items()
                if name in live
            ),
            class_="facts meanings",
        )
    )
    _highlight(sheet, result, control)


def _highlight(sheet: Sheet, result: HeadStatistics, control: Array | None) -> None:
    """Two numbers for the top of the page: the sharpest head, and the one that looks at the word before most."""
    for measure, label in (("confidence", "Sharpest head"), ("previous", "Attention to the word before")):
        which = result.place("measure", measure)
        layer, head = _where(result.values[which], int(np.nanargmax(result.values[which])))
        chance = chance_at(result, (which, layer, head))
        told = "chance not known" if chance is None else f"chance: {number(chance)}"
        if control is not None:
            told += f", control: at most {number(float(control[which][_present(result)].max()))}"
        value = number(value_at(result, (which, layer, head)))
        sheet.highlight(f"{label}: {_head(result, layer, head)}", value, chance=told)


def _all(sheet: Sheet, result: HeadStatistics, live: list[str]) -> None:
    heads, present = len(result.axes["head"]), _present(result)
    every = int(present.sum())
    places = [result.place("measure", measure) for measure in live]
    if every > MOST_ROWS:
        sheet.note(f"All {every} heads, with intervals, are in tables/heads.csv.")
        return
    rows = [
        (
            Cell(f"{result.axes['layer'][layer]}.{result.axes['head'][head]}", layer * heads + head),
            *(float(result.values[which, layer, head]) for which in places),
        )
        for layer, head in np.argwhere(present).tolist()
    ]
    sheet.table(
        ["layer.head", *live],
        rows,
        caption="Every head; click a column to sort by it. Intervals and chance are in tables/heads.csv.",
        right=live,
        fold=f"All {every} heads",
    )


SECTION = Section(
    title="Attention heads",
    order=50,
    explanation="What each attention head looks at while the model reads, averaged over all words of the text.",
    render=render,
    collectors=collectors,
    absent=absent,
)
