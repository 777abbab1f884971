"""Single neurons: how many are dead, saturated or follow place and frequency, and a few of them told in full."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import PellucidError
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.scores import FEW
from pellucid.report.html import element, folded, joined
from pellucid.report.neurons import show_neuron
from pellucid.report.section import Section, Subject
from pellucid.report.sections import concepts
from pellucid.report.sections import neurons as selected
from pellucid.report.sections.importance import WORK
from pellucid.report.sheet import Sheet
from pellucid.report.survey import show_firsts, show_kinds

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.neurons import NeuronReading, Ranking

SENTENCES, ABLATED, SHOWN, DRAWS = 150, 30, 3, 4
"""Sentences that are read again, those on which neurons are removed, neurons that are told in full, and random neurons
of the same site that are removed beside each."""
LEAST, FEWEST = 5, 20
"""Sentences below which nothing is removed, and words that a class needs."""
_TOKENS = 25  # of a sentence, about


def absent(subject: Subject) -> str | None:
    """Why no neuron can be told."""
    units = selected.patterns(subject) and concepts.units(subject)
    if units and units > concepts.MOST:
        return f"{units:,} hidden units are many for a report; look at some with pellucid neurons survey --sites."
    return selected.absent(subject)


def collectors(subject: Subject) -> tuple[Collector, ...]:
    """What the first neurons are chosen by: parts of speech where there are any, else the words that move them."""
    return (concepts if concepts.absent(subject) is None else selected).collectors(subject)


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """The survey of all hidden units, and a few of them: what they fire on, their classes, group and effect."""
    text, there = subject.corpus.take(SENTENCES), found.counts.sentences
    part = f"the first {SENTENCES} sentences" if there > SENTENCES else f"all {there} sentences"
    try:
        _survey(sheet, subject, text, part)
        names, ranking = chosen(subject, found)
        reading = _read(subject, text, names, ranking)
    except PellucidError as error:
        sheet.text(f"Single neurons could not be read on this text: {error}")
        return
    sheet.heading("One neuron in full" if len(names) == 1 else f"{len(names)} neurons in full")
    by = "that tell parts of speech best" if ranking is not None else "that one word moves most"
    sheet.text(f"Hidden units {by}, each for another one, read on {part}.")
    sheet.result(reading, name="single_neurons")
    places = {} if ranking is None else {ranking.method: ranking}
    for name in names:
        own = Sheet(sheet.folder, sheet.command)
        show_neuron(own, reading, name, places, histogram=False)
        sheet.html(folded(joined([element("code", name), _told(reading, name)]), *own.parts))
        sheet.files += own.files
    if "effects" not in reading.tables:
        sheet.note(f"Nothing was removed from the model: {_effects(subject)[1]}")
    sheet.note(
        "More neurons, on all of it: pellucid neurons show MODEL --corpus FILE --concept upos -o FOLDER; all sites: "
        "pellucid neurons survey MODEL --corpus FILE."
    )


def chosen(subject: Subject, found: Found) -> tuple[list[str], Ranking | None]:
    """A few hidden units, each for another class or word, and the ranking that they come from."""
    from pellucid.neurons import rank, selective

    if concepts.absent(subject) is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NeuronWarning)  # classes of few words are left out below
            made = rank(found, concept=concepts.LABEL, methods="selectivity", sites=selected.patterns(subject),
                        least=FEW, seed=subject.seed)  # fmt: skip
        return _of_classes(made["selectivity"]), made["selectivity"]
    result = selective(found, top=selected.UNITS, seed=subject.seed)
    words = result.units.columns["word"].tolist()
    units = [str(unit) for unit in result.axes["unit"]]
    of_words = dict(reversed(list(zip(words, units, strict=True))))
    return sorted(of_words.values(), key=units.index)[:SHOWN], None


def _of_classes(ranking: Ranking) -> list[str]:
    """The first neurons of different classes, the strongest first; classes of few words do not count if others do."""
    table = ranking.table("classes")
    counts = dict(zip(table.axes["class"], table.columns["words"].tolist(), strict=True))
    common = [cls for cls in ranking.classes if counts[cls] >= FEWEST] or list(ranking.classes)
    scores = np.abs(ranking.values[[ranking.place("class", cls) for cls in common]])  # [class, neuron]
    firsts = scores.argmax(1)
    order = np.argsort(-scores.max(1), kind="stable")
    return [ranking.neurons[place] for place in dict.fromkeys(firsts[order].tolist())][:SHOWN]


def _read(subject: Subject, text: Any, names: list[str], ranking: Ranking | None) -> NeuronReading:
    from pellucid.neurons import effects, read

    concept = None if ranking is None else concepts.LABEL
    reading = read(subject.model, text, neurons=names, concept=concept, contexts=6, words=8, texts=1, cut=0.5,
                   seed=subject.seed, long="window", progress=False)  # fmt: skip
    few, _ = _effects(subject)
    if not few:
        return reading
    try:
        table = effects(subject.model, text.take(few), names, draws=DRAWS, seed=subject.seed)
    except PellucidError:  # a task that this text has no answers for
        return reading
    return replace(reading, tables={**reading.tables, "effects": table})


def _effects(subject: Subject) -> tuple[int, str]:
    """On how many sentences neurons are removed, and why on none."""
    from pellucid.heads.weighing.measuring import head_tasks

    if subject.model.tokenizer is None or head_tasks(subject.model) is None:
        return 0, "it has no task of its own whose answers could change."
    weights = sum(parameter.numel() for parameter in subject.model.hf.parameters())
    few = int(min(ABLATED, WORK / (2 * weights * _TOKENS * 2 * SHOWN * (1 + DRAWS))))
    if few < LEAST:
        return 0, "a model of this size takes too long for a report; pellucid neurons show does it."
    return few, "this text has no answers for its task."


def _told(reading: NeuronReading, name: str) -> str:
    """A line on a neuron: its words, its best class, what is lost without it."""
    words = [str(row["word"]) for row in reading.rows_of("words", name)[:3]]
    told = f" {', '.join(f'“{word}”' for word in words)}"
    if "classes" in reading.tables:
        best = max(reading.rows_of("classes", name), key=lambda row: (row["words"] >= FEW, abs(row["d′"])))
        told += f" · {'fires for' if best['d′'] >= 0 else 'is low for'} {best['class']} (d′ {best['d′']:.1f})"
    if "effects" in reading.tables:
        lost = next(row for row in reading.rows_of("effects", name) if row["replacement"] == "mean")
        beside = f" (random neurons {_part(lost['random'])})" if "random" in lost else ""
        told += f" · without it answers lose {_part(lost['lost'])}{beside}"
    return told


def _part(lost: float) -> str:
    """A share of probability that is lost; one that rounds to 0 is none."""
    return f"{lost:.2%}".replace("-", "−") if abs(lost) >= 5e-5 else "nothing"


def _survey(sheet: Sheet, subject: Subject, text: Any, part: str) -> None:
    """How many units of each kind every site has, here and in the control model."""
    from pellucid.neurons import survey

    result = survey(
        subject.model, text, sites=selected.patterns(subject), control=subject.twin is not None, seed=subject.seed,
        long="window", progress=False,
    )  # fmt: skip
    sheet.result(result, name="neuron_survey")
    show_kinds(sheet, result, what=f"Hidden units on {part}.", name="neuron_kinds")
    show_firsts(sheet, result, name="neuron_firsts")


SECTION = Section(
    title="Single neurons",
    order=62,
    explanation="Which hidden units are dead, saturated or follow place and frequency, and what a few of them do.",
    render=render,
    collectors=collectors,
    absent=absent,
)
