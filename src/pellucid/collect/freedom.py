"""Attention freedom: how far a head's weights could move without changing its output, counted over a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import Accumulator, Collector, Patterns, Setting, split_key
from pellucid.collect.effective_weights import EFFECTIVE, Meeting, normalised, sites_read
from pellucid.collect.null_space import check_numbers, effective, space
from pellucid.collect.output_space import Deficient, OutputSpace
from pellucid.collect.state import Array, State
from pellucid.collect.sums import added, by_group, total_of
from pellucid.collect.words import Words
from pellucid.errors import SweepError, listing
from pellucid.model.sites import single

EDGES = (8, 16, 32, 64, 128, 256, 512)
"""Keys in sight up to which a query belongs to each class of length; the last class has no end."""
MEASURES = (
    "n",
    "sees",
    "free",
    "free_with_sum",
    "unique",
    "uncertain",
    "moved",
    "moved_by_chance",
    "shifted",
    "argmax",
    "free_by_chance",
    "free_with_sum_by_chance",
    "unique_by_chance",
    "shifted_by_chance",
    "argmax_by_chance",
)
"""What is summed over queries, see `AttentionFreedom`."""


@dataclass(frozen=True)
class AttentionFreedom(Collector):
    """Sums over query tokens, by head and by how many keys a query sees.

    `free` dimensions of the left null space of the values in sight, `free_with_sum` of [values, 1]; `unique` where the
    latter is 0: the weights could be no others; `uncertain` ranks hang on the cut. With A_eff the effective attention,
    `moved` ‖A − A_eff‖ / ‖A‖ (`moved_by_chance`: √(free/sees), which a random direction has), `shifted` ½Σ|A − Â| with
    Â = |A_eff| over its sum, `argmax` where the largest entry of A_eff stands elsewhere than that of A. By chance,
    `free`, `free_with_sum` and `unique` are those of values in general position, `shifted` and `argmax` those of the
    same weights with random values (Gaussian ones, drawn anew for every text). Special tokens are keys, and no queries
    unless the sweep counts them. `outputs` are heads whose output projection does not let all of the values through
    (see `deficient`); None: that was not looked at.
    """

    kind: ClassVar[str] = "attention-freedom"
    sites: Patterns = "pattern.*"
    groups: bool = field(default=True, kw_only=True)
    outputs: tuple[Deficient, ...] | None = field(default=None, kw_only=True)

    @property
    def raw(self) -> tuple[str, ...]:
        return sites_read(self.sites, EFFECTIVE)

    def open(self, setting: Setting) -> Accumulator:
        keys = setting.keys(self.sites)
        for key in keys:
            number, name = split_key(key)
            if single(name, setting.models[number].sites).kind != "pattern":
                raise SweepError(f"AttentionFreedom reads attention patterns, and {key!r} is none; use 'pattern.*'.")
        return _Freedom(keys, self.groups, OutputSpace(self.outputs or ()))

    def merge(self, left: State, right: State) -> State:
        return State(added(left.arrays, right.arrays), left.facts)

    def view(self, state: State, setting: Setting) -> FreedomView:
        parts = by_group(state.arrays)
        return FreedomView(tuple(state.facts["keys"]), total_of(parts), parts)

    def memory(self, setting: Setting, groups: int) -> int:
        one = sum(8 * setting.width(key) * (len(EDGES) + 1) * len(MEASURES) for key in setting.keys(self.sites))
        return one * (groups if self.groups else 1)


@dataclass(frozen=True, eq=False)
class FreedomView:
    """Means over query tokens; `sums` are of all, `parts` of each document group."""

    keys: tuple[str, ...]
    sums: Mapping[str, Array]
    parts: Mapping[str, Mapping[str, Array]]

    @property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the document groups that have queries; none unless they were kept apart."""
        return tuple(int(group) for group in self.parts if group != "all")

    def group(self, number: int) -> FreedomView:
        """One document group alone."""
        return FreedomView(self.keys, self.parts[str(number)], {})

    def without(self, number: int) -> FreedomView:
        """All queries but those of one document group."""
        part = self.parts[str(number)]
        return FreedomView(self.keys, {name: array - part.get(name, 0) for name, array in self.sums.items()}, {})

    def n(self, key: str) -> int:
        """Query tokens at a key."""
        found = self.sums.get(str(self._number(key)))
        return 0 if found is None else int(found[0, :, 0].sum())

    def counts(self, key: str) -> Array:
        """Query tokens by class of length, [classes]."""
        return self._found(key)[0, :, 0]

    def mean(self, measure: str, key: str) -> Array:
        """A measure's mean over query tokens, [heads]."""
        return self._found(key)[:, :, MEASURES.index(measure)].sum(1) / max(1, self.n(key))

    def by_length(self, measure: str, key: str) -> Array:
        """The same by class of length, [heads, classes]; 0 where a class has no queries."""
        found = self._found(key)
        return found[:, :, MEASURES.index(measure)] / np.maximum(found[:, :, 0], 1)

    def _found(self, key: str) -> Array:
        if not self.n(key):
            raise SweepError(f"No query token was counted at {key!r}; give the sweep a corpus with words.")
        return self.sums[str(self._number(key))]

    def _number(self, key: str) -> int:
        if key not in self.keys:
            raise SweepError(f"No freedom of {key!r} was counted; there is that of {listing(self.keys, most=40)}.")
        return self.keys.index(key)


class _Freedom(Accumulator):
    """Sums per head and class of length."""

    def __init__(self, keys: tuple[str, ...], groups: bool, outputs: OutputSpace) -> None:
        self._keys, self._apart, self._outputs = keys, groups, outputs
        self._meeting = Meeting(keys)
        self._arrays: dict[str, Array] = {}

    def see(self, key: str, tensor: Tensor, words: Words) -> None:
        met = self._meeting.met(key, tensor)
        if met is None:
            return
        name, pattern, values = met
        real = _Real(_queries(words, pattern.shape[2]), _keys(words, name, pattern.shape[3]), words.numbers)
        passed = self._outputs.through(split_key(name)[1], values, pattern.shape[1])
        sums = _sum_of(pattern, passed, real, name, dtype=values.dtype)
        group = str(words.group) if self._apart else "all"
        self._arrays = added(self._arrays, {f"{group}/{self._keys.index(name)}": sums})

    def state(self) -> State:
        assert self._meeting.over
        return State(self._arrays, {"keys": list(self._keys)})


@dataclass(frozen=True, eq=False)
class _Real:
    """Queries that count [B, T] and keys that are no padding [B, S], on the CPU, and the number of every text, [B]."""

    queries: Tensor
    keys: Tensor
    numbers: Array


def _queries(words: Words, length: int) -> Tensor:
    """Which tokens are queries that count, [B, T] on the CPU."""
    marks = words.batch.counted
    assert marks is not None
    queries = marks.cpu() & words.mask.cpu().bool()
    if queries.shape[1] != length:
        raise SweepError(
            f"The pattern has {length} queries, but the words counted are of {queries.shape[1]} tokens; sweep over the "
            "other side of the pairs (side='source' or 'target')."
        )
    return queries


def _keys(words: Words, name: str, length: int) -> Tensor:
    """Which tokens are keys and no padding, [B, S] on the CPU; those of cross-attention are the source's."""
    mask = words.batch.mask if split_key(name)[1].startswith("cross.") else words.mask
    return mask.cpu().bool() if mask.shape[1] == length else torch.ones(len(mask), length, dtype=torch.bool)


def _sum_of(pattern: Tensor, values: Tensor, real: _Real, where: str, *, dtype: torch.dtype) -> Array:
    """Sums [heads, classes, measures] over the queries of a pattern [B, H, T, S] and values [B, Hkv, S, d]."""
    heads = pattern.shape[1]
    found = torch.zeros(heads, len(EDGES) + 1, len(MEASURES), dtype=torch.float64)
    edges = torch.tensor(EDGES)
    for text in range(len(pattern)):
        rows = real.queries[text].nonzero()[:, 0].to(pattern.device)
        seen = real.keys[text].to(pattern.device) & (pattern[text][:, rows] != 0).any(0).any(0)
        if not bool(seen.any()):
            continue
        weights, own = pattern[text][:, rows][..., seen], values[text][:, seen]
        check_numbers(weights, own, where)
        told = _measured(weights, own, int(real.numbers[text]), dtype).cpu()  # [heads, queries, measures]
        places = torch.bucketize(told[0, :, 1].contiguous(), edges.double())
        found.index_add_(1, places, told)
    return found.numpy()


def _measured(pattern: Tensor, values: Tensor, seed: int, dtype: torch.dtype) -> Tensor:
    """Every measure of every query, [heads, queries, measures]; random values are drawn with a `seed`."""
    told, weights, width = space(pattern, values, dtype=dtype), pattern.double(), values.shape[-1]
    moved, shifted, elsewhere = _changed(weights, effective(pattern, values))
    drawn = torch.randn(values.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    _, shifted_by_chance, elsewhere_by_chance = _changed(weights, effective(pattern, drawn.to(values.device)))
    with_sum = (told.sees - width - 1).clamp(min=0)
    columns = [
        torch.ones_like(moved),
        told.sees,
        told.free,
        told.free_with_sum,
        told.free_with_sum == 0,
        told.uncertain,
        moved,
        (told.free / told.sees.clamp(min=1)).sqrt(),
        shifted,
        elsewhere,
        (told.sees - width).clamp(min=0),
        with_sum,
        with_sum == 0,
        shifted_by_chance,
        elsewhere_by_chance,
    ]
    return torch.stack([column.double() for column in columns], dim=-1)


def _changed(weights: Tensor, effect: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`moved`, `shifted` and `argmax` of effective attention beside weights, [heads, queries] each."""
    moved = (weights - effect).norm(dim=-1) / weights.norm(dim=-1).clamp(min=torch.finfo(torch.float64).tiny)
    shifted = (weights - normalised(effect)).abs().sum(-1) / 2
    return moved, shifted, effect.argmax(-1) != weights.argmax(-1)
