"""Concordance: a word of the corpus with what stands before and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.corpus import Sentence

AROUND = 8
"""Words shown on either side."""
SPECIAL = "(special token)"
"""Stands for a row that belongs to no word."""


def word_at(sentence: Sentence, position: int) -> str:
    """The word at a position; words of a second sentence that is read with the first count on."""
    return in_context(sentence, position)[1]


def in_context(sentence: Sentence, position: int, *, around: int = AROUND) -> tuple[str, str, str]:
    """The text before a word, the word, and the text after it, each as written; … marks where the sentence goes on."""
    if position < 0:
        return "", SPECIAL, _cut(sentence, 0, around)
    if position >= len(sentence.spans) and sentence.joint and sentence.second is not None:
        return in_context(sentence.second, position - len(sentence.spans), around=around)
    spans = sentence.spans
    start, stop = spans[position]
    first = max(0, position - around)
    left = sentence.text[spans[first][0] : start]
    return ("… " if first else "") + left, sentence.text[start:stop], _cut(sentence, position + 1, around)


def _cut(sentence: Sentence, place: int, around: int) -> str:
    """What follows from a word's place on, up to so many words; the space before it is kept."""
    spans = sentence.spans
    if place >= len(spans):
        return sentence.text[spans[-1][1] :] if spans else sentence.text
    begin = spans[place - 1][1] if place else 0
    last = min(len(spans), place + around)
    text = sentence.text[begin : spans[last - 1][1]]
    return text + (" …" if last < len(spans) else sentence.text[spans[-1][1] :])
