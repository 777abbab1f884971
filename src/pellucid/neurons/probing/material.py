"""What probes read: the rows of a model and of its random twin, with the class of every word, dealt out to learn and
to test."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.collect.collector import keys, split_key
from pellucid.collect.sentence_rows import is_whole
from pellucid.collect.store import Store
from pellucid.errors import listing
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.concepts import Concept, as_concept
from pellucid.neurons.probing.labels import Labelled, Split, labelled, split, warn_of_rare
from pellucid.neurons.probing.rows import MEMORY, StoreRows, memory_option
from pellucid.neurons.sources import Sites, check_pooling, patterns, usual_sites
from pellucid.reading import random_twin
from pellucid.results import Provenance, ResultError

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus
    from pellucid.model import Model

_ENOUGH_SEEN = 0.5
"""Share of the words for testing whose word type must be learned from, for a control task to tell anything."""
_FEWEST_HELD = 100
"""Words that memory must hold, or all that there are; memory as it is by default is always enough."""


@dataclass(frozen=True)
class Reading:
    """Which rows a probe reads, and how they are dealt out.

    `sites` are those to read (default: all of a store; residual stream and MLP units of a model). Classes with fewer
    than `fewest` words are left out. A share `test` of the words is for testing, by whole documents, drawn with `seed`.
    At most `memory` bytes of rows are held at a time, and half as much of those that stop training. `pooling` makes
    rows of a model's words (default: mean), or of whole sentences; of a store it can only be that with which it was
    built.
    """

    sites: Sites = None
    fewest: int = 20
    test: float = 0.2
    seed: int = 0
    memory: int = MEMORY
    pooling: str | None = None

    @property
    def how(self) -> str:
        """The pooling of a model's rows."""
        return self.pooling or "mean"


@dataclass(frozen=True, eq=False)
class Material:
    """The rows of a model and of its random twin, their classes, and the split; `store` is where the rows are."""

    store: Store
    rows: StoreRows
    twin: StoreRows | None
    data: Labelled
    split: Split

    @property
    def types_seen(self) -> float:
        """The share of the words for testing whose word type is among those to learn from: what can be known by heart
        of a control task."""
        return float(np.isin(self.data.types[self.split.test], self.data.types[self.split.training]).mean())

    def provenance(self, function: str, arguments: dict[str, Any], seed: int) -> Provenance:
        """Where numbers made of it come from."""
        about, chosen = self.store.about, {split_key(key)[0] for key in self.rows.keys}
        twins = {split_key(key)[0] for key in self.twin.keys} if self.twin is not None else set[int]()
        facts = [*(self.store.models[number] for number in sorted(chosen))]
        if self.twin is not None:
            facts += [self.twin.store.models[number] for number in sorted(twins)]
        told = {
            "concept": self.data.concept.name,
            "rule": self.data.concept.rule,
            "sites": [split_key(key)[1] for key in self.rows.keys],
            "store": {name: about[name] for name in ("reading", "dtype") if name in about},
            "held out": self.split.mark,
            "word types seen": self.types_seen,
            "left out": dict(self.data.left_out),
            **arguments,
        }
        counted = {name: about["counts"][name] for name in ("sentences", "words")}
        models = tuple({"name": each.name, "fingerprint": each.fingerprint} for each in facts)
        return Provenance(function, told, models, {**about["corpus"], **counted}, seed, about["versions"])


@contextmanager
def opened(
    source: Store | Model | Found,
    corpus: Corpus | None,
    concept: str | Concept,
    reading: Reading,
    *,
    random: Store | None = None,
    controlled: bool = True,
) -> Generator[Material]:
    """The material of a probe, for as long as the block lasts; a model and a corpus are read into a temporary store.

    A sweep keeps no rows and is refused. Where `controlled`, so is a store without the model's random twin, unless
    `random` is a store of one.
    """
    from pellucid.model import Model

    chosen = as_concept(concept)
    if isinstance(source, Store):
        if corpus is not None:
            raise ResultError("A store has its text already; give a corpus with a model only.")
        check_pooling(source, reading.pooling)
        yield _cautioned(material(source, chosen, reading, random=random, controlled=controlled))
        return
    if not isinstance(source, Model):
        raise ResultError(
            f"A probe learns from the rows of words, which a {type(source).__name__} does not keep: give a store "
            "(build_store), or a model and a corpus."
        )
    if random is not None:
        raise ResultError("A model reads the text beside a random twin of its own; give random= with a store only.")
    if corpus is None:
        raise ResultError(f"The model {source.name!r} alone shows nothing; give a corpus to read, or a store.")
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        text = corpus.labelled(chosen) if is_whole(reading.how) else corpus
        store = kept(source, text, Path(folder) / "store", reading, controlled)
        yield _cautioned(material(store, chosen, reading, controlled=controlled))


def _cautioned(found: Material) -> Material:
    """The material, after a warning where a control task cannot be learned, as most words are of types of their own."""
    if found.types_seen < _ENOUGH_SEEN:
        warnings.warn(
            f"{found.types_seen:.0%} of the rows for testing have a word type that is learned from, so a control task "
            "cannot be learned by heart and selectivity says little: give the words of arrays with words=, or more "
            "text; whole sentences have no control task.",
            NeuronWarning,
            stacklevel=5,
        )
    return found


def kept(model: Model, corpus: Corpus, folder: Path, reading: Reading, controlled: bool) -> Store:
    """A store of a model's rows and, where `controlled`, of those of its random twin."""
    from pellucid.collect.build import build_store
    from pellucid.model import Model

    models = [model, Model.random_like(model, reading.seed)] if controlled else [model]
    sites = patterns(reading.sites) or usual_sites(model.sites)
    long = "truncate" if is_whole(reading.how) else "window"
    return build_store(models, corpus, folder, sites, dtype="float32", long=long, pooling=reading.how)


def material(
    store: Store, concept: Concept, reading: Reading, *, random: Store | None = None, controlled: bool = True
) -> Material:
    """The material of a probe from a store that is there."""
    rows = StoreRows(store, _chosen(store, 0, reading.sites), memory=reading.memory)
    _check_memory(rows)
    data, twin = labelled(store, concept, fewest=reading.fewest), None
    warn_of_rare(data.concept, data.left_out, reading.fewest)
    if random is not None:
        number = _twin_in(random, store)
        twin = StoreRows(random, _chosen(random, number, reading.sites), memory=reading.memory)
    elif controlled:
        number = random_twin(store.models, 0)
        if number is None:
            raise ResultError(
                f"The store in {str(store.folder)!r} holds {listing(each.name for each in store.models)} and no "
                "randomly initialised twin, without which a probe's accuracy means nothing: build it from both, "
                "build_store([model, Model.random_like(model)], …), or give random=, a store of the twin."
            )
        twin = StoreRows(store, _chosen(store, number, reading.sites), memory=reading.memory)
    if twin is not None and twin.names != rows.names:
        raise ResultError(f"The random twin has {len(twin.names)} neurons and the model {len(rows.names)}; build both "
                          "stores with the same sites.")  # fmt: skip
    return Material(store, rows, twin, data, split(data, test=reading.test, seed=reading.seed))


def _check_memory(rows: StoreRows) -> None:
    """Raises where memory holds too few words to learn from, with the bytes that are needed."""
    size = 4 * len(rows.names)
    needed = min(MEMORY, size * min(_FEWEST_HELD, rows.count))
    if rows.memory < needed:
        raise ResultError(
            f"memory={rows.memory} bytes holds {max(0, rows.memory) // size:,} words of {len(rows.names):,} neurons, "
            f"which is too few to learn from; use {needed} or more ({memory_option(needed)}), "
            "or fewer sites."
        )


def _chosen(store: Store, number: int, sites: Sites) -> tuple[str, ...]:
    """The keys of one of a store's models, all or those that patterns select."""
    mine = tuple(key for key in store.keys if split_key(key)[0] == number)
    if sites is None:
        return mine
    parts = [part.strip() for each in patterns(sites) for part in each.split(",")]
    several = len(store.models) > 1
    asked = keys(store.models, tuple(f"{number}:{part}" if several else part for part in parts))
    absent = [key for key in asked if key not in mine]
    if absent:
        raise ResultError(f"The store does not hold {listing(absent)}; it holds {listing(mine, most=40)}.")
    return asked


def _twin_in(random: Store, store: Store) -> int:
    """The number of the random twin of a store's model in a store of it; raises where that has other words, or none.

    A twin bears the mark of `Model.random_like`, and its sites are those of the model, with other weights.
    """
    same = store.about["corpus"]["fingerprint"] == random.about["corpus"]["fingerprint"] is not None
    if not same or store.rows != random.rows:
        raise ResultError(
            f"{str(random.folder)!r} has {random.rows:,} rows of {random.about['corpus']['name']!r} and "
            f"{str(store.folder)!r} {store.rows:,} of {store.about['corpus']['name']!r}; build both from one corpus."
        )
    own = store.models[0]
    number = random_twin((own, *random.models), 0)
    twin = None if number is None else random.models[number - 1]
    if number is None or twin is None or twin.fingerprint == own.fingerprint or twin.sizes != own.sizes:
        raise ResultError(
            f"{str(random.folder)!r} holds {listing(each.name for each in random.models)}, and no randomly initialised "
            f"twin of {own.name!r}: give random= a store of Model.random_like(model)."
        )
    return number - 1
