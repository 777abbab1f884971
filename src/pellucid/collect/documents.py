"""Document sample: equally long blocks of words from some documents, for tests that shuffle whole documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting
from pellucid.collect.sample import name_hash, row_hashes
from pellucid.collect.state import Array, State
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch

_SPARE = 3
"""Candidates per document asked for: short ones fall out at the end, and nobody knows before which they are."""
_NONE = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class DocumentSample(Collector):
    """`words` words of each of the `documents` documents with the smallest hash of (seed, name): equally long blocks.

    A document's words are those with the smallest hash of their place. Documents with fewer words are left out, so that
    blocks can change places; there may be fewer than asked for where documents are short.
    """

    kind: ClassVar[str] = "document-sample"
    sites: Patterns
    documents: int = field(default=128, kw_only=True)
    words: int = field(default=8, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.documents < 2 or self.words < 1:
            raise SweepError(
                f"documents={self.documents} of words={self.words} cannot change places; use 2 or more documents of 1 "
                "or more words."
            )

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    def open(self, setting: Setting) -> Accumulator:
        keys = setting.keys(self.sites)
        return _Blocks(keys, [setting.width(key) for key in keys], self)

    def merge(self, left: State, right: State) -> State:
        if left.facts != right.facts:
            raise SweepError(f"Blocks of {left.facts} and of {right.facts} cannot be merged.")
        return State(_together([left.arrays, right.arrays], _SPARE * self.documents), left.facts)

    def view(self, state: State, setting: Setting) -> DocumentSampleView:
        whole = np.flatnonzero((state.arrays["hash"] != _NONE).all(1))[: self.documents]
        ordinal = state.arrays["ordinal"][whole]
        order = np.argsort(ordinal, axis=1, kind="stable")
        rows = {
            key: np.take_along_axis(state.arrays[f"rows/{number}"][whole], order[..., None], 1)
            for number, key in enumerate(state.facts["keys"])
        }
        return DocumentSampleView(tuple(state.facts["keys"]), rows, np.take_along_axis(ordinal, order, 1))

    def memory(self, setting: Setting, groups: int) -> int:
        numbers = sum(setting.width(key) for key in setting.keys(self.sites))
        return _SPARE * self.documents * (self.words * (4 * numbers + 16) + 8)


@dataclass(frozen=True, eq=False)
class DocumentSampleView:
    """Blocks of words: `blocks[key]` is [documents, words, width] in float32, the same words for every key.

    `ordinal` [documents, words] is each word's number in the corpus.
    """

    keys: tuple[str, ...]
    blocks: Mapping[str, Array]
    ordinal: Array

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(next(iter(self.blocks.values())))

    def rows(self, key: str) -> Array:
        """The blocks of one key, [documents, words, width]."""
        if key not in self.keys:
            raise SweepError(f"No blocks of {key!r} were gathered; there are those of {listing(self.keys, most=40)}.")
        return self.blocks[key]


class _Blocks(Accumulator):
    """The candidates so far; batches bring their own, of documents that can still be chosen, put together now and then.

    Putting together copies everything, so that batches wait until they hold a quarter as many documents.
    """

    def __init__(self, keys: tuple[str, ...], widths: list[int], collector: DocumentSample) -> None:
        self._keys, self._collector = keys, collector
        size = collector.words
        self._empty: dict[str, Array] = {
            "document": np.zeros(0, np.uint64),
            "hash": np.zeros((0, size), np.uint64),
            "ordinal": np.zeros((0, size), np.int64),
            **{f"rows/{number}": np.zeros((0, size, width), np.float32) for number, width in enumerate(widths)},
        }
        self._arrays, self._waiting = self._empty, list[Mapping[str, Array]]()

    def add(self, batch: WordBatch) -> None:
        if not batch.size:
            return
        seed, size, most = self._collector.seed, self._collector.words, _SPARE * self._collector.documents
        names = {number: sentence.document for number, sentence in batch.sentences.items()}
        hashed = {name: name_hash(str(seed), name) for name in set(names.values())}
        documents = np.array([hashed[names[int(number)]] for number in batch.sentence], np.uint64)
        held = self._arrays["document"]
        near = np.flatnonzero(documents <= held[-1]) if len(held) == most else np.arange(batch.size)
        if not len(near):
            return
        documents, hashes = documents[near], row_hashes(batch, seed)[near]
        order = np.lexsort((hashes, documents))
        found, starts, counts = np.unique(documents[order], return_index=True, return_counts=True)
        rank = np.arange(len(order)) - np.repeat(starts, counts)
        kept = rank < size
        place = np.repeat(np.arange(len(found)), counts)[kept]
        chosen, slot = near[order[kept]], rank[kept]
        new = _zeros(self._empty, len(found))
        new["document"] = found
        new["hash"][:] = _NONE
        new["hash"][place, slot], new["ordinal"][place, slot] = hashes[order[kept]], batch.ordinal[chosen]
        for number, key in enumerate(self._keys):
            rows = batch.rows[key]
            new[f"rows/{number}"][place, slot] = rows[torch.from_numpy(chosen).to(rows.device)].cpu().numpy()
        self._waiting.append(new)
        if 4 * sum(len(part["document"]) for part in self._waiting) > most:
            self._put_together(most)

    def _put_together(self, most: int) -> None:
        self._arrays = _together([self._arrays, *self._waiting], most)
        self._waiting.clear()

    def state(self) -> State:
        self._put_together(_SPARE * self._collector.documents)
        facts: dict[str, Any] = {"keys": list(self._keys), "seed": self._collector.seed}
        return State(self._arrays, facts)


def _zeros(like: Mapping[str, Array], count: int) -> dict[str, Array]:
    """Arrays of zeros for `count` documents."""
    return {name: np.zeros((count, *array.shape[1:]), array.dtype) for name, array in like.items()}


def _together(parts: list[Mapping[str, Array]], most: int) -> dict[str, Array]:
    """Candidates of several states: those with the smallest hashes, each with the best of the words found anywhere."""
    documents = np.concatenate([part["document"] for part in parts])
    found, place = np.unique(documents, return_inverse=True)
    found = found[:most]
    result = _zeros(parts[0], len(found))
    result["document"], result["hash"][:] = found, _NONE
    size = result["hash"].shape[1]
    start = 0
    for part in parts:
        mine = place[start : start + len(part["document"])]
        start += len(mine)
        inside = np.flatnonzero(mine < len(found))
        rows = mine[inside]
        both = np.concatenate([result["hash"][rows], part["hash"][inside]], axis=1)
        best = np.argsort(both, axis=1, kind="stable")[:, :size]
        for name in result:
            if name != "document":
                joined = np.concatenate([result[name][rows], part[name][inside]], axis=1)
                index = best.reshape(*best.shape, *[1] * (joined.ndim - 2))
                result[name][rows] = np.take_along_axis(joined, index, 1)
    return result
