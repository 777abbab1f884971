"""Effective weights: which weights of a layer a collector counts, the model's own or the part that has an effect.

Effective attention has signs, and its rows do not sum to one. What is the largest is told by its signed numbers; what
is summed up are its absolute values, each row divided by its sum. That is done for tokens, before sub-words are pooled
to words as the model's own weights are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pellucid.collect.collector import Patterns
from pellucid.collect.null_space import check_numbers, effective
from pellucid.collect.word_weights import WordWeights, check_lengths, word_keys, word_weights
from pellucid.collect.words import Words
from pellucid.errors import SweepError, listing

RAW, EFFECTIVE = "raw", "effective"
WEIGHTS = (RAW, EFFECTIVE)
"""Weights that can be counted: the model's own, or effective attention."""


def check_weights(weights: str) -> None:
    """Raises for weights that there are none of."""
    if weights not in WEIGHTS:
        raise SweepError(f"There are no {weights!r} weights of heads; there are {listing(WEIGHTS)}.")


def sites_read(sites: Patterns, weights: str) -> tuple[str, ...]:
    """The patterns of sites that are read: those of attention, and of values where effective attention is asked for."""
    patterns = (sites,) if isinstance(sites, str) else sites
    return patterns if weights == RAW else (*patterns, *(values_beside(pattern) for pattern in patterns))


def values_beside(pattern: str) -> str:
    """The pattern of the values that belong to a pattern of attention weights."""
    return ",".join(part.strip().replace("pattern", "value") for part in pattern.split(","))


class Meeting:
    """The weights and values of a layer, which come one after the other in either order."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = frozenset(keys)
        self._waiting: dict[str, Tensor] = {}

    def met(self, key: str, tensor: Tensor) -> tuple[str, Tensor, Tensor] | None:
        """Key of the pattern, pattern and values, once both are there; values of layers that are not asked for go."""
        pattern_key = key.replace("value", "pattern")
        if pattern_key not in self._keys:
            return None
        if pattern_key not in self._waiting:
            self._waiting[pattern_key] = tensor
            return None
        other = self._waiting.pop(pattern_key)
        return (pattern_key, tensor, other) if key == pattern_key else (pattern_key, other, tensor)

    @property
    def over(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting


@dataclass(frozen=True, eq=False)
class Read:
    """A layer's weights [B, heads, T, T] as they are summed up; `signed` tells the largest, where it is another."""

    key: str
    summed: Tensor
    signed: Tensor | None
    words: Words

    def between_words(self) -> WordWeights:
        """The attention of words."""
        return word_weights(self.summed, word_keys(self.words), self.signed)


class PatternReader:
    """What an accumulator reads: every layer's pattern as it comes, or its effective attention when both are there."""

    def __init__(self, keys: Sequence[str], weights: str) -> None:
        self._effective = weights == EFFECTIVE
        self._meeting = Meeting(keys)

    def read(self, key: str, tensor: Tensor, words: Words) -> Read | None:
        """The layer's weights; nothing where its other half has not come yet."""
        if not self._effective:
            check_lengths(key, tensor, words)
            return Read(key, tensor, None, words)
        met = self._meeting.met(key, tensor)
        if met is None:
            return None
        check_lengths(met[0], met[1], words)
        return effective_read(*met, words)


def effective_read(key: str, pattern: Tensor, values: Tensor, words: Words) -> Read:
    """Effective attention from a layer's weights and values; worked out once for all collectors that read it."""
    last: tuple[Tensor, Read] | None = words.shared.get("effective")
    if last is None or last[0] is not pattern:
        signed = of_tokens(key, pattern, values, words)
        last = words.shared["effective"] = pattern, Read(key, normalised(signed), signed, words)
    return last[1]


def of_tokens(key: str, pattern: Tensor, values: Tensor, words: Words) -> Tensor:
    """Effective attention of the tokens of words on all real tokens, [B, heads, T, T]; zero elsewhere.

    Padding is neither query nor key, whatever its weights hold.
    """
    real = words.mask.cpu().bool()
    found = torch.zeros_like(pattern, dtype=torch.float32)
    for text in range(len(pattern)):
        rows = ((words.index[text] >= 0) & real[text]).nonzero()[:, 0].to(pattern.device)
        seen = real[text].nonzero()[:, 0].to(pattern.device)
        if len(rows):
            weights, own = pattern[text][:, rows[:, None], seen], values[text][:, seen]
            check_numbers(weights, own, key)
            found[text][:, rows[:, None], seen] = effective(weights, own).float()
    return found


def normalised(signed: Tensor) -> Tensor:
    """Absolute values with rows that sum to one; a row of zeros stays."""
    size = signed.abs()
    return size / size.sum(-1, keepdim=True).clamp(min=torch.finfo(size.dtype).tiny)
