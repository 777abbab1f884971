"""Concepts: what a neuron may stand for, as a class (or none) for every word of a corpus."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.errors import CorpusError, listing
from pellucid.neurons.word_properties import NEEDS_COUNTS, PROPERTIES, frequency_bands, pair_value, property_values

if TYPE_CHECKING:
    from pellucid.corpus import Sentence

OTHER = "other"
"""The class of words that have a label, but none of the classes asked for."""
PAIRS = ("overlap", "negation")
_FORMS = (
    "LABEL, LABEL=VALUE, LABEL=VALUE,VALUE, words:FILE, pattern:REGEX, property:NAME, pair:NAME, arc:RELATION and "
    "sentence:LABEL"
)


@dataclass(frozen=True)
class Concept:
    """A name and, for every word of a sentence, a class or None; build it with the functions below, not by hand.

    `base` is the label of the corpus that it regroups, if it does: `upos=NOUN` can be read from statistics of `upos`.
    With one class, every other word that has the label is `other`; with several, words of other classes have none.
    """

    name: str
    kind: str
    about: str
    classes: tuple[str, ...] = ()
    listed: frozenset[str] = frozenset()
    counts: tuple[tuple[str, int], ...] | None = None
    translated: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def label(label: str, *, classes: Sequence[str] = ()) -> Concept:
        """The values of a word or sentence label: all of them, or only some."""
        return _regrouped("label", label, classes)

    @staticmethod
    def sentence(label: str, *, classes: Sequence[str] = ()) -> Concept:
        """The values of a sentence label, which hold for all words of a sentence."""
        return _regrouped("sentence", label, classes)

    @staticmethod
    def words(words: Iterable[str] | str | Path, *, name: str | None = None) -> Concept:
        """Words of a list, or of a file with one word per line; capital letters do not matter."""
        if isinstance(words, (str, Path)):
            name, words = name or Path(words).stem, _lines(Path(words))
        listed = frozenset(word.strip().lower() for word in words if word.strip())
        if not listed:
            raise CorpusError(f"The list of words{f' {name!r}' if name else ''} is empty; give at least one word.")
        spelled = "\n".join(sorted(listed)).encode()
        about = blake2b(spelled, digest_size=8).hexdigest()
        return Concept(name or listing(sorted(listed), most=3), "words", about, listed=listed)

    @staticmethod
    def pattern(pattern: str, *, name: str | None = None) -> Concept:
        """Words that a regular expression matches as a whole."""
        try:
            re.compile(pattern)
        except re.error as error:
            raise CorpusError(f"{pattern!r} is not a regular expression ({error}).") from None
        return Concept(name or f"/{pattern}/", "pattern", pattern)

    @staticmethod
    def pair(name: str) -> Concept:
        """What two sentences read together have: the overlap of their words, or a negation in the second."""
        if name not in PAIRS:
            raise CorpusError(f"There is no property {name!r} of pairs; there are {listing(PAIRS)}.")
        return Concept(name, "pair", name)

    @staticmethod
    def arc(relation: str) -> Concept:
        """Words that hang on another by a dependency relation, such as `nsubj`."""
        return Concept(f"arc {relation}", "arc", relation)

    @staticmethod
    def parse(text: str) -> Concept:
        """A concept as it is written on a command line: `upos`, `upos=NOUN`, `upos=NOUN,VERB`, `words:FILE`,
        `pattern:REGEX`, `property:length`, `pair:overlap`, `arc:nsubj`, `sentence:label`."""
        makers: dict[str, Callable[[str], Concept]] = {
            "words": Concept.words,
            "pattern": Concept.pattern,
            "property": Concept.property,
            "pair": Concept.pair,
            "arc": Concept.arc,
        }
        start, colon, rest = text.partition(":")
        if colon and start in makers:
            if not rest:
                raise CorpusError(f"{text!r} says nothing after the colon; concepts are written {_FORMS}.")
            return makers[start](rest)
        own = rest if colon and start == "sentence" else text
        label, equals, values = own.partition("=")
        chosen = [value for value in values.split(",") if value]
        if not label or (equals and not chosen):
            raise CorpusError(f"{text!r} is no concept; concepts are written {_FORMS}.")
        return (Concept.sentence if own is rest and colon else Concept.label)(label, classes=chosen)

    @property
    def base(self) -> str | None:
        """The label of the corpus whose values it regroups; None where it is worked out."""
        return self.about if self.kind in ("label", "sentence") else None

    @property
    def leaves(self) -> bool:
        """Whether it makes words `other` that are not of its class; else `other` is a value of the corpus like any."""
        return self.base is None or len(self.classes) == 1

    @property
    def plain(self) -> bool:
        """Whether it is a label of the corpus as it stands."""
        return self.base is not None and not self.classes

    @property
    def rule(self) -> str:
        """All that its classes depend on, for fingerprints."""
        known = (self.counts, self.translated) if self.translated else self.counts
        counted = "" if self.counts is None else blake2b(repr(known).encode(), digest_size=8).hexdigest()
        return repr((self.name, self.kind, self.about, self.classes, counted))

    def of(self, sentence: Sentence) -> list[str | None]:
        """The class of every word of a sentence, and of a second one read with it."""
        from pellucid.collect.words import all_words, word_labels

        if self.kind == "label":
            return [self.regroup(value) for value in word_labels(sentence, self.about)]
        words = all_words(sentence)
        if self.kind == "sentence":
            value = sentence.facts.get(self.about)
            return [None if value is None else self.regroup(value)] * len(words)
        if self.kind == "pair":
            return [sentence.facts.get(self.name) or pair_value(self.about, sentence)] * len(words)
        if self.kind == "words":
            return [self.name if word.lower() in self.listed else OTHER for word in words]
        if self.kind == "pattern":
            matches = re.compile(self.about).fullmatch
            return [self.name if matches(word) else OTHER for word in words]
        return [value for part in _parts(sentence) for value in self._of_part(part)]

    def of_translation(self, sentence: Sentence) -> list[str | None]:
        """The class of every word of a translation; how often words occur is counted in translations alone."""
        return self._of_translations.of(sentence)

    def wide(self, sentence: Sentence) -> bool:
        """Whether all words of a sentence have the same class, because it is about the whole of it."""
        if self.kind != "label":
            return self.kind in ("sentence", "pair")
        return self.about in sentence.facts and not any(self.about in part.labels for part in _parts(sentence))

    def of_sentences(self, facts: Collection[str]) -> bool:
        """The same of a whole text, whose labels of sentences are `facts`."""
        return self.kind in ("sentence", "pair") or (self.kind == "label" and self.about in facts)

    def _of_part(self, sentence: Sentence) -> list[str | None]:
        """Classes of the words of one sentence, whose words are counted on their own."""
        if self.kind == "arc":
            there = {arc.dependent for arc in sentence.arcs if arc.relation == self.about}
            known = {arc.dependent for arc in sentence.arcs}
            return [
                (self.name if place in there else OTHER) if place in known else None
                for place in range(len(sentence.spans))
            ]
        if self.about in NEEDS_COUNTS and self.counts is None:
            raise CorpusError(f"{self.name!r} must be counted first: take it through Corpus.labelled(concept).")
        return property_values(self.about, sentence, self._bands)

    @cached_property
    def _bands(self) -> dict[str, str]:
        return frequency_bands(dict(self.counts or ()))

    @cached_property
    def _of_translations(self) -> Concept:
        return replace(self, counts=self.translated) if self.translated else self

    def regroup(self, value: str | None) -> str | None:
        """The class of a value of the base label."""
        if value is None or not self.classes or value in self.classes:
            return value
        return OTHER if len(self.classes) == 1 else None

    def prepared(self, sentences: Iterable[Sentence]) -> Concept:
        """The same concept with what it must know of a whole corpus: how often words occur, in translations too."""
        if self.kind != "property" or self.about not in NEEDS_COUNTS or self.counts is not None:
            return self
        from pellucid.collect.words import all_words

        counted, there = Counter[str](), Counter[str]()
        for sentence in sentences:
            counted.update(word.lower() for word in all_words(sentence))
            if sentence.second is not None and not sentence.joint:
                there.update(word.lower() for word in sentence.second.words)
        return replace(self, counts=tuple(sorted(counted.items())), translated=tuple(sorted(there.items())))

    def grouped(self, label: str, values: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """The classes, each with its places among the `values` that statistics of a label have.

        The `other` that the concept makes comes last. Fewer than two classes raise: there is nothing to tell apart.
        """
        if label not in (self.name, self.base):
            raise CorpusError(
                f"Statistics of {label!r} do not tell {self.name!r}; collect them with label={self.name!r}."
            )
        found: dict[str, list[int]] = {}
        for place, value in enumerate(values):
            group = self.regroup(value) if label == self.base else value
            if group is not None:
                found.setdefault(group, []).append(place)
        absent = [name for name in self.classes if name not in found]
        if absent:
            known = [value for value in values if label == self.base or value in self.classes]
            has = f"its values are {listing(known, most=30)}" if known else "`pellucid corpus info` tells its values"
            raise CorpusError(f"No word of this text has {listing(absent)} for {self.about!r}; {has}.")
        if len(found) < 2:
            told = f"Every word that has {self.name!r} is {listing(found)}"
            if self.kind not in ("label", "sentence") and set(found) <= {OTHER, self.name}:
                told = f"{'No' if OTHER in found else 'Every'} word is in {self.name!r}"
            raise CorpusError(f"{told}, so there is nothing to tell apart; choose another concept or corpus.")
        ordered = sorted(found, key=lambda name: (self.late(name), self._rank(name)))
        return {name: tuple(found[name]) for name in ordered}

    def late(self, name: str) -> bool:
        """Whether a class comes later than others: the `other` that the concept makes is last, and a corpus's value of
        that name first, so that lists of classes tell which of the two it is."""
        return (name == OTHER) == self.leaves

    def _rank(self, name: str) -> tuple[int, str]:
        order = self.classes or PROPERTIES.get(self.about, ())
        return (order.index(name) if name in order else len(order), name)

    @staticmethod
    def property(name: str) -> Concept:
        """What can be told from the text alone: length, position, first, last, in quotes, in parentheses, capital,
        frequency (which `Corpus.labelled` counts)."""
        if name not in PROPERTIES:
            raise CorpusError(f"There is no property {name!r} of words; there are {listing(PROPERTIES)}.")
        return Concept(name, "property", name)


def as_concept(given: str | Concept) -> Concept:
    """A concept, or the one that a text names."""
    return Concept.parse(given) if isinstance(given, str) else given


def scored(classes: Iterable[str]) -> tuple[str, ...]:
    """The classes that get scores of their own: all but the `other` that a concept made, which comes last."""
    names = tuple(classes)
    return names[:-1] if names[-1:] == (OTHER,) else names


def scored_places(classes: Iterable[str]) -> list[int]:
    """Where the classes that get scores of their own stand."""
    return list(range(len(scored(classes))))


def _regrouped(kind: str, label: str, classes: Sequence[str]) -> Concept:
    if isinstance(classes, str):
        raise CorpusError(f"Classes are given as a list: [{classes!r}].")
    if not label:
        raise CorpusError("A concept from a label needs the label's name, such as 'upos'.")
    twice = [name for name, count in Counter(classes).items() if count > 1]
    if twice or OTHER in classes:
        raise CorpusError(f"The classes {listing(classes)} must differ, and none may be called {OTHER!r}.")
    name = f"{label}={','.join(classes)}" if classes else label
    return Concept(name, kind, label, tuple(classes))


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise CorpusError(f"The word list {str(path)!r} cannot be read ({error}).") from None
    return [line for line in lines if not line.startswith(";")]


def _parts(sentence: Sentence) -> list[Sentence]:
    second = sentence.second if sentence.joint else None
    return [sentence] if second is None else [sentence, second]
