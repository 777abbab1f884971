"""Sentences: text with its words, their labels, the arcs between them, and facts about the whole."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from pellucid.errors import CorpusError

_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False)
Labels = Mapping[str, tuple[str | None, ...]]


class Arc(NamedTuple):
    """One dependency: word number `dependent` hangs on word number `head` (−1 for the root) by `relation`."""

    dependent: int
    head: int
    relation: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or the unit of text that takes its place, with all that is known about it.

    Word w is `text[start:stop]` for `spans[w]`; every word label has one entry per word, None where it says nothing.
    `second` is the other sentence of a pair: read together with this one if `joint`, else its target (a translation).
    """

    id: str
    document: str
    text: str
    spans: tuple[tuple[int, int], ...]
    labels: Labels = field(default_factory=dict[str, tuple[str | None, ...]])
    arcs: tuple[Arc, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    second: Sentence | None = None
    joint: bool = False

    def __post_init__(self) -> None:
        count, last_start, last_stop = len(self.spans), 0, 0
        for start, stop in self.spans:
            if start < last_start or stop < last_stop or stop < start:
                raise CorpusError(f"Sentence {self.id!r} has words out of order at characters {start} to {stop}.")
            last_start, last_stop = start, stop
        if last_stop > len(self.text):
            raise CorpusError(
                f"Sentence {self.id!r} has {len(self.text)} characters, but a word that ends at {last_stop}."
            )
        for name, values in self.labels.items():
            if len(values) != count:
                raise CorpusError(
                    f"Sentence {self.id!r} has {count} words but {len(values)} labels called {name!r}: "
                    "give one per word, None where there is none."
                )
        for arc in self.arcs:
            if not (0 <= arc.dependent < count and -1 <= arc.head < count):
                raise CorpusError(
                    f"Sentence {self.id!r} has {count} words, so there is no arc from {arc.head} to {arc.dependent}."
                )

    def __hash__(self) -> int:
        return hash((self.id, self.text))

    @property
    def words(self) -> tuple[str, ...]:
        """The words as they are written in the text."""
        text = self.text
        return tuple([text[start:stop] for start, stop in self.spans])

    def label(self, name: str) -> tuple[str | None, ...]:
        """One word label of every word; all None where this sentence does not carry it."""
        found = self.labels.get(name)
        return (None,) * len(self.spans) if found is None else found

    @staticmethod
    def of_words(
        words: Sequence[str],
        *,
        id: str = "1",  # noqa: A002  # the field's own name
        document: str | None = None,
        labels: Mapping[str, Sequence[str | None]] | None = None,
        arcs: Iterable[Arc] = (),
        facts: Mapping[str, str] | None = None,
        second: Sentence | None = None,
        joint: bool = False,
    ) -> Sentence:
        """A sentence whose text is the given words with single spaces between them."""
        spans: list[tuple[int, int]] = []
        start = 0
        for word in words:
            spans.append((start, start + len(word)))
            start += len(word) + 1
        return Sentence(
            id,
            id if document is None else document,
            " ".join(words),
            tuple(spans),
            {name: tuple(values) for name, values in (labels or {}).items()},
            tuple(arcs),
            dict(facts or {}),
            second,
            joint,
        )

    @staticmethod
    def of_text(
        text: str,
        *,
        id: str = "1",  # noqa: A002
        document: str | None = None,
        facts: Mapping[str, str] | None = None,
        second: Sentence | None = None,
        joint: bool = False,
    ) -> Sentence:
        """A sentence whose words are found by `word_spans`."""
        return Sentence(
            id,
            id if document is None else document,
            text,
            word_spans(text),
            facts=dict(facts or {}),
            second=second,
            joint=joint,
        )


def digest(sentence: Sentence) -> bytes:
    """A hash [16 bytes] of everything in a sentence, the same on every machine and for every order of its labels."""
    return blake2b(_JSON.encode(_plain(sentence)).encode(), digest_size=16).digest()


def _plain(sentence: Sentence) -> list[object]:
    return [
        sentence.id,
        sentence.document,
        sentence.text,
        sentence.spans,
        dict(sentence.labels),
        sentence.arcs,
        dict(sentence.facts),
        None if sentence.second is None else _plain(sentence.second),
        sentence.joint,
    ]


# Words are found in the *shape* of a text: letters and digits stand as "a", characters of scripts written without
# spaces as ALONE, marks that belong to the character before them as MARK, and the joiner that glues the characters
# on both of its sides as JOIN. One character stays one character.
_MARK, _ALONE, _JOIN = "\x01", "\x02", "\x03"
_RUN = rf"[A-Za-z0-9][A-Za-z0-9{_MARK}{_JOIN}]*"
_WORD = re.compile(rf"{_RUN}(?:['-]{_RUN})*|\S(?:{_MARK}|{_JOIN}\S?)*")
_SPACELESS = (
    (0x0E00, 0x0FFF),  # Thai, Lao, Tibetan
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9D),
    (0x20000, 0x3FFFF),
)


class _Shapes(dict[int, str]):
    """The shape of each character, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        shape = self[code] = _shape(chr(code))
        return shape


def _shape(char: str) -> str:
    if char.isascii():
        return char
    if char.isspace() or char in "\u200b\ufeff":
        return " "
    if char == "\u200d":
        return _JOIN
    if char == "\u200c" or "\U0001f3fb" <= char <= "\U0001f3ff" or unicodedata.category(char).startswith("M"):
        return _MARK
    if any(first <= ord(char) <= last for first, last in _SPACELESS):
        return _ALONE
    if char in "’ʼ＇":
        return "'"
    if char in "‐‑":
        return "-"
    return "a" if char.isalnum() else "."


_SHAPES = _Shapes()


def word_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Where the words of a text are, as (start, stop) in characters.

    A word is a run of letters and digits, apostrophes and hyphens inside it included; each other character that is no
    space is a word of its own, and so is each character of a script written without spaces (Han, kana, Thai …).
    """
    shape = text if text.isascii() else text.translate(_SHAPES)
    return tuple([found.span() for found in _WORD.finditer(shape)])
