"""What a corpus holds: counts of sentences, documents, words and label values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pellucid.corpus.sentence import Sentence

TOP = 20


@dataclass(frozen=True)
class LabelInfo:
    """One label: how many things carry it, how many values it has, and the most frequent of them with their counts."""

    name: str
    of: str  # "word" or "sentence"
    labelled: int
    distinct: int
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class CorpusInfo:
    """The size of a corpus and what it holds; the words and characters of second sentences are included.

    `longest` is the sentence with most words, as (id, words); the two sentences of a joint pair count together.
    """

    name: str
    unit: str
    sentences: int
    documents: int
    words: int
    distinct_words: int
    characters: int
    frequent: tuple[tuple[str, int], ...]
    labels: tuple[LabelInfo, ...]
    longest: tuple[str, int]
    pairs: bool


def gather(name: str, unit: str, sentences: Iterable[Sentence]) -> CorpusInfo:
    """Count everything in one pass."""
    number = characters = 0
    pairs = False
    documents: set[str] = set()
    words: Counter[str] = Counter()
    values: dict[tuple[str, str], Counter[str]] = {}
    longest = ("", -1)
    for sentence in sentences:
        number += 1
        documents.add(sentence.document)
        length = len(sentence.spans)
        for part in (sentence,) if sentence.second is None else (sentence, sentence.second):
            characters += len(part.text)
            words.update(part.words)
            for label, found in part.labels.items():
                values.setdefault(("word", label), Counter()).update([value for value in found if value is not None])
            for fact, value in part.facts.items():
                values.setdefault(("sentence", fact), Counter())[value] += 1
        if sentence.second is not None:
            pairs = True
            length += len(sentence.second.spans) if sentence.joint else 0
        if length > longest[1]:
            longest = (sentence.id, length)
    labels = [LabelInfo(label, of, counts.total(), len(counts), _top(counts)) for (of, label), counts in values.items()]
    return CorpusInfo(
        name,
        unit,
        number,
        len(documents),
        words.total(),
        len(words),
        characters,
        _top(words),
        tuple(sorted(labels, key=lambda label: (label.of == "sentence", label.name))),
        longest,
        pairs,
    )


def _top(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    """The most frequent values, in alphabetical order among equals."""
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOP])
