"""Replaying a store: its rows through collectors, as if the models ran again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch

from pellucid.collect.collector import Collector, Setting, check_labels
from pellucid.collect.found import Found, KeptSentences, found_of
from pellucid.collect.progress import Progress
from pellucid.collect.runner import RECORD, States
from pellucid.collect.state import State
from pellucid.collect.store import Entry, Store
from pellucid.collect.tree import Tree
from pellucid.collect.words import WordBatch
from pellucid.errors import SweepError, listing

_ROWS = 2048


def replay(store: Store, collectors: Collector | Iterable[Collector], *, progress: bool | None = None) -> Found:
    """What collectors find in a store's rows: the same as a sweep would, up to the precision that the store keeps."""
    wanted = [collectors] if isinstance(collectors, Collector) else list(collectors)
    if store.missing:
        raise SweepError(
            f"The store in {str(store.folder)!r} is not complete: {len(store.missing)} shards are missing. Build it to "
            "the end first."
        )
    check_labels(wanted, store.about["labels"])
    named = {f"{number}-{collector.kind}": collector for number, collector in enumerate(wanted)}
    setting = Setting(store.models, store.about["reading"]["pooling"], torch.device("cpu"))
    keys = {name: _keys(store, setting, collector) for name, collector in named.items()}
    every = tuple(dict.fromkeys(key for each in keys.values() for key in each))
    tree = Tree(named, len(store.entries), None)
    pilots: dict[str, State] = {}
    try:
        with Progress(progress) as shown:
            shown.begin("Replaying", store.rows)
            for place, entry in enumerate(store.entries):
                batches = _batches(store, entry, every)
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
        "collectors": {name: each.describe() for name, each in named.items()},
    }
    return found_of(json.loads(json.dumps(about)), states, pilots, kept)


def _keys(store: Store, setting: Setting, collector: Collector) -> tuple[str, ...]:
    """A collector's keys, all of which the store must hold."""
    if collector.raw:
        raise SweepError(
            f"{collector} reads whole tensors ({listing(collector.raw)}), which a store does not keep; sweep the model."
        )
    keys = setting.keys(collector.rows)
    absent = [key for key in keys if key not in store.keys]
    if absent:
        raise SweepError(f"The store does not hold {listing(absent)}; it holds {listing(store.keys, most=40)}.")
    return keys


def _batches(store: Store, entry: Entry, keys: tuple[str, ...]) -> Iterator[WordBatch]:
    """The rows of one shard, a few thousand at a time."""
    table = store.table(entry, ["row", "sentence", "position"])
    row, sentence, position = (np.array(table[name].to_numpy()) for name in ("row", "sentence", "position"))
    sentences = store.sentences(entry)
    whole = {key: store.shard(entry, key) for key in keys}
    for start in range(0, entry.rows, _ROWS):
        part = slice(start, start + _ROWS)
        rows = {key: value[part].float() for key, value in whole.items()}
        present = {int(number): sentences[int(number)] for number in dict.fromkeys(sentence[part].tolist())}
        yield WordBatch(rows, sentence[part], position[part], row[part], entry.group, present)


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
