"""Sentences from records with named fields, as tables, JSON lines and data sets hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pellucid.corpus.sentence import Sentence
from pellucid.errors import CorpusError, listing

EMPTY = ("refuse", "skip")


@dataclass(frozen=True)
class Fields:
    """Which field of a record holds what.

    `words` names a list of words that takes the place of `text`. `labels` are lists with one entry per word, which
    become word labels, or single values, which become facts; None means every field that fits. `empty` is "refuse" or
    "skip": what happens to records without text.
    """

    text: str = "text"
    words: str | None = None
    second: str | None = None
    joint: bool = True
    labels: tuple[str, ...] | None = None
    document: str | None = None
    id: str | None = None
    empty: str = "refuse"

    def named(self) -> list[str]:
        """The fields that every record must have."""
        first = self.text if self.words is None else self.words
        return [name for name in (first, self.second, *(self.labels or ()), self.document, self.id) if name is not None]

    def check(self, existing: Sequence[str], where: str, hint: str = "") -> None:
        """Raise where a field that was asked for is not among the existing ones."""
        missing = [name for name in self.named() if name not in existing]
        if missing:
            raise CorpusError(f"{where} has no field {missing[0]!r}; it has {listing(existing)}.{hint}")


def sentence_of(record: Mapping[str, Any], fields: Fields, number: str, where: str) -> Sentence | None:
    """The sentence that a record holds, or None for one without text where such are skipped."""
    name = number if fields.id is None else _scalar(record[fields.id], fields.id, where) or number
    document = None if fields.document is None else _scalar(record[fields.document], fields.document, where)
    words = None if fields.words is None else _words(record[fields.words], fields.words, where)
    text = _text(record[fields.text], fields.text, where) if words is None else " ".join(words)
    other = None if fields.second is None else _text(record[fields.second], fields.second, where)
    if not text.strip() or (other is not None and not other.strip()):
        if fields.empty == "skip":
            return None
        raise CorpusError(f"{where} has no text: mend it, or leave such records out with empty='skip'.")
    labels, facts = _labels(record, fields, None if words is None else len(words), where)
    second = None if other is None else Sentence.of_text(other, id=f"{name}/second", document=document or name)
    if words is None:
        return Sentence.of_text(text, id=name, document=document, facts=facts, second=second, joint=_joint(fields))
    return Sentence.of_words(
        words, id=name, document=document, labels=labels, facts=facts, second=second, joint=_joint(fields)
    )


def _joint(fields: Fields) -> bool:
    return fields.second is not None and fields.joint


def _labels(
    record: Mapping[str, Any], fields: Fields, count: int | None, where: str
) -> tuple[dict[str, list[str | None]], dict[str, str]]:
    """Word labels and facts of a record."""
    taken = (fields.text if fields.words is None else fields.words, fields.second, fields.document, fields.id)
    labels: dict[str, list[str | None]] = {}
    facts: dict[str, str] = {}
    for name in fields.labels if fields.labels is not None else [key for key in record if key not in taken]:
        value = record[name]
        if isinstance(value, (list, tuple)) and count is not None:
            if len(value) == count:
                labels[name] = [_scalar(item, name, where) for item in value]
                continue
            if fields.labels is not None:
                raise CorpusError(f"{where} has {count} words but {len(value)} labels in {name!r}: give one per word.")
        elif not isinstance(value, (list, tuple, dict)):
            found = _scalar(value, name, where)
            if found is not None:
                facts[name] = found
        elif fields.labels is not None:
            raise CorpusError(
                f"{where}: {name!r} is neither a single value nor a list with one label per word"
                + (" (name the list of words with `words`)." if count is None else ".")
            )
    return labels, facts


def _text(value: object, name: str, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise CorpusError(f"{where}: {name!r} should be text, and is a {type(value).__name__}.")
    return value.strip()


def _words(value: object, name: str, where: str) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
        raise CorpusError(f"{where}: {name!r} should be a list of words, and is a {type(value).__name__}.")
    if not all(word.strip() for word in value):
        raise CorpusError(f"{where}: {name!r} holds a word without characters.")
    return list(value)


def _scalar(value: object, name: str, where: str) -> str | None:
    """A label as text: numbers and truth values as JSON writes them."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise CorpusError(f"{where}: {name!r} should be a single value, and is a {type(value).__name__}.")
