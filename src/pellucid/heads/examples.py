"""Examples: for every function, the sentence on which the head that does it best does it most clearly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from pellucid.collect.collector import Setting
from pellucid.collect.counts import is_causal, word_weights
from pellucid.collect.encode import Encoder, Reading
from pellucid.collect.head_frames import Frame, Taken, taken
from pellucid.collect.head_links import FIXED, Names
from pellucid.collect.job import facts_of
from pellucid.collect.words import Words
from pellucid.heads.function_scores import LINKS, POSITIONAL, SINK, SYNTACTIC
from pellucid.heads.functions import HeadFunctions
from pellucid.heads.sweeping import patterns_of

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.corpus import Corpus, Sentence
    from pellucid.model import Model
    from pellucid.model.sites import Site

SHORTEST, LONGEST = 6, 25
"""Words of an example: enough to see something, and few enough to see all of it."""


@dataclass(frozen=True)
class Example:
    """A function, the head that does it best, and a sentence on which it hits `hits` of `cases` words."""

    function: str
    layer: int
    head: int
    sentence: Sentence
    hits: float
    cases: float


def examples(
    model: Model, corpus: Corpus, result: HeadFunctions, frequent: Mapping[str, int] | None = None, *, tried: int = 30
) -> list[Example]:
    """One example for each function that some head has, from the first `tried` sentences of a good length.

    `frequent` are the word counts by which a word is rare, such as a sweep's `corpus_words`.
    """
    wanted = {name: heads[0] for name in result.axes["measure"] if (heads := result.heads(str(name)))}
    best: dict[str, Example] = {}
    good = (each for each in corpus if SHORTEST <= len(each.words) <= LONGEST and not each.joint)
    looker = _Looker(model, frequent)
    for sentence in islice(good, tried if wanted else 0):
        seen = looker.look(sentence)
        for function, name in wanted.items():
            layer, _, head = name.rpartition(".")
            place = result.axes["layer"].index(int(layer) if layer.isdigit() else layer)
            hits, cases = looker.hits(str(function), seen[place], int(head), result, place)
            before = best.get(str(function))
            if cases and (before is None or (hits / cases, cases) > (before.hits / before.cases, before.cases)):
                best[str(function)] = Example(str(function), place, int(head), sentence, hits, cases)
    return list(best.values())


class _Looker:
    """Runs single sentences, and counts what the heads of each layer hit."""

    def __init__(self, model: Model, frequent: Mapping[str, int] | None) -> None:
        self.model, self.frequent = model, frequent
        self.encoder = Encoder(model, Reading(long="truncate"))
        self.kinds, self.tags = Names(FIXED), Names()
        facts = facts_of(model, side="source")
        setting = Setting((facts,), "mean", model.device)
        self.keys = setting.keys(patterns_of(model))
        self.causal = [is_causal(key, setting, reader="An example") for key in self.keys]
        self.offsets = 8

    def look(self, sentence: Sentence) -> list[tuple[Frame, Taken]]:
        """What the heads of every layer do with one sentence."""
        (encoded,) = self.encoder.encode([sentence])
        batch = self.encoder.batch(encoded.rows, [encoded.target], encoded.longest)
        words = Words(batch, "mean", (sentence,) * len(encoded.rows), np.zeros(len(encoded.rows), np.int64),
                      np.zeros(len(encoded.rows), np.int64))  # fmt: skip
        frames: dict[bool, Frame] = {}
        found: dict[str, tuple[Frame, Taken]] = {}

        def reduce(site: Site, tensor: Tensor) -> None:
            causal = self.causal[self.keys.index(str(site))]
            if causal not in frames:
                frames[causal] = self._framed(words, causal)
            found[str(site)] = frames[causal], taken(word_weights(tensor, frames[causal].keys), frames[causal])

        self.model.run(batch, self.keys, reduce=reduce, logits=False)
        return [found[key] for key in self.keys]

    def _framed(self, words: Words, causal: bool) -> Frame:
        return Frame(
            words,
            causal=causal,
            kinds=self.kinds,
            tags=self.tags,
            label="upos",
            arcs=True,
            frequent=self.frequent,
            offsets=self.offsets,
            reach=1,
        )

    def hits(
        self, function: str, seen: tuple[Frame, Taken], head: int, result: HeadFunctions, layer: int
    ) -> tuple[float, float]:
        """Hits and cases of a head's function in one sentence."""
        frame, told = seen
        labels = result.table("labels").columns
        if function == SINK:
            return float(told.rows[0, head]), float(frame.keys.query.sum())
        if function == POSITIONAL:
            place = int(str(labels["offset"][layer, head])) + self.offsets
            return float(told.offsets[place, 0, head]), float(frame.at[place, 0])
        kind = str(labels["relation"][layer, head]) if function == SYNTACTIC else LINKS[function]
        place = self.kinds.number(kind)
        if place >= len(told.links):
            return 0.0, 0.0
        return float(told.links[place, 0, head]), float(frame.links.cases[place, 0])
