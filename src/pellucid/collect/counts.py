"""Head counts: where every attention head looks, word by word, beside what uniform attention would give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting, split_key
from pellucid.collect.state import Array, State
from pellucid.collect.sums import added, by_group, total_of
from pellucid.collect.words import Words
from pellucid.errors import SweepError, listing
from pellucid.model.sites import Site, single

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

_AT_ONCE = 2**23
"""Weights measured at a time, so that their copies stay small."""


@dataclass(frozen=True)
class HeadCounts(Collector):
    """Sums over query words of what each head does with its attention α (words: summed over key pieces, mean over query
    pieces; special tokens are no queries, and never renormalised away).

    `confidence` max α over words (and its square); `entropy` −Σα ln α over words and single special tokens (and its
    square); `distance` Σα|i−j| and `words` Σα over words; mass on the `first` special token, on all `other` tokens that
    are no word, on the first position (`sink`), on `self`, `previous` and `next` word. Counts of argmax − i from
    −offsets to offsets, and further. The same of uniform attention over what a query may see (in a sliding window
    too: all before it) is the chance level.
    """

    kind: ClassVar[str] = "head-counts"
    sites: Patterns = "pattern.*"
    offsets: int = field(default=8, kw_only=True)
    groups: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if self.offsets < 1:
            raise SweepError(f"offsets={self.offsets} counts nothing; use 1 or more.")

    @property
    def raw(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    def open(self, setting: Setting) -> Accumulator:
        keys = setting.keys(self.sites)
        causal = [is_causal(key, setting, reader="HeadCounts") for key in keys]
        return _Counts(keys, causal, self.offsets, self.groups)

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


def _site(key: str, setting: Setting) -> Site:
    number, name = split_key(key)
    return single(name, setting.models[number].sites)


def is_causal(key: str, setting: Setting, *, reader: str) -> bool:
    """Whether queries at a key see only what is before them; what is not self-attention is refused to its reader."""
    site = _site(key, setting)
    if site.kind != "pattern" or site.stack == "cross":
        raise SweepError(
            f"{reader} reads self-attention patterns, and {key!r} is none; use 'pattern.*', 'encoder.pattern.*' or "
            "'decoder.pattern.*'."
        )
    return setting.models[split_key(key)[0]].causal if site.stack is None else site.stack == "decoder"


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


def check_lengths(key: str, tensor: Tensor, words: Words) -> None:
    """Raises where weights [B, heads, queries, keys] are not between the tokens whose words are counted."""
    length = words.index.shape[1]
    if tensor.shape[2:] != (length, length):
        raise SweepError(
            f"{key!r} is of {tensor.shape[2]} queries and {tensor.shape[3]} keys, but the words counted are of "
            f"{length} tokens; sweep over the other side of the pairs (side='source' or 'target')."
        )


class WordKeys:
    """What the queries of one batch may look at: words, single special tokens, and which key is what."""

    def __init__(self, words: Words) -> None:
        real = words.mask.cpu().bool()
        index, width = words.index, words.width
        special = words.special.cpu() & real
        no_word = torch.zeros(len(index), width, dtype=torch.bool)  # special tokens with a column (pooling `all`)
        row, place = ((index >= 0) & special).nonzero(as_tuple=True)
        no_word[row, index[row, place]] = True
        self.words = words
        self.is_word = (words.pieces > 0) & ~no_word  # [B, W]
        self.query = words.counted & ~no_word  # [B, W]
        single_key = real & (index < 0)
        order = torch.argsort((~single_key).long(), dim=1, stable=True)
        self.extra = order[:, : int(single_key.sum(1).max())]  # [B, R] tokens that stand for themselves
        self.has_extra = single_key.gather(1, self.extra)
        self.first_token = real.long().argmax(1)  # [B]
        any_special = special.any(1)
        first = torch.where(any_special, special.long().argmax(1), -1)  # [B] token
        self.first_extra = (self.extra == first[:, None]) & self.has_extra  # [B, R]
        self.first_word = no_word & (torch.arange(width) == first[:, None]) & (words.pooling == "all")
        self.other_word = no_word & ~self.first_word
        self.other_extra = self.has_extra & ~self.first_extra
        self.chance: dict[bool, Tensor] = {}

    def uniform(self, causal: bool) -> Tensor:
        """Sums of every measure for uniform attention over the tokens that each query may see, [measures]."""
        if causal not in self.chance:
            self.chance[causal] = measured(self.even(causal), self, 1)[0][0]
        return self.chance[causal]

    def even(self, causal: bool) -> Tensor:
        """Uniform attention over the tokens that each query may see, [B, 1, T, T]."""
        real = self.words.mask.cpu().bool()
        size = real.shape[1]
        seen = real[:, None, :].expand(-1, size, -1)
        if causal:
            seen = seen & torch.ones(size, size, dtype=torch.bool).tril()
        return (seen / seen.sum(-1, keepdim=True).clamp(min=1))[:, None]


def measured(weights: Tensor, keys: WordKeys, offsets: int) -> tuple[Tensor, Tensor]:
    """Sums of `MEASURES` [heads, measures], float64, and counts of argmax offsets [heads, 2·offsets + 3]."""
    heads, bins = weights.shape[1], 2 * offsets + 3
    device, words = weights.device, keys.words
    rows, place = keys.query.nonzero(as_tuple=True)
    sums = torch.zeros(heads, len(MEASURES), dtype=torch.float64, device=device)
    counts = torch.zeros(heads * bins, dtype=torch.int64, device=device)
    if not len(rows):
        return sums, counts.view(heads, bins)
    between = words.patterns(weights).transpose(1, 2)  # [B, W, H, W]
    alone = alone_weights(weights, keys).transpose(1, 2)  # [B, W, H, R]
    batch = torch.arange(len(keys.first_token), device=device)
    sink = words.to_queries(weights[batch, :, :, keys.first_token.to(device)]).transpose(1, 2)  # [B, W, H]
    step = max(1, _AT_ONCE // (heads * (words.width + keys.extra.shape[1])))
    for start in range(0, len(rows), step):
        row, query = rows[start : start + step], place[start : start + step]
        chosen = row.to(device), query.to(device)
        part, offset = _measures(between[chosen], alone[chosen], sink[chosen], keys, row, query)
        sums += part.double().sum(0)
        bin_of = offset.clamp(-offsets - 1, offsets + 1) + offsets + 1 + bins * torch.arange(heads, device=device)
        counts += torch.bincount(bin_of[part[:, :, 0] > 0], minlength=heads * bins)
    return sums, counts.view(heads, bins)


def alone_weights(weights: Tensor, keys: WordKeys) -> Tensor:
    """Weights on every single token that is in no word's column, [B, heads, W, R]."""
    size, heads, length, _ = weights.shape
    count = keys.extra.shape[1]
    place = keys.extra.to(weights.device)[:, None, None, :].expand(-1, heads, length, -1)
    taken = weights.gather(3, place).float() * keys.has_extra.to(weights.device)[:, None, None, :]
    flat = taken.transpose(2, 3).reshape(size, heads * count, length)
    return keys.words.to_queries(flat).view(size, heads, count, keys.words.width).transpose(2, 3)


def _measures(
    between: Tensor, alone: Tensor, sink: Tensor, keys: WordKeys, row: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    """Every measure of N queries, [N, heads, measures], and the offset of the largest weight, [N, heads]."""
    device, width = between.device, between.shape[2]
    entropy = -(torch.xlogy(between, between).sum(-1) + torch.xlogy(alone, alone).sum(-1))
    first = _mass(between, keys.first_word[row]) + _mass(alone, keys.first_extra[row])
    other = _mass(between, keys.other_word[row]) + _mass(alone, keys.other_extra[row])
    seen = keys.is_word[row].to(device)[:, None, :]  # [N, 1, W]
    weights = between * seen
    confidence = weights.amax(-1)
    columns = torch.arange(width, device=device)
    best = torch.where(weights == confidence[..., None], columns, width).amin(-1)  # the first of equals
    query = query.to(device)
    away = (columns - query[:, None]).abs()[:, None, :].float()
    near = [_at(weights, query + step) for step in (0, -1, 1)]
    parts = [confidence, confidence**2, entropy, entropy**2, (weights * away).sum(-1), weights.sum(-1)]
    return torch.stack([*parts, first, other, sink, *near], dim=-1), best - query[:, None]


def _mass(weights: Tensor, chosen: Tensor) -> Tensor:
    """The weight on chosen keys [N, keys], summed: [N, heads]."""
    if not bool(chosen.any()):
        return weights.new_zeros(weights.shape[:2])
    return (weights * chosen.to(weights.device)[:, None, :]).sum(-1)


def _at(weights: Tensor, column: Tensor) -> Tensor:
    """The weight in one column per query, 0 where there is no such column: [N, heads]."""
    inside = (column >= 0) & (column < weights.shape[2])
    place = column.clamp(0, weights.shape[2] - 1)[:, None, None].expand(-1, weights.shape[1], 1)
    return weights.gather(2, place)[..., 0] * inside[:, None]


class _Counts(Accumulator):
    """Sums per head and group, on the CPU: they are small."""

    def __init__(self, keys: tuple[str, ...], causal: list[bool], offsets: int, groups: bool) -> None:
        self._keys, self._causal, self._offsets, self._apart = keys, causal, offsets, groups
        self._arrays: dict[str, Array] = {}
        self._seen: dict[int, WordKeys] = {}

    def see(self, key: str, tensor: Tensor, words: Words) -> None:
        check_lengths(key, tensor, words)
        model, number = split_key(key)[0], self._keys.index(key)
        if model not in self._seen or self._seen[model].words is not words:
            self._seen[model] = WordKeys(words)
        keys = self._seen[model]
        sums, counts = measured(tensor, keys, self._offsets)
        group = str(words.group) if self._apart else "all"
        size = len(self._keys)
        n, chance = np.zeros(size, np.int64), np.zeros((size, len(MEASURES)))
        n[number] = int(keys.query.sum())
        chance[number] = keys.uniform(self._causal[number]).numpy()
        new = {"n": n, "chance": chance, f"sums/{number}": sums.cpu().numpy()}
        new[f"offsets/{number}"] = counts.cpu().numpy()
        self._arrays = added(self._arrays, {f"{group}/{name}": array for name, array in new.items()})

    def state(self) -> State:
        return State(self._arrays, {"keys": list(self._keys), "offsets": self._offsets})
