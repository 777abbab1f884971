"""Alignment of sub-word tokens with words, and cutting token rows that are too long for a model."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from pellucid.errors import CorpusError, listing

POOLINGS = ("first", "last", "mean", "all")


def word_index(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> list[int]:
    """For each token the number of the word it belongs to, −1 for none.

    `offsets` [T] are the tokens' character spans, `spans` [W] those of the words, in order. A token belongs to the
    word with which it shares most characters, the first of them on ties; special tokens with the span (0, 0) and
    tokens that hold only space belong to none.
    """
    starts, ends = [start for start, _ in spans], [stop for _, stop in spans]
    count, word = len(spans), 0
    found: list[int] = []
    for start, stop in offsets:
        if word and ends[word - 1] > start:  # back to the beginning, as special tokens and second texts are
            word = bisect_right(ends, start)
        while word < count and ends[word] <= start:
            word += 1  # now the first word that ends after the token starts
        alone = word + 1 == count or (word < count and starts[word + 1] >= stop)
        if alone and start < stop and starts[word] < stop <= ends[word]:
            found.append(word)  # it shares characters with no other word
        else:
            found.append(_most_shared(start, stop, spans, word))
    return found


def _most_shared(start: int, stop: int, spans: Sequence[tuple[int, int]], word: int) -> int:
    """Of the words from number `word` on, the first of those that share most characters with a token; −1 for none."""
    best, most = -1, 0
    while word < len(spans) and spans[word][0] < stop:
        shared = min(stop, spans[word][1]) - max(start, spans[word][0])
        if shared > most:
            best, most = word, shared
        word += 1
    return best


def dropped(index: Sequence[int], count: int) -> tuple[int, ...]:
    """The words, of `count`, to which no token of a row's word index belongs."""
    seen = set(index)
    return tuple([word for word in range(count) if word not in seen])


def common(indexes: Sequence[Sequence[int]], count: int) -> tuple[int, ...]:
    """The words, of `count`, that have a token in every one of several rows: there tokenizers can be compared."""
    seen = [set(index) for index in indexes]
    return tuple([word for word in range(count) if all(word in row for row in seen)])


def pieces(index: Sequence[int], how: str) -> dict[int, tuple[int, ...]]:
    """The token positions that stand for each word, in the order of the words; words without tokens are left out.

    `first` and `last` take one position; `mean` takes every position, to be averaged with equal weights into one
    vector per word; `all` takes every position, each to remain a vector of its own that carries the word's labels.
    """
    if how not in POOLINGS:
        raise CorpusError(f"Sub-words cannot be pooled by {how!r}; the ways are {listing(POOLINGS)}.")
    places: dict[int, list[int]] = {}
    for position, word in enumerate(index):
        if word >= 0:
            places.setdefault(word, []).append(position)
    kept = {"first": slice(0, 1), "last": slice(-1, None)}.get(how, slice(None))
    return {word: tuple(places[word][kept]) for word in sorted(places)}


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a row of tokens: positions `start` to `stop` of the row without its special tokens.

    Words count from position `counted_from` on; what stands before it is context, counted in an earlier window.
    """

    start: int
    stop: int
    counted_from: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What a cut keeps and loses: positions 0 to `stop` of the row without its special tokens are kept."""

    stop: int
    tokens_lost: int
    words_lost: int


@dataclass(frozen=True, slots=True)
class _Unit:
    """Tokens that stay together: those of a word, or as much of a long word as a window holds."""

    start: int
    stop: int
    opens: bool  # False for the later parts of a word that is longer than a window

    @property
    def size(self) -> int:
        return self.stop - self.start


def windows(index: Sequence[int], *, limit: int, overlap: int = 0, opening: int = 0, closing: int = 0) -> list[Window]:
    """Cut a row of tokens into windows of at most `limit` tokens, never inside a word.

    `index` [T] is the word index of the row without special tokens; `opening` and `closing` special tokens are
    repeated around each window and count towards `limit`. A window begins with up to `overlap` tokens of whole words
    of the one before. Each word counts in exactly one window, the first that holds it whole; a word longer than a
    window is cut, and counts where it begins.
    """
    body = _room(limit, opening, closing)
    if not 0 <= overlap < body:
        raise CorpusError(
            f"Windows of {limit} tokens with {opening + closing} special tokens can overlap by 0 to {body - 1} tokens, "
            f"not by {overlap}."
        )
    units = _units(index, body)
    found: list[Window] = []
    new = 0
    while new < len(units):
        first = new
        while first > 0 and units[new - 1].stop - units[first - 1].start <= min(overlap, body - units[new].size):
            first -= 1
        after = new + 1
        while after < len(units) and units[after].stop - units[first].start <= body:
            after += 1
        counted = units[new].start if units[new].opens else units[new].stop
        found.append(Window(units[first].start, units[after - 1].stop, counted))
        new = after
    return found or [Window(0, 0, 0)]


def truncated(index: Sequence[int], *, limit: int, opening: int = 0, closing: int = 0) -> Cut:
    """The cut that leaves at most `limit` tokens, special tokens included, and ends after a whole word.

    `index` [T] is the word index of the row without its `opening` and `closing` special tokens, which all stay. A
    first word that is too long by itself is cut inside, and counts as kept.
    """
    body = _room(limit, opening, closing)
    stop = 0
    for unit in _units(index, body):
        if unit.stop > body:
            break
        stop = unit.stop
    kept = set(index[:stop])
    lost = {word for word in index[stop:] if word >= 0 and word not in kept}
    return Cut(stop, len(index) - stop, len(lost))


def _room(limit: int, opening: int, closing: int) -> int:
    """How many tokens a window holds besides its special tokens."""
    if limit - opening - closing < 1:
        raise CorpusError(
            f"A limit of {limit} tokens leaves no room for words beside {opening + closing} special tokens: raise it."
        )
    return limit - opening - closing


def _units(index: Sequence[int], body: int) -> list[_Unit]:
    last = {word: position for position, word in enumerate(index) if word >= 0}
    found: list[_Unit] = []
    start = 0
    while start < len(index):
        stop = position = start
        while position <= stop:  # a word with a space inside goes on after a token that belongs to no word
            stop = max(stop, last.get(index[position], position))
            position += 1
        after = stop + 1
        found.extend([_Unit(part, min(part + body, after), part == start) for part in range(start, after, body)])
        start = after
    return found
