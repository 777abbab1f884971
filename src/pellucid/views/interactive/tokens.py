"""Tokens as a page shows them: readable, with their words, segments and special places."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pellucid.corpus.align import word_index
from pellucid.corpus.sentence import word_spans

_UNREADABLE = "\ufffd"
_SHOWN_SPACE = {" ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥"}
_NOT_SPECIAL = ("unk_token_id", "mask_token_id")
"""Tokens that stand for a word of the text, though tokenizers call them special."""


@dataclass(frozen=True)
class TokenList:
    """The tokens of one text: ids, readable text, space before them, words, special places and segments, one each."""

    ids: tuple[int, ...]
    text: tuple[str, ...]
    space: str
    word: tuple[int, ...]
    special: tuple[int, ...]
    segment: tuple[int, ...]
    segments: tuple[str, ...]
    rtl: bool

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ordinary(self) -> list[int]:
        """Places of the tokens that are not special; all of them where there is no other."""
        marked = set(self.special)
        return [place for place in range(len(self)) if place not in marked] or list(range(len(self)))

    def told(self, sinks: Sequence[int]) -> dict[str, Any]:
        """The list as the header holds it."""
        return {
            "text": list(self.text),
            "space": self.space,
            "word": list(self.word),
            "special": list(self.special),
            "sinks": list(sinks),
            "segment": list(self.segment),
            "segments": list(self.segments),
            "rtl": self.rtl,
        }


@dataclass(frozen=True)
class Spelling:
    """What is known of a row of tokens: ids, place in their text [start, stop) and segment of each."""

    ids: Sequence[int]
    marked: Sequence[bool]
    offsets: Sequence[tuple[int, int]]
    segment: Sequence[int]
    texts: Sequence[str]
    """The text that a segment's offsets count in."""
    segments: Sequence[str]


def token_list(tokenizer: Any, spelled: Spelling) -> TokenList:
    """The tokens made readable, numbered by the words they belong to."""
    ids = [int(each) for each in spelled.ids]
    names = special_ids(tokenizer)
    special = [mark or each in names for each, mark in zip(ids, spelled.marked, strict=True)]
    return TokenList(
        ids=tuple(ids),
        text=tuple(readable(tokenizer, each, special=mark) for each, mark in zip(ids, special, strict=True)),
        space=_spaces(spelled, special),
        word=_words(spelled, special),
        special=tuple(place for place, mark in enumerate(special) if mark),
        segment=tuple(spelled.segment),
        segments=tuple(spelled.segments),
        rtl=right_to_left("".join(spelled.texts)),
    )


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of tokens that stand for no part of a text."""
    words = {getattr(tokenizer, name, None) for name in _NOT_SPECIAL}
    return frozenset(each for each in getattr(tokenizer, "all_special_ids", ()) if each not in words)


def readable(tokenizer: Any, token: int, *, special: bool = False) -> str:
    """A token without the signs by which tokenizers mark spaces and continued words."""
    spelled = str(tokenizer.convert_ids_to_tokens(token))
    if special:
        return spelled
    text = str(tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))
    core = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    prefix = getattr(core, "continuing_subword_prefix", None) or ""
    if prefix and len(text) > len(prefix):
        text = text.removeprefix(prefix)
    if _UNREADABLE in text or not text:
        return _as_bytes(spelled)
    if not text.strip():
        return "".join(_SHOWN_SPACE.get(sign, "␣") for sign in text)
    return text.strip()


def _as_bytes(spelled: str) -> str:
    """A part of a letter by its bytes, ⟨E2 80⟩; what is not spelled in bytes stays as it is."""
    if spelled.startswith("<0x") and spelled.endswith(">"):
        return f"⟨{spelled[3:-1]}⟩"
    letters = _byte_letters()
    if spelled and all(letter in letters for letter in spelled):
        signs = bytes(letters[letter] for letter in spelled)
        return "⟨" + (signs.lstrip() or signs).hex(" ").upper() + "⟩"
    return spelled or "␣"


@cache
def _byte_letters() -> Mapping[str, int]:
    """The letters by which byte-level tokenizers write bytes: printable ones as they are, others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


def right_to_left(text: str) -> bool:
    """Whether most letters of a text are written from right to left."""
    kinds = [unicodedata.bidirectional(letter) for letter in text]
    right = sum(kind in ("R", "AL") for kind in kinds)
    return right > sum(kind == "L" for kind in kinds)


def _spaces(spelled: Spelling, special: Sequence[bool]) -> str:
    """For each token "1" where a space stands before it; special tokens stand apart from the text."""
    found: list[str] = []
    for place, ((start, stop), segment) in enumerate(zip(spelled.offsets, spelled.segment, strict=True)):
        text = spelled.texts[segment]
        apart = place > 0 and (special[place] or special[place - 1] or segment != spelled.segment[place - 1])
        inside = start < stop and text[start].isspace()
        again = place > 0 and spelled.offsets[place - 1][0] == start  # a further part of the same letter
        before = not again and 0 < start <= len(text) and text[start - 1].isspace()
        found.append("1" if apart or (not special[place] and (inside or before)) else "0")
    return "".join(found)


def _words(spelled: Spelling, special: Sequence[bool]) -> tuple[int, ...]:
    """Numbers of words from 0 on in the order of the text, −1 for special tokens.

    A token that belongs to no word (a line break) is a word of its own, and a word never reaches over a segment.
    """
    own: list[tuple[int, int]] = [(-1, -1)] * len(special)
    for segment, text in enumerate(spelled.texts):
        places = [place for place, each in enumerate(spelled.segment) if each == segment]
        index = word_index([spelled.offsets[place] for place in places], word_spans(text))
        for place, word in zip(places, index, strict=True):
            own[place] = (segment, word if word >= 0 else -2 - place)
    numbers: dict[tuple[int, int], int] = {}
    return tuple(
        -1 if mark else numbers.setdefault(word, len(numbers)) for word, mark in zip(own, special, strict=True)
    )
