"""Token sample: the rows of some words, chosen by a hash of where they stand in the corpus and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting
from pellucid.collect.state import Array, State
from pellucid.errors import SweepError, listing

if TYPE_CHECKING:
    from pellucid.collect.words import WordBatch
    from pellucid.corpus import Sentence

DTYPES = ("float32", "float16")
PLACES = ("hash", "ordinal", "sentence", "position", "group")
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class TokenSample(Collector):
    """The rows of the `size` words with the smallest hash of (seed, document, sentence, position): a bottom-k sample.

    It depends on the corpus and the seed alone: every model and every cutting of the corpus gives the same words, and
    samples merge by keeping the smallest hashes. With the pooling `all`, the second and further tokens of a word (and
    special tokens) hash by their number too. Each row keeps its document group.
    """

    kind: ClassVar[str] = "token-sample"
    sites: Patterns
    size: int = field(default=4096, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    dtype: str = field(default="float32", kw_only=True)

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise SweepError(f"dtype={self.dtype!r} is not kept in samples; use one of {listing(DTYPES)}.")
        if self.size < 1:
            raise SweepError(f"size={self.size} keeps nothing; use 1 or more.")

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    @property
    def grouped(self) -> bool:
        return True  # every row keeps its document group

    def open(self, setting: Setting) -> Accumulator:
        keys = setting.keys(self.sites)
        return _Sample(keys, [setting.width(key) for key in keys], setting.device, self)

    def merge(self, left: State, right: State) -> State:
        if left.facts != right.facts:
            raise SweepError(
                f"Samples of {left.facts['keys']} (seed {left.facts['seed']}) and of {right.facts['keys']} (seed "
                f"{right.facts['seed']}) cannot be merged."
            )
        hashes, ordinal = (np.concatenate([left.arrays[name], right.arrays[name]]) for name in ("hash", "ordinal"))
        chosen = np.lexsort((ordinal, hashes))[: self.size]
        arrays = {name: np.concatenate([array, right.arrays[name]])[chosen] for name, array in left.arrays.items()}
        return State(arrays, left.facts)

    def view(self, state: State, setting: Setting) -> TokenSampleView:
        order = np.argsort(state.arrays["ordinal"], kind="stable")
        arrays = {name: array[order] for name, array in state.arrays.items()}
        return TokenSampleView(tuple(state.facts["keys"]), arrays)

    def memory(self, setting: Setting, groups: int) -> int:
        numbers = sum(setting.width(key) for key in setting.keys(self.sites))
        return self.size * (numbers * np.dtype(self.dtype).itemsize + 8 * len(PLACES))

    def sentences(self, state: State) -> set[int]:
        return {int(number) for number in np.unique(state.arrays["sentence"])}


@dataclass(frozen=True, eq=False)
class TokenSampleView:
    """Sampled rows in the order of the corpus: `rows(key)` is [words, width], the same words for every key."""

    keys: tuple[str, ...]
    arrays: Mapping[str, Array]

    @property
    def n(self) -> int:
        """Number of words in the sample."""
        return len(self.arrays["ordinal"])

    @property
    def ordinal(self) -> Array:
        """Each word's number in the corpus, [words], rising."""
        return self.arrays["ordinal"]

    @property
    def sentence(self) -> Array:
        """Each word's sentence, [words]."""
        return self.arrays["sentence"]

    @property
    def position(self) -> Array:
        """Each word's number in its sentence, [words]."""
        return self.arrays["position"]

    @property
    def group(self) -> Array:
        """Each word's document group, [words]."""
        return self.arrays["group"]

    def rows(self, key: str) -> Array:
        """The rows of one key in float32, [words, width]."""
        if key not in self.keys:
            raise SweepError(f"No sample of {key!r} was gathered; there are those of {listing(self.keys, most=40)}.")
        return self.arrays[f"rows/{self.keys.index(key)}"].astype(np.float32)


def sentence_hash(seed: int, sentence: Sentence) -> int:
    """64 bits of blake2b over the seed and the document's and the sentence's own names."""
    return name_hash(str(seed), sentence.document, sentence.id)


def name_hash(*parts: str) -> int:
    """64 bits of blake2b over some names, in which no two lists of names run together."""
    content = b"".join(len(part.encode()).to_bytes(8, "little") + part.encode() for part in parts)
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def mixed(base: Array, number: Array) -> Array:
    """SplitMix64 of uint64 `base` moved on by `number` + 1 steps (Steele, Lea and Flood 2014)."""
    z = base + (number.astype(np.int64) + 1).astype(np.uint64) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def row_hashes(batch: WordBatch, seed: int) -> Array:
    """The hash of every row, uint64 [N]."""
    numbers, place = np.unique(batch.sentence, return_inverse=True)
    bases = np.array([sentence_hash(seed, batch.sentences[int(number)]) for number in numbers], np.uint64)
    hashes = mixed(bases[place], batch.position)
    again = _repeats(batch)
    return np.where(again > 0, mixed(hashes, again), hashes)


def _repeats(batch: WordBatch) -> Array:
    """How many earlier rows of the batch are of the same sentence and position, [N]: not 0 for sub-words alone."""
    order = np.lexsort((batch.ordinal, batch.position, batch.sentence))
    sentence, position = batch.sentence[order], batch.position[order]
    starts = np.ones(len(order), bool)
    starts[1:] = (sentence[1:] != sentence[:-1]) | (position[1:] != position[:-1])
    begin = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    again = np.zeros(len(order), np.int64)
    again[order] = np.arange(len(order)) - begin
    return again


class _Sample(Accumulator):
    """The rows kept so far, in places that better ones take over; no more than `size` and one batch are ever held."""

    def __init__(self, keys: tuple[str, ...], widths: list[int], device: torch.device, collector: TokenSample) -> None:
        self._keys, self._collector = keys, collector
        dtype = torch.float32 if collector.dtype == "float32" else torch.float16
        self._rows = [torch.zeros(collector.size, width, dtype=dtype, device=device) for width in widths]
        types = {name: np.uint64 if name == "hash" else np.int64 for name in PLACES}
        self._places: dict[str, Array] = {name: np.zeros(collector.size, kind) for name, kind in types.items()}
        self._filled = 0

    def add(self, batch: WordBatch) -> None:
        if not batch.size:
            return
        size, hashes = self._collector.size, row_hashes(batch, self._collector.seed)
        kept = self._places["hash"][: self._filled]
        both = np.concatenate([kept, hashes])
        ordinals = np.concatenate([self._places["ordinal"][: self._filled], batch.ordinal])
        best = np.lexsort((ordinals, both))[:size]
        new = np.sort(best[best >= self._filled]) - self._filled  # rows of the batch that enter
        stay = np.zeros(self._filled, bool)
        stay[best[best < self._filled]] = True
        slots = np.concatenate([np.flatnonzero(~stay), np.arange(self._filled, size)])[: len(new)]
        self._filled = max(self._filled, int(slots.max(initial=-1)) + 1)
        group = np.full(batch.size, batch.group, np.int64)
        found = (hashes, batch.ordinal, batch.sentence, batch.position, group)
        for name, array in zip(PLACES, found, strict=True):
            self._places[name][slots] = array[new]
        for number, key in enumerate(self._keys):
            self._keep(number, batch.rows[key][torch.from_numpy(new).to(batch.rows[key].device)], slots)

    def _keep(self, number: int, rows: Tensor, slots: Array) -> None:
        held = self._rows[number]
        narrow = rows.to(held.dtype)
        if held.dtype == torch.float16 and bool((torch.isinf(narrow) & ~torch.isinf(rows)).any()):
            raise SweepError(
                f"{self._keys[number]!r} has values over 65,504, which float16 does not hold; use dtype='float32'."
            )
        held[torch.from_numpy(slots).to(held.device)] = narrow

    def state(self) -> State:
        filled = {name: array[: self._filled] for name, array in self._places.items()}
        order = np.lexsort((filled["ordinal"], filled["hash"]))
        arrays = {name: array[order] for name, array in filled.items()}
        for number, rows in enumerate(self._rows):
            arrays[f"rows/{number}"] = rows[torch.from_numpy(order).to(rows.device)].cpu().numpy()
        facts: dict[str, Any] = {"keys": list(self._keys), "seed": self._collector.seed}
        return State(arrays, facts)
