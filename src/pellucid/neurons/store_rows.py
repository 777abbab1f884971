"""Rows of a store for exact rankings: the class and document group of every row, and a few columns at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pellucid.collect.collector import keys as chosen_keys
from pellucid.collect.collector import split_key
from pellucid.collect.labelled_store import labelled_store
from pellucid.collect.words import word_labels
from pellucid.errors import SweepError
from pellucid.neurons.caution import warn_of_sentence_labels
from pellucid.neurons.concepts import Concept
from pellucid.neurons.sources import Sites, check_pooling, check_read, patterns, site_of
from pellucid.results import Array, Provenance, ResultError

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus

MEMORY = 128 << 20
"""Bytes of columns that are held at a time."""


@dataclass(frozen=True, eq=False)
class RowClasses:
    """What is known of a store's rows: `codes` [rows] are places in `classes` (−1: none), `groups` [rows] numbers."""

    classes: tuple[str, ...]
    codes: Array
    groups: Array

    @property
    def labelled(self) -> Array:
        """The numbers of the rows that have a class, in document groups one after another, [labelled rows]."""
        order = np.argsort(self.groups, kind="stable")
        return order[self.codes[order] >= 0]


def exact_store(source: object, corpus: Corpus | None, pooling: str | None) -> Store:
    """The store that exact scores are read from; any other source raises, and so does what a store has no use for."""
    from pellucid.collect.store import Store

    if not isinstance(source, Store):
        raise ResultError(
            "exact=True reads activations from disk: give a Store (pellucid store build), or exact=False."
        )
    check_read(source, corpus, {})
    check_pooling(source, pooling)
    return source


def row_classes(store: Store, concept: Concept) -> RowClasses:
    """The class and document group of every row."""
    store.check_complete()
    warn_of_sentence_labels(store.about, concept, stacklevel=4)
    ready = labelled_store(store, concept)
    values: list[str | None] = []
    groups: list[Array] = []
    for entry in ready.entries:
        table = ready.table(entry, ["sentence", "position"])
        known = {number: word_labels(each, concept.name) for number, each in ready.sentences(entry).items()}
        places = zip(table["sentence"].to_pylist(), table["position"].to_pylist(), strict=True)
        values += [known[number][place] if place >= 0 else None for number, place in places]
        groups.append(np.full(entry.rows, entry.group))
    present = sorted({value for value in values if value is not None})
    classes = tuple(concept.grouped(concept.name, present))
    code = {name: place for place, name in enumerate(classes)}
    codes = np.array([-1 if value is None else code[value] for value in values], dtype=np.int64)
    return RowClasses(classes, codes, np.concatenate(groups))


def store_keys(store: Store, sites: Sites) -> tuple[str, ...]:
    """The keys of the store's first model that are asked for; a twin beside it is left alone."""
    mine = tuple(key for key in store.keys if split_key(key)[0] == 0)
    asked = [part.strip() for each in patterns(sites) for part in each.split(",")]
    wanted = tuple(f"0:{site_of(part)}" if len(store.models) > 1 else part for part in asked)
    found = chosen_keys(store.models, wanted) if asked else mine
    absent = [key for key in found if key not in mine]
    if absent:
        raise SweepError(f"The store does not hold {absent[0]!r}; it holds {', '.join(mine)}.")
    return found


def columns(store: Store, key: str, rows: Array, *, memory: int = MEMORY) -> Iterator[tuple[int, Array]]:
    """Some rows of one site, a few units at a time: the number of the first unit, and values [units, rows]."""
    step = max(1, memory // max(1, 4 * store.rows))
    for start in range(0, store.width(key), step):
        parts = [store.shard(entry, key)[:, start : start + step].float().numpy() for entry in store.entries]
        values = np.concatenate(parts)[rows].T
        if not np.isfinite(values).all():
            unit = start + int(np.flatnonzero(~np.isfinite(values).all(1))[0])
            raise SweepError(f"Unit {unit} of {key!r} is NaN or infinite for some word; leave that site out.")
        yield start, np.ascontiguousarray(values)


def provenance_of(store: Store, arguments: dict[str, object], seed: int | None, keys: Sequence[str]) -> Provenance:
    """Where numbers from a store come from."""
    about = store.about
    told = {
        **arguments,
        "sites": [site_of(key) for key in keys],
        "store": {"dtype": about["dtype"], "reading": about["reading"]},
    }
    counts = about["counts"]
    return Provenance(
        function="neurons.ranking",
        arguments=told,
        models=tuple({"name": model.name, "fingerprint": model.fingerprint} for model in store.models[:1]),
        corpus={**about["corpus"], "sentences": counts["sentences"], "words": counts["words"]},
        seed=seed,
        versions=about["versions"],
    )
