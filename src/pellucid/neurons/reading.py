"""Reading neurons: what single units fire on, told word by word: contexts, words, spread, position and frequency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.concordance import in_context
from pellucid.neurons.concepts import Concept, as_concept
from pellucid.neurons.mates import mates
from pellucid.neurons.ranking import by_site
from pellucid.neurons.reading_tables import activity, class_rows, context_rows, histograms, text_rows, word_rows
from pellucid.neurons.sources import check_read
from pellucid.results import Array, Result, ResultError
from pellucid.uncertainty import jackknife

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.traces import TracesView
    from pellucid.corpus import Corpus, Sentence
    from pellucid.model import Model

MEASURES = {
    "word": "share of the variance that knowing the word explains (η²)",
    "position": "correlation with the place in the sentence, in size",
    "frequency": "correlation with the logarithm of the word's frequency in the text, in size",
}
MOST = 200
"""Neurons that are read at a time."""


@dataclass(frozen=True, eq=False)
class NeuronReading(Result):
    """What single neurons respond to, [measure, neuron]: to the word itself, to its place, to its frequency.

    Tables: `activity` (mean, sd, extremes, silent, saturated, and the kind of neuron), `contexts`, `words`, `texts`
    (whole sentences with every word's z), `histogram`; where a concept was given, `classes`; where they were asked for,
    `mates` (correlated neurons of the same site) and `effects` (what answers lose without it).
    """

    kind: ClassVar[str] = "neurons.reading"
    title: ClassVar[str] = "What single neurons respond to"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "the same when a neuron's values are dealt out to words at random"

    @property
    def neurons(self) -> tuple[str, ...]:
        """The names of the neurons."""
        return tuple(str(name) for name in self.axes["neuron"])

    def rows_of(self, table: str, neuron: str) -> list[dict[str, Any]]:
        """The rows of one table that belong to a neuron."""
        self.place("neuron", neuron)
        columns = {name: column.tolist() for name, column in self.table(table).columns.items()}
        return [
            {name: column[row] for name, column in columns.items()}
            for row, name in enumerate(columns["neuron"])
            if name == neuron
        ]


def read(
    source: Found | Model,
    corpus: Corpus | None = None,
    *,
    neurons: Sequence[str] = (),
    concept: str | Concept | Sequence[str | Concept] | None = None,
    contexts: int = 20,
    words: int = 15,
    texts: int = 3,
    cut: float | None = None,
    seed: int = 0,
    **options: Any,
) -> NeuronReading:
    """Reads neurons such as `"neurons.3:17"`, from `Traces(neurons)` of a sweep or from a model and a corpus.

    Top words are those with the largest mean |z| among words that occur at least twice (if any does); contexts are the
    largest and smallest activations, those of sentences with the same text once. With a `concept`, or several, the mean
    z of every class stands beside. With a `cut`, so do the neurons of the same site in its cluster: average linkage of
    1 − |ρ|, joined while it is at most `cut`. `options` are those of `sweep`. Intervals leave out document groups in
    turn.
    """
    from pellucid.collect.found import Found
    from pellucid.collect.moments import Moments
    from pellucid.collect.sweep import sweep
    from pellucid.collect.traces import Traces

    given = () if concept is None else (concept,) if isinstance(concept, (str, Concept)) else concept
    asked = [as_concept(each) for each in given]
    if isinstance(source, Found):
        check_read(source, corpus, options)
        found = source
    else:
        if corpus is None or not neurons:
            raise ResultError(
                "To read neurons of a model, give a corpus and the neurons' names: neurons=['neurons.3:17']."
            )
        if len(neurons) > MOST:
            raise ResultError(f"{len(neurons)} neurons are too many to read at a time; take {MOST} or fewer.")
        beside = [] if cut is None else [Moments(tuple(by_site(neurons)), pairs="diagonal")]
        found = sweep(source, corpus, [Traces(tuple(neurons)), *beside], **options)
    view: TracesView = found[Traces]
    chosen = list(neurons) or list(view.units)
    absent = [name for name in chosen if name not in view.units]
    if absent:
        raise ResultError(f"{absent[0]} was not traced in this sweep; it has {', '.join(view.units[:20])}.")
    made = _reading(found, view, chosen, asked, (contexts, words, texts), seed)
    return made if cut is None else replace(made, tables={**made.tables, "mates": mates(found, chosen, cut=cut)})


@dataclass(frozen=True, eq=False)
class Traced:
    """Some neurons at every word: `z` and `values` [words, neurons], and what is known of the words."""

    neurons: tuple[str, ...]
    values: Array
    z: Array
    words: tuple[str, ...]
    types: Array
    counts: Array
    sentence: Array
    position: Array
    group: Array
    sentences: Mapping[int, Sentence]

    @cached_property
    def place(self) -> Array:
        """Where every word stands in its own sentence, from 1; the second of a pair begins again, [words]."""
        first = {number: len(each.spans) for number, each in self.sentences.items()}
        before = np.array([first[number] for number in self.sentence.tolist()])
        return self.position + 1 - np.where(self.position >= before, before, 0)

    @cached_property
    def text(self) -> Array:
        """The number of the first sentence with the same text, [words]: one that comes again shows nothing new."""
        first: dict[tuple[str, str], int] = {}
        same = {number: first.setdefault((each.text, each.second.text if each.second else ""), number)
                for number, each in self.sentences.items()}  # fmt: skip
        return np.array([same[number] for number in self.sentence.tolist()])


def _reading(
    found: Found,
    view: TracesView,
    neurons: Sequence[str],
    concepts: Sequence[Concept],
    sizes: tuple[int, int, int],
    seed: int,
) -> NeuronReading:
    data = _traced(found, view, neurons)
    if len(data.words) < 3:
        raise ResultError(f"{len(data.words)} words are too few to tell what a neuron responds to; give more text.")
    every = np.ones(len(data.words), dtype=bool)
    values = _measured(data, every)
    groups = np.unique(data.group)
    again = [_measured(data, data.group != number) for number in groups] if len(groups) > 1 else []
    sizes_of = [float((data.group == number).sum()) for number in groups][: len(again)]
    interval = jackknife(values, again, sizes_of).within(0.0, 1.0)  # a share, and sizes of correlations
    contexts, words, texts = sizes
    tables = {
        "activity": activity(data),
        "contexts": context_rows(data, contexts, in_context),
        "words": word_rows(data, words),
        "texts": text_rows(data, texts),
        "histogram": histograms(data),
    }
    if concepts:
        tables["classes"] = class_rows(data, concepts)
    names = [concept.name for concept in concepts]
    arguments = {"neurons": list(neurons), "concept": names if len(names) > 1 else names[0] if names else None}
    return NeuronReading(
        axes={"measure": tuple(MEASURES), "neuron": tuple(neurons)},
        values=values,
        null=_chance(data),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("neurons.reading", arguments, seed=seed),
        tables=tables,
    )


def _traced(found: Found, view: TracesView, neurons: Sequence[str]) -> Traced:
    from pellucid.collect.words import all_words

    real = view.position >= 0
    sentence, position = view.sentence[real], view.position[real]
    known = {int(number): found.sentence(int(number)) for number in np.unique(sentence)}
    text = {number: all_words(each) for number, each in known.items()}
    words = tuple(text[number][place] for number, place in zip(sentence.tolist(), position.tolist(), strict=True))
    small = [word.lower() for word in words]
    types = np.unique(np.array(small), return_inverse=True)[1] if small else np.zeros(0, np.int64)
    counted = Counter(small)
    values = view.values[real][:, [view.units.index(name) for name in neurons]].astype(np.float64)
    spread = values.std(0) if len(values) else np.ones(len(neurons))
    centre = values.mean(0) if len(values) else np.zeros(len(neurons))
    z = (values - centre) / np.where(spread > 0, spread, 1.0)
    counts = np.array([counted[word] for word in small])
    return Traced(tuple(neurons), values, z, words, types, counts, sentence, position, view.group[real], known)


def _measured(data: Traced, kept: Array) -> Array:
    """Every measure on some of the words, [measure, neuron]."""
    z = data.z[kept]
    return np.stack(
        [
            explained(z, data.types[kept]),
            np.abs(correlation(z, data.place[kept].astype(np.float64))),
            np.abs(correlation(z, np.log(data.counts[kept]))),
        ]
    )


def explained(values: Array, types: Array) -> Array:
    """η² = Σ n_w (μ_w − μ)² / Σ (x − μ)², [neuron]; 0 for a constant one."""
    _, place = np.unique(types, return_inverse=True)
    centred = values - values.mean(0)
    sums = np.zeros((int(place.max()) + 1, values.shape[1]))
    np.add.at(sums, place, centred)
    total = (centred**2).sum(0)
    between = (sums**2 / np.bincount(place)[:, None]).sum(0)
    return np.where(total > 0, between / np.where(total > 0, total, 1.0), 0.0)


def correlation(values: Array, other: Array) -> Array:
    """Pearson's r of every neuron with one number per word, [neuron]; 0 where one of them is constant."""
    x, y = values - values.mean(0), other - other.mean()
    size = np.sqrt((x**2).sum(0) * (y**2).sum())
    return np.where(size > 0, (x * y[:, None]).sum(0) / np.where(size > 0, size, 1.0), 0.0)


def _chance(data: Traced) -> Array:
    """Of n words and W word types: E η² = (W − 1)/(n − 1) and E|r| ≈ √(2/(π(n − 1)))."""
    n = len(data.words)
    kinds = int(data.types.max()) + 1
    cells = np.array([(kinds - 1) / (n - 1), *[np.sqrt(2 / (np.pi * (n - 1)))] * 2])
    return np.repeat(cells[:, None], len(data.neurons), axis=1)
