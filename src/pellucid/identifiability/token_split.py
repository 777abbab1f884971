"""Splitting a corpus in two: most of it to fit maps of states, the rest to ask about; and its words counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from pellucid.collect.words import all_words
from pellucid.corpus import Corpus, Sentence
from pellucid.corpus.identity import fingerprint_of
from pellucid.results import ResultError

SHARE = 5
"""Every so many-th document (or sentence) is asked about, the others fit the maps."""


@dataclass(frozen=True, eq=False)
class Split:
    """Two parts of a corpus: to fit maps, and to ask about; `by` is documents, or sentences where documents are few.

    `counts` are the words of the whole corpus, in small letters, that it has twice or more.
    """

    learn: Corpus
    ask: Corpus
    by: str
    counts: dict[str, int]


def split(corpus: Corpus) -> Split:
    """A corpus in two parts; one with fewer than `SHARE` sentences is refused."""
    documents: dict[str, int] = {}
    words: Counter[str] = Counter()
    sentences = 0
    for sentence in corpus:
        documents.setdefault(sentence.document, len(documents))
        words.update(word.lower() for word in all_words(sentence))
        sentences += 1
    counts = {word: count for word, count in words.items() if count > 1}
    if len(documents) >= SHARE:

        def asked(sentence: Sentence) -> bool:
            return documents[sentence.document] % SHARE == SHARE - 1

        learn = corpus.filter(lambda sentence: not asked(sentence), name=f"{corpus.name}, four fifths")
        return Split(learn, corpus.filter(asked, name=f"{corpus.name}, one fifth"), "documents", counts)
    if sentences < SHARE:
        raise ResultError(
            f"{corpus.name} has {sentences} sentences in {len(documents)} documents, too few to hold some out; give "
            f"one with {SHARE} or more of either."
        )
    return Split(_dealt(corpus, ask=False), _dealt(corpus, ask=True), "sentences", counts)


def _dealt(corpus: Corpus, *, ask: bool) -> Corpus:
    """Every `SHARE`-th sentence of a corpus, or the others."""
    name = f"{corpus.name}, {'one fifth' if ask else 'four fifths'} of its sentences"
    return Corpus(name, corpus.unit, partial(_read, corpus, ask), identify=partial(_identity, corpus, ask))


def _read(corpus: Corpus, ask: bool) -> Iterator[Sentence]:
    return (each for number, each in enumerate(corpus) if (number % SHARE == SHARE - 1) == ask)


def _identity(corpus: Corpus, ask: bool) -> str | None:
    known = corpus.fingerprint
    return None if known is None else fingerprint_of(known, "sentences", str(SHARE), str(ask))
