"""Pages on neurons: a ranking, and one section per neuron with what it fires on, its classes and its places."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.report.html import Cell, Html, Row, element, joined, number, share
from pellucid.report.page import Written, page
from pellucid.report.sheet import WIDTH, Sheet
from pellucid.saving import whole_folder

if TYPE_CHECKING:
    from pellucid.neurons import NeuronReading, Ranking

EXPLANATION = "Which neurons carry the concept, how surely, and what chance and an untrained model give."
LISTED, LINES = 30, 8
"""Neurons of a ranking that the page lists, and contexts that it shows of each end."""
_DEEPEST = 4.0
"""Standard deviations at which the colour of a word is deepest."""


def show_ranking(sheet: Sheet, result: Ranking, *, name: str) -> None:
    """A ranking with its files: the figure, the first neurons across classes, and the first of every class."""
    sheet.result(result, name=name)
    draw_ranking(sheet, result, name=name)


def draw_ranking(sheet: Sheet, result: Ranking, *, name: str) -> None:
    """What a page shows of a ranking."""
    sheet.text(f"{result.title}. Every score is {result.score}.")
    sheet.figure(
        result.plot(width=WIDTH),
        name=name,
        caption=f"The most important of {len(result.neurons):,} neurons. Grey: {result.chance}. Interval: "
        f"{result.resampled}. The best of many neurons look better than they are: the control shows by how much.",
        alt=f"Bars: the most important neurons for {result.concept}.",
    )
    columns = [column for column in ("score", "null", "low", "high") if column in result.overall.columns]
    places = [result.place("neuron", neuron) for neuron in result.order()[:LISTED]]
    control = result.tables.get("random model")
    rows: list[Row] = []
    for place in places:
        best = int(np.abs(result.values[:, place]).argmax())
        told = [_cell(float(result.overall.columns[column][place])) for column in columns]
        other = [] if control is None else [_cell(float(np.abs(control.columns["value"][:, place]).max()))]
        sign = "fires for" if result.values[best, place] >= 0 else "is silent for"
        rows.append(
            (Cell(element("code", result.neurons[place]), place), *told, *other, f"{sign} {result.classes[best]}")
        )
    heads = ["chance" if column == "null" else column for column in columns]
    heads += [] if control is None else ["untrained model's best class"]
    sheet.table(
        ["neuron", *heads, "best class"],
        rows,
        caption="The first neurons across classes.",
        name=f"{name}_first",
        right=heads,
        fold=f"The first {len(rows)} neurons",
    )
    if "matches" in result.tables:
        _matches(sheet, result, name)
        return
    counts = _words(result)
    firsts: list[Row] = [
        (
            cls,
            element("code", ", ".join(result.top(min(6, len(result.neurons)), cls))),
            *([Cell(f"{counts[cls]:,}", counts[cls])] if counts else []),
        )
        for cls in result.classes_apart
    ]
    if firsts:
        sheet.table(
            ["class", "first neurons", *(["words"] if counts else [])],
            firsts,
            caption="The first neurons of every class, by the size of the score.",
            name=f"{name}_classes",
            right=["words"],
        )


def _matches(sheet: Sheet, result: Ranking, name: str) -> None:
    """What the first neurons are like in the other models."""
    columns = {column: part.ravel() for column, part in result.table("matches").columns.items()}
    places = [result.place("neuron", neuron) for neuron in result.order()[:LISTED]]
    rows: list[Row] = [
        (
            Cell(element("code", result.neurons[place]), place),
            *(_cell(float(part[place])) if part.dtype.kind == "f" else str(part[place]) for part in columns.values()),
        )
        for place in places
    ]
    numbers = [column for column, part in columns.items() if part.dtype.kind != "U"]
    sheet.table(["neuron", *columns], rows, caption="What the first neurons are found in.", name=f"{name}_matches",
                right=numbers)  # fmt: skip


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
        best = int(np.abs(ranking.values[:, place]).argmax())
        rank = int((np.abs(ranking.overall.columns["score"]) > abs(ranking.overall.columns["score"][place])).sum()) + 1
        null = "" if ranking.null is None else _cell(float(ranking.null[best, place]))
        score = float(ranking.values[best, place])
        rows.append((ranking.method, Cell(f"{rank:,} of {len(ranking.neurons):,}", rank), ranking.classes[best],
                     _cell(score), null))  # fmt: skip
    right = ["place", "score", "chance"]
    sheet.table(["ranking", "place", "best class", "score", "chance"], rows, caption="Its place in the rankings.",
                name=f"{stem}_places", right=right)  # fmt: skip


def _classes(sheet: Sheet, reading: NeuronReading, neuron: str, stem: str) -> None:
    rows = sorted(reading.rows_of("classes", neuron), key=lambda row: -abs(row["d′"]))
    numbers = ["words", "mean z", "d′"]
    told: list[Row] = [
        (row["class"], Cell(f"{row['words']:,}", row["words"]), _cell(row["mean z"]), _cell(row["d′"])) for row in rows
    ]
    caption = "Its mean in every class, and how far that lies from all other words (d′: in standard deviations)."
    sheet.table(["class", *numbers], told, caption=caption, name=f"{stem}_classes", right=numbers)


def _effects(sheet: Sheet, reading: NeuronReading, neuron: str, stem: str) -> None:
    """What answers lose without it, beside random neurons of its site."""
    sheet.heading("Without it")
    rows: list[Row] = []
    for row in reading.rows_of("effects", neuron):
        ends = f"{number(row['low'])} to {number(row['high'])}" if "low" in row else ""
        told = [_cell(row[name]) for name in ("loss", "flipped", "random", "random loss")]
        rows.append((f"replaced by {'its mean' if row['replacement'] == 'mean' else 'zero'}", _cell(row["lost"]), ends,
                     *told, Cell(share(row["larger"]), row["larger"])))  # fmt: skip
    numbers = ["lost", "95% interval", "loss", "flipped", "random: lost", "random: loss", "random as large"]
    caption = (
        "What the model's answers lose of their probability without it, (p − p′)/p, how the loss changes in nats, and "
        "the share of answers that become others; beside random neurons of the same site (means of sizes)."
    )
    sheet.table(["it is", *numbers], rows, caption=caption, name=f"{stem}_effects", right=numbers)


def _mates(sheet: Sheet, reading: NeuronReading, neuron: str, stem: str) -> None:
    """The neurons of its site that say nearly the same."""
    found = reading.rows_of("mates", neuron)
    sheet.heading("Its group")
    if found[0]["size"] < 2:
        sheet.text(f"It stands alone: the nearest neuron of its site is {found[0]['mate']}, with a correlation of "
                   f"{number(found[0]['correlation'])}.")  # fmt: skip
        return
    rows: list[Row] = [(Cell(element("code", row["mate"]), row["mate"]), _cell(row["correlation"])) for row in found]
    caption = f"The nearest of the {found[0]['size']} neurons of its site that go together (1 − |ρ|, average linkage)."
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
            written.append(Written.filled(neuron, "What it fires on, for which classes, and what it does.", sheet))
        corpus = reading.provenance.corpus
        about = f"Single neurons over {corpus['words']:,} words of {corpus['name']}."
        text = page(model, about, (), written, opened=len(rankings) + 1)
        (work / "neurons.html").write_text(text, encoding="utf-8")
        (work / "command.txt").write_text(command + "\n", encoding="utf-8", errors="replace")
    return folder / "neurons.html"
