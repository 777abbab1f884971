"""Groups of tokens: by their text, their place, a label of their word, or whether they are special."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pellucid.attribution.shares import Array
from pellucid.collect.encode import looked_at
from pellucid.collect.plan import chunks
from pellucid.collect.words import word_labels
from pellucid.errors import AttributionError, listing

if TYPE_CHECKING:
    from pellucid.collect.encode import Encoder
    from pellucid.corpus import Corpus, Sentence
    from pellucid.model import Batch, Model

OWN = ("token", "position", "special", "word")
"""Groupings that need no label of the corpus."""
NONE, SPECIAL, OTHER = "(none)", "(special)", "(other)"
_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of one text that count: their places in its row, ids, words (−1 for none), and which are special."""

    places: Array
    ids: Array
    words: Array
    special: Array


def counted(batch: Batch, row: int, *, side: str, special: bool) -> Tokens:
    """The tokens of a row that count: never padding, and special ones only where they are asked for."""
    assert batch.word_index is not None
    words = batch.word_index[row].cpu().numpy()
    if side == "target":
        assert batch.target_ids is not None and batch.target_mask is not None
        ids, real, marks = batch.target_ids[row], batch.target_mask[row], words < 0
    else:
        ids, real, marks = batch.ids[row], batch.mask[row], batch.special[row].cpu().numpy()
    kept = real.cpu().numpy().astype(bool) & (special | ~marks)
    places = np.flatnonzero(kept)
    return Tokens(places, ids.cpu().numpy()[places], words[places], marks[places])


@dataclass(frozen=True, eq=False)
class TokenGroups:
    """The groups that are told apart, in order, with how many tokens each has; rarer ones are one group, `(other)`."""

    by: str
    side: str
    names: tuple[str, ...]
    counts: tuple[int, ...]

    def codes(self, model: Model, sentence: Sentence, tokens: Tokens) -> Array:
        """The number of the group of every token, [n]."""
        numbers = {name: number for number, name in enumerate(self.names)}
        other = numbers.get(OTHER, -1)
        values = _values(model, sentence, tokens, self.by, self.side)
        found = np.array([numbers.get(value, other) for value in values], dtype=np.int64)
        assert (found >= 0).all(), "a token of a group that was not met when they were counted"
        return found


def find_groups(encoder: Encoder, corpus: Corpus, by: str, *, special: bool, most: int) -> TokenGroups:
    """Reads the corpus once, without running the model, and takes the `most` frequent groups (or first positions)."""
    side, tally = encoder.reading.side, Counter[str]()
    for sentence, tokens in _tokens(encoder, corpus, special=special):
        tally.update(_values(encoder.model, sentence, tokens, by, side))
    if not tally:
        raise AttributionError(f"The corpus {corpus.name!r} holds no token to group; check the file and its encoding.")
    if by not in OWN and not set(tally) - {NONE, SPECIAL}:
        known = dict.fromkeys([*OWN, *corpus.labels(), *corpus.facts()])
        raise AttributionError(
            f"No word of {corpus.name!r} has a label {by!r}; tokens can be grouped by {listing(known, most=20)}."
        )
    order = sorted(tally, key=int if by == "position" else lambda value: (-tally[value], value))
    kept = order if len(order) <= most else order[:most]
    counts = [tally[value] for value in kept]
    if len(order) > most:
        kept, counts = [*kept, OTHER], [*counts, sum(tally[value] for value in order[most:])]
    return TokenGroups(by, side, tuple(kept), tuple(counts))


def _tokens(encoder: Encoder, corpus: Corpus, *, special: bool) -> Iterator[tuple[Sentence, Tokens]]:
    for sentences in chunks(corpus, _AT_ONCE):
        for sentence, encoded in zip(sentences, encoder.encode(sentences), strict=True):
            for row in encoded.rows:
                batch = encoder.batch([row], [encoded.target], len(row.ids))
                yield sentence, counted(batch, 0, side=encoder.reading.side, special=special)


def _values(model: Model, sentence: Sentence, tokens: Tokens, by: str, side: str) -> Sequence[str]:
    """The group of every token, by name."""
    if by == "position":
        return [str(place) for place in tokens.places.tolist()]
    if by == "special":
        return ["special" if mark else "text" for mark in tokens.special.tolist()]
    if by == "token":
        return [_text(model, token) for token in tokens.ids.tolist()]
    labels = word_labels(looked_at(sentence, side), by)
    found: list[str] = []
    for word, mark in zip(tokens.words.tolist(), tokens.special.tolist(), strict=True):
        value = labels[word] if word >= 0 else None
        found.append(SPECIAL if mark and word < 0 else NONE if value is None else value)
    return found


def _text(model: Model, token: int) -> str:
    """A token as people read it, without the space before it."""
    text: str = model.tokenizer.decode([token])
    return text.strip() or repr(text)
