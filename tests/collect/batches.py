"""Word batches, words and settings made by hand, and sweeps over them in any cutting, without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from pellucid.collect.collector import Collector, ModelFacts, Setting
from pellucid.collect.state import State
from pellucid.collect.words import WordBatch, Words
from pellucid.corpus import Sentence
from pellucid.model.batch import Batch
from pellucid.model.sites import Site, expand


def facts_of(sizes: Mapping[str, tuple[int, ...]], *, causal: bool = True, name: str = "made") -> ModelFacts:
    """A model known by the sizes of its sites alone."""
    every = [
        Site(kind, layer, stack)
        for stack in (None, "encoder", "decoder", "cross")
        for kind in ("resid", "pattern", "heads", "neurons")
        for layer in range(4)
    ]
    sites = tuple(expand(site, (*every, Site("logits")))[0] for site in sizes)
    return ModelFacts(name, "0" * 8, sites, dict(sizes), causal, "fused", "float32")


def setting_of(*models: ModelFacts, pooling: str = "mean") -> Setting:
    return Setting(tuple(models), pooling, torch.device("cpu"))


def sentences_of(
    count: int, length: int, *, labels: Mapping[int, Sequence[str | None]] | None = None
) -> list[Sentence]:
    """Sentences `s0`, `s1` … of words `w0 w1 …`, two to a document, with the label `tag` where given."""
    return [
        Sentence.of_words(
            [f"w{place}" for place in range(length)],
            id=f"s{number}",
            document=f"d{number // 2}",
            labels={"tag": tuple(labels[number])} if labels else None,
        )
        for number in range(count)
    ]


def batches_of(
    rows: Mapping[str, np.ndarray],
    cuts: Sequence[int],
    *,
    length: int = 5,
    groups: Sequence[int] | None = None,
    labels: Sequence[str | None] | None = None,
) -> list[WordBatch]:
    """Rows of a corpus of equally long sentences as batches that end at `cuts`; `groups` are one per batch."""
    total = len(next(iter(rows.values())))
    count = -(-total // length)
    filled = list(labels or []) + [None] * (count * length - len(labels or []))
    by_sentence = {number: filled[number * length : (number + 1) * length] for number in range(count)}
    sentences = sentences_of(count, length, labels=by_sentence)
    edges = [0, *cuts, total]
    made: list[WordBatch] = []
    for number, (start, stop) in enumerate(pairwise(edges)):
        ordinal = np.arange(start, stop, dtype=np.int64)
        sentence, position = ordinal // length, ordinal % length
        made.append(
            WordBatch(
                {key: torch.tensor(np.asarray(value[start:stop], dtype=np.float32)) for key, value in rows.items()},
                sentence,
                position,
                ordinal,
                groups[number] if groups is not None else 0,
                {int(number): sentences[number] for number in np.unique(sentence)},
            )
        )
    return made


def with_pilot(collector: Collector, setting: Setting, batch: WordBatch) -> Setting:
    return replace(setting, pilot=collector.pilot(batch, setting))


def shard(collector: Collector, setting: Setting, batches: Sequence[WordBatch]) -> State:
    """The state of one shard over some batches."""
    accumulator = collector.open(setting)
    for batch in batches:
        accumulator.add(batch)
    return accumulator.state()


def merged(collector: Collector, states: Sequence[State], shape: Sequence[int]) -> State:
    """All states merged in a tree drawn by `shape`: each number says which neighbours meet next."""
    left = list(states)
    for pick in shape:
        if len(left) > 1:
            place = pick % (len(left) - 1)
            left[place : place + 2] = [collector.merge(left[place], left[place + 1])]
    while len(left) > 1:
        left[:2] = [collector.merge(left[0], left[1])]
    return left[0]


def copy_of(state: State) -> State:
    return State({name: array.copy() for name, array in state.arrays.items()}, dict(state.facts))


def words_of(
    index: Sequence[Sequence[int]],
    *,
    ids: Sequence[Sequence[int]] | None = None,
    mask: Sequence[Sequence[int]] | None = None,
    special: Sequence[Sequence[int]] | None = None,
    counted: Sequence[Sequence[int]] | None = None,
    first_sentence: int = 0,
    group: int = 0,
    pooling: str = "mean",
) -> Words:
    """Words of tokens given by hand: `index` [B, T] is the word of every token, −1 for none.

    Tokens without a word count as special where nothing else is said, and padding always does; ordinals leave room for
    100 words to a sentence.
    """
    places = torch.tensor(index)
    real = torch.ones_like(places) if mask is None else torch.tensor(mask)
    marks = places < 0 if special is None else torch.tensor(special).bool() | ~real.bool()
    counts = (places >= 0) if counted is None else torch.tensor(counted).bool()
    tokens = torch.zeros_like(places) if ids is None else torch.tensor(ids)
    batch = replace(Batch.of_ids(tokens, real, special=marks), word_index=places, counted=counts & real.bool())
    length = int(places.max()) + 1
    numbers = np.arange(first_sentence, first_sentence + len(places), dtype=np.int64)
    sentences = tuple(sentences_of(first_sentence + len(places), length, labels=None)[first_sentence:])
    return Words(batch, pooling, sentences, numbers, numbers * 100, group)
