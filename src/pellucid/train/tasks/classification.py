"""Classification: one class for a whole text (classify) or for a pair of texts (nli)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from pellucid.errors import TrainError, listing
from pellucid.model.tokens import pad_id
from pellucid.train.tasks.base import Examples
from pellucid.train.tasks.classes import TellingApart, chosen_name, refuse_unknown
from pellucid.train.tasks.encode import encoded, joined, own
from pellucid.train.tasks.rows import Padded, Split

if TYPE_CHECKING:
    from pellucid.corpus import Corpus, Sentence
    from pellucid.train.settings import Settings


class Classification(TellingApart):
    """One class, a fact of the corpus, for each sentence; `paired` wants a second sentence that is read with the first.

    Texts that are too long lose their end; of a pair, the longer one does.
    """

    def __init__(self, name: str, *, paired: bool) -> None:
        self.name, self.paired = name, paired

    def texts(self, corpus: Corpus, settings: Settings) -> Iterator[str]:
        """The text of every sentence, and of the second one where there is one."""
        for sentence in corpus:
            yield sentence.text
            if sentence.second is not None and (sentence.joint or self.paired):
                yield sentence.second.text

    def labels(self, corpus: Corpus, settings: Settings) -> tuple[str, ...]:
        """The values of the fact that occur, sorted."""
        name = _fact(corpus, settings)
        found = {_value(sentence, name, corpus) for sentence in corpus}
        if len(found) < 2:
            raise TrainError(
                f"Every sentence of {corpus.name} has the same {name!r}, {listing(found)}: there is nothing to tell "
                "apart."
            )
        return tuple(sorted(found))

    def examples(
        self, corpus: Corpus, tokenizer: Any, settings: Settings, labels: tuple[str, ...] | None, *, shuffled: bool
    ) -> Examples:
        """One row for each sentence or pair, whose goal is the number of its class."""
        assert labels is not None
        name, numbers = _fact(corpus, settings), {label: number for number, label in enumerate(labels)}
        rows: list[list[int]] = []
        types: list[list[int]] = []
        goals: list[int] = []
        unknown: set[str] = set()
        for sentence, encoding in encoded(own(tokenizer, limit=settings.length), self._checked(corpus), joined):
            value = _value(sentence, name, corpus)
            if value not in numbers:
                unknown.add(value)
                continue
            rows.append(encoding.ids)
            types.append(encoding.type_ids)
            goals.append(numbers[value])
        refuse_unknown(unknown, name, corpus)
        split = Split(corpus.name, len(rows), len(labels), pad_id(tokenizer), shuffled)
        typed = "token_type_ids" in tokenizer.model_input_names
        return Padded.of(rows, torch.tensor(goals), split, settings, types=types if typed else None)

    def _checked(self, corpus: Corpus) -> Iterator[Sentence]:
        for sentence in corpus:
            if self.paired and (sentence.second is None or not sentence.joint):
                raise TrainError(
                    f"Sentence {sentence.id!r} of {corpus.name} has no second sentence to be read with it, which "
                    f"{self.name} needs: open the corpus as pairs."
                )
            yield sentence


def _fact(corpus: Corpus, settings: Settings) -> str:
    """The fact to learn."""
    none = f"{corpus.name} says nothing about its sentences that could be learned: give one with labels."
    return chosen_name(corpus.facts(), settings, of=f"The sentences of {corpus.name}", kind="fact", without=none)


def _value(sentence: Sentence, name: str, corpus: Corpus) -> str:
    found = sentence.facts.get(name)
    if found is None:
        raise TrainError(
            f"Sentence {sentence.id!r} of {corpus.name} has no {name!r}: mend it, or leave it out with Corpus.filter."
        )
    return found
