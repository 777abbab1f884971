"""Tagging: a label for every word, such as its part of speech."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.corpus.align import word_index
from pellucid.errors import TrainError
from pellucid.model.tokens import pad_id
from pellucid.train.tasks.base import Examples
from pellucid.train.tasks.classes import TellingApart, chosen_name, refuse_unknown
from pellucid.train.tasks.encode import alone, cut, encoded, frame, own
from pellucid.train.tasks.rows import IGNORED, Ids, Padded, Split, Stream, owners_of

if TYPE_CHECKING:
    from pellucid.corpus import Corpus, Sentence
    from pellucid.train.settings import Settings

LOST = 0.01
"""The share of labelled words that may be without a token of their own before a vocabulary is refused."""


class Tagging(TellingApart):
    """A label for every word; the first token of a word stands for it."""

    name = "tagger"

    def texts(self, corpus: Corpus, settings: Settings) -> Iterator[str]:
        """The text of every sentence."""
        return (sentence.text for sentence in corpus)

    def labels(self, corpus: Corpus, settings: Settings) -> tuple[str, ...]:
        """The values of the word label that occur, sorted."""
        name = _label(corpus, settings)
        return tuple(sorted({value for sentence in corpus for value in sentence.label(name) if value is not None}))

    def examples(
        self, corpus: Corpus, tokenizer: Any, settings: Settings, labels: tuple[str, ...] | None, *, shuffled: bool
    ) -> Examples:
        """Windows of the running text, or sentences; a token that opens a labelled word has that label as goal."""
        assert labels is not None
        tagged = _Tagged(corpus, _label(corpus, settings), labels)
        rows: list[Ids] = []
        answers: list[Ids] = []
        held_by: list[int] = []
        sentences = 0
        for sentence, encoding, index, goals in tagged.read(own(tokenizer)):
            sentences += 1
            ids = np.array(encoding.ids, np.int32)
            whole = settings.rows == "stream"
            around = frame(encoding.special_tokens_mask)
            for part in [slice(None)] if whole else cut(index, *around, length=settings.length, name=sentence.id):
                if whole or (goals[part] != IGNORED).any():
                    rows.append(ids[part])
                    answers.append(goals[part])
                    held_by.append(sentences - 1)
        tagged.check(settings, len(tokenizer))
        split = Split(corpus.name, sentences, len(labels), pad_id(tokenizer), shuffled)
        if settings.rows == "stream":
            owners = owners_of(rows)
            return Stream.of(np.concatenate(rows), np.concatenate(answers), split, settings, owners=owners)
        return Padded.of(rows, answers, split, settings, owners=held_by)


class _Tagged:
    """Reads the labelled sentences of a corpus, and remembers what does not fit."""

    def __init__(self, corpus: Corpus, name: str, labels: tuple[str, ...]) -> None:
        self.corpus, self.name = corpus, name
        self.numbers = {label: number for number, label in enumerate(labels)}
        self.unknown: set[str] = set()
        self.words = self.lost = 0

    def read(self, engine: Any) -> Iterator[tuple[Sentence, Any, list[int], Ids]]:
        """Every sentence with its encoding, the word of each token, and the goal [T] of each token."""
        for sentence, encoding in encoded(engine, self.corpus, alone):
            index = _words(encoding, sentence)
            first = {word: place for place, word in zip(range(len(index) - 1, -1, -1), reversed(index), strict=True)}
            goals = np.full(len(index), IGNORED, np.int32)
            for word, value in enumerate(sentence.label(self.name)):
                if value is None:
                    continue
                self.words += 1
                if value not in self.numbers:
                    self.unknown.add(value)
                elif word in first:
                    goals[first[word]] = self.numbers[value]
                else:
                    self.lost += 1
            yield sentence, encoding, index, goals

    def check(self, settings: Settings, size: int) -> None:
        """Refuses labels that the training corpus lacks, and words that its vocabulary does not tell apart."""
        refuse_unknown(self.unknown, self.name, self.corpus)
        if self.lost > LOST * self.words:
            if settings.source is not None:
                advice = "start from another model"
            elif settings.vocabulary == "word":
                advice = "use byte-pair tokens (vocabulary='bpe')"
            else:
                advice = f"choose a vocabulary_size below {size}, so that fewer pairs become one token"
            raise TrainError(
                f"{self.lost} of the {self.words} labelled words of {self.corpus.name} have no token of their own, "
                f"since this vocabulary does not part them from their neighbours: {advice}, or give text with spaces "
                "between words."
            )


def _label(corpus: Corpus, settings: Settings) -> str:
    """The word label to learn."""
    none = f"The words of {corpus.name} have no labels, which a tagger learns: give a tagged corpus."
    return chosen_name(corpus.labels(), settings, of=f"The words of {corpus.name}", kind="label", without=none)


def _words(encoding: Any, sentence: Sentence) -> list[int]:
    """The word of each token [T], −1 for special tokens."""
    offsets = encoding.offsets
    opening, closing = frame(encoding.special_tokens_mask)
    if tuple(offsets[opening : len(offsets) - closing]) == sentence.spans:  # every word is one token
        return [*[-1] * opening, *range(len(sentence.spans)), *[-1] * closing]
    return word_index(offsets, sentence.spans)
