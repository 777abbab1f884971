"""Labelling: sentences that carry one label more, worked out while they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, Self

from pellucid.corpus.sentence import Sentence
from pellucid.errors import CorpusError


class Labelling(Protocol):
    """A rule that gives every word a class or None, such as `pellucid.neurons.Concept`.

    `plain` rules are labels that sentences carry already. `rule` is all that the classes depend on, for fingerprints.
    `prepared` gives the same rule with what it must know of all sentences. `of_translation` is `of` for the target of a
    translation. Where the rule is `wide`, all words of a sentence have one class, and the sentence has it as a fact.
    """

    @property
    def name(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def plain(self) -> bool: ...
    def of(self, sentence: Sentence) -> Sequence[str | None]: ...
    def of_translation(self, sentence: Sentence) -> Sequence[str | None]: ...
    def wide(self, sentence: Sentence) -> bool: ...
    def prepared(self, sentences: Iterable[Sentence]) -> Self: ...


def labelled(sentences: Iterable[Sentence], labelling: Labelling) -> Iterator[Sentence]:
    """The sentences with the label called `labelling.name` on every word, those of a second sentence included, or as a
    fact of the whole."""
    return (labelled_sentence(sentence, labelling) for sentence in sentences)


def labelled_sentence(sentence: Sentence, labelling: Labelling) -> Sentence:
    """One sentence with its label; a label that it carries already is not replaced, but refused."""
    if labelling.wide(sentence):
        _check_new(sentence, labelling.name)
        value = next(iter(labelling.of(sentence)), None)
        return sentence if value is None else replace(sentence, facts={**sentence.facts, labelling.name: value})
    values = tuple(labelling.of(sentence))
    count, second = len(sentence.spans), sentence.second
    joined = len(second.spans) if second is not None and sentence.joint else 0
    if len(values) != count + joined:
        raise CorpusError(
            f"{labelling.name!r} gave {len(values)} classes for the {count + joined} words of sentence {sentence.id!r}."
        )
    if second is not None:
        own = values[count:] if sentence.joint else tuple(labelling.of_translation(second))
        second = _with(second, labelling.name, own)
    return replace(_with(sentence, labelling.name, values[:count]), second=second)


def _with(sentence: Sentence, name: str, values: tuple[str | None, ...]) -> Sentence:
    _check_new(sentence, name)
    return replace(sentence, labels={**sentence.labels, name: values})


def _check_new(sentence: Sentence, name: str) -> None:
    if name in sentence.labels or name in sentence.facts:
        raise CorpusError(f"Sentence {sentence.id!r} already has a label called {name!r}; give the concept a name.")
