"""Pages on attention that could be other: heads whose function changes, what keys allow, and a second attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pellucid.report.cells import resampling
from pellucid.report.html import Cell, Row, bounds, number, share
from pellucid.report.sheet import WIDTH, Sheet

if TYPE_CHECKING:
    from pellucid.identifiability import AttentionReach, FunctionsChanged, SecondAttention
    from pellucid.results import Array

MOST_ROWS = 60
"""Heads that change that the page lists one by one; with more, the file alone has them."""


def show_changed(sheet: Sheet, result: FunctionsChanged) -> None:
    """The share of heads that change beside chance, both maps, and a row for every head that changes."""
    sheet.result(result, name="functions_changed")
    columns = result.table("shares").columns
    chances = columns.get("chance")
    for at, (measure, label) in enumerate(
        (("changed", "heads whose main function changes"), ("lost", "heads that lose a function"))
    ):
        told = "not known" if chances is None else share(float(chances[at]))
        assert result.axes["measure"][at] == measure
        sheet.highlight(label, share(float(columns["share"][at])), chance=f"between halves of the text {told}")
    sheet.text(
        "Functions by the weights as they are, and by effective attention, which gives the same output without the "
        "part that has no effect. Largest weights are told by its signed numbers, sinks by its absolute values with "
        "rows that sum to one. Where no query sees more tokens than values are wide, nothing can change."
    )
    sheet.figure(
        result.plot(width=WIDTH),
        name="functions_changed",
        caption="Every cell is a head, in the colour of its main function; a frame marks heads whose main function is "
        "another by effective attention.",
        alt="Two maps of layers by heads, by raw and by effective attention, coloured by function.",
    )
    _shares(sheet, result)
    _heads(sheet, result)
    sheet.note(f"Chance: {result.chance}; a half has less text, so that it is rather too high. {resampling(result)}.")
    sheet.facts([(name, phrase) for name, phrase in result.measures.items()])


def _shares(sheet: Sheet, result: FunctionsChanged) -> None:
    columns = result.table("shares").columns
    rows: list[Row] = []
    for at, measure in enumerate(result.axes["measure"]):
        low, high, chance = (
            float(columns[name][at]) if name in columns else None for name in ("low", "high", "chance")
        )
        rows.append(
            (
                str(measure),
                Cell(share(float(columns["share"][at])), float(columns["share"][at])),
                bounds(low, high, write=share),
                Cell("not known" if chance is None else share(chance), chance),
            )
        )
    right = ["share of heads", "95% interval", "chance"]
    sheet.table(["measure", *right], rows, caption="Over all heads.", name="functions_changed-shares", right=right)
    counts = result.table("functions")
    numbers = ["raw", "effective", "both"]
    listed = [
        (str(name), *(int(counts.columns[column][at]) for column in numbers))
        for at, name in enumerate(counts.axes["function"])
    ]
    sheet.table(
        ["function", *numbers],
        listed,
        caption="Heads with each function by either attention, and by both.",
        name="functions_changed-functions",
        right=numbers,
    )


def _heads(sheet: Sheet, result: FunctionsChanged) -> None:
    """A row for every head whose functions change."""
    columns = result.table("heads").columns
    moved: Array = np.asarray(np.nan_to_num(result.values).any(0))
    rows: list[Row] = []
    for row, column in zip(*(places.tolist() for places in moved.nonzero()), strict=True):
        at = row, column
        scores = [float(columns[f"{weights} score"][at]) for weights in ("raw", "effective")]
        chance = None if result.null is None else float(result.null[0, row, column])
        rows.append(
            (
                Cell(f"{result.axes['layer'][row]}.{result.axes['head'][column]}", row * moved.shape[1] + column),
                str(columns["raw"][at]),
                str(columns["effective"][at]),
                str(columns["scored"][at]),
                *(Cell(number(score), score) for score in scores),
                Cell("not known" if chance is None else share(chance), chance),
            )
        )
    if not rows:
        sheet.text("No head has another function by effective attention than by the weights as they are.")
        return
    right = ["raw score", "effective score", "changes between halves"]
    sheet.table(
        ["head", "by raw attention", "by effective attention", "score of", *right],
        rows,
        caption="Heads whose functions change; scores are of the main function by raw attention (else by effective).",
        name="functions_changed-heads",
        right=right,
        fold=f"All {len(rows)} heads that change" if len(rows) > MOST_ROWS else None,
    )


def show_reach(sheet: Sheet, result: AttentionReach) -> None:
    """Shares of unique queries without and with keys, widths, and both by length."""
    sheet.result(result, name="reachable")
    assert result.null is not None
    for measure in ("unique", "unique with keys"):
        at = result.place("measure", measure)
        sheet.highlight(
            f"queries whose attention is {measure}",
            share(float(np.nanmean(result.values[at]))),
            chance=f"general position {share(float(result.null[at].mean()))}",
        )
    widths = result.table("widths").columns
    sheet.text(
        f"Values are {_span(widths['width of values'])} numbers wide, so that weights are unique as long as a query "
        f"sees at most {_span(widths['unique up to'])} tokens. Keys are {_span(widths['width of keys'])} wide: "
        "whatever the query, the logarithms of a head's weights stay in what its keys span, so that most other weights "
        "with the same output are none that it could make."
    )
    groups = widths["heads"] // np.maximum(widths["key–value heads"], 1)
    if (groups > 1).any():
        sheet.note(f"A head is a query head; {_span(groups)} of them share the values and keys of one.")
    sheet.figure(
        result.plot(width=WIDTH),
        name="reachable",
        caption=f"Every head. Chance: {result.chance}. {resampling(result)}.",
        alt="Maps of layers by heads, one for each measure.",
    )
    means = np.nanmean(result.values, axis=2), np.nanmean(result.null, axis=2)
    rows = [
        (str(measure), str(layer), *(Cell(number(float(mean[at, place])), float(mean[at, place])) for mean in means))
        for at, measure in enumerate(result.axes["measure"])
        for place, layer in enumerate(result.axes["layer"])
    ]
    right = ["value", "chance"]
    sheet.table(
        ["measure", "layer", *right],
        rows,
        caption="Means over the heads of every layer; all heads with their intervals are in the file.",
        name="reachable-layers",
        right=right,
        fold="By layer",
    )
    _lengths(sheet, result)
    unsure = float(result.table("heads").columns["uncertain"].mean())
    sheet.note(f"For {share(unsure)} of queries a rank hangs on the cut below which a number counts as zero.")
    sheet.facts([(name, phrase) for name, phrase in result.measures.items()])


def _lengths(sheet: Sheet, result: AttentionReach) -> None:
    """What was counted by keys in sight, and what holds for whole texts by their length."""
    table = result.table("lengths")
    numbers = ["queries and heads", "unique", "unique with keys"]
    rows = [
        (
            str(length),
            int(table.columns[numbers[0]][at]),
            *(Cell(share(float(table.columns[name][at])), float(table.columns[name][at])) for name in numbers[1:]),
        )
        for at, length in enumerate(table.axes["keys in sight"])
    ]
    sheet.table(
        ["keys in sight", *numbers],
        rows,
        caption="By how many tokens a query sees, over all heads.",
        name="reachable-lengths",
        right=numbers,
    )
    when = result.table("when")
    sheet.table(
        ["tokens of a text", "unique", "free at the last token"],
        [
            (
                int(length),
                Cell(share(float(when.columns["unique"][at])), float(when.columns["unique"][at])),
                int(when.columns["free at the last"][at]),
            )
            for at, length in enumerate(when.axes["tokens"])
        ],
        caption="When attention is unique by values alone: the share of a text's queries, for values in general "
        "position, by the length of the text.",
        name="reachable-when",
        right=["tokens of a text", "unique", "free at the last token"],
    )


def _span(numbers: object) -> str:
    """One number, or the smallest and the largest."""
    values = np.asarray(numbers)
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low} to {high}"


def show_second(sheet: Sheet, result: SecondAttention) -> None:
    """The three matrices, and what is told of every query."""
    sheet.result(result, name="second_attention")
    told = result.table("queries").columns
    facts = result.table("head").columns
    sharing = int(facts["heads with these values"][0])
    shared = f", which {sharing} heads share" if sharing > 1 else ""
    sheet.text(
        f"Head {result.head} on “{result.provenance.arguments['text']}”. Its values are {int(facts['width'][0])} "
        f"numbers wide{shared}. "
        + (
            "No query sees more than they can tell apart: attention is unique here, and all three are the same."
            if result.unique
            else "The second attention gives up as much as it can of every query's largest weight, and yet the head "
            "passes on the same."
        )
    )
    sheet.figure(
        result.plot(width=WIDTH),
        name="second_attention",
        caption="Colours follow the square root of weights, so that small ones show; effective attention has signs.",
        alt="Three maps of queries by keys: attention, other attention, and effective attention.",
    )
    names = [name for name in told if name not in ("uncertain",)]
    rows = [
        (str(token), *(Cell(number(float(told[name][at])), float(told[name][at])) for name in names))
        for at, token in enumerate(result.axes["query"])
    ]
    sheet.table(
        ["query", *names],
        rows,
        caption="Every query: tokens in sight, free dimensions, how near its rank is to the cut (gap, 1 is at it), how "
        "far the other weights are, by how much outputs differ, and the part of the way that its keys do not span.",
        name="second_attention-queries",
        right=names,
        fold="Query by query",
    )
