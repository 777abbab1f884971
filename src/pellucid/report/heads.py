"""Pages on heads: what each attention head does, in words, a map, tables, and examples to look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pellucid.report.cells import beside, resampling
from pellucid.report.head_examples import Shown, write_examples
from pellucid.report.html import Cell, Row, element, joined, number
from pellucid.report.page import Written, page
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.heads import HeadAlignment, HeadClusters, HeadFunctions, HeadShapes, HeadStatistics
    from pellucid.heads.roles.examples import Example
    from pellucid.model import Model

UNEVEN = (
    "The layers differ in how many heads they have, as they do after pruning: heads are counted from 0 in each layer, "
    "and the places of those that a layer has not stay empty."
)
EXPLANATION = "What each attention head looks for, tried on every word of the text and told beside chance."
MOST_ROWS = 60
"""Heads with a function that the page lists one by one; with more, the file alone has them."""


def show_functions(
    sheet: Sheet, result: HeadFunctions, *, model: Model, found: Sequence[Example] = (), side: str = "source"
) -> None:
    """Counts in words, the map, a row for every head with a function, and examples to open."""
    from pellucid.heads.roles.sweeping import told_weights, weights_of
    from pellucid.views import function_map

    sheet.result(result, name="head_functions")
    labels, every = result.labels, int(result.present.sum())
    told = [f"{len(result.heads(str(name)))} {name}" for name in result.axes["measure"] if result.heads(str(name))]
    counts = ", ".join(told) if told else "none of the functions below"
    sheet.text(f"{len(labels)} of {every} heads have a function: {counts}. A head may have several.")
    if not result.present.all():
        sheet.note(UNEVEN)
    sheet.note(told_weights(result))
    if result.beside_random:
        sheet.note(result.beside_random)
    skipped = result.table("skipped").columns
    for name, why in zip(skipped["function"].tolist(), skipped["why"].tolist(), strict=True):
        sheet.note(f"Not tried: {name}, because {why}.")
    shown = write_examples(sheet, model, found, side=side, weights=weights_of(result))
    cells = shown.of_cells(result)
    leads = (
        " A cell opens the head on the sentence where it does its main function most clearly; a head without one on "
        "the first of these sentences."
    )
    sheet.figure(
        function_map(result, width=WIDTH, links={place: f"../{link.address}" for place, link in cells.items()}),
        name="head_functions",
        caption="Every cell is a head, in the colour of its main function; a small square is its second one. Written "
        "in cells: the offset of positional heads (−1 is the word before) and the relation of syntactic ones."
        + (leads if cells else ""),
        alt=f"Map of {len(result.axes['layer'])} layers by {len(result.axes['head'])} heads, coloured by function.",
        links={f"../{link.address}": link.told for link in cells.values()},
    )
    if labels:
        _labelled(sheet, result, shown)
    _rules(sheet, result)


def _labelled(sheet: Sheet, result: HeadFunctions, shown: Shown) -> None:
    """A row for every head and function that it has."""
    rows: list[Row] = []
    assert result.null is not None
    labels = result.table("labels").columns
    tests = result.table("tests").columns
    for row, layer in enumerate(result.axes["layer"]):
        for column, head in enumerate(result.axes["head"]):
            name = f"{layer}.{head}"
            for function in result.labels.get(name, ()):
                at = result.place("measure", function), row, column
                own = {"positional": labels["offset"], "syntactic": labels["relation"]}.get(function)
                score, chance = float(result.values[at]), float(result.null[at])
                links = shown.links.get((row, column, function), [])
                opens = [
                    element("a", f"example {at}", href=link.address, title=link.told, class_="nowrap")
                    for at, link in enumerate(links, start=1)
                ]
                rows.append(
                    (
                        Cell(name, row * len(result.axes["head"]) + column),
                        function,
                        "" if own is None else str(own[row, column]),
                        Cell(number(score), score),
                        Cell(number(chance), chance),
                        Cell(number(float(tests["corrected"][at])), float(tests["corrected"][at])),
                        Cell(joined(opens, ", "), " ".join(link.address for link in links)),
                    )
                )
    right = ["score", "chance", "corrected p"]
    columns = ["head", "function", "offset or relation", *right, "examples"]
    fold = f"All {len(rows)} functions of heads" if len(rows) > MOST_ROWS else None
    caption = (
        "Every head with a function. Examples open the head on the sentences where it does it most clearly. Interval "
        f"of the scores in the file: {result.resampled}."
    )
    sheet.table(columns, rows, caption=caption, name="head_labels", right=right, fold=fold)


def _rules(sheet: Sheet, result: HeadFunctions) -> None:
    """What each score is, and from where on it makes a function."""
    rules = result.provenance.arguments
    told = {
        "positional": f"a head has this function from {rules['positional']:.0%} on",
        "syntactic": f"from {100 * rules['syntactic']:.0f} points above the best fixed offset on",
        "rare words": f"from {rules['rare']:.0%} and {rules['rare_times']:g} times chance on",
        "sink": f"from {rules['sink']:.0%} on",
        "induction": f"from {rules['induction']:.0%} on",
        "duplicate": f"from {rules['duplicate']:.0%} on",
    }
    sheet.html(
        joined(
            [element("p", element("b", name), f": {phrase}; {told[name]}.") for name, phrase in result.measures.items()]
        )
    )
    sheet.note(
        f"Chance: {result.chance}. Every function must also beat chance with p < {rules['level']:g} after Holm's "
        "correction for all heads (and offsets or relations); the variance is the larger of that of shuffled positions "
        "and that between sentences. Words in sight: all, or those up to the query where a model only looks back. What "
        "a head looks at is not yet what the model uses: pellucid importance asks that."
    )


def show_alignment(sheet: Sheet, result: HeadAlignment, *, name: str, what: str) -> None:
    """Where attention goes by layer: the map, and the layer of each target's peak."""
    sheet.result(result, name=name)
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"The mean share of a layer's attention on {what}, above (red) or below (blue) uniform attention.",
        alt=f"Map of {len(result.axes['target'])} targets by {len(result.axes['layer'])} layers.",
    )
    peaks = result.table("peaks")
    rows = [
        (str(target), str(layer), Cell(number(float(share)), float(share)), Cell(number(float(even)), float(even)))
        for target, layer, share, even in zip(
            peaks.axes["target"], *(peaks.columns[each].tolist() for each in ("layer", "share", "chance")), strict=True
        )
    ]
    numbers = ["share there", "uniform attention"]
    sheet.table(
        ["target", "peak layer", *numbers],
        rows,
        caption="The layer in which each gets most above uniform attention, mean over its heads.",
        name=f"{name}_peaks",
        right=numbers,
        fold="Peak layers",
    )


def show_shapes(sheet: Sheet, result: HeadShapes) -> None:
    """How many heads have each shape, and which."""
    sheet.result(result, name="head_shapes")
    names = result.classes
    rows: list[Row] = []
    for shape in sorted(set(names[np.isfinite(result.measure("vertical"))].tolist())):
        own = [
            f"{layer}.{head}"
            for row, layer in enumerate(result.axes["layer"])
            for column, head in enumerate(result.axes["head"])
            if names[row, column] == shape
        ]
        rows.append((shape, Cell(str(len(own)), len(own)), ", ".join(own)))
    caption = (
        "Shapes of the patterns (Kovaleva et al. 2019): vertical is attention on one place of each text, diagonal on a "
        "word and its neighbours, both above what uniform attention gives."
    )
    sheet.table(["shape", "heads", "which"], rows, caption=caption, name="head_shape_classes", right=["heads"])
    skipped = result.table("skipped").columns
    for name, why in zip(skipped["class"].tolist(), skipped["why"].tolist(), strict=True):
        sheet.note(f"Not tried: {name}, because {why}.")


def show_statistics(sheet: Sheet, result: HeadStatistics) -> None:
    """How sharply every head looks, how far and at what: maps, and every number behind a fold."""
    sheet.result(result, name="head_statistics")
    names = ", ".join(map(str, result.axes["measure"]))
    sheet.figure(
        result.plot(width=WIDTH),
        name="head_statistics",
        caption=f"Every cell is one head: rows are layers, columns heads. Grey on the colour bar: {result.chance}.",
        alt=f"Heat maps of all heads: {names}.",
    )
    rows: list[Row] = [
        (str(measure), Cell(f"{layer}.{head}", at), *beside(result, (which, row, column)))
        for which, measure in enumerate(result.axes["measure"])
        for at, (row, column) in enumerate(zip(*np.nonzero(np.isfinite(result.values[0])), strict=True))
        for layer, head in [(result.axes["layer"][row], result.axes["head"][column])]
    ]
    numbers = ["value", "95% interval", "chance"]
    sheet.table(
        ["measure", "head", *numbers],
        rows,
        caption=f"Every number of these maps. {resampling(result)}. "
        + " ".join(f"{name}: {phrase}." for name, phrase in result.measures.items()),
        right=numbers,
        fold="All numbers of these maps",
    )
    skipped = result.table("skipped").columns
    for name, why in zip(skipped["measure"].tolist(), skipped["why"].tolist(), strict=True):
        sheet.note(f"Not told: attention on {name}, because {why}.")


def show_clusters(sheet: Sheet, result: HeadClusters, *, every: int) -> None:
    """Heads whose attention is alike: the plane, and the members of every cluster."""
    sheet.result(result, name="head_clusters")
    within = result.provenance.arguments["within"]
    part = "" if every == 1 else f" Read at every {every}th word."
    sheet.figure(
        result.plot(width=WIDTH),
        name="head_clusters",
        caption="Every point is a head; near ones look at the same words (Jensen–Shannon distance of their attention, "
        f"classical scaling). Colours are clusters, joined by average linkage up to a distance of {within:g}.{part}",
        alt="Heads as points on a plane, coloured by cluster.",
    )
    assert result.null is not None
    names = [str(name) for name in result.axes["head"]]
    rows: list[Row] = []
    for number_, heads in result.members.items():
        at = [names.index(head) for head in heads]
        cells = [float(part[row, at].mean()) for row in (0, 1) for part in (result.values, result.null)]
        rows.append((number_, len(heads), *(Cell(number(each), each) for each in cells), ", ".join(heads)))
    numbers = ["heads", "inside", "inside by chance", "to the nearest other", "that by chance"]
    sheet.table(
        ["cluster", *numbers, "which"],
        rows,
        caption=f"Clusters, the largest first: mean distances of their heads. Chance: {result.chance}. Intervals of "
        f"every head in the file: {result.resampled}.",
        name="head_cluster_members",
        right=["cluster", *numbers],
        fold="Members of every cluster",
    )


def write_heads(
    folder: Path,
    result: HeadFunctions,
    shapes: HeadShapes,
    aligned: Sequence[tuple[str, str, HeadAlignment]],
    *,
    model: Model,
    found: Sequence[Example],
    command: str,
    side: str = "source",
    statistics: HeadStatistics | None = None,
    clusters: tuple[HeadClusters, int] | None = None,
    absent: Sequence[str] = (),
) -> Path:
    """A folder with heads.html, the results, tables, figures and views; whole or not at all.

    `clusters` come with the number of which each so many-th word was read; `absent` says what cannot be shown.
    """
    with whole_folder(folder) as work:
        sheet = Sheet(work, command)
        show_functions(sheet, result, model=model, found=found, side=side)
        sheet.heading("Shapes")
        show_shapes(sheet, shapes)
        for name, what, each in aligned:
            sheet.heading(f"Attention by layer: {what}")
            show_alignment(sheet, each, name=name, what=what)
        if statistics is not None:
            sheet.heading("How sharply, how far, at what")
            show_statistics(sheet, statistics)
        if clusters is not None:
            sheet.heading("Heads that look alike")
            show_clusters(sheet, clusters[0], every=clusters[1])
        for told in absent:
            sheet.note(told)
        section = Written.filled("What attention heads do", EXPLANATION, sheet)
        about = f"Over {result.provenance.corpus['words']:,} words of {result.provenance.corpus['name']}."
        text = page(model.name, about, (), [section])
        (work / "heads.html").write_text(text, encoding="utf-8")
        (work / "command.txt").write_text(command + "\n", encoding="utf-8", errors="replace")
    return folder / "heads.html"
