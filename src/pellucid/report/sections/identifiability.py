"""Identifiability: what attention leaves open, whether tokens can be told from states, and how far they mix, on a part
of the text that takes a second or two."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from pellucid.corpus import Corpus
from pellucid.errors import PellucidError
from pellucid.report.cells import resampling
from pellucid.report.html import Cell, bounds, number, share
from pellucid.report.identifiability import show_mixing, show_tokens
from pellucid.report.section import Section, Subject
from pellucid.report.sheet import Sheet
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.freedom import FreedomView
    from pellucid.corpus import Sentence
    from pellucid.model import Model
    from pellucid.results import Array

READ = 24
"""Sentences whose attention is looked at."""
AMONG = 2000
"""Sentences of the text among which they are chosen."""
MIXED, LONGEST, PROBES = 4, 12, 4
"""Sentences whose mixing is looked at, their most words, and the random directions for each token."""
ENOUGH = 7
"""Words for each dimension of a state, from which linear maps are fitted; four fifths of them fit."""
WORK = 2e11
"""Operations of one pass over these words beyond which nothing is fitted."""
FITTED = ("identity", "linear")
MEASURES = ("free", "free_with_sum", "unique", "moved", "shifted", "argmax")
ASK = "pellucid identifiability MODEL --corpus FILE reads more text, and shows a second attention with the same output."


def absent(subject: Subject) -> str | None:
    """Why nothing can be told."""
    if subject.model.tokenizer is None:
        return "this model has no tokenizer, so that it cannot be shown a sentence by itself."
    if not any(site.kind == "resid" for site in subject.model.sites):
        return "this model shows no stream of hidden states."
    return None


def render(sheet: Sheet, subject: Subject, found: Found) -> None:
    """Attention, tokens and mixing, each where the model and the text allow it."""
    parts = {
        "What attention leaves open": _attention,
        "Telling tokens from states": _tokens,
        "How far tokens mix": _mixing,
    }
    for title, write in parts.items():
        sheet.heading(title)
        try:
            write(sheet, subject)
        except PellucidError as error:
            sheet.text(f"This could not be told: {error}")
    sheet.note(ASK)


def _attention(sheet: Sheet, subject: Subject) -> None:
    """Means over the heads of every layer, beside chance and the control."""
    corpus = _spread(subject.corpus, READ)
    view, keys = _freedom(subject.model, corpus)
    values, chance = (_by_layer(keys, names)(view) for names in (MEASURES, [f"{name}_by_chance" for name in MEASURES]))
    ends = over_groups(view, _by_layer(keys, MEASURES), lambda part: part.n(keys[0]))
    drawn = None
    if subject.twin is not None:
        other, own = _freedom(subject.twin, corpus)
        drawn = _by_layer(own, MEASURES)(other)
    unique = MEASURES.index("unique")
    sheet.highlight(
        "queries whose attention is unique",
        share(float(values[unique].mean())),
        chance=f"values in general position {share(float(chance[unique].mean()))}",
    )
    sheet.text(
        f"In {sum(1 for _ in corpus)} sentences of as many documents as there are. A head's output is a sum of values "
        "weighted by attention: where a query sees more tokens than values are wide, other weights give the same "
        "output. Effective attention is what is left of the weights without the part that has no effect."
    )
    columns = ["value", "95% interval", "chance", *(["control model"] if drawn is not None else [])]
    rows = [
        (
            name.replace("_", " "),
            key.rpartition(".")[2],
            _cell(values[row, at]),
            bounds(*(None if end is None else float(end[row, at]) for end in (ends.low, ends.high))),
            _cell(chance[row, at]),
            *([_cell(drawn[row, at])] if drawn is not None else []),
        )
        for row, name in enumerate(MEASURES)
        for at, key in enumerate(keys)
    ]
    sheet.table(
        ["measure", "layer", *columns],
        rows,
        caption=f"Means over the heads of every layer. {resampling(ends)}.",
        name="identifiability-attention",
        right=columns,
        fold="Attention by layer",
    )
    _phrases(sheet)


def _phrases(sheet: Sheet) -> None:
    from pellucid.identifiability import AttentionIdentifiability

    sheet.facts(list(AttentionIdentifiability.phrases.items()))
    sheet.note(f"Chance: {AttentionIdentifiability.chance}.")


def _freedom(model: Model, corpus: Corpus) -> tuple[FreedomView, list[str]]:
    """The freedom of a model's attention, and its layers."""
    from pellucid.collect.freedom import AttentionFreedom
    from pellucid.collect.sweep import sweep
    from pellucid.identifiability.attention_freedom import freedom_of
    from pellucid.reading import view_with

    found = sweep(model, corpus, [freedom_of(model)], long="truncate", progress=False)
    view, mine = view_with(found, AttentionFreedom, "pattern", ask="AttentionFreedom()")
    return view, list(mine.values())


def _by_layer(keys: list[str], names: tuple[str, ...] | list[str]) -> Callable[[FreedomView], Array]:
    """What gives means over heads, [measure, layer]."""
    return lambda view: np.array([[view.mean(name, key).mean() for key in keys] for name in names])


def _cell(value: float) -> Cell:
    return Cell(number(float(value)), float(value))


def _tokens(sheet: Sheet, subject: Subject) -> None:
    """Rates by layer from the states as they are, and by linear maps where the text is enough for them."""
    from pellucid.identifiability import tokens
    from pellucid.identifiability.jacobians import stream

    model = subject.model
    sites = stream(model)
    width = model.size(sites[0])[-1]
    wanted = ENOUGH * width
    corpus = _spread(subject.corpus, wanted, weight=_words)
    words = sum(map(_words, corpus))
    work = 24 * width**2 * (len(sites) - 1) * wanted
    if work > WORK:
        why = (
            f"this model is {width} wide and {len(sites) - 1} layers deep, and fitting them takes longer than a report"
        )
    elif words < wanted:
        why = f"states are {width} wide, and the text has {words} words for that, fewer than {wanted}"
    else:
        why = None
    result = tokens(
        model,
        corpus if why is None else corpus.take(READ),
        maps=FITTED[: 1 if why is not None else 2],
        random=subject.twin is not None,
        seed=subject.seed,
        progress=False,
    )
    show_tokens(sheet, result)
    if why is not None:
        sheet.note(f"Linear maps are left out: {why}.")


def _words(sentence: Sentence) -> int:
    return len(sentence.spans)


def _spread(corpus: Corpus, wanted: int, *, weight: Callable[[Sentence], int] = lambda _: 1) -> Corpus:
    """Sentences that weigh so much together: the first of every document, then the second, and so on."""
    documents: dict[str, list[Sentence]] = {}
    for sentence in islice(corpus, AMONG):
        documents.setdefault(sentence.document, []).append(sentence)
    taken: list[Sentence] = []
    total = 0
    for turn in range(max(map(len, documents.values()), default=0)):
        for own in documents.values():
            if turn < len(own) and total < wanted:
                taken.append(own[turn])
                total += weight(own[turn])
    order = {name: number for number, name in enumerate(documents)}
    taken.sort(key=lambda sentence: order[sentence.document])
    return Corpus.of(taken, name=corpus.name)


def _mixing(sheet: Sheet, subject: Subject) -> None:
    """Mixing by layer on a few short sentences."""
    from pellucid.identifiability import mixing

    def short(sentence: Sentence) -> bool:
        return len(sentence.words) <= LONGEST

    brief = subject.corpus.filter(short, name=f"{subject.corpus.name}, up to {LONGEST} words")
    result = mixing(
        subject.model,
        _spread(brief, MIXED),
        sentences=MIXED,
        probes=PROBES,
        random=subject.twin is not None,
        seed=subject.seed,
        progress=False,
    )
    show_mixing(sheet, result, distances=False)


SECTION = Section(
    title="What attention and states can tell",
    order=57,
    explanation="Whether attention could be other with the same output, states still tell their tokens, and how far "
    "tokens mix.",
    render=render,
    absent=absent,
)
