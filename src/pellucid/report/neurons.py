"""Pages on neurons: a ranking, and one section per neuron with what it fires on, its classes and its places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.neurons.ranking import accuracy_told
from pellucid.neurons.rare_classes import left_out_told
from pellucid.neurons.scores import FEW
from pellucid.report.cells import beside, resampling
from pellucid.report.html import Cell, Html, Row, bounds, element, joined, number, share
from pellucid.report.origin import origin_of
from pellucid.report.page import Written, page
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.neurons import NeuronReading, Ranking

EXPLANATION = "Which neurons carry the concept, how surely, and what chance and an untrained model give."
LISTED, FIRSTS, LINES = 30, 4, 8
"""Neurons of a ranking that the page lists, and of each class, and contexts that it shows of each end."""
_NO_CLASSES = (
    "For which classes it fires was not asked: add --concept upos, property:length, words:FILE or another to the "
    "command; it may be repeated."
)
_DEEPEST = 4.0
"""Standard deviations at which the colour of a word is deepest."""


def show_ranking(sheet: Sheet, result: Ranking, *, name: str) -> None:
    """A ranking with its files: the figure, the first neurons across classes, and the first of every class."""
    sheet.result(result, name=name)
    draw_ranking(sheet, result, name=name)


def draw_ranking(sheet: Sheet, result: Ranking, *, name: str) -> None:
    """What a page shows of a ranking."""
    sheet.text(f"The score of a neuron: {result.score}.")
    if told := accuracy_told(result):
        sheet.text(f"Accuracy of what ranked them, on documents that it did not learn from: {told}.")
    if told := left_out_told(result):
        sheet.text(told)
    warned = "The best of many neurons look better than they are"
    warned += ": the untrained model shows by how much." if "random model" in result.tables else "."
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"The most important of {len(result.neurons):,} neurons. Grey: {result.chance}. {resampling(result)}. "
        f" {warned}",
        alt=f"Bars: the most important neurons for {result.concept}.",
    )
    _firsts(sheet, result, name)
    if result.concept and result.classes_apart:
        _firsts_of_classes(sheet, result, name)
    elif result.concept:
        sheet.note(f"All {len(result.classes)} classes are told apart at once, so no neuron is one of a single class.")


def _firsts(sheet: Sheet, result: Ranking, name: str) -> None:
    """The first neurons across classes with the class of each; those of a search with what they are found in."""
    own = result.overall.columns
    columns = {shown: own[key] for shown, key in (("score", "score"), ("chance", "null")) if key in own}
    ends = ["95% interval"] if "low" in own else []
    if result.random_model is not None:
        columns["random model" if result.concept else "in random models"] = result.random_model
    if "matches" in result.tables:
        columns |= {key: part.ravel() for key, part in result.table("matches").columns.items()}
    named = bool(result.concept and result.classes_apart)
    rows: list[Row] = []
    for neuron in result.order()[:LISTED]:
        place = result.place("neuron", neuron)
        told = [_cell(float(part[place])) if part.dtype.kind == "f" else str(part[place]) for part in columns.values()]
        told[1:1] = [bounds(float(own["low"][place]), float(own["high"][place]))] if ends else []
        rows.append((Cell(element("code", neuron), neuron), *told, *([_carried(result, neuron)] if named else [])))
    found = " and what they are found in" if "matches" in result.tables else ""
    sheet.table(
        ["neuron", "score", *ends, *list(columns)[1:], *(["best class"] if named else [])],
        rows,
        caption=f"The first neurons{' across classes' if result.concept else found}.",
        name=f"{name}_first",
        right=[*ends, *(column for column, part in columns.items() if part.dtype.kind != "U")],
        fold=None if found else f"The first {len(rows)} neurons",
    )


def _carried(result: Ranking, neuron: str) -> str:
    """The class that a neuron tells best, and its side."""
    best, score = result.best_class(neuron)
    return f"{'fires for' if score >= 0 else 'is low for'} {best}"


def _firsts_of_classes(sheet: Sheet, result: Ranking, name: str) -> None:
    """The first neurons of every class, and the best one's score beside chance and the best of the control."""
    counts, control = _words(result), result.tables.get("random model")
    rows: list[Row] = []
    for cls in result.classes_apart:
        names, at = result.top(min(FIRSTS, len(result.neurons)), cls), result.place("class", cls)
        words = [Cell(f"{counts[cls]:,}", counts[cls])] if counts else []
        other = [] if control is None else [_cell(float(np.abs(control.columns["value"][at]).max()))]
        best = beside(result, (at, result.place("neuron", names[0])))
        firsts = ", ".join(result.with_side(each, cls) for each in names)
        rows.append((cls, *words, *best, *other, Cell(element("code", firsts), firsts)))
    numbers = [*(["words"] if counts else []), "best score", "95% interval", "chance"]
    numbers += [] if control is None else ["untrained model's best"]
    caption = (
        "The first neurons of every class, by the size of the score (−: low for the class), and the score of the first."
    )
    sheet.table(["class", *numbers, "first neurons"], rows, caption=caption, name=f"{name}_classes", right=numbers)


def _words(result: Ranking) -> dict[str, int]:
    """How many words each class has, where the ranking knows it."""
    if "classes" not in result.tables:
        return {}
    table = result.table("classes")
    return {str(cls): int(count) for cls, count in zip(table.axes["class"], table.columns["words"], strict=True)}


def _cell(value: float) -> Cell:
    return Cell(number(value), value)


def show_neuron(
    sheet: Sheet, reading: NeuronReading, neuron: str, rankings: Mapping[str, Ranking], *, histogram: bool = True
) -> None:
    """All that is known of one neuron; its histogram may be left out, to keep a page small."""
    from pellucid.views.readings import histogram_figure

    stem = neuron.replace(":", "_").replace(".", "_")
    place = reading.place("neuron", neuron)
    activity = {name: column[place] for name, column in reading.table("activity").columns.items()}
    sheet.facts(
        [
            ("kind", str(activity["kind"])),
            ("mean and sd", f"{number(float(activity['mean']))} and {number(float(activity['sd']))}"),
            ("range", f"{number(float(activity['smallest']))} to {number(float(activity['largest']))}"),
            ("silent at", f"{share(float(activity['silent']))} of words"),
            ("at an end of its range at", f"{share(float(activity['saturated']))} of words"),
        ]
    )
    _measures(sheet, reading, place, stem)
    if rankings:
        _places(sheet, rankings, neuron, stem)
    if "classes" in reading.tables:
        _classes(sheet, reading, neuron, stem)
    if "effects" in reading.tables:
        _effects(sheet, reading, neuron, stem)
    if "mates" in reading.tables:
        _mates(sheet, reading, neuron, stem)
    sheet.heading("Words")
    rows = [
        (row["word"], Cell(str(row["count"]), row["count"]), _cell(row["mean |z|"]), _cell(row["mean z"]))
        for row in reading.rows_of("words", neuron)
    ]
    numbers = ["count", "mean |z|", "mean z"]
    sheet.table(["word", *numbers], rows, caption="Words that move it most (z: standard deviations from its mean).",
                name=f"{stem}_words", right=numbers)  # fmt: skip
    sheet.heading("Text coloured by its activation")
    sheet.html(_texts(reading, neuron))
    sheet.note("Red: above its mean, blue: below; the deeper, the further, up to 4 standard deviations.")
    if histogram:
        sheet.figure(
            histogram_figure(reading, neuron, width=WIDTH),
            name=f"{stem}_histogram",
            caption="How often it has which activation, over all words of the text.",
            alt=f"Histogram of the activations of {neuron}.",
        )
    sheet.heading("Where it is largest and smallest")
    for end in ("largest", "smallest"):
        sheet.html(_contexts(reading, neuron, end))


def _measures(sheet: Sheet, reading: NeuronReading, place: int, stem: str) -> None:
    assert reading.null is not None
    rows: list[Row] = []
    for at, measure in enumerate(reading.axes["measure"]):
        ends = "" if reading.low is None or reading.high is None else (
            f"{number(float(reading.low[at, place]))} to {number(float(reading.high[at, place]))}"
        )  # fmt: skip
        own, chance = float(reading.values[at, place]), float(reading.null[at, place])
        rows.append((reading.measures[str(measure)], _cell(own), ends, _cell(chance)))
    numbers = ["value", "95% interval", "chance"]
    caption = f"What the word, its place and its frequency say about it. Chance: {reading.chance}."
    sheet.table(["what", *numbers], rows, caption=caption, name=f"{stem}_measures", right=numbers)


def _places(sheet: Sheet, rankings: Mapping[str, Ranking], neuron: str, stem: str) -> None:
    """Where the neuron stands in every ranking that has it."""
    rows: list[Row] = []
    for ranking in rankings.values():
        if neuron not in ranking.neurons:
            continue
        place = ranking.place("neuron", neuron)
        rank = int((np.abs(ranking.overall.columns["score"]) > abs(ranking.overall.columns["score"][place])).sum()) + 1
        counted = Cell(f"{rank:,} of {len(ranking.neurons):,}", rank)
        rows.append((ranking.method, counted, *_best_told(ranking, neuron)))
    right = ["place", "score", "chance"]
    sheet.table(["ranking", "place", "best class", "score", "chance"], rows, caption="Its place in the rankings.",
                name=f"{stem}_places", right=right)  # fmt: skip


def _best_told(ranking: Ranking, neuron: str) -> tuple[str, Cell, Cell | str]:
    """A neuron's best class with its score and chance; where no class has an order of its own, those across classes."""
    place = ranking.place("neuron", neuron)
    if not ranking.classes_apart:
        columns = ranking.overall.columns
        null = _cell(float(columns["null"][place])) if "null" in columns else ""
        return "all at once", _cell(float(columns["score"][place])), null
    best, score = ranking.best_class(neuron)
    return (
        best,
        _cell(score),
        "" if ranking.null is None else _cell(float(ranking.null[ranking.place("class", best), place])),
    )


def _classes(sheet: Sheet, reading: NeuronReading, neuron: str, stem: str) -> None:
    """Its means in the classes of one concept, or of each of several."""
    rows = sorted(reading.rows_of("classes", neuron), key=lambda row: (row["words"] < FEW, -abs(row["d′"])))
    several = len({row.get("concept") for row in rows}) > 1
    told: list[Row] = [
        (*([row["concept"]] if several else []), row["class"], Cell(f"{row['words']:,}", row["words"]),
         _cell(row["mean z"]), _cell(row["d′"]), *([_cell(row["chance"])] if "chance" in row else []))
        for row in rows
    ]  # fmt: skip
    numbers = ["words", "mean z", "d′", *(["chance"] if "chance" in rows[0] else [])]
    caption = (
        "Its mean in every class, and how far that lies from all other words (d′: in standard deviations; chance: its "
        f"size when labels are dealt out at random). Those of fewer than {FEW} words come last."
    )
    columns = [*(["concept"] if several else []), "class", *numbers]
    sheet.table(columns, told, caption=caption, name=f"{stem}_classes", right=numbers)


def _effects(sheet: Sheet, reading: NeuronReading, neuron: str, stem: str) -> None:
    """What answers lose without it, beside random neurons of its site."""
    sheet.heading("Without it")
    rows: list[Row] = [
        (
            "its mean" if row["replacement"] == "mean" else "zero",
            *(Cell(_percent(row["lost"]), row["lost"]), bounds(row.get("low"), row.get("high"), write=_percent)),
            *(_random(row) if "random" in row else ()),
            *(_cell(row["loss"]), Cell(_percent(row["flipped"]), row["flipped"])),
        )
        for row in reading.rows_of("effects", neuron)
    ]
    random = ["random neurons", "of these lose more", "random: loss"] if len(rows[0]) > 5 else []
    numbers = ["lost", "95% interval", *random, "loss", "changed"]
    caption = (
        "It is replaced by zero, or by its mean. lost: what the model's answers lose of their probability, (p − p′)/p; "
        "random neurons: the same for others of its site (mean of sizes), and how many of them matter as much or more; "
        "loss: how the loss changes, in nats; changed: the share of answers that become others."
    )
    sheet.table(["replaced by", *numbers], rows, caption=caption, name=f"{stem}_effects", right=numbers)


def _random(row: Mapping[str, Any]) -> tuple[Cell, Cell, Cell]:
    lost = Cell(_percent(row["random"]), row["random"])
    return lost, Cell(share(row["larger"]), row["larger"]), _cell(row["random loss"])


def _percent(value: float) -> str:
    """A small share, which may be negative."""
    return f"{value:.2%}".replace("-", "−")


def _mates(sheet: Sheet, reading: NeuronReading, neuron: str, stem: str) -> None:
    """The neurons of its site that say nearly the same."""
    found = reading.rows_of("mates", neuron)
    sheet.heading("Its group")
    if found[0]["size"] < 2:
        sheet.text(f"It stands alone: the nearest neuron of its site is {found[0]['mate']}, with a correlation of "
                   f"{number(found[0]['correlation'])}.")  # fmt: skip
        return
    rows: list[Row] = [(Cell(element("code", row["mate"]), row["mate"]), _cell(row["correlation"])) for row in found]
    caption = f"The nearest of the {found[0]['size']} neurons of its site that go together, by their correlations."
    sheet.table(["neuron", "correlation"], rows, caption=caption, name=f"{stem}_mates", right=["correlation"])


def _texts(reading: NeuronReading, neuron: str) -> Html:
    sentences: dict[int, list[dict[str, Any]]] = {}
    for row in reading.rows_of("texts", neuron):
        sentences.setdefault(row["sentence"], []).append(row)
    return joined(
        element("p", joined((_coloured(row["word"], row["z"]) for row in rows), " "), dir="auto", class_="coloured")
        for rows in sentences.values()
    )


def _coloured(word: str, z: float) -> Html:
    """A word on a ground that tells its z; the text keeps its own colour, and stays readable in both themes."""
    depth = min(1.0, abs(z) / _DEEPEST)
    ground = "214, 69, 65" if z > 0 else "52, 120, 199"
    return element("span", word, style=f"background: rgba({ground}, {0.75 * depth:.2f})", title=f"z = {z:.2f}")


def _contexts(reading: NeuronReading, neuron: str, end: str) -> Html:
    rows = [row for row in reading.rows_of("contexts", neuron) if row["end"] == end][:LINES]
    items = [
        element(
            "li",
            row["left"],
            element("mark", row["word"], title=f"activation {number(row['activation'])}"),
            row["right"],
            dir="auto",
        )
        for row in rows
    ]
    return joined([element("p", element("b", end)), element("ul", *items, class_="contexts")])


def write_neurons(
    folder: Path,
    reading: NeuronReading,
    rankings: Mapping[str, Ranking],
    *,
    model: str,
    command: str,
) -> Path:
    """A folder with neurons.html: the rankings, then a section for every neuron that was read; whole or not at all."""
    with whole_folder(folder) as work:
        written: list[Written] = []
        for name, ranking in rankings.items():
            sheet = Sheet(work, command)
            show_ranking(sheet, ranking, name=f"ranking_{name}")
            written.append(Written.filled(f"Ranking by {name}", EXPLANATION, sheet))
        for place, neuron in enumerate(reading.neurons):
            sheet = Sheet(work, command)
            if not place:
                sheet.result(reading, name="neuron_reading")
            show_neuron(sheet, reading, neuron, rankings)
            if "classes" not in reading.tables:
                sheet.note(_NO_CLASSES)
            written.append(Written.filled(neuron, "What it fires on, for which classes, and what it does.", sheet))
        corpus = reading.provenance.corpus
        about = f"Single neurons over {corpus['words']:,} words of {corpus['name']}."
        told = replace(reading, provenance=replace(reading.provenance, command=command))
        written.append(origin_of([told, *rankings.values()], work))
        text = page(model, about, (), written, opened=len(rankings) + 1)
        (work / "neurons.html").write_text(text, encoding="utf-8")
    return folder / "neurons.html"
