"""Surprise: how well a causal language model foresees every word, −log p, with the most and least surprising words."""

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
from pellucid.collect.topk import NOTHING, SIDES, Contexts, checked_ordinals, contexts_of, ranks
from pellucid.collect.words import Words
from pellucid.errors import SweepError, listing

BUCKETS = 32
"""Buckets of position: words 1, 2, 3–4, 5–8, … of their sentence (with the pooling `all`, tokens of their row)."""

BIN = 0.5
"""Nats per bin of the histogram."""

_AT_ONCE, _ON_DEVICE = 2**19, 2**24
"""Logits made float32 at a time: 2 MiB, on other devices 64 MiB, and as much again for their exponentials."""


@dataclass(frozen=True)
class Surprise(Collector):
    """Surprise of words in nats, Σ −log p(sub-word | all before) over a word's sub-words, for causal language models.

    Sums of words, tokens and nats, also by position (1, 2, 3–4, 5–8, …) and, with `groups`, by document group; a
    histogram per word of `bins` bins of half a nat, the last one open; the `k` most and least surprising words. A word
    whose first token opens the text has no prediction and is not counted. Chance is log(vocabulary) per token.
    """

    kind: ClassVar[str] = "surprise"
    sites: Patterns = "logits"
    groups: bool = field(default=True, kw_only=True)
    bins: int = field(default=64, kw_only=True)
    k: int = field(default=20, kw_only=True)

    def __post_init__(self) -> None:
        if self.bins < 1 or self.k < 1:
            raise SweepError(f"bins={self.bins} and k={self.k} must both be 1 or more.")

    @property
    def raw(self) -> tuple[str, ...]:
        return (self.sites,) if isinstance(self.sites, str) else self.sites

    def open(self, setting: Setting) -> Accumulator:
        keys = setting.keys(self.sites)
        for key in keys:
            number, name = split_key(key)
            model = setting.models[number]
            if name != "logits" or not model.causal:
                raise SweepError(
                    f"Surprise needs the logits of a causal language model, and {key!r} of {model.name!r} is not that; "
                    "leave it out, or open a model with head='lm'."
                )
        return _Surprise(keys, [setting.width(key) for key in keys], self)

    def merge(self, left: State, right: State) -> State:
        if left.facts != right.facts:
            raise SweepError(f"Surprise of {left.facts['keys']} and of {right.facts['keys']} cannot be merged.")
        sums = [{name: array for name, array in state.arrays.items() if _is_sum(name)} for state in (left, right)]
        best: dict[str, Array] = {}
        for name in left.arrays:
            if name.endswith("/rank"):
                stem = name.removesuffix("/rank")
                best |= best_of([_kept(state.arrays, stem) for state in (left, right)], stem, self.k)
        return State({**added(*sums), **best}, left.facts)

    def view(self, state: State, setting: Setting) -> SurpriseView:
        sums = {name: array for name, array in state.arrays.items() if _is_sum(name)}
        parts = by_group(sums)
        best = {name: array for name, array in state.arrays.items() if not _is_sum(name)}
        keys = tuple(state.facts["keys"])
        return SurpriseView(keys, tuple(state.facts["vocabularies"]), total_of(parts), parts, best)

    def memory(self, setting: Setting, groups: int) -> int:
        count = len(setting.keys(self.sites))
        sums = 8 * count * (2 + 1 + 2 * BUCKETS + self.bins) * (groups if self.groups else 1)
        return sums + 8 * 3 * 2 * self.k * count

    def sentences(self, state: State) -> set[int]:
        found = [array for name, array in state.arrays.items() if name.endswith("/sentence")]
        return {int(number) for array in found for number in np.unique(array)} - {-1}


def _is_sum(name: str) -> bool:
    return not name.startswith(SIDES)


Kept = tuple[Array, Array, Array]
"""Rank, sentence and position of some words, [1, words] each."""


def _kept(arrays: Mapping[str, Array], stem: str) -> Kept:
    return arrays[f"{stem}/rank"], arrays[f"{stem}/sentence"], arrays[f"{stem}/position"]


def best_of(several: list[Kept], stem: str, k: int) -> dict[str, Array]:
    """The k words of the highest rank among several sets, as arrays of a state; empty places are −1."""
    rank, sentence, position = (np.concatenate(column, axis=1) for column in zip(*several, strict=True))
    missing = max(0, k - rank.shape[1])
    order = np.argsort(~rank[0], kind="stable")[:k]
    filled = {"rank": (rank, NOTHING), "sentence": (sentence, -1), "position": (position, -1)}
    return {
        f"{stem}/{name}": np.pad(array[:, order], ((0, 0), (0, missing)), constant_values=empty).astype(np.int64)
        for name, (array, empty) in filled.items()
    }


@dataclass(frozen=True, eq=False)
class SurpriseView:
    """Surprise per word and token; `sums` are of all words, `parts` of document groups, `best` the extreme words."""

    keys: tuple[str, ...]
    vocabularies: tuple[int, ...]
    sums: Mapping[str, Array]
    parts: Mapping[str, Mapping[str, Array]]
    best: Mapping[str, Array]

    @property
    def groups(self) -> tuple[int, ...]:
        """Numbers of the document groups that have words; none unless they were kept apart."""
        return tuple(int(group) for group in self.parts if group != "all")

    def group(self, number: int) -> SurpriseView:
        """One document group alone (the extreme words are those of all)."""
        return SurpriseView(self.keys, self.vocabularies, self._part(number), {}, self.best)

    def without(self, number: int) -> SurpriseView:
        """All words but those of one document group, for the jackknife."""
        part = self._part(number)
        rest = {name: array - part[name] for name, array in self.sums.items()}
        return SurpriseView(self.keys, self.vocabularies, rest, {}, self.best)

    def words(self, key: str) -> int:
        """Words that were predicted."""
        return int(self.sums["words"][self._number(key)]) if self.sums else 0

    def tokens(self, key: str) -> int:
        """Sub-words of those words."""
        return int(self.sums["tokens"][self._number(key)]) if self.sums else 0

    def per_word(self, key: str) -> float:
        """Mean nats per word."""
        number = self._some(key)
        return float(self.sums["nats"][number] / self.words(key))

    def per_token(self, key: str) -> float:
        """Mean nats per token."""
        number = self._some(key)
        return float(self.sums["nats"][number] / self.tokens(key))

    def perplexity(self, key: str) -> float:
        """exp of the mean nats per token."""
        return float(np.exp(self.per_token(key)))

    def chance(self, key: str) -> float:
        """Nats per token of a uniform guess, log(vocabulary)."""
        return float(np.log(self.vocabularies[self._number(key)]))

    def by_position(self, key: str) -> tuple[Array, Array]:
        """Words and their nats in each position bucket, [buckets] each."""
        number = self._some(key)
        return self.sums["words_at"][number], self.sums["nats_at"][number]

    def histogram(self, key: str) -> tuple[Array, Array]:
        """Counts of words by their nats [bins], and the lower edges of the bins."""
        number = self._some(key)
        counts = self.sums["histogram"][number]
        return counts, BIN * np.arange(len(counts))

    def most(self, key: str) -> Contexts:
        """The most surprising words, [1, k]."""
        return contexts_of(self.best, "largest", f"largest/{self._number(key)}")

    def least(self, key: str) -> Contexts:
        """The least surprising words, [1, k]."""
        return contexts_of(self.best, "smallest", f"smallest/{self._number(key)}")

    def _number(self, key: str) -> int:
        if key not in self.keys:
            raise SweepError(f"No surprise at {key!r} was gathered; there is that of {listing(self.keys)}.")
        return self.keys.index(key)

    def _some(self, key: str) -> int:
        if self.words(key) < 1:
            raise SweepError(f"No word was predicted at {key!r}; give the sweep texts of two words or more.")
        return self._number(key)

    def _part(self, number: int) -> Mapping[str, Array]:
        if str(number) not in self.parts:
            raise SweepError(
                f"There is no document group {number}; there are {listing(self.groups)} (groups=True keeps them)."
            )
        return self.parts[str(number)]


def token_nats(logits: Tensor, ids: Tensor, row: Tensor, place: Tensor) -> Tensor:
    """−log p of the tokens `ids[row, place]` [N] given all before them, float64 on the CPU, from logits [B, T, V]."""
    device = logits.device
    step = max(1, (_AT_ONCE if device.type == "cpu" else _ON_DEVICE) // logits.shape[-1])
    row, place = row.to(device), place.to(device)
    token = ids.to(device)[row, place]
    parts: list[Tensor] = []
    for start in range(0, len(row), step):
        chosen = slice(start, start + step)
        found = logits[row[chosen], place[chosen] - 1].float()  # [n, V]
        parts.append((found.logsumexp(-1).double() - found.gather(1, token[chosen, None])[:, 0].double()).cpu())
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def word_nats(logits: Tensor, words: Words) -> tuple[Tensor, Tensor]:
    """Nats of every word [B, W] and whether it counts: all its sub-words do, and have a token before them."""
    index, real = words.index, words.mask.cpu().bool()
    before = torch.zeros_like(real)
    before[:, 1:] = real[:, :-1]
    good = words.counted.clone()
    row, place = ((index >= 0) & ~before).nonzero(as_tuple=True)
    good[row, index[row, place]] = False
    row, place = ((index >= 0) & good.gather(1, index.clamp(min=0))).nonzero(as_tuple=True)
    nats = torch.zeros(good.shape, dtype=torch.float64)
    ids = words.batch.ids if words.side == "source" else words.batch.target_ids
    assert ids is not None
    nats.index_put_((row, index[row, place]), token_nats(logits, ids, row, place), accumulate=True)
    return nats, good


class _Surprise(Accumulator):
    """Sums per model and group, and the extreme words so far."""

    def __init__(self, keys: tuple[str, ...], vocabularies: list[int], collector: Surprise) -> None:
        self._keys, self._vocabularies, self._collector = keys, vocabularies, collector
        self._sums: dict[str, Array] = {}
        self._best: dict[str, Array] = {}
        none = np.zeros((1, 0), np.int64)
        for number in range(len(keys)):
            for side in SIDES:
                self._best |= best_of([(none, none, none)], f"{side}/{number}", collector.k)

    def see(self, key: str, tensor: Tensor, words: Words) -> None:
        number = self._keys.index(key)
        nats, good = word_nats(tensor, words)
        row, word = good.nonzero(as_tuple=True)
        if not len(row):
            return
        value = nats[row, word].numpy()
        if not np.isfinite(value).all():
            wrong = int(row[int(np.flatnonzero(~np.isfinite(value))[0])])
            raise SweepError(
                f"{key!r} gives a word of sentence {words.sentences[wrong].id!r} no probability (NaN or infinite "
                "logits); run the model in float32."
            )
        place = torch.full(good.shape, -1)
        place[words.places] = torch.from_numpy(words.positions)
        self._count(number, value, words.pieces[row, word].numpy(), place[row, word].numpy(), str(words.group))
        ordinal = torch.from_numpy(checked_ordinals(words.ordinal[row, word].numpy()))
        sentence, position = words.numbers[row.numpy()], place[row, word].numpy()
        for side in SIDES:
            rank = ranks(torch.from_numpy(value.astype(np.float32)), ordinal, side).numpy()
            stem = f"{side}/{number}"
            new = (rank[None], sentence[None], position[None])
            self._best |= best_of([_kept(self._best, stem), new], stem, self._collector.k)

    def _count(self, number: int, nats: Array, pieces: Array, position: Array, group: str) -> None:
        size, bins = len(self._keys), self._collector.bins
        new: dict[str, Array] = {name: np.zeros(size, np.int64) for name in ("words", "tokens")}
        new |= {"nats": np.zeros(size), "nats_at": np.zeros((size, BUCKETS))}
        new |= {"words_at": np.zeros((size, BUCKETS), np.int64), "histogram": np.zeros((size, bins), np.int64)}
        bucket = np.ceil(np.log2(np.maximum(position, 0) + 1)).astype(int)  # word 0 is position 1
        bucket = np.minimum(bucket, BUCKETS - 1)
        new["words"][number], new["tokens"][number], new["nats"][number] = len(nats), pieces.sum(), nats.sum()
        new["words_at"][number] = np.bincount(bucket, minlength=BUCKETS)
        new["nats_at"][number] = np.bincount(bucket, weights=nats, minlength=BUCKETS)
        new["histogram"][number] = np.bincount(np.clip(nats / BIN, 0, bins - 1).astype(int), minlength=bins)
        name = group if self._collector.groups else "all"
        self._sums = added(self._sums, {f"{name}/{part}": array for part, array in new.items()})

    def state(self) -> State:
        return State({**self._sums, **self._best}, {"keys": list(self._keys), "vocabularies": self._vocabularies})
