"""A store whose sentences carry one label more: so a concept can be looked for in rows that were kept before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from pellucid.collect.sentence_rows import is_whole
from pellucid.collect.store import Entry, Store
from pellucid.corpus.labelling import Labelling, labelled_sentence
from pellucid.corpus.sentence import Sentence
from pellucid.errors import SweepError, listing


def labelled_store(store: Store, labelling: Labelling) -> Store:
    """The same rows under one more label, for `replay`; the files are not touched, and `words` does not show it.

    A store that was built from text with that label is given back as it is.
    """
    check_rows(store, labelling)
    if labelling.plain or _has(store, labelling):
        return store
    return _LabelledStore(store, labelling.prepared(store.text()), labelling.rule)


def check_rows(store: Store, labelling: Labelling) -> None:
    """Raises where a store has rows of whole sentences, and a rule tells words apart."""
    pooling = str(store.about["reading"]["pooling"])
    if not is_whole(pooling):
        return
    first = next((each for entry in store.entries for each in store.sentences(entry).values()), None)
    if first is not None and not labelling.wide(first) and labelling.name not in first.facts:
        raise SweepError(
            f"The store in {str(store.folder)!r} has a row for every sentence ({pooling}), and {labelling.name!r} "
            f"tells words apart; its sentences have {listing(store.about['labels'])}: label them before building "
            "(Corpus.labelled), or build a store of words."
        )


def _has(store: Store, labelling: Labelling) -> bool:
    """Whether the store's text was labelled so before it was built; a label of the same name by another rule raises."""
    if labelling.name not in store.about["labels"]:
        return False
    if store.about.get("rules", {}).get(labelling.name) != labelling.rule:
        raise SweepError(
            f"The store in {str(store.folder)!r} has a label called {labelling.name!r} already, which does not come "
            "from this concept; give the concept another name, or build the store from Corpus.labelled(concept)."
        )
    return True


class _LabelledStore(Store):
    """A store that labels its sentences while they are read."""

    def __init__(self, store: Store, labelling: Labelling, rule: str) -> None:
        labels = sorted({*store.about["labels"], labelling.name})
        rules = {**store.about.get("rules", {}), labelling.name: rule}
        super().__init__(store.folder, {**store.about, "labels": labels, "rules": rules}, store.entries)
        self._labelling, self._store = labelling, store

    def sentences(self, entry: Entry) -> dict[int, Sentence]:
        """The sentences of one shard, by their number in the corpus, with the label."""
        known = self._store.sentences(entry)
        return {number: labelled_sentence(sentence, self._labelling) for number, sentence in known.items()}

    def text(self) -> Iterator[Sentence]:
        """All sentences that the store was built from."""
        return self._store.text()

    def table(self, entry: Entry, columns: list[str] | None = None) -> Any:
        """The words of one shard, as the store itself has them."""
        return self._store.table(entry, columns)

    def shard(self, entry: Entry, key: str) -> Tensor:
        """The rows of one site in one shard."""
        return self._store.shard(entry, key)

    def layer(self, key: str) -> Tensor:
        """All rows of one site."""
        return self._store.layer(key)

    def slice(self, key: str, start: int, stop: int) -> Tensor:
        """Some rows of one site."""
        return self._store.slice(key, start, stop)
