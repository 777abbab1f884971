"""Labels for probes: the class, word and document of every row of a store, and which rows are for learning or
testing."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from pellucid.collect.labelled_store import check_rows
from pellucid.collect.words import all_words
from pellucid.errors import CorpusError, listing
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.concepts import Concept
from pellucid.results import Array
from pellucid.uncertainty import GROUPS

if TYPE_CHECKING:
    from pellucid.collect.store import Store

_FEW_DOCUMENTS = 20
_TRIES = 50


@dataclass(frozen=True, eq=False)
class Labelled:
    """Every row's class, `goals` (−1: none), the number of its word type, and of its document (or sentence), [rows].

    `unit` says which of the two; `left_out` are the classes that are too rare, with their counts.
    """

    concept: Concept
    classes: tuple[str, ...]
    goals: Array
    types: Array
    units: Array
    unit: str
    left_out: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Split:
    """Which rows are for testing, and the fold (0 to 9) of those for learning, [rows]; −1 and False for the rest.

    Documents are never torn apart. `group` is the document group of rows for testing, for intervals.
    """

    test: Array
    fold: Array
    group: Array

    @property
    def mark(self) -> str:
        """Tells this deal of rows for testing from any other."""
        return blake2b(np.packbits(self.test).tobytes(), digest_size=8).hexdigest()

    @property
    def training(self) -> Array:
        """All rows to learn from, [rows]."""
        return self.fold >= 0

    def without(self, fold: int) -> Array:
        """The rows of all folds but one, [rows]."""
        return (self.fold >= 0) & (self.fold != fold)


def labelled(store: Store, concept: Concept, *, fewest: int = 20) -> Labelled:
    """The class of every row of a store; classes with fewer than `fewest` rows are left out and counted."""
    check_rows(store, concept)
    concept = concept.prepared(store.text())
    values, words, documents = _Numbered(), _Numbered(), _Numbered()
    sentences = array("q")
    for entry in store.entries:
        table = store.table(entry, ["sentence", "position"])
        known = store.sentences(entry)
        classes = {number: concept.of(sentence) for number, sentence in known.items()}
        text = {number: all_words(sentence) for number, sentence in known.items()}
        for number, place in zip(table["sentence"].to_pylist(), table["position"].to_pylist(), strict=True):
            values.add(classes[number][place] if place >= 0 else None)
            words.add(text[number][place].lower() if place >= 0 else "")
            documents.add(known[number].document)
            sentences.append(number)
    counts = values.counts()
    kept = _classes(concept, counts, fewest)
    code = {name: place for place, name in enumerate(kept)}
    number_of = [-1 if name is None else code.get(name, -1) for name in values.places]
    goals = np.array(number_of, dtype=np.int64)[values.numbers]
    enough = len(documents.places) >= _FEW_DOCUMENTS
    units = documents.sorted() if enough else np.unique(np.asarray(sentences), return_inverse=True)[1]
    left_out = {name: count for name, count in sorted(counts.items()) if name not in code}
    return Labelled(concept, kept, goals, words.sorted(), units, "documents" if enough else "sentences", left_out)


class _Numbered:
    """A column of names as numbers, in the order in which each first came: rows of strings take much more room."""

    def __init__(self) -> None:
        self.places: dict[str | None, int] = {}
        self._rows = array("q")

    def add(self, name: str | None) -> None:
        self._rows.append(self.places.setdefault(name, len(self.places)))

    @property
    def numbers(self) -> Array:
        """The number of every row's name, [rows]."""
        return np.asarray(self._rows)

    def sorted(self) -> Array:
        """The same with names numbered in their order; as an array of names each would take the room of the longest."""
        names = [str(name) for name in self.places]
        place = np.empty(len(names), dtype=np.int64)
        place[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return place[self.numbers]

    def counts(self) -> dict[str, int]:
        """How many rows every name has; those without are not counted."""
        every = np.bincount(self.numbers, minlength=len(self.places)).tolist()
        return {name: count for name, count in zip(self.places, every, strict=True) if name is not None}


def _classes(concept: Concept, counts: Mapping[str, int], fewest: int) -> tuple[str, ...]:
    if not counts:
        raise CorpusError(f"No word of this text has a class of {concept.name!r}; choose another concept or corpus.")
    absent = [name for name in concept.classes if name not in counts]
    if absent:
        known = listing(sorted(counts))
        raise CorpusError(f"No word of this text has {listing(absent)} for {concept.about!r}; there are {known}.")
    ordered = sorted(counts, key=lambda name: (concept.late(name), name))
    kept = [name for name in ordered if counts[name] >= fewest]
    if len(kept) < 2:
        told = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
        raise CorpusError(
            f"A probe tells two or more classes apart, and {concept.name!r} has {len(kept)} with at least {fewest} "
            f"words ({told}); choose another concept, give more text, or lower fewest (--fewest)."
        )
    return tuple(kept)


def warn_of_rare(concept: Concept, left_out: Mapping[str, int], fewest: int) -> None:
    """Warns where classes that the concept names are among those left out, with their words."""
    rare = [f"{name} ({left_out[name]})" for name in concept.classes if name in left_out]
    if rare:
        warnings.warn(
            f"{concept.name!r} names classes with fewer than {fewest} words, which are left out: {listing(rare)}; give "
            "more text, or lower fewest.",
            NeuronWarning,
            stacklevel=5,
        )


def split(data: Labelled, *, test: float = 0.2, seed: int = 0) -> Split:
    """Deals whole documents out to testing and to ten folds of learning, so that every class is on both sides.

    Documents are drawn until a share `test` of the labelled rows is reached. A class must stand in two folds or more,
    so that it is learned whichever fold is left out; the first draw of fifty is taken that has every class in three,
    so that it is learned without any two. Where none has every class in two, the class is named.
    """
    if not 0 < test < 1:
        raise CorpusError(f"test={test} leaves nothing to learn from or to test on; use a share such as 0.2.")
    known = data.goals >= 0
    sizes = np.bincount(data.units[known], minlength=int(data.units.max()) + 1)
    there = np.flatnonzero(sizes)
    if len(there) < GROUPS + 2:
        raise CorpusError(
            f"{len(there)} {data.unit} have labelled words; a probe needs {GROUPS + 2} or more, so that some can be "
            "held out whole: give more text."
        )
    one_sided, second_best = "", None
    for attempt in range(_TRIES):
        order = np.random.default_rng([seed, attempt]).permutation(there)
        reached = np.cumsum(sizes[order]) / sizes.sum()
        tested = min(max(2, int(np.searchsorted(reached, test)) + 1), len(order) - GROUPS)
        marked = np.zeros(len(sizes), dtype=bool)
        marked[order[:tested]] = True
        rows = marked[data.units]
        sides = [set(data.goals[known & side].tolist()) for side in (rows, ~rows)]
        missing = [name for place, name in enumerate(data.classes) if any(place not in side for side in sides)]
        if not missing:
            made = _dealt(data, order, tested, sizes, known)
            folds = _folds_of_classes(data, made)
            if folds.min() > 2:
                return made
            if folds.min() == 2:
                second_best = second_best or made
                continue
            missing = [name for name, count in zip(data.classes, folds.tolist(), strict=True) if count < 2]
        one_sided = missing[0]
    if second_best is not None:
        return second_best
    raise CorpusError(
        f"The class {one_sided!r} occurs in too few {data.unit} to be both learned and tested; leave it out by "
        "naming the other classes (as in upos=NOUN,VERB) or with a larger fewest (--fewest), or give more text."
    )


def _folds_of_classes(data: Labelled, made: Split) -> Array:
    """How many folds have words of each class to learn from, [classes]."""
    there = np.zeros((len(data.classes), GROUPS), dtype=bool)
    learned = made.training & (data.goals >= 0)
    there[data.goals[learned], made.fold[learned]] = True
    return there.sum(axis=1)


def _dealt(data: Labelled, order: Array, tested: int, sizes: Array, known: Array) -> Split:
    """The split of an order of documents, the first of which are for testing."""
    place = np.full(len(sizes), -1)
    group = place.copy()
    for chosen, target in ((order[:tested], group), (order[tested:], place)):
        weight = np.zeros(GROUPS)
        for unit in sorted(chosen.tolist(), key=lambda unit: -sizes[unit]):  # the largest first: folds of equal size
            lightest = int(weight.argmin())
            target[unit] = lightest
            weight[lightest] += sizes[unit]
    fold, groups = (np.where(known, numbers[data.units], -1) for numbers in (place, group))
    return Split(groups >= 0, fold, groups)
