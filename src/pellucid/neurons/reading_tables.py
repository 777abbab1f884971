"""Tables of a reading: contexts, words, coloured text, histograms and classes of traced neurons."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.neurons.class_sums import ClassSums
from pellucid.neurons.selectivity import against_rest
from pellucid.results import Array, Table

if TYPE_CHECKING:
    from pellucid.corpus import Sentence
    from pellucid.neurons.concepts import Concept
    from pellucid.neurons.reading import Traced

BINS = 40
SILENT, SATURATED = 0.01, 0.01
"""A neuron is silent at a word if within 1% of its largest size from 0, saturated if within 1% of its range from an
end."""
_MOSTLY = 0.5


def activity(data: Traced) -> Table:
    """Mean, spread and ends of every neuron, how often it is silent or at an end of its range, and its kind."""
    values = data.values
    low, high = values.min(0), values.max(0)
    reach = high - low
    silent = (np.abs(values) <= SILENT * np.abs(values).max(0)).mean(0)
    near = SATURATED * np.where(reach > 0, reach, 1.0)
    ends = ((values >= high - near) | (values <= low + near)).mean(0)
    kinds = [kind_of(*each) for each in zip(reach.tolist(), silent.tolist(), ends.tolist(), strict=True)]
    columns = {
        "mean": values.mean(0),
        "sd": values.std(0),
        "smallest": low,
        "largest": high,
        "silent": silent,
        "saturated": np.where(reach > 0, ends, 1.0),
        "kind": np.array(kinds),
    }
    return Table({"neuron": data.neurons}, columns)


def kind_of(reach: float, silent: float, ends: float) -> str:
    """What kind of neuron it is, from its range and the shares of words at which it is silent or at an end of it."""
    if not reach:
        return "dead: it never changes"
    if silent > _MOSTLY:
        return "mostly silent"
    return "saturated: mostly at an end of its range" if ends > _MOSTLY else "varies"


def context_rows(data: Traced, k: int, in_context: Callable[[Sentence, int], tuple[str, str, str]]) -> Table:
    """The k largest and the k smallest activations of every neuron with the text around them; of equals the earlier.

    Of a sentence that comes again with the same text, one counts.
    """
    rows: list[tuple[Any, ...]] = []
    places = list(zip(data.text.tolist(), data.position.tolist(), strict=True))
    for unit, name in enumerate(data.neurons):
        for end, sign in (("largest", -1.0), ("smallest", 1.0)):
            order = np.argsort(sign * data.values[:, unit], kind="stable")
            for rank, row in enumerate(_first_apart(order, places, k), start=1):
                sentence = data.sentences[int(data.sentence[row])]
                line = in_context(sentence, int(data.position[row]))
                rows.append((name, end, rank, float(data.values[row, unit]), sentence.document, *line))
    return _rows(("neuron", "end", "rank", "activation", "document", "left", "word", "right"), rows)


def word_rows(data: Traced, k: int) -> Table:
    """The k word types with the largest mean |z| of every neuron, among those that occur at least twice."""
    kinds = int(data.types.max()) + 1
    counts = np.bincount(data.types, minlength=kinds)
    names = np.empty(kinds, dtype=object)
    names[data.types] = [word.lower() for word in data.words]
    often = counts >= 2 if (counts >= 2).any() else counts >= 1
    rows: list[tuple[Any, ...]] = []
    for unit, name in enumerate(data.neurons):
        size, signed = (
            np.bincount(data.types, weights=each, minlength=kinds) / counts
            for each in (np.abs(data.z[:, unit]), data.z[:, unit])
        )
        order = np.argsort(-np.where(often, size, -1.0), kind="stable")[: min(k, int(often.sum()))]
        rows += [
            (name, rank, str(names[place]), int(counts[place]), float(size[place]), float(signed[place]))
            for rank, place in enumerate(order.tolist(), start=1)
        ]
    return _rows(("neuron", "rank", "word", "count", "mean |z|", "mean z"), rows)


def text_rows(data: Traced, k: int) -> Table:
    """Every word of the k sentences in which a neuron is strongest, with its z, in the order of the text.

    Of sentences with the same text, one counts.
    """
    rows: list[tuple[Any, ...]] = []
    numbers, first, place = np.unique(data.sentence, return_index=True, return_inverse=True)
    texts = data.text[first].tolist()
    for unit, name in enumerate(data.neurons):
        strongest = np.zeros(len(numbers))
        np.maximum.at(strongest, place, np.abs(data.z[:, unit]))
        for rank, at in enumerate(_first_apart(np.argsort(-strongest, kind="stable"), texts, k), start=1):
            rows += [
                (name, rank, data.words[row], float(data.z[row, unit])) for row in np.flatnonzero(place == at).tolist()
            ]
    return _rows(("neuron", "sentence", "word", "z"), rows)


def _first_apart(order: Array, names: Sequence[Hashable], k: int) -> list[int]:
    """The first k numbers of an order whose names differ."""
    found: dict[Hashable, int] = {}
    for number in order.tolist():
        if len(found) == k:
            break
        found.setdefault(names[number], number)
    return list(found.values())


def histograms(data: Traced) -> Table:
    """Counts of every neuron's values in equal bins between its smallest and largest."""
    counts, lower, upper = [], [], []
    for unit in range(len(data.neurons)):
        found, edges = np.histogram(data.values[:, unit], bins=BINS)
        counts.append(found)
        lower.append(edges[:-1])
        upper.append(edges[1:])
    axes = {"neuron": data.neurons, "bin": tuple(range(1, BINS + 1))}
    return Table(axes, {"count": np.array(counts), "from": np.array(lower), "to": np.array(upper)})


def class_rows(data: Traced, concepts: Sequence[Concept]) -> Table:
    """Mean z of every class, how far it lies from all other words (d′), and the size of d′ by chance, by neuron.

    d′ and chance are those of `selectivity`.
    """
    rows = [row for concept in concepts for row in _of_concept(data, concept)]
    return _rows(("neuron", "concept", "class", "words", "mean z", "d′", "chance"), rows)


def _of_concept(data: Traced, concept: Concept) -> list[tuple[Any, ...]]:
    ready = concept.prepared(data.sentences.values())
    known = {number: ready.of(sentence) for number, sentence in data.sentences.items()}
    places = zip(data.sentence.tolist(), data.position.tolist(), strict=True)
    values = np.array([known[number][place] or "" for number, place in places])
    classes = list(concept.grouped(concept.name, sorted({*values.tolist()} - {""})))
    own = [data.z[values == cls] for cls in classes]
    counts, means = np.array([len(each) for each in own]), np.array([each.mean(axis=0) for each in own])
    sums = ClassSums(tuple(classes), counts, means, np.array([each.var(axis=0) for each in own]))
    apart = [against_rest(sums, place) for place in range(len(classes))]
    return [
        (name, concept.name, cls, len(own[place]), float(means[place, unit]), float(apart[place][0][unit]),
         apart[place][1])
        for unit, name in enumerate(data.neurons)
        for place, cls in enumerate(classes)
    ]  # fmt: skip


def _rows(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Table:
    columns = zip(*rows, strict=True) if rows else [[]] * len(names)
    return Table.of_rows(dict(zip(names, (list(column) for column in columns), strict=True)))
