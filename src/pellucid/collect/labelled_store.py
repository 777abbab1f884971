"""A store whose sentences carry one label more: so a concept can be looked for in rows that were kept before it."""

from __future__ import annotations

from pellucid.collect.store import Entry, Store
from pellucid.corpus.labelling import Labelling, labelled_sentence
from pellucid.corpus.sentence import Sentence


def labelled_store(store: Store, labelling: Labelling) -> Store:
    """The same rows under one more label, for `replay`; the files are not touched, and `words` does not show it."""
    if labelling.plain:
        return store
    ready = labelling.prepared(sentence for entry in store.entries for sentence in store.sentences(entry).values())
    return _LabelledStore(store, ready)


class _LabelledStore(Store):
    """A store that labels its sentences while they are read."""

    def __init__(self, store: Store, labelling: Labelling) -> None:
        labels = sorted({*store.about["labels"], labelling.name})
        super().__init__(store.folder, {**store.about, "labels": labels}, store.entries)
        self._labelling, self._store = labelling, store

    def sentences(self, entry: Entry) -> dict[int, Sentence]:
        """The sentences of one shard, by their number in the corpus, with the label."""
        known = self._store.sentences(entry)
        return {number: labelled_sentence(sentence, self._labelling) for number, sentence in known.items()}
