"""Groups of tokens that are taken away together: single tokens, words, spans, or whatever a mask says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import AttributionError
from pellucid.model.batch import Batch
from pellucid.model.sites import Site

if TYPE_CHECKING:
    from pellucid.model import Model

Array = np.ndarray[Any, Any]
Grouping = str | Sequence[int] | Sequence[tuple[int, int]]
"""`tokens`, `words`, token ranges (start, stop), or a mask: one number per token, the same for tokens of one group."""


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of every token of every text, [B, T], −1 for padding; for an encoder–decoder, source then target.

    `sides` tells which of the columns belong to the tokens that a stack reads.
    """

    members: Array
    sides: dict[str | None, slice]

    def count(self, row: int) -> int:
        """Groups of one text."""
        return int(self.members[row].max()) + 1

    def sizes(self, row: int) -> Array:
        """Tokens of each group of one text."""
        mine = self.members[row]
        return np.bincount(mine[mine >= 0], minlength=self.count(row))

    def side(self, site: Site) -> Array:
        """The groups of the tokens along a site, [B, T of the site]."""
        return self.members[:, self.sides[reads(site)]]


def reads(site: Site) -> str | None:
    """The stack whose tokens a site runs along (the keys of a pattern): what cross attention looks at is the source."""
    if site.stack == "cross":
        return "encoder" if site.kind in ("key", "value", "pattern") else "decoder"
    return site.stack


def of_tokens(batch: Batch) -> Groups:
    """Every real token on its own."""
    masks = [batch.mask] if batch.target_mask is None else [batch.mask, batch.target_mask]
    widths = [mask.shape[1] for mask in masks]
    real = np.concatenate([mask.bool().cpu().numpy() for mask in masks], axis=1)
    stacks = (None,) if len(masks) == 1 else ("encoder", "decoder")
    edges = np.cumsum([0, *widths]).tolist()
    sides = {stack: slice(edges[at], edges[at + 1]) for at, stack in enumerate(stacks)}
    return Groups(np.where(real, np.cumsum(real, axis=1) - 1, -1), sides)


def grouped(batch: Batch, given: Grouping) -> Groups:
    """Tokens in the groups asked for; tokens that are in none stand for themselves."""
    tokens = of_tokens(batch)
    if isinstance(given, str):
        if given == "tokens":
            return tokens
        if given != "words":
            raise AttributionError(
                f"There are no groups called {given!r}; give tokens, words, ranges of tokens, or one number per token."
            )
        return replace(tokens, members=_numbered(tokens.members, _words(batch, tokens)))
    if batch.size != 1:
        raise AttributionError(f"Groups of tokens are given for one text, not for {batch.size}; use tokens or words.")
    items: list[Any] = list(given)
    count = tokens.count(0)
    if items and all(isinstance(item, (tuple, list)) for item in items):
        marks = _marked(items, count)
    elif len(items) != count or not all(isinstance(item, (int, np.integer)) for item in items):
        raise AttributionError(
            f"The mask of groups has {len(items)} entries and the text {count} tokens; give one whole number per token."
        )
    else:
        marks = np.array(items)
    real = tokens.members >= 0
    spread = np.full(tokens.members.shape, -1, dtype=np.int64)
    spread[real] = np.unique(marks, return_inverse=True)[1]
    return replace(tokens, members=_numbered(tokens.members, spread))


def told(given: Grouping) -> str | list[Any]:
    """A grouping as a result's origin names it."""
    return (
        given
        if isinstance(given, str)
        else [list(map(int, item)) if isinstance(item, (tuple, list)) else int(item) for item in given]
    )


def with_words(model: Model, batch: Batch, text: str, pair: str | None = None) -> Batch:
    """The batch of one text with the word of every token, found by the places of tokens in the text."""
    import torch

    from pellucid.corpus import word_index, word_spans

    if not getattr(model.tokenizer, "is_fast", False):
        raise AttributionError(
            f"The tokenizer of {model.name!r} does not tell where its tokens stand in the text, so there are no words; "
            "give ranges of tokens."
        )
    encoded = model.tokenizer(text, pair, return_offsets_mapping=True, verbose=False)
    parts, places = encoded.sequence_ids(0), encoded["offset_mapping"]
    words, first = [-1] * len(places), 0
    for part, passage in enumerate((text, pair)):
        spans = word_spans(passage or "")
        mine = [at for at, side in enumerate(parts) if side == part]
        for at, word in zip(mine, word_index([tuple(places[at]) for at in mine], spans), strict=True):
            words[at] = -1 if word < 0 else first + word
        first += len(spans)
    return replace(batch, word_index=torch.tensor([words]))


def _words(batch: Batch, tokens: Groups) -> Array:
    if batch.word_index is None:
        raise AttributionError("The words of a Batch of token ids are not known; give the text, or ranges of tokens.")
    words = batch.word_index.cpu().numpy()
    found = np.full(tokens.members.shape, -1, dtype=np.int64)
    found[:, : words.shape[1]] = words
    return found


def _marked(spans: Sequence[Any], count: int) -> Array:
    """One number per token: that of the span that holds it, and a number of its own outside of all."""
    marks = np.arange(count) + len(spans)
    for number, span in enumerate(spans):
        start, stop = span if len(span) == 2 else (0, 0)
        if not 0 <= start < stop <= count:
            raise AttributionError(
                f"The span {tuple(span)} does not lie within the text's {count} tokens: a span (start, stop) holds "
                f"tokens start to stop − 1, and stop is at most {count}."
            )
        if (marks[start:stop] < len(spans)).any():
            raise AttributionError(f"The span {tuple(span)} overlaps with another; a token is in one span at most.")
        marks[start:stop] = number
    return marks


def _numbered(tokens: Array, marks: Array) -> Array:
    """Groups numbered from 0 by their first token; a token with the mark −1 is a group of its own."""
    found = np.full(tokens.shape, -1, dtype=np.int64)
    for row in range(len(tokens)):
        known: dict[tuple[str, int], int] = {}
        for at in np.flatnonzero(tokens[row] >= 0).tolist():
            mark = int(marks[row, at])
            name = ("group", mark) if mark >= 0 else ("token", at)
            found[row, at] = known.setdefault(name, len(known))
    return found
