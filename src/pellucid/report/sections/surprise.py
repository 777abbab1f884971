"""Surprise: how well a language model foresees the text, early and late in a sentence, and word by word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pellucid.report.cells import beside, interval_at, value_at
from pellucid.report.html import Cell, Html, element, folded, number
from pellucid.report.passage import opening, shaded, word_surprise
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import WIDTH, Sheet

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.overview import SurpriseByPosition
    from pellucid.results import Array

LINES = 10
"""Most and least surprising words that the page shows."""


def absent(subject: Subject) -> str | None:
    """Why the model has no surprise to measure."""
    model: Any = subject.model
    if not model.causal:
        return "this model reads the whole text at once and does not predict the next word."
    if not any(str(site) == "logits" for site in model.sites) or model.hf.get_output_embeddings() is None:
        return "this model was opened without a head that predicts the next word; a language model has one (--head lm)."
    return None


def collectors(subject: Subject) -> tuple[Collector, ...]:
    """Sums of −log p over words."""
    from pellucid.collect.surprise import Surprise

    return (Surprise(groups=True),)


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """Perplexity, the curve by position, a shaded passage, and the extreme words."""
    from pellucid.overview import surprise

    result = surprise(found)
    sheet.result(result, name="surprise")
    control = result.tables["random model"].columns["value"] if "random model" in result.tables else None
    _summary(sheet, result, control)
    sheet.figure(
        result.plot(width=WIDTH),
        name="surprise",
        caption=f"Left: surprise by the word's position in its sentence. Grey: {result.chance}. Interval: "
        f"{result.resampled}. Right: the words that surprised most.",
        alt="A curve of surprise by position in the sentence, and bars for the most surprising words.",
    )
    _numbers(sheet, result, control)
    sheet.heading("The beginning of the text, word by word")
    sheet.text(
        "The stronger a word is shaded, the less the model expected it after what stands before it in the sentence."
    )
    scale = float(result.null[_place(result, "nats", "word")]) if result.null is not None else 10.0
    passage = [(sentence, word_surprise(subject.model, sentence)) for sentence in opening(subject.corpus)]
    sheet.html(shaded(passage, scale=scale))
    sheet.heading("Words at both ends")
    sheet.html(_words(result, "most", opened=True))
    sheet.html(_words(result, "least", opened=False))


def _place(result: SurpriseByPosition, measure: str, unit: str) -> tuple[int, int]:
    return result.place("measure", measure), result.place("unit", unit)


def _summary(sheet: Sheet, result: SurpriseByPosition, control: Array | None) -> None:
    token, word = _place(result, "perplexity", "token"), _place(result, "nats", "word")
    controlled = "" if control is None else f", and the control model {number(float(control[word]))}"
    chance = "not known" if result.null is None else number(float(result.null[word]))
    sheet.text(
        f"A word surprises the model by {number(value_at(result, word))} nats on average (95% interval "
        f"{interval_at(result, word)}). A guess among all tokens would need {chance}{controlled}. The lower, the "
        "better the model knows what comes next."
    )
    told = "chance not known" if result.null is None else f"chance: {number(round(float(result.null[token])))}"
    if control is not None:
        told += f", control: {number(round(float(control[token])))}"
    sheet.highlight("Perplexity per token", number(value_at(result, token)), chance=told)


def _numbers(sheet: Sheet, result: SurpriseByPosition, control: Array | None) -> None:
    nats, perplexity = result.place("measure", "nats"), result.place("measure", "perplexity")
    rows = [
        (
            str(unit),
            *beside(result, (nats, place)),
            "no control" if control is None else float(control[nats, place]),
            Cell(number(value_at(result, (perplexity, place))), value_at(result, (perplexity, place))),
        )
        for place, unit in enumerate(result.axes["unit"])
    ]
    names = ["nats", "95% interval", "chance", "control model", "perplexity"]
    sheet.table(
        ["per", *names],
        rows,
        caption="Mean surprise per token, per word, and per word by its position in the sentence.",
        right=names,
        fold="All numbers of this figure",
    )


def _words(result: SurpriseByPosition, which: str, *, opened: bool) -> Html:
    columns = {name: column.tolist() for name, column in result.words.columns.items()}
    rows = [row for row, kind in enumerate(columns["surprising"]) if kind == which][:LINES]
    items = [
        element(
            "li",
            columns["left"][row],
            element("mark", columns["word"][row]),
            columns["right"][row],
            element("bdi", f"  {number(columns['nats'][row])} nats", class_="aside"),
            dir="auto",
        )
        for row in rows
    ]
    return folded(f"The {len(rows)} {which} surprising words", element("ul", *items, class_="contexts"), opened=opened)


SECTION = Section(
    title="Surprise",
    order=30,
    explanation="How well the model foresees the next word of this text.",
    render=render,
    collectors=collectors,
    absent=absent,
)
