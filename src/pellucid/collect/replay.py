"""Replaying a store: its rows through collectors, as if the models ran again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Collector, Setting, check_labels, split_key
from pellucid.collect.found import Found, KeptSentences, facts_to_json, found_of
from pellucid.collect.progress import Progress
from pellucid.collect.runner import RECORD, States
from pellucid.collect.state import State
from pellucid.collect.store import Entry, Store
from pellucid.collect.tree import Tree
from pellucid.collect.words import WordBatch
from pellucid.errors import SweepError, listing
from pellucid.uncertainty import GROUPS

_ROWS = 2048


def replay(
    stores: Store | Sequence[Store],
    collectors: Collector | Iterable[Collector],
    *,
    memory_limit: int | None = None,
    progress: bool | None = None,
) -> Found:
    """What collectors find in the rows of a store: the same as a sweep would, up to the precision that it keeps.

    Several stores of the same words stand side by side, as several models of one sweep do. Statistics over
    `memory_limit` bytes stay in a temporary file for as long as the result is held.
    """
    rows = _Rows([stores] if isinstance(stores, Store) else list(stores))
    store = rows.stores[0]
    wanted = [collectors] if isinstance(collectors, Collector) else list(collectors)
    check_labels(wanted, store.about["labels"])
    named = {f"{number}-{collector.kind}": collector for number, collector in enumerate(wanted)}
    setting = Setting(rows.models, store.about["reading"]["pooling"], torch.device("cpu"))
    every = tuple(dict.fromkeys(key for each in named.values() for key in rows.keys(setting, each)))
    size = sum(each.memory(setting, GROUPS) for each in named.values())
    on_disk = memory_limit is not None and size > memory_limit
    tree = Tree(named, len(store.entries), None, on_disk=on_disk)
    pilots: dict[str, State] = {}
    try:
        with Progress(progress) as shown:
            shown.begin("Replaying", store.rows)
            for place, entry in enumerate(store.entries):
                batches = rows.batches(place, every)
                first = next(batches, None)
                if first is not None and not pilots:
                    told = {name: each.pilot(first, setting) for name, each in named.items()}
                    pilots = {name: state for name, state in told.items() if state is not None}
                tree.put(0, place, _states(named, setting, pilots, entry, first, batches))
                shown.advance(entry.rows)
        states = tree.root()
    finally:
        tree.close()
    shown_sentences = {n for name, each in named.items() for n in each.sentences(states[name])}
    kept = KeptSentences.of(
        (number, sentence)
        for entry in store.entries
        for number, sentence in store.sentences(entry).items()
        if number in shown_sentences
    )
    about = {
        **store.about,
        "kind": "sweep",
        "models": [facts_to_json(model) for model in rows.models],
        "collectors": {name: each.describe() for name, each in named.items()},
    }
    return found_of(json.loads(json.dumps(about, sort_keys=True)), states, pilots, kept)


class _Rows:
    """The rows of one or several stores of the same words, under the keys that a sweep of all models would have."""

    def __init__(self, stores: list[Store]) -> None:
        if not stores:
            raise SweepError("No store was given to replay; give at least one.")
        self.stores = stores
        for store in stores:
            store.check_complete()
        self.models = tuple(model for store in stores for model in store.models)
        self._homes: dict[str, tuple[Store, str]] = {}
        number = 0
        for store in stores:
            for key in store.keys:
                model, site = split_key(key)
                self._homes[f"{number + model}:{site}" if len(self.models) > 1 else site] = (store, key)
            number += len(store.models)
        self._starts = np.cumsum([0, *(entry.rows for entry in stores[0].entries)])
        for other in stores[1:]:
            _check_same_words(stores[0], other)

    def keys(self, setting: Setting, collector: Collector) -> tuple[str, ...]:
        """A collector's keys, all of which the stores must hold."""
        if collector.raw:
            raise SweepError(
                f"{type(collector).__name__} reads whole tensors ({listing(collector.raw)}), which a store does "
                "not keep; sweep the model."
            )
        keys = setting.keys(collector.rows)
        absent = [key for key in keys if key not in self._homes]
        if absent:
            raise SweepError(f"The store does not hold {listing(absent)}; it holds {listing(self._homes, most=40)}.")
        return keys

    def batches(self, place: int, keys: tuple[str, ...]) -> Iterator[WordBatch]:
        """The rows of one of the first store's shards, a few thousand at a time."""
        store = self.stores[0]
        entry = store.entries[place]
        table = store.table(entry, ["row", "sentence", "position"])
        row, sentence, position = (np.array(table[name].to_numpy()) for name in ("row", "sentence", "position"))
        sentences = store.sentences(entry)
        whole = {key: self._of(key, place) for key in keys}
        for start in range(0, entry.rows, _ROWS):
            part = slice(start, start + _ROWS)
            rows = {key: value[part].float() for key, value in whole.items()}
            present = {int(number): sentences[int(number)] for number in dict.fromkeys(sentence[part].tolist())}
            yield WordBatch(rows, sentence[part], position[part], row[part], entry.group, present)

    def _of(self, key: str, place: int) -> Tensor:
        store, own = self._homes[key]
        if store is self.stores[0]:
            return store.shard(store.entries[place], own)
        return store.slice(own, int(self._starts[place]), int(self._starts[place + 1]))


def _check_same_words(one: Store, other: Store) -> None:
    """Raises unless two stores hold the same words in the same order."""
    prints = [store.about["corpus"]["fingerprint"] for store in (one, other)]
    if None in prints or prints[0] != prints[1]:
        names = [store.about["corpus"]["name"] for store in (one, other)]
        raise SweepError(
            f"{str(one.folder)!r} was built from {names[0]!r} and {str(other.folder)!r} from {names[1]!r}, which are "
            "not the same text (their fingerprints differ); build both from one corpus."
        )
    places = ["sentence", "position"]
    if one.rows != other.rows or not one.words(places).equals(other.words(places)):
        raise SweepError(
            f"{str(one.folder)!r} has {one.rows:,} rows and {str(other.folder)!r} {other.rows:,}, not of the same "
            "words in the same order; build both with the same pooling, or sweep the models together."
        )


def _states(
    named: dict[str, Collector],
    setting: Setting,
    pilots: dict[str, State],
    entry: Entry,
    first: WordBatch | None,
    rest: Iterator[WordBatch],
) -> States:
    accumulators = {
        name: each.open(replace(setting, pilot=pilots.get(name), shard=entry.shard, start=entry.first, rows=entry.rows))
        for name, each in named.items()
    }
    for batch in ([first] if first is not None else []), rest:
        for rows in batch:
            for accumulator in accumulators.values():
                accumulator.add(rows)
    states = {name: accumulator.state() for name, accumulator in accumulators.items()}
    return {**states, RECORD: State({}, {"unmatched": 0, "halved": []})}
