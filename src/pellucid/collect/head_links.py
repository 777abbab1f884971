"""Head links: which words of a batch stand in which relation to each query word, and what chance gives for them.

A link leads from a query word to a word that a head may look for: its syntactic head or dependent, the rarest word, the
same word elsewhere, or what followed it before. Links depend on text alone, so they are made once for all layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.state import Array
from pellucid.collect.words import Words, all_words

if TYPE_CHECKING:
    from pellucid.collect.word_weights import WordKeys
    from pellucid.corpus import Sentence
    from pellucid.corpus.sentence import Arc

RARE, SAME, FOLLOWED = "rare", "same word", "followed before"
"""Links other than those of the dependency tree: to the least frequent word that a query sees, to the same word
elsewhere, and to the word that came after an earlier occurrence of the query's word."""
FIXED = (RARE, SAME, FOLLOWED)
_RARE = FIXED.index(RARE)
TO_HEAD, TO_DEPENDENT = "to head", "to dependent"
"""Directions of a relation: the dependent looks at its head, or the head at its dependent."""
CASES = ("n", "expected", "variance", "mass")
"""What is known of a kind of link without a model, summed over the queries that have one: their number; by how many
hits, and with what variance, a largest weight put on a random visible word would find them; and the attention that
uniform attention gives them."""


class Names:
    """Names in the order in which they were first met, with their numbers."""

    def __init__(self, first: Sequence[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        for name in first:
            self.number(name)

    def number(self, name: str) -> int:
        """The number of a name, which is new from now on."""
        return self._numbers.setdefault(name, len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of a batch with a rarest word in sight: their `cell` among the links, how many `queries` see one, and
    the chance that most of these hit it if all look at one random place, all [texts].

    A query whose share of rarest words in sight is p hits for u < p, with one u for the whole text: most queries hit
    as often as the middle one of them does, counted from the largest p.
    """

    cell: Tensor
    queries: Tensor
    chance: Tensor


@dataclass(frozen=True, eq=False)
class Links:
    """The links of one batch, sorted by cell; a cell is a sentence and a kind.

    `row`, `query`, `key` and `cell` [L] say where a link is; `kind` and `expected` [cells] of what kind a cell is, and
    how many hits chance gives it; `cases` [kinds, 3] are the first of `CASES`, and `offsets` [kinds, 2·reach + 1]
    counts the queries that have a link at each offset. `texts` are the cells of rare words.
    """

    row: Tensor
    query: Tensor
    key: Tensor
    cell: Tensor
    kind: Tensor
    expected: Tensor
    cases: Array
    offsets: Array
    texts: Texts


class Seen:
    """What each query word of a batch may look at among words, [B, W, W], and how many words that are."""

    def __init__(self, keys: WordKeys, causal: bool) -> None:
        width = keys.words.width
        shown = keys.is_word[:, None, :].expand(-1, width, -1)
        if causal:
            shown = shown & torch.ones(width, width, dtype=torch.bool).tril()
        self.causal, self.count = causal, shown.sum(-1)
        self.query = keys.query & (self.count > 1)  # with one word in sight there is nothing to choose
        self.visible = shown & self.query[:, :, None]
        self.is_word = keys.is_word


def words_at(words: Words) -> list[Sequence[str]]:
    """The words of every row, from its first column on, in small letters."""
    base = words.base.tolist()
    return [
        [word.lower() for word in all_words(sentence)[start : start + words.width]]
        for sentence, start in zip(words.sentences, base, strict=True)
    ]


def arcs_of(sentence: Sentence) -> Sequence[Arc]:
    """The arcs of a sentence, and of a second one read with it."""
    joined = sentence.second if sentence.joint else None
    if joined is None or not joined.arcs:
        return sentence.arcs
    start = len(sentence.words)
    moved = [
        arc._replace(dependent=arc.dependent + start, head=arc.head + start) for arc in joined.arcs if arc.head >= 0
    ]
    return (*sentence.arcs, *moved)


def links_of(
    words: Words, seen: Seen, kinds: Names, frequent: Mapping[str, int] | None, *, arcs: bool, reach: int
) -> Links:
    """All links of a batch; kinds of relations not met before are added to `kinds`."""
    spoken = words_at(words)
    found = [_same(spoken, seen, words.width, kinds)]
    if frequent is not None:
        found.append(_rarest(spoken, seen, words.width, frequent, kinds))
    if arcs:
        found.append(_along_arcs(words, seen, kinds))
    return _sorted(np.concatenate(found, axis=1), seen, len(kinds), reach)


def _along_arcs(words: Words, seen: Seen, kinds: Names) -> Array:
    """Kind, row, query and key of every arc whose two words are in a row, in both directions, [4, links]."""
    base = words.base.tolist()
    told = [
        (kinds.number(f"{arc.relation} {TO_HEAD}"), row, arc.dependent - start, arc.head - start)
        for row, (sentence, start) in enumerate(zip(words.sentences, base, strict=True))
        for arc in arcs_of(sentence)
        if arc.head >= 0
    ]
    if not told:
        return np.empty((4, 0), np.int64)
    back = {kind: kinds.number(_turned(name)) for kind, name in enumerate(list(kinds)) if name.endswith(TO_HEAD)}
    kind, row, query, key = np.array(told, np.int64).T
    turned = np.array([back.get(number, -1) for number in range(max(back) + 1)])[kind]
    both = np.concatenate([[kind, row, query, key], [turned, row, key, query]], axis=1)
    _, row, query, key = both
    width = words.width
    inside = (query >= 0) & (query < width) & (key >= 0) & (key < width) & (query != key)
    both = both[:, inside]
    return both[:, seen.visible.numpy()[both[1], both[2], both[3]]]


def _turned(name: str) -> str:
    return f"{name.removesuffix(TO_HEAD)}{TO_DEPENDENT}"


def _numbered(spoken: Sequence[Sequence[str]], width: int) -> Tensor:
    """A number for every word of the batch, the same for the same word, [B, W]; −1 behind the last."""
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(word, len(numbers)) for word in row] for row in spoken]
    return _padded(rows, width, -1)


def _padded(rows: Sequence[Sequence[int]], width: int, empty: int) -> Tensor:
    return torch.tensor([[*row, *[empty] * (width - len(row))] for row in rows]).view(len(rows), width)


def _same(spoken: Sequence[Sequence[str]], seen: Seen, width: int, kinds: Names) -> Array:
    """Links to the same word elsewhere, and to what followed it before: [4, links]."""
    number = _numbered(spoken, width)
    equal = (number[:, :, None] == number[:, None, :]) & (number >= 0)[:, :, None]
    equal &= seen.is_word[:, :, None] & seen.is_word[:, None, :]
    equal.diagonal(dim1=1, dim2=2).fill_(False)
    before = equal & torch.ones(width, width, dtype=torch.bool).tril(-1)
    after = torch.zeros_like(before)
    after[:, :, 1:] = before[:, :, :-1]  # the word after an earlier occurrence
    after.diagonal(dim1=1, dim2=2).fill_(False)  # which may be the query itself
    return np.concatenate(
        [_links(equal, seen, kinds.number(SAME)), _links(after, seen, kinds.number(FOLLOWED))], axis=1
    )


def _rarest(
    spoken: Sequence[Sequence[str]], seen: Seen, width: int, frequent: Mapping[str, int], kinds: Names
) -> Array:
    """Links to the least frequent of the words that a query sees, all of them where several are: [4, links]."""
    large = torch.iinfo(torch.int64).max
    count = _padded([[frequent.get(word, 0) for word in row] for row in spoken], width, large)
    count = count.masked_fill(~seen.is_word, large)
    least = count.cummin(dim=1).values if seen.causal else count.amin(1, keepdim=True)
    return _links(count[:, None, :] == least[:, :, None], seen, kinds.number(RARE))


def _links(target: Tensor, seen: Seen, kind: int) -> Array:
    """Pairs [B, W, W] as links of one kind."""
    places = (target & seen.visible).nonzero().numpy().T
    return np.concatenate([np.full((1, places.shape[1]), kind), places])


def _sorted(found: Array, seen: Seen, kinds: int, reach: int) -> Links:
    """Links sorted by row and kind, each once, and what chance gives for them."""
    kind, row, query, key = found
    width, bins = seen.count.shape[1], 2 * reach + 1
    code = np.unique(((row * kinds + kind) * width + query) * width + key)
    case, key = np.divmod(code, width)  # a case is one query with all its links of a kind
    cell, query = np.divmod(case, width)
    row, kind = np.divmod(cell, kinds)
    cells, place = np.unique(cell, return_inverse=True)
    cases, size = np.unique(case, return_counts=True)
    own, asked = np.divmod(cases, width)
    chance = size / seen.count.numpy()[own // kinds, asked]
    parts = (np.ones(len(cases)), chance, chance * (1 - chance))
    away = key - query
    near = np.abs(away) <= reach
    offsets = np.bincount(kind[near] * bins + away[near] + reach, minlength=kinds * bins).reshape(kinds, bins)
    tensors = [torch.from_numpy(np.ascontiguousarray(part)) for part in (row, query, key, place.ravel())]
    return Links(
        tensors[0],
        tensors[1],
        tensors[2],
        tensors[3],
        torch.from_numpy(cells % kinds),
        torch.from_numpy(np.bincount(np.searchsorted(cells, own), chance, len(cells))),
        np.stack([np.bincount(own % kinds, part, kinds) for part in parts], axis=1),
        offsets,
        _texts(np.searchsorted(cells, own[own % kinds == _RARE]), chance[own % kinds == _RARE]),
    )


def _texts(cell: Array, chance: Array) -> Texts:
    """The texts that some queries with a rarest word in sight are of, from each query's cell and chance."""
    order = np.lexsort((-chance, cell))  # by text, the largest chance first
    cells, start, queries = np.unique(cell[order], return_index=True, return_counts=True)
    middle = chance[order][start + queries // 2]  # one more than half must hit
    return Texts(*(torch.from_numpy(np.ascontiguousarray(part)) for part in (cells, queries, middle)))
