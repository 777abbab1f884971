"""Head counts: where every attention head looks, word by word, beside what uniform attention would give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting, split_key
from pellucid.collect.state import Array, State
from pellucid.collect.sums import added, by_group, exact_products, total_of
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

_LONG = 192
"""Tokens up to which sub-words are summed to words by a matrix product."""
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
        self._even: dict[bool, WordWeights] = {}

    @cached_property
    def columns(self) -> Tensor:
        """Which token counts for which word, or for itself, [B, T, W + R]."""
        index, width = self.words.index, self.words.width
        columns = torch.zeros(*index.shape, width + self.extra.shape[1])
        row, place = (index >= 0).nonzero(as_tuple=True)
        columns[row, place, index[row, place]] = 1
        row, number = self.has_extra.nonzero(as_tuple=True)
        columns[row, self.extra[row, number], width + number] = 1
        return columns

    def uniform(self, causal: bool) -> Tensor:
        """Sums of every measure for uniform attention over the tokens that each query may see, [measures]."""
        if causal not in self.chance:
            self.chance[causal] = summed(self.evenly(causal), self, 1)[0][0]
        return self.chance[causal]

    def evenly(self, causal: bool) -> WordWeights:
        """The attention of words where it is uniform over the tokens that each query may see, of one head."""
        if causal not in self._even:
            self._even[causal] = WordWeights(self.even(causal), self)
        return self._even[causal]

    def even(self, causal: bool) -> Tensor:
        """Uniform attention over the tokens that each query may see, [B, 1, T, T]."""
        real = self.words.mask.cpu().bool()
        size = real.shape[1]
        seen = real[:, None, :].expand(-1, size, -1)
        if causal:
            seen = seen & torch.ones(size, size, dtype=torch.bool).tril()
        return (seen / seen.sum(-1, keepdim=True).clamp(min=1))[:, None]


def word_keys(words: Words) -> WordKeys:
    """The keys of a batch, made once for all collectors."""
    if "keys" not in words.shared:
        words.shared["keys"] = WordKeys(words)
    return words.shared["keys"]


def word_weights(weights: Tensor, keys: WordKeys) -> WordWeights:
    """Attention of words, from weights [B, heads, T, T]; worked out once for all collectors that read a layer."""
    last: WordWeights | None = keys.words.shared.get("weights")
    if last is None or last.origin() is not weights:
        last = keys.words.shared["weights"] = WordWeights(weights, keys)
    return last


class WordWeights:
    """Attention of every word on words and on single tokens that are in no word's column, of one layer.

    `between` [B, W, heads, W] and `alone` [B, W, heads, R]: summed over the sub-words of a key and averaged over those
    of a query, zero for queries that do not count; `sink` [B, W, heads] on the first token. `largest` and `best`
    [B, W, heads] are the largest weight on a word and its column, the first of equals, −1 where it is 0.
    """

    def __init__(self, weights: Tensor, keys: WordKeys) -> None:
        self.origin = ref(weights)
        by_query = keys.words.by_query(weights)  # [B, W, H, T]
        size, device = len(by_query), weights.device
        self.sink = by_query[torch.arange(size, device=device), :, :, keys.first_token.to(device)]
        self.between, self.alone = (_multiplied if by_query.shape[3] <= _LONG else _picked)(by_query, keys)
        self.largest, best = self.between.max(-1)
        self.best = torch.where(self.largest > 0, best, -1)

    @cached_property
    def columns(self) -> Tensor:
        """Attention that each word gets, summed over queries, [B, heads, W]."""
        return self.between.sum(1)

    @cached_property
    def singles(self) -> Tensor:
        """Attention that each single token gets, summed over queries, [B, heads, R]."""
        return self.alone.sum(1)


def _multiplied(by_query: Tensor, keys: WordKeys) -> tuple[Tensor, Tensor]:
    """Weights on tokens [B, W, H, T] summed to words and single tokens by a product, which is quick for short texts."""
    size, width, heads, length = by_query.shape
    with exact_products():
        both = torch.bmm(by_query.view(size, width * heads, length), keys.columns.to(by_query.device))
    both = both.view(size, width, heads, -1)
    return both[..., :width], both[..., width:]


def _picked(by_query: Tensor, keys: WordKeys) -> tuple[Tensor, Tensor]:
    """The same, token by token, which is quick for long texts."""
    device, shape = by_query.device, by_query.shape[:3]
    between = by_query.new_zeros(*shape, shape[1])
    for rows, words, places in keys.words.ranks:
        rows, words, places = rows.to(device), words.to(device), places.to(device)
        between[rows, :, :, words] += by_query[rows, :, :, places]
    place = keys.extra.to(device)[:, None, None, :].expand(*shape, -1)
    return between, by_query.gather(3, place) * keys.has_extra.to(device)[:, None, None, :]


def measured(weights: Tensor, keys: WordKeys, offsets: int) -> tuple[Tensor, Tensor]:
    """Sums of `MEASURES` [heads, measures], float64, and counts of argmax offsets [heads, 2·offsets + 3]."""
    return summed(word_weights(weights, keys), keys, offsets)


def summed(found: WordWeights, keys: WordKeys, offsets: int) -> tuple[Tensor, Tensor]:
    """The same from attention between words; rows of queries that do not count are 0 in every measure."""
    between, confidence, best = found.between, found.largest, found.best
    heads, device, bins = between.shape[2], between.device, 2 * offsets + 3
    entropy = _entropy(found)
    columns, singles, sink = found.columns, found.singles, found.sink
    if keys.words.pooling == "all":  # special tokens may have a column and a row, and are neither word nor query
        query = keys.query.to(device)[:, :, None]
        columns, singles = ((part * query[..., None]).sum(1) for part in (between, found.alone))
        between = between * keys.is_word.to(device)[:, None, None, :] * query[..., None]
        confidence, best = between.max(-1)
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
    counts = torch.bincount(bin_of[confidence > 0], minlength=heads * bins)
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


def alone_weights(weights: Tensor, keys: WordKeys) -> Tensor:
    """Weights on every single token that is in no word's column, [B, heads, W, R]."""
    return word_weights(weights, keys).alone.transpose(1, 2)


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

    def __init__(self, keys: tuple[str, ...], causal: list[bool], offsets: int, groups: bool) -> None:
        self._keys, self._causal, self._offsets, self._apart = keys, causal, offsets, groups
        self._arrays: dict[str, Array] = {}

    def see(self, key: str, tensor: Tensor, words: Words) -> None:
        check_lengths(key, tensor, words)
        number = self._keys.index(key)
        keys = word_keys(words)
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
