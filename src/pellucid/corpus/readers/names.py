"""Names that must be unique in a corpus."""

from __future__ import annotations

from dataclasses import replace

from pellucid.corpus.sentence import Sentence


class Unique:
    """Makes names unique in the order in which they come: the second "a" becomes "a#2"."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def name(self, wanted: str) -> str:
        """The name itself, or with the first free number behind it."""
        found, number = wanted, 1
        while found in self._seen:
            number += 1
            found = f"{wanted}#{number}"
        self._seen.add(found)
        return found

    def sentence(self, sentence: Sentence) -> Sentence:
        """The sentence with a unique id; one that is its own document stays so."""
        found = self.name(sentence.id)
        if found == sentence.id:
            return sentence
        own = sentence.document == sentence.id
        return replace(sentence, id=found, document=found if own else sentence.document)
