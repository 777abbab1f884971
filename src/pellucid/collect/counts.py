"""Head counts: where every attention head looks, word by word, beside what uniform attention would give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting
from pellucid.collect.effective_weights import RAW, PatternReader, check_weights, sites_read
from pellucid.collect.state import Array, State
from pellucid.collect.sums import added, by_group, total_of
from pellucid.collect.word_weights import (
    WordKeys,
    WordWeights,
    is_causal,
    no_numbers,
    without_padding,
    word_keys,
)
from pellucid.collect.words import Words
from pellucid.errors import SweepError, listing

MEASURES = (
    "confidence",
    "confidence2",
    "entropy",
    "entropy2",
    "distance",
    "words",
    "first",
    "other",
    "sink",
    "self",
    "previous",
    "next",
)
"""What is summed per head over query words, see `HeadCounts`."""

_TINY = 1e-37
"""Taken for 0 in logarithms, so that 0·ln 0 is 0."""
_AT_ONCE = 2**17
"""Weights measured at a time, so that their copies stay in the processor's cache."""


@dataclass(frozen=True)
class HeadCounts(Collector):
    """Sums over query words of what each head does with its attention α (words: summed over key pieces, mean over query
    pieces; special tokens are no queries, and never renormalised away).

    `confidence` max α over words (and its square); `entropy` −Σα ln α over words and single special tokens (and its
    square); `distance` Σα|i−j| and `words` Σα over words; mass on the `first` special token, on all `other` tokens that
    are no word, on the first position (`sink`), on `self`, `previous` and `next` word. Counts of argmax − i from
    −offsets to offsets, and further. The same of uniform attention over what a query may see (in a sliding window
    too: all before it) is the chance level. With `weights="effective"`, α is |effective attention| with rows that sum
    to one before they are pooled, and the argmax is that of its signed numbers.
    """

    kind: ClassVar[str] = "head-counts"
    sites: Patterns = "pattern.*"
    offsets: int = field(default=8, kw_only=True)
    groups: bool = field(default=True, kw_only=True)
    weights: str = field(default=RAW, kw_only=True)

    def __post_init__(self) -> None:
        if self.offsets < 1:
            raise SweepError(f"offsets={self.offsets} counts nothing; use 1 or more.")
        check_weights(self.weights)

    @property
    def raw(self) -> tuple[str, ...]:
        return sites_read(self.sites, self.weights)

    def open(self, setting: Setting) -> Accumulator:
        keys = setting.keys(self.sites)
        causal = [is_causal(key, setting, reader="HeadCounts") for key in keys]
        return _Counts(keys, causal, self.offsets, self.groups, PatternReader(keys, self.weights))

    def merge(self, left: State, right: State) -> State:
        if left.facts != right.facts:
            raise SweepError(f"Head counts of {left.facts['keys']} and of {right.facts['keys']} cannot be merged.")
        return State(added(left.arrays, right.arrays), left.facts)

    def view(self, state: State, setting: Setting) -> HeadCountsView:
        parts = by_group(state.arrays)
        return HeadCountsView(tuple(state.facts["keys"]), state.facts["offsets"], total_of(parts), parts)

    def memory(self, setting: Setting, groups: int) -> int:
        keys = setting.keys(self.sites)
        one = sum(8 * setting.width(key) * (len(MEASURES) + 2 * self.offsets + 3) for key in keys)
        return (one + 8 * len(keys) * (len(MEASURES) + 1)) * (groups if self.groups else 1)


@dataclass(frozen=True, eq=False)
class HeadCountsView:
    """Head statistics as means over query words; `sums` are of all words, `parts` of each document group."""

    keys: tuple[str, ...]
    furthest: int
    sums: Mapping[str, Array]
    parts: Mapping[str, Mapping[str, Array]]

    @property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the document groups that have words; none unless they were kept apart."""
        return tuple(int(group) for group in self.parts if group != "all")

    def group(self, number: int) -> HeadCountsView:
        """One document group alone."""
        return HeadCountsView(self.keys, self.furthest, self._part(number), {})

    def without(self, number: int) -> HeadCountsView:
        """All words but those of one document group, for the jackknife."""
        part = self._part(number)
        rest = {name: array - part[name] if name in part else array for name, array in self.sums.items()}
        return HeadCountsView(self.keys, self.furthest, rest, {})

    def n(self, key: str) -> int:
        """Query words at a key."""
        number = self._number(key)
        return int(self.sums["n"][number]) if "n" in self.sums else 0

    def mean(self, measure: str, key: str) -> Array:
        """A measure's mean over query words, [heads]; `distance` is Σα|i−j| / Σα, 0 where a head never sees a word."""
        return self._mean(measure, self._sums(key), self.n(key))

    def chance(self, measure: str, key: str) -> float:
        """What uniform attention over the tokens that a query may see gives for `mean`."""
        self._sums(key)
        return float(self._mean(measure, self.sums["chance"][self._number(key)][None], self.n(key))[0])

    def variance(self, measure: str, key: str) -> Array:
        """The variance over query words of `confidence` or `entropy`, [heads]."""
        if measure not in ("confidence", "entropy"):
            raise SweepError(f"No squares of {measure!r} were gathered, only those of confidence and entropy.")
        mean = self.mean(measure, key)
        second = self._sums(key)[:, MEASURES.index(f"{measure}2")] / self.n(key)
        return np.maximum(0.0, second - mean**2)

    def offsets(self, key: str) -> Array:
        """Counts of argmax − query, [heads, 2·offsets + 3]: further left, −offsets … offsets, further right."""
        self._sums(key)
        return self.sums[f"offsets/{self._number(key)}"]

    def _mean(self, measure: str, sums: Array, n: int) -> Array:
        names = tuple(name for name in MEASURES if not name.endswith("2"))
        if measure not in names:
            raise SweepError(f"There is no measure {measure!r} of heads; there are {listing(names)}.")
        if measure == "distance":
            mass = sums[:, MEASURES.index("words")]
            return np.divide(sums[:, MEASURES.index("distance")], mass, out=np.zeros(len(mass)), where=mass > 0)
        return sums[:, MEASURES.index(measure)] / n

    def _sums(self, key: str) -> Array:
        if self.n(key) < 1:
            raise SweepError(f"No query word was counted at {key!r}; give the sweep a corpus with words.")
        return self.sums[f"sums/{self._number(key)}"]

    def _number(self, key: str) -> int:
        if key not in self.keys:
            raise SweepError(f"No heads of {key!r} were counted; there are those of {listing(self.keys, most=40)}.")
        return self.keys.index(key)

    def _part(self, number: int) -> Mapping[str, Array]:
        if str(number) not in self.parts:
            raise SweepError(
                f"There is no document group {number}; there are {listing(self.groups)} (groups=True keeps them)."
            )
        return self.parts[str(number)]


def uniform(keys: WordKeys, causal: bool) -> Tensor:
    """Sums of every measure for uniform attention over the tokens that each query may see, [measures]."""
    if causal not in keys.chance:
        keys.chance[causal] = summed(keys.evenly(causal), keys, 1)[0][0]
    return keys.chance[causal]


def summed(found: WordWeights, keys: WordKeys, offsets: int) -> tuple[Tensor, Tensor]:
    """Sums of `MEASURES` [heads, measures], float64, and counts of argmax offsets [heads, 2·offsets + 3].

    Rows of queries that do not count are 0 in every measure.
    """
    between, confidence, best = found.between, found.largest, found.best
    heads, device, bins = between.shape[2], between.device, 2 * offsets + 3
    entropy = _entropy(found)
    columns, singles, sink = found.columns, found.singles, found.sink
    if keys.words.pooling == "all":  # special tokens may have a column and a row, and are neither word nor query
        query = keys.query.to(device)[:, :, None]
        columns, singles = ((part * query[..., None]).sum(1) for part in (between, found.alone))
        kept = keys.is_word.to(device)[:, None, None, :] * query[..., None]
        between = between * kept
        confidence = between.amax(-1)
        top, best = (found.ranked * kept).max(-1)
        best = torch.where(top > 0, best, -1)
        entropy, sink = entropy * query, sink * query
    first = _mass(columns, keys.first_word) + _mass(singles, keys.first_extra)
    other = _mass(columns, keys.other_word) + _mass(singles, keys.other_extra)
    parts = [confidence, confidence**2, entropy, entropy**2]
    sums = [part.double().sum((0, 1)) for part in parts]
    sums += [part.double() for part in _along(between.sum(0).double())]
    near = [sums.pop() for _ in range(3)][::-1]
    sums += [first.double(), other.double(), sink.double().sum((0, 1)), *near]
    away = best - torch.arange(between.shape[1], device=device)[:, None]
    bin_of = away.clamp(-offsets - 1, offsets + 1) + offsets + 1 + bins * torch.arange(heads, device=device)
    counts = torch.bincount(bin_of[best >= 0], minlength=heads * bins)
    return torch.stack(sums, dim=-1), counts.view(heads, bins)


def _entropy(found: WordWeights) -> Tensor:
    """−Σ α ln α over words and single tokens, [B, W, heads], some rows at a time."""
    size, width, heads, _ = found.between.shape
    step = max(1, _AT_ONCE // max(1, width * heads * (width + found.alone.shape[3])))
    made = [
        -(_logarithms(found.between[start : start + step]) + _logarithms(found.alone[start : start + step]))
        for start in range(0, size, step)
    ]
    return torch.cat(made) if made else found.largest


def _along(whole: Tensor) -> list[Tensor]:
    """Distance, attention on words, on self, previous and next word, from the sum over texts [W, heads, W]: [heads]."""
    places = torch.arange(len(whole), device=whole.device)
    away = (places[:, None] - places).abs().to(whole)
    steps = [
        whole.diagonal(step, 0, 2).sum(-1) if abs(step) < len(whole) else whole.new_zeros(whole.shape[1])
        for step in (0, -1, 1)
    ]
    return [torch.einsum("qhk,qk->h", whole, away), whole.sum((0, 2)), *steps]


def _logarithms(weights: Tensor) -> Tensor:
    """Σ α ln α over the last axis; 0 ln 0 is 0."""
    return weights.clamp(min=_TINY).log_().mul_(weights).sum(-1)


def _mass(columns: Tensor, chosen: Tensor) -> Tensor:
    """The attention [B, heads, keys] on chosen keys [B, keys] of each text, summed: [heads]."""
    if not bool(chosen.any()):
        return columns.new_zeros(columns.shape[1])
    return torch.einsum("bhk,bk->h", columns, chosen.to(columns))


class _Counts(Accumulator):
    """Sums per head and group, on the CPU: they are small."""

    def __init__(
        self, keys: tuple[str, ...], causal: list[bool], offsets: int, groups: bool, reader: PatternReader
    ) -> None:
        self._keys, self._causal, self._offsets, self._apart = keys, causal, offsets, groups
        self._reader = reader
        self._arrays: dict[str, Array] = {}

    def see(self, key: str, tensor: Tensor, words: Words) -> None:
        read = self._reader.read(key, tensor, words)
        if read is None:
            return
        number = self._keys.index(read.key)
        keys = word_keys(words)
        sums, counts = summed(read.between_words(), keys, self._offsets)
        if not bool(torch.isfinite(sums).all()):  # queries of padding may be NaN, and are not read
            real = WordWeights(without_padding(read.summed, words), keys, read.signed)
            sums, counts = summed(real, keys, self._offsets)
        broken = (~torch.isfinite(sums)).any(1).nonzero()
        if len(broken):
            raise no_numbers(read.key, int(broken[0]))
        group = str(words.group) if self._apart else "all"
        size = len(self._keys)
        n, chance = np.zeros(size, np.int64), np.zeros((size, len(MEASURES)))
        n[number] = int(keys.query.sum())
        chance[number] = uniform(keys, self._causal[number]).numpy()
        new = {"n": n, "chance": chance, f"sums/{number}": sums.cpu().numpy()}
        new[f"offsets/{number}"] = counts.cpu().numpy()
        self._arrays = added(self._arrays, {f"{group}/{name}": array for name, array in new.items()})

    def state(self) -> State:
        return State(self._arrays, {"keys": list(self._keys), "offsets": self._offsets})
