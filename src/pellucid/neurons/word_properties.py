"""Properties of words and pairs that the text alone tells, as classes: length, place, capitals, frequency, overlap."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.corpus import Sentence

_LENGTHS = (1, 3, 5, 8)
_PLACES = (1, 2, 4, 8, 16, 32)
_SHARES = {"under 0.01%": 0.0, "0.01% to 0.1%": 1e-4, "0.1% to 1%": 1e-3, "over 1%": 1e-2}
_OVERLAPS = {"overlap under 25%": 0.0, "overlap 25% to 50%": 0.25, "overlap 50% to 75%": 0.5, "overlap over 75%": 0.75}
_NEGATIONS = frozenset(
    ("no", "not", "n't", "n’t", "never", "nobody", "nothing", "none", "nowhere", "neither", "nor", "cannot", "without")
)
Marks = Mapping[str, tuple[str, ...]]
"""Marks that open, each with those that close it."""
_BRACKETS: dict[str, tuple[Marks, ...]] = {
    "in quotes": (
        {"“": ("”",), "„": ("“", "”")},
        {"«": ("»",)},
        {"「": ("」",)},
        {"『": ("』",)},
        {"``": ("''",)},
        {'"': ('"',)},
    ),
    "in parentheses": ({"(": (")",)}, {"[": ("]",)}),
}
"""Marks that belong together, which are looked for apart from all others."""
_OUTWARD: tuple[Marks, Marks] = {"«": ("»",)}, {"»": ("«",)}
"""Guillemets, and those of a text that begins with » and ends with «, as German writes them."""
_SINGLE: Marks = {"‘": ("’",), "‚": ("‘", "’")}
"""Quotes that are words of their own; inside or at a word they are apostrophes."""
NEEDS_COUNTS = ("frequency",)
"""Properties that need the words of the whole corpus counted."""


def _bands(starts: Sequence[int]) -> tuple[str, ...]:
    """Names of the bands that begin at whole numbers: `1`, `2-3`, `4+`."""
    ends = [*(start - 1 for start in starts[1:]), None]
    return tuple(
        f"{start}+" if end is None else str(start) if end == start else f"{start}-{end}"
        for start, end in zip(starts, ends, strict=True)
    )


PROPERTIES: dict[str, tuple[str, ...]] = {
    "length": _bands(_LENGTHS),
    "position": _bands(_PLACES),
    "first": ("first", "other"),
    "last": ("last", "other"),
    "in quotes": ("in quotes", "other"),
    "in parentheses": ("in parentheses", "other"),
    "capital": ("capital", "other"),
    "frequency": tuple(_SHARES),
}
"""The classes of every property; lengths are in characters, positions count from 1, frequencies are shares of words."""


def frequency_bands(counts: Mapping[str, int]) -> dict[str, str]:
    """The band of every word in small letters, from the counts of all words."""
    total, names, starts = sum(counts.values()), tuple(_SHARES), list(_SHARES.values())
    return {word: names[bisect_right(starts, count / total) - 1] for word, count in counts.items()}


def property_values(name: str, sentence: Sentence, bands: Mapping[str, str]) -> list[str | None]:
    """The class of a property for every word of one sentence; `bands` are those of the frequency of words."""
    words = sentence.words
    if name == "frequency":
        rarest = next(iter(_SHARES))
        return [bands.get(word.lower(), rarest) for word in words]
    if name in _BRACKETS:
        inside = _brackets(name, sentence)
        return [
            name if any(low <= start and stop <= high for low, high in inside) else "other"
            for start, stop in sentence.spans
        ]
    last = len(words) - 1
    told: dict[str, Callable[[int, str], str]] = {
        "length": lambda place, word: _band(_LENGTHS, len(word)),
        "position": lambda place, word: _band(_PLACES, place + 1),
        "first": lambda place, word: "first" if place == 0 else "other",
        "last": lambda place, word: "last" if place == last else "other",
        "capital": lambda place, word: "capital" if word[:1].isupper() else "other",
    }
    return [told[name](place, word) for place, word in enumerate(words)]


def pair_value(name: str, sentence: Sentence) -> str | None:
    """The class of a pair of sentences; None where there is no second one.

    The overlap is the share of the second sentence's words that also stand in the first; only letters and digits
    count as words.
    """
    second = sentence.second
    if second is None:
        return None
    there = [word.lower() for word in second.words]
    if name == "negation":
        return "negation" if any(word in _NEGATIONS or word.endswith(("n't", "n’t")) for word in there) else "other"
    own = [word for word in there if any(char.isalnum() for char in word)]
    if not own:
        return None
    first = {word.lower() for word in sentence.words}
    share = sum(word in first for word in own) / len(own)
    return tuple(_OVERLAPS)[bisect_right(list(_OVERLAPS.values()), share) - 1]


def _band(starts: Sequence[int], value: int) -> str:
    return _bands(starts)[max(0, bisect_right(starts, value) - 1)]


def _brackets(name: str, sentence: Sentence) -> list[tuple[int, int]]:
    """Characters between marks of one kind, from an opening one to the one that closes it, both left out."""
    found: list[tuple[int, int]] = []
    for family in _BRACKETS[name]:
        spelled = "|".join(
            map(re.escape, dict.fromkeys([*family, *(each for ends in family.values() for each in ends)]))
        )
        places = [match.span() for match in re.finditer(spelled, sentence.text)]
        if family == _OUTWARD[0] and places:
            first, last = (sentence.text[slice(*places[at])] for at in (0, -1))
            family = _OUTWARD[(first, last) == ("»", "«")]
        found += _inside(sentence.text, family, places)
    return found + _inside(sentence.text, _SINGLE, sentence.spans) if name == "in quotes" else found


def _inside(text: str, marks: Marks, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same of some marks, which stand at places of the text; what is never closed is not inside."""
    found: list[tuple[int, int]] = []
    open_at: list[tuple[int, tuple[str, ...]]] = []
    for start, stop in places:
        mark = text[start:stop]
        if open_at and mark in open_at[-1][1]:
            found.append((open_at.pop()[0], start))
        elif mark in marks:
            open_at.append((stop, marks[mark]))
    return found
