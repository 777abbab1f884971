"""Head divergence: how differently two attention heads look at the same words, for all pairs of a model's heads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting, split_key
from pellucid.collect.effective_weights import RAW, PatternReader, check_weights, sites_read
from pellucid.collect.sample import mixed
from pellucid.collect.state import Array, State
from pellucid.collect.sums import added, by_group, total_of
from pellucid.collect.word_weights import WordKeys, alone_weights, is_causal, no_numbers, without_padding
from pellucid.collect.words import Words
from pellucid.errors import SweepError, listing

_AT_ONCE = 2**18
"""Weights compared at a time, so that they stay in the processor's cache."""
_ON_DEVICE = 2**6
"""Times as many on a graphics card, which is quick with large blocks alone."""
_TINY = 1e-37
"""Added to weights, so that 0·ln 0 is 0; the smallest float32 numbers would be slow."""


@dataclass(frozen=True)
class HeadDivergence(Collector):
    """Sums over query words of the Jensen–Shannon divergence between the attention of every two heads of a model.

    JS(α, β) = H((α+β)/2) − H(α)/2 − H(β)/2 in nats, from 0 to ln 2 (Clark et al. 2019), over words and single special
    tokens: weights are summed over a key's pieces and averaged over a query's; special tokens are no queries. The same
    after β was dealt out at random among what the query may see is the chance level of heads as sharp as these, and
    the divergence of every head from uniform attention comes along. It costs heads²·words operations per query word;
    `every` reads each so many-th word of the corpus only; `weights` as in `HeadCounts`.
    """

    kind: ClassVar[str] = "head-divergence"
    sites: Patterns = "pattern.*"
    every: int = field(default=1, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    groups: bool = field(default=True, kw_only=True)
    memory_limit: int = field(default=2**30, kw_only=True)
    weights: str = field(default=RAW, kw_only=True)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise SweepError(f"every={self.every} reads no word; use 1 for all words, 10 for each tenth.")
        check_weights(self.weights)

    @property
    def raw(self) -> tuple[str, ...]:
        return sites_read(self.sites, self.weights)

    def open(self, setting: Setting) -> Accumulator:
        keys = setting.keys(self.sites)
        causal: dict[int, bool] = {}
        for key in keys:
            model = split_key(key)[0]
            causal[model] = is_causal(key, setting, reader="HeadDivergence") and causal.get(model, True)
        return _Divergences(keys, {key: setting.width(key) for key in keys}, causal, self)

    def merge(self, left: State, right: State) -> State:
        if left.facts != right.facts:
            raise SweepError(f"Divergences of {left.facts['heads']} and of {right.facts['heads']} cannot be merged.")
        return State(added(left.arrays, right.arrays), left.facts)

    def view(self, state: State, setting: Setting) -> HeadDivergenceView:
        parts = by_group(state.arrays)
        return HeadDivergenceView(state.facts["heads"], total_of(parts), parts)

    def memory(self, setting: Setting, groups: int) -> int:
        heads: dict[int, int] = {}
        for key in setting.keys(self.sites):
            model = split_key(key)[0]
            heads[model] = heads.get(model, 0) + setting.width(key)
        needed = sum(8 * (2 * count**2 + count + 1) for count in heads.values()) * (groups if self.groups else 1)
        if needed > self.memory_limit:
            raise SweepError(
                f"Divergences of all pairs of {sum(heads.values()):,} heads need {needed:,} bytes, and memory_limit is "
                f"{self.memory_limit:,}; take fewer layers or groups=False, or raise memory_limit."
            )
        return needed


@dataclass(frozen=True, eq=False)
class HeadDivergenceView:
    """Divergences as means over query words; `heads` are the heads of every key, in the order of rows and columns.

    `sums` are of all words, `parts` of each document group. A model's heads stand in the order of its keys.
    """

    heads: Mapping[str, int]
    sums: Mapping[str, Array]
    parts: Mapping[str, Mapping[str, Array]]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that were read."""
        return tuple(self.heads)

    @property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the document groups that have words; none unless they were kept apart."""
        return tuple(int(group) for group in self.parts if group != "all")

    def group(self, number: int) -> HeadDivergenceView:
        """One document group alone."""
        return HeadDivergenceView(self.heads, self._part(number), {})

    def without(self, number: int) -> HeadDivergenceView:
        """All words but those of one document group, for the jackknife."""
        part = self._part(number)
        rest = {name: array - part[name] if name in part else array for name, array in self.sums.items()}
        return HeadDivergenceView(self.heads, rest, {})

    def places(self, model: int = 0) -> list[tuple[str, int]]:
        """Key and number of every head of a model, in the order of rows and columns."""
        found = [
            (key, head) for key, count in self.heads.items() if split_key(key)[0] == model for head in range(count)
        ]
        if not found:
            raise SweepError(f"No heads of model {model} were compared; there are those of {listing(self.heads)}.")
        return found

    def n(self, model: int = 0) -> int:
        """Query words of a model."""
        name = f"n/{model}"
        return int(self.sums[name][0]) if name in self.sums else 0

    def divergence(self, model: int = 0) -> Array:
        """The mean divergence of every two heads in nats, [heads, heads]: symmetric, 0 on the diagonal."""
        return self._mean("js", model)

    def chance(self, model: int = 0) -> Array:
        """The same where the weights of one of the two heads were dealt out at random, [heads, heads]."""
        return self._mean("dealt", model)

    def uniform(self, model: int = 0) -> Array:
        """The mean divergence of every head from uniform attention over all that a query may see, [heads]."""
        return self._mean("uniform", model)

    def _mean(self, name: str, model: int) -> Array:
        self.places(model)
        if self.n(model) < 1:
            raise SweepError(f"No query word of model {model} was read; give the sweep a corpus with words.")
        return self.sums[f"{name}/{model}"] / self.n(model)

    def _part(self, number: int) -> Mapping[str, Array]:
        if str(number) not in self.parts:
            raise SweepError(
                f"There is no document group {number}; there are {listing(self.groups)} (groups=True keeps them)."
            )
        return self.parts[str(number)]


def divergences(left: Tensor, right: Tensor) -> Tensor:
    """Σ over queries of JS between head a of `left` and head b ≥ a of `right`, from weights [heads, N, keys] each.

    With s = α + β it is (Σα ln α + Σβ ln β − Σs ln s + ln 2·Σs)/2. Keys that no head looks at add nothing and are left
    out: queries with as many keys are taken together. Returns [heads, heads] in float64, 0 below the diagonal.
    """
    heads, count, _ = left.shape
    total = torch.zeros(heads, heads, dtype=torch.float64, device=left.device)
    used = (left.amax(0) > 0) | (right.amax(0) > 0)  # [N, keys]
    packed = used.byte().argsort(dim=1, descending=True, stable=True)  # used keys first
    sizes, order = used.sum(1).sort(descending=True)
    room = _AT_ONCE * (1 if left.device.type == "cpu" else _ON_DEVICE)
    start = 0
    while start < count:
        width = max(1, int(sizes[start]))
        chosen = order[start : start + max(1, room // (heads * width))]
        start += len(chosen)
        places = packed[chosen, :width].expand(heads, -1, -1)
        one, other = (side[:, chosen].gather(2, places).mT.contiguous() + _TINY for side in (left, right))
        own, theirs = (_own_part(side) for side in (one, other))  # [heads, n]
        sums, logarithms = torch.empty_like(other), torch.empty_like(other)
        for head in range(heads):
            both = torch.add(other[head:], one[head], out=sums[head:])  # [heads − head, keys, n]
            shared = torch.log(both, out=logarithms[head:]).mul_(both).sum(1)
            total[head, head:] += ((own[head] + theirs[head:] - shared) / 2).clamp_(min=0).double().sum(-1)
    return total


def _own_part(weights: Tensor) -> Tensor:
    """Σα ln α + ln 2·Σα over keys, from [heads, keys, N]."""
    return (weights.log().mul_(weights)).sum(1) + math.log(2) * weights.sum(1)


def dealt(visible: Array, ordinal: Array, seed: int) -> Array:
    """For every query and key, the key whose weight it gets when those of visible ones are dealt out at random.

    `visible` [N, keys], `ordinal` [N] the queries' numbers in the corpus, on which alone the dealing depends. Keys that
    are not visible keep what they have.
    """
    rank = np.cumsum(visible, axis=1) - 1
    base = mixed(np.full(len(ordinal), seed, np.uint64), ordinal)
    lots = np.where(visible, mixed(base[:, None], rank) >> np.uint64(1), np.uint64(2**64 - 1))
    source = np.empty(visible.shape, np.int64)
    plain = np.argsort(~visible, axis=1, kind="stable")
    np.put_along_axis(source, plain, np.argsort(lots, axis=1, kind="stable"), axis=1)
    return source


class _Pass:
    """The word weights of one pass of one model, until its last layer has come."""

    def __init__(self, words: Words, every: int) -> None:
        self.words, self.keys = words, WordKeys(words)
        chosen = self.keys.query & (words.ordinal % every == 0)
        self.row, self.query = chosen.nonzero(as_tuple=True)
        self.weights: dict[str, Tensor] = {}

    @property
    def n(self) -> int:
        """Query words."""
        return len(self.row)

    def numbers(self, key: str, weights: Tensor) -> Tensor:
        """`at_queries`, refused where they are no numbers; what padding holds is not read."""
        found = self.at_queries(weights)
        if not bool(torch.isfinite(found).all()):
            found = self.at_queries(without_padding(weights, self.words))
        broken = (~torch.isfinite(found)).flatten(1).any(1).nonzero()
        if len(broken):
            raise no_numbers(key, int(broken[0]))
        return found

    def at_queries(self, weights: Tensor) -> Tensor:
        """Weights [B, heads, T, T] of every query word on words, single tokens and nothing, [heads, N, keys]."""
        between = self.words.patterns(weights).transpose(1, 2)  # [B, W, H, W]
        alone = alone_weights(weights, self.keys).transpose(1, 2)  # [B, W, H, R]
        chosen = self.row.to(weights.device), self.query.to(weights.device)
        found = torch.cat([between[chosen], alone[chosen]], dim=-1)  # [N, H, W + R]
        nowhere = (1 - found.sum(-1, keepdim=True)).clamp_(min=0)  # what an attention sink takes
        return torch.cat([found, nowhere], dim=-1).transpose(0, 1).contiguous()


class _Divergences(Accumulator):
    """Sums per model and group, on the CPU; the weights of a pass wait until all layers are there."""

    def __init__(
        self, keys: tuple[str, ...], heads: Mapping[str, int], causal: Mapping[int, bool], collector: HeadDivergence
    ) -> None:
        self._keys, self._heads, self._causal, self._collector = keys, dict(heads), causal, collector
        self._reader = PatternReader(keys, collector.weights)
        self._waiting: dict[int, _Pass] = {}
        self._arrays: dict[str, Array] = {}

    def see(self, key: str, tensor: Tensor, words: Words) -> None:
        read = self._reader.read(key, tensor, words)
        if read is None:
            return
        model = split_key(read.key)[0]
        waiting = self._waiting.get(model)
        assert waiting is None or waiting.words is words, "a pass began before all layers of the last one came"
        if waiting is None:
            waiting = self._waiting[model] = _Pass(words, self._collector.every)
        waiting.weights[read.key] = (
            waiting.numbers(read.key, read.summed) if waiting.n else read.summed.new_zeros(self._heads[read.key], 0, 0)
        )
        if all(other in waiting.weights for other in self._keys if split_key(other)[0] == model):
            del self._waiting[model]
            self._add(model, waiting)

    def _add(self, model: int, whole: _Pass) -> None:
        """One finished pass of a model."""
        keys = [key for key in self._keys if key in whole.weights]
        weights = torch.cat([whole.weights.pop(key) for key in keys]).float()  # [heads, N, keys]
        heads = len(weights)
        new: dict[str, Array] = {
            f"n/{model}": np.array([whole.n]),
            f"js/{model}": np.zeros((heads, heads)),
            f"dealt/{model}": np.zeros((heads, heads)),
            f"uniform/{model}": np.zeros(heads),
        }
        if whole.n:
            even = whole.at_queries(whole.keys.even(self._causal[model]))  # [1, N, keys]
            ordinal = whole.words.ordinal[whole.row, whole.query].numpy()
            source = torch.from_numpy(dealt(even[0].numpy() > 1e-6, ordinal, self._collector.seed)).to(weights.device)
            turned = weights.gather(2, source.expand(heads, -1, -1))
            new[f"js/{model}"] = _mirrored(divergences(weights, weights).fill_diagonal_(0))
            new[f"dealt/{model}"] = _mirrored(divergences(weights, turned))
            new[f"uniform/{model}"] = _from_each(weights, even.to(weights.device))
        group = str(whole.words.group) if self._collector.groups else "all"
        self._arrays = added(self._arrays, {f"{group}/{name}": array for name, array in new.items()})

    def state(self) -> State:
        assert not self._waiting, "the last pass ended before all its layers came"
        facts: dict[str, Any] = {"heads": self._heads, "every": self._collector.every, "seed": self._collector.seed}
        return State(self._arrays, facts)


def _mirrored(above: Tensor) -> Array:
    """A matrix whose upper triangle is known, made symmetric."""
    return (above + above.triu(1).T).cpu().numpy()


def _from_each(weights: Tensor, even: Tensor) -> Array:
    """The summed divergence of every head from one and the same weights [1, N, keys], [heads]."""
    other = even.mT + _TINY
    theirs, found = _own_part(other), torch.empty(len(weights), dtype=torch.float64, device=weights.device)
    for number, head in enumerate(weights):
        mine = head.T[None] + _TINY
        both = mine + other
        shared = both.log().mul_(both).sum(1)
        found[number] = ((_own_part(mine) + theirs - shared) / 2).clamp_(min=0).double().sum()
    return found.cpu().numpy()
