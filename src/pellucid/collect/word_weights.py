"""Word weights: what the queries of a batch may look at, and the attention of words from that of tokens."""

from __future__ import annotations

from functools import cached_property
from weakref import ref

import torch
from torch import Tensor

from pellucid.collect.collector import Setting, split_key
from pellucid.collect.sums import exact_products
from pellucid.collect.words import Words
from pellucid.errors import SweepError
from pellucid.model.sites import Site, single

_LONG = 192
"""Tokens up to which sub-words are summed to words by a matrix product."""


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


def check_lengths(key: str, tensor: Tensor, words: Words) -> None:
    """Raises where weights [B, heads, queries, keys] are not between the tokens whose words are counted."""
    length = words.index.shape[1]
    if tensor.shape[2:] != (length, length):
        raise SweepError(
            f"{key!r} is of {tensor.shape[2]} queries and {tensor.shape[3]} keys, but the words counted are of "
            f"{length} tokens; sweep over the other side of the pairs (side='source' or 'target')."
        )


def without_padding(weights: Tensor, words: Words) -> Tensor:
    """Weights with zeros for queries and keys that are padding, which may hold anything."""
    real = words.mask.to(weights.device).bool()
    return torch.where((real[:, None, :, None] & real[:, None, None, :]), weights, torch.zeros_like(weights))


def no_numbers(key: str, head: int) -> SweepError:
    """The error for attention that is no number."""
    return SweepError(
        f"Attention at {key!r} is NaN or infinite in head {head}; leave that layer out, or run the model in float32."
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
        self.chance: dict[bool, Tensor] = {}  # what uniform attention gives, as `HeadCounts` measures it
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


def word_weights(weights: Tensor, keys: WordKeys, signed: Tensor | None = None) -> WordWeights:
    """Attention of words, from weights [B, heads, T, T]; worked out once for all collectors that read a layer."""
    name = "weights" if signed is None else "signed weights"
    last: WordWeights | None = keys.words.shared.get(name)
    if last is None or last.origin() is not weights:
        last = keys.words.shared[name] = WordWeights(weights, keys, signed)
    return last


class WordWeights:
    """Attention of every word on words and on single tokens that are in no word's column, of one layer.

    `between` [B, W, heads, W] and `alone` [B, W, heads, R]: summed over the sub-words of a key and averaged over those
    of a query, zero for queries that do not count; `sink` [B, W, heads] on the first token. `largest` and `best`
    [B, W, heads] are the largest weight on a word and its column, the first of equals, −1 where none is over 0. Where
    `signed` weights are given, `ranked` holds them between words, and `best` is the column of the largest of these.
    """

    def __init__(self, weights: Tensor, keys: WordKeys, signed: Tensor | None = None) -> None:
        self.origin = ref(weights)
        by_query = keys.words.by_query(weights)  # [B, W, H, T]
        size, device = len(by_query), weights.device
        self.sink = by_query[torch.arange(size, device=device), :, :, keys.first_token.to(device)]
        self.between, self.alone = _pooled(by_query, keys)
        self.largest, best = self.between.max(-1)
        self.ranked, top = self.between, self.largest
        if signed is not None:
            self.ranked = _pooled(keys.words.by_query(signed), keys)[0]
            top, best = self.ranked.max(-1)
        self.best = torch.where(top > 0, best, -1)

    @cached_property
    def columns(self) -> Tensor:
        """Attention that each word gets, summed over queries, [B, heads, W]."""
        return self.between.sum(1)

    @cached_property
    def singles(self) -> Tensor:
        """Attention that each single token gets, summed over queries, [B, heads, R]."""
        return self.alone.sum(1)


def _pooled(by_query: Tensor, keys: WordKeys) -> tuple[Tensor, Tensor]:
    """Weights on tokens [B, W, H, T] summed to words and single tokens, [B, W, H, W] and [B, W, H, R]."""
    return (_multiplied if by_query.shape[3] <= _LONG else _picked)(by_query, keys)


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


def alone_weights(weights: Tensor, keys: WordKeys) -> Tensor:
    """Weights on every single token that is in no word's column, [B, heads, W, R]."""
    return word_weights(weights, keys).alone.transpose(1, 2)
