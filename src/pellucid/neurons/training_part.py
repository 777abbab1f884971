"""The training part of a store: its words without those that probes are tested on, which a ranking shall not see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.store import Entry, Store
from pellucid.corpus.identity import fingerprint_of
from pellucid.neurons.concepts import Concept, as_concept
from pellucid.neurons.probing.labels import labelled, split
from pellucid.results import Array

if TYPE_CHECKING:
    from pellucid.corpus.sentence import Sentence


def training_part(store: Store, *, concept: str | Concept, test: float = 0.2, fewest: int = 20, seed: int = 0) -> Store:
    """A store without the documents that probes of the concept are tested on, with the same settings and seed.

    Every ranking of it can be judged on the whole store by `trained_anew` and `ablated_in_probe`. Nothing is copied.
    """
    data = labelled(store, as_concept(concept), fewest=fewest)
    dealt = split(data, test=test, seed=seed)
    return _TrainingPart(store, ~np.isin(data.units, data.units[dealt.test]), dealt.mark)


def whole_of(store: Store) -> Store:
    """The store that a training part is of; any other as it is."""
    return store._store if isinstance(store, _TrainingPart) else store  # pyright: ignore[reportPrivateUsage]


class _TrainingPart(Store):
    """Some rows of another store, those in `kept` [rows]; sentences of the others are left out whole."""

    def __init__(self, store: Store, kept: Array, mark: str) -> None:
        self._store, self._rows, entries = store, dict[int, Array](), list[Entry]()
        start = first = 0
        for entry in store.entries:
            own = np.flatnonzero(kept[start : start + entry.rows])
            self._rows[entry.shard] = own
            entries.append(Entry(entry.shard, entry.group, len(own), first, {}))
            start, first = start + entry.rows, first + len(own)
        self._whole = {entry.shard: entry for entry in store.entries}
        about, corpus = store.about, store.about["corpus"]
        known = corpus["fingerprint"]
        part = {**corpus, "fingerprint": known and fingerprint_of(known, f"without {mark}"), "of": known or "none"}
        counts = {**about["counts"], "words": first, "sentences": self._sentences(entries)}
        super().__init__(
            store.folder,
            {**about, "corpus": {**part, "held out": mark}, "counts": counts},
            tuple(entries),
        )

    def _sentences(self, entries: list[Entry]) -> int:
        return len({number for entry in entries for number in self._numbers(entry).tolist()})

    def _numbers(self, entry: Entry) -> Array:
        """The number of the sentence of every row that is kept."""
        told = self._store.table(self._whole[entry.shard], ["sentence"])
        return np.array(told["sentence"].to_numpy())[self._rows[entry.shard]]

    def sentences(self, entry: Entry) -> dict[int, Sentence]:
        """The sentences of one shard that are kept, by their number in the corpus."""
        known, kept = self._store.sentences(self._whole[entry.shard]), set(self._numbers(entry).tolist())
        return {number: sentence for number, sentence in known.items() if number in kept}

    def text(self) -> Iterator[Sentence]:
        """The sentences of the whole store: a word is as frequent in a part of it as in all text."""
        return self._store.text()

    def table(self, entry: Entry, columns: list[str] | None = None) -> Any:
        """The words of one shard that are kept, as an Arrow table."""
        return self._store.table(self._whole[entry.shard], columns).take(self._rows[entry.shard])

    def shard(self, entry: Entry, key: str) -> Tensor:
        """The rows of one site in one shard that are kept."""
        return self._store.shard(self._whole[entry.shard], key)[torch.from_numpy(self._rows[entry.shard])]

    def layer(self, key: str) -> Tensor:
        """All rows of one site that are kept."""
        return torch.cat([self.shard(entry, key) for entry in self.entries])

    def slice(self, key: str, start: int, stop: int) -> Tensor:
        """Rows from `start` up to `stop` of one site."""
        return self.layer(key)[start:stop]

    def unit(self, key: str, number: int) -> Tensor:
        """One unit over all rows that are kept."""
        return torch.cat([self.shard(entry, key)[:, number] for entry in self.entries])
