"""Arrays as a source of rankings: activations and labels that another program made, as a store held in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import ModelFacts
from pellucid.collect.encode import Reading
from pellucid.collect.found import facts_to_json
from pellucid.collect.plan import Counts
from pellucid.collect.state import FORMAT
from pellucid.collect.store import Entry, Store
from pellucid.corpus.sentence import Sentence
from pellucid.model.sites import Site
from pellucid.neurons.methods import LABEL
from pellucid.neurons.training_part import whole_of
from pellucid.results import Array, ResultError, versions
from pellucid.uncertainty import GROUPS

ROWS = (np.ndarray, Tensor, list, tuple)
"""What a matrix of another program may be."""


class ArrayStore(Store):
    """Rows and labels in memory, read as a store of one model's residual stream is."""

    def __init__(self, about: dict[str, Any], entries: tuple[Entry, ...], rows: Tensor, units: list[Sentence]) -> None:
        super().__init__(Path("arrays"), about, entries)
        self._rows, self._units = rows, units
        sizes = [len(unit.spans) for unit in units]
        self._owner = np.repeat(np.arange(len(units)), sizes)
        self._position = np.concatenate([np.arange(size) for size in sizes])

    @property
    def bytes(self) -> int:
        """Nothing lies on disk."""
        return 0

    def shard(self, entry: Entry, key: str) -> Tensor:
        """The rows of one site in one part."""
        self._check_key(key)
        start = self.keys.index(key) * self.width(key)
        return self._rows[entry.first : entry.first + entry.rows, start : start + self.width(key)]

    def layer(self, key: str) -> Tensor:
        """All rows of one site."""
        return torch.cat([self.shard(entry, key) for entry in self.entries])

    def slice(self, key: str, start: int, stop: int) -> Tensor:
        """Rows from `start` up to `stop` of one site."""
        return self.layer(key)[start:stop]

    def unit(self, key: str, number: int) -> Tensor:
        """One unit over all rows."""
        return self.layer(key)[:, number]

    def sentences(self, entry: Entry) -> dict[int, Sentence]:
        """The sentences of one part, by their number."""
        own = np.unique(self._owner[entry.first : entry.first + entry.rows])
        return {int(number): self._units[int(number)] for number in own}

    def table(self, entry: Entry, columns: list[str] | None = None) -> Any:
        """What every row of one part is."""
        import pyarrow as arrow

        library: Any = arrow
        place = slice(entry.first, entry.first + entry.rows)
        sentence, position = self._owner[place], self._position[place]
        labels = next(iter(self._units[0].labels))
        told: dict[str, Any] = {"row": np.arange(place.start, place.stop), "sentence": sentence, "position": position}
        places = list(zip(sentence.tolist(), position.tolist(), strict=True))
        told["word"] = [self._units[number].words[at] for number, at in places]
        told[labels] = [self._units[number].labels[labels][at] for number, at in places]
        return library.table({name: value for name, value in told.items() if columns is None or name in columns})


def of_arrays(source: object) -> TypeGuard[Store]:
    """Whether a source is arrays, or the training part of arrays: they have no model, and so no random twin."""
    return isinstance(source, Store) and isinstance(whole_of(source), ArrayStore)


def array_store(
    rows: Array | Tensor | Sequence[Any],
    labels: Sequence[Any] | Array | Tensor,
    *,
    words: Sequence[str] | None = None,
    sentences: Sequence[Any] | None = None,
    layers: int = 1,
    label: str = LABEL,
    name: str = "arrays",
) -> ArrayStore:
    """Activations [rows, layers · width] and one label per row (None or NaN: without) as a source of every ranking.

    The columns of each layer are the site `resid.LAYER`. `words` are the rows' words; `sentences` name the sentence of
    each row, whose rows stand together: without them there are no intervals, and a probe holds out single rows.
    Nothing that is given is changed.
    """
    matrix = _matrix(rows)
    count = len(matrix) if matrix.ndim else 0
    if matrix.ndim != 2 or not count or matrix.dtype.kind not in "fiu":
        raise ResultError(f"Rows are a matrix of numbers [rows, neurons], and not {matrix.dtype} {list(matrix.shape)}.")
    for what, given in (("labels", labels), ("words", words), ("sentences", sentences)):
        if given is not None and len(given) != count:
            raise ResultError(f"There are {count} rows and {len(given)} {what}; give one for each row.")
    if layers < 1 or matrix.shape[1] % layers:
        raise ResultError(f"{matrix.shape[1]} columns cannot be {layers} layers of equal width.")
    with np.errstate(over="ignore"):
        values = torch.from_numpy(np.array(matrix, dtype=np.float32))
    bad = np.argwhere(~np.isfinite(values.numpy()))
    if len(bad):
        raise ResultError(
            f"Row {bad[0][0]} has NaN, infinity or a number too large for float32 in column {bad[0][1]}; leave that "
            "row or column out."
        )
    given = labels.tolist() if isinstance(labels, Tensor) else np.asarray(labels, dtype=object).tolist()
    told = [None if _is_missing(value) else str(value) for value in given]
    text = [str(word) or "_" for word in words] if words is not None else [f"row{place}" for place in range(count)]
    units = _units(told, text, sentences, label)
    sites, width = [Site("resid", layer) for layer in range(layers)], matrix.shape[1] // layers
    mark = blake2b(values.numpy().tobytes() + repr(told).encode(), digest_size=16).hexdigest()
    facts = ModelFacts(name, mark, tuple(sites), {str(site): (width,) for site in sites}, False, "none", "float32")
    entries = _entries(units, grouped=sentences is not None)
    about: dict[str, Any] = {
        "format": FORMAT, "kind": "store", "models": [facts_to_json(facts)], "reading": asdict(Reading()),
        "corpus": {"name": name, "fingerprint": mark, "unit": "rows" if sentences is None else "sentences as given"},
        "dtype": "float32", "widths": {str(site): width for site in sites}, "device": "cpu", "versions": versions(),
        "labels": [label], "shards": len(entries), "groups": len({entry.group for entry in entries}), "frequent": {},
        "counts": asdict(Counts(sentences=len(units), documents=len(units), words=count, tokens=(count,))), "notes": [],
    }  # fmt: skip
    return ArrayStore(about, entries, values, units)


def _matrix(rows: Array | Tensor | Sequence[Any]) -> Array:
    if isinstance(rows, Tensor):
        rows = rows.detach().cpu()
        return (rows.float() if rows.dtype.is_floating_point else rows).numpy()
    try:
        return np.asarray(rows)
    except ValueError:
        raise ResultError("Rows are a matrix of numbers [rows, neurons], and these differ in length.") from None


def _is_missing(value: object) -> bool:
    """Whether a label is none: None, or NaN as tables have it."""
    return value is None or (isinstance(value, float) and value != value)


def _units(labels: list[str | None], words: list[str], sentences: Sequence[Any] | None, label: str) -> list[Sentence]:
    """The rows as sentences: those that are named, or one for each row."""
    names = [str(each) for each in sentences] if sentences is not None else [str(place) for place in range(len(words))]
    found: list[Sentence] = []
    start = 0
    for name, group in groupby(names):
        stop = start + len(list(group))
        own = {label: labels[start:stop]}
        document = name if sentences is not None else "rows"
        found.append(Sentence.of_words(words[start:stop], id=name, document=document, labels=own))
        start = stop
    if len({each.id for each in found}) < len(found):
        raise ResultError("The rows of a sentence must stand together; sort them by sentence.")
    return found


def _entries(units: list[Sentence], *, grouped: bool) -> tuple[Entry, ...]:
    """The parts of the rows: ten runs of sentences for intervals, or one."""
    count = min(GROUPS, len(units)) if grouped else 1
    parts = np.array_split(np.arange(len(units)), count)
    sizes = [sum(len(units[int(place)].spans) for place in part) for part in parts]
    starts = np.cumsum([0, *sizes])
    return tuple(Entry(n, n, size, int(starts[n]), {}) for n, size in enumerate(sizes))
