"""Concepts as they are typed, checked against the text before a model reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from pellucid.errors import PellucidError, listing

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus, Sentence
    from pellucid.neurons import Concept

_LOOKED_AT = 200
"""Sentences whose labels a list of words must not be called like."""
_LISTED = 30


def concept_of(text: str, corpus: Corpus | None, pooling: str | None = None, *, store: Store | None = None) -> Concept:
    """The concept that was typed; what the text cannot tell is refused.

    A list of words that is called like a label, or like the words that are in no class, gets another name. A store is
    looked at when it is read.
    """
    from pellucid.collect.sentence_rows import is_whole
    from pellucid.neurons import Concept
    from pellucid.neurons.concepts import OTHER

    asked = Concept.parse(text)
    taken = _labels(islice(corpus or (), _LOOKED_AT)) if store is None else store.about["labels"]
    if asked.kind == "words" and asked.name in (OTHER, *taken):
        asked = replace(asked, name=f"words of {asked.name}")
    if corpus is None:
        return asked
    if asked.base is not None:
        _check_label(asked, corpus)
    if asked.kind == "pair" and not any(sentence.second is not None for sentence in corpus):
        raise PellucidError(f"{text!r} is about pairs of sentences, and {corpus.name} has none; give one with pairs.")
    if pooling is not None and is_whole(pooling) and not any(asked.wide(sentence) for sentence in corpus):
        _refuse_whole(text, asked, corpus, pooling)
    return asked


def check_class(asked: Concept, name: str | None, corpus: Corpus) -> None:
    """Raises where no word of the text is of the class; reads no further than to the first one that is."""
    if name is None:
        return
    ready, found = asked.prepared(corpus), dict[str, None]()
    for sentence in corpus:
        found.update((value, None) for value in ready.of(sentence) if value is not None)
        if name in found:
            return
    known = listing(sorted(found), most=_LISTED)
    raise PellucidError(f"{asked.name!r} has no class {name!r} in {corpus.name}; its classes are {known}.")


def check_halves(
    asked: Concept, cls: str | None, name: str, halves: tuple[Corpus, Corpus], *, least: int
) -> str | None:
    """Raises where only one half of a text has a class that was named: the first is ranked, the second judges.

    Of other classes, those of `least` words or more that only one half has are told in a sentence.
    """
    ranked, judged = (_words(asked, half) for half in halves)
    alone: list[str] = [asked.name] if asked.kind in ("words", "pattern", "arc") else []
    named = [*alone, *asked.classes, *([] if cls is None or cls in (*alone, *asked.classes) else [cls])]
    for each in named:
        if bool(ranked[each]) != bool(judged[each]):
            shared = [name for name in sorted(ranked) if name in judged and not (asked.leaves and asked.late(name))]
            known = f"; both halves have {listing(shared, most=_LISTED)}." if shared else "."
            raise PellucidError(
                f"{asked.name!r} has {each!r} in one half of the documents of {name} only: {ranked[each]:,} words in "
                f"the half that is ranked, {judged[each]:,} in the half that judges; both need some. Give a text with "
                f"{each!r} in more documents, or ask for another class{known}"
            )
    if asked.classes or cls is not None:
        return None
    told: list[str] = []
    for does, own, other in (("is ranked", ranked, judged), ("judges", judged, ranked)):
        only = [f"{each} ({own[each]:,} words)" for each in sorted(own) if own[each] >= least and each not in other]
        if only:
            told.append(f"only the half that {does} has {listing(only, most=10)}")
    if not told:
        return None
    return (
        f"Of {asked.name!r}, {' and '.join(told)}, so rankings are judged on other classes than they are made for: "
        "give more text, or name the classes to tell apart."
    )


def _words(asked: Concept, corpus: Corpus) -> Counter[str]:
    """How many words of a text every class has."""
    ready = asked.prepared(corpus)
    return Counter(value for sentence in corpus for value in ready.of(sentence) if value is not None)


def _check_label(asked: Concept, corpus: Corpus) -> None:
    """Raises where no word or sentence has the label, or none of the values that were named; reads no further."""
    name, values = asked.about, dict[str, None]()
    for sentence in corpus:
        values.update((value, None) for value in _values(sentence, name, asked.kind) if value is not None)
        if values and values.keys() >= set(asked.classes):
            return
    if not values:
        of = "No sentence" if asked.kind == "sentence" else "No word or sentence"
        has = listing(_labels(corpus, words=asked.kind != "sentence"), most=40)
        raise PellucidError(f"{of} of {corpus.name} has the label {name!r}; it has {has}.")
    absent = [value for value in asked.classes if value not in values]
    raise PellucidError(
        f"No word of {corpus.name} has {listing(absent)} for {name!r}; its values are "
        f"{listing(sorted(values), most=_LISTED)}."
    )


def _values(sentence: Sentence, name: str, kind: str) -> Sequence[str | None]:
    from pellucid.collect.words import word_labels

    return [sentence.facts.get(name)] if kind == "sentence" else word_labels(sentence, name)


def _labels(sentences: Iterator[Sentence] | Corpus, *, words: bool = True) -> list[str]:
    """The labels of words and sentences, or of sentences alone."""
    found: dict[str, None] = {}
    for sentence in sentences:
        found.update(dict.fromkeys([*sentence.facts, *(sentence.labels if words else ())]))
    return sorted(found)


def _refuse_whole(text: str, asked: Concept, corpus: Corpus, pooling: str) -> None:
    """Raises: rows are whole sentences, and the concept tells their words apart."""
    facts = _labels(corpus, words=False)
    if asked.kind == "label" and asked.about in facts:
        raise PellucidError(
            f"Words and sentences of {corpus.name} both have a label {asked.about!r}; {text!r} means that of words, "
            f"and --pooling {pooling} reads whole sentences: write sentence:{text}, or leave --pooling out."
        )
    others = f"ask for a label of sentences ({listing(facts)})" if facts else "give a text whose sentences have labels"
    is_a = "is a label of words" if asked.base is not None else "tells words apart"
    raise PellucidError(
        f"{text!r} {is_a}, and --pooling {pooling} reads whole sentences: leave --pooling out, or {others}."
    )
