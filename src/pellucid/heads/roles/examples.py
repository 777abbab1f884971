"""Examples: for every function of a head, the sentences on which it does it most clearly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from pellucid.collect.collector import Setting
from pellucid.collect.effective_weights import PatternReader, sites_read
from pellucid.collect.encode import Encoder, Reading, looked_at
from pellucid.collect.head_frames import Frame, Taken, taken
from pellucid.collect.head_links import FIXED, Names
from pellucid.collect.job import facts_of
from pellucid.collect.word_weights import is_causal
from pellucid.collect.words import Words
from pellucid.heads.roles.function_scores import LINKS, POSITIONAL, SINK, SYNTACTIC
from pellucid.heads.roles.functions import HeadFunctions
from pellucid.heads.roles.sweeping import patterns_of, weights_of

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.corpus import Corpus, Sentence
    from pellucid.model import Model
    from pellucid.model.sites import Site

SHORTEST, LONGEST = 6, 25
"""Words of an example: enough to see something, and few enough to see all of it."""
_OFFSETS = 8


@dataclass(frozen=True)
class Example:
    """A head, one of its functions, and a sentence on which it hits `hits` of `cases` words (of a sink: attention).

    `layer` is the layer's number in its stack, `place` its place among the layers of the result.
    """

    function: str
    layer: int
    head: int
    sentence: Sentence
    hits: float
    cases: float
    place: int

    @property
    def clear(self) -> float:
        """How clearly the sentence shows it: the share of hits if there were one miss more, so that many tell more."""
        return self.hits / (self.cases + 1)


def examples(
    model: Model,
    corpus: Corpus,
    result: HeadFunctions,
    frequent: Mapping[str, int] | None = None,
    *,
    each: int = 3,
    tried: int = 30,
    side: str = "source",
) -> list[Example]:
    """Up to `each` examples for every function of every head that has any, the clearest first.

    They are from the first `tried` sentences of a good length; of those that are equally clear, the ones that show most
    heads are taken. Weights are those of the result, raw or effective. `frequent` are the word counts by which a word
    is rare, such as a sweep's `corpus_words`; `side` is the sweep's (`target` for the self-attention of a decoder).
    """
    wanted = [(name, function) for name, functions in result.labels.items() for function in functions]
    good = (each for each in corpus if SHORTEST <= len(looked_at(each, side).words) <= LONGEST and not each.joint)
    looker = _Looker(model, frequent, side, weights_of(result))
    found: dict[tuple[str, str], list[Example]] = {key: [] for key in wanted}
    for sentence in islice(good, tried if wanted else 0):
        seen = looker.look(sentence)
        for name, function in wanted:
            layer, _, head = name.rpartition(".")
            place = [str(coordinate) for coordinate in result.axes["layer"]].index(layer)
            hits, cases = looker.hits(function, seen[place], int(head), result, place)
            if cases:
                number = int(layer.rpartition(".")[2])
                found[name, function].append(Example(function, number, int(head), sentence, hits, cases, place))
    return _clearest(found, each)


def _clearest(found: Mapping[tuple[str, str], list[Example]], each: int) -> list[Example]:
    """The best examples of every head and function; equally good ones come from as few sentences as can be."""
    best = {key: max((one.clear for one in some), default=0.0) for key, some in found.items()}
    shows: dict[str, int] = {}
    for key, some in found.items():
        for one in some:
            shows[one.sentence.id] = shows.get(one.sentence.id, 0) + (one.clear >= best[key])

    def worth(one: Example) -> tuple[float, int]:
        return one.clear, shows[one.sentence.id]

    return [one for some in found.values() for one in sorted(some, key=worth, reverse=True)[:each] if one.hits]


class _Looker:
    """Runs single sentences, and counts what the heads of each layer hit."""

    def __init__(self, model: Model, frequent: Mapping[str, int] | None, side: str, weights: str) -> None:
        self.model, self.frequent, self.side, self.weights = model, frequent, side, weights
        self.encoder = Encoder(model, Reading(long="truncate", side=side))
        self.kinds, self.tags = Names(FIXED), Names()
        facts = facts_of(model, side=side)
        setting = Setting((facts,), "mean", model.device)
        patterns = patterns_of(model, side=side)
        self.keys, self.read = setting.keys(patterns), setting.keys(sites_read(patterns, weights))
        self.causal = [is_causal(key, setting, reader="An example") for key in self.keys]

    def look(self, sentence: Sentence) -> list[tuple[Frame, Taken]]:
        """What the heads of every layer do with one sentence."""
        (encoded,) = self.encoder.encode([sentence])
        batch = self.encoder.batch(encoded.rows, [encoded.target], encoded.longest)
        count = len(encoded.rows)
        none = np.zeros(count, np.int64)
        words = Words(batch, "mean", (looked_at(sentence, self.side),) * count, none, none, side=self.side)
        frames: dict[bool, Frame] = {}
        found: dict[str, tuple[Frame, Taken]] = {}
        reader = PatternReader(self.keys, self.weights)

        def reduce(site: Site, tensor: Tensor) -> None:
            read = reader.read(str(site), tensor, words)
            if read is None:
                return
            causal = self.causal[self.keys.index(read.key)]
            if causal not in frames:
                frames[causal] = self._framed(words, causal)
            found[read.key] = frames[causal], taken(read.between_words(), frames[causal])

        self.model.run(batch, self.read, reduce=reduce, logits=False)
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
            offsets=_OFFSETS,
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
            place = int(str(labels["offset"][layer, head])) + _OFFSETS
            return float(told.offsets[place, 0, head]), float(frame.at[place, 0])
        kind = str(labels["relation"][layer, head]) if function == SYNTACTIC else LINKS[function]
        place = self.kinds.number(kind)
        if place >= len(told.links):
            return 0.0, 0.0
        return float(told.links[place, 0, head]), float(frame.links.cases[place, 0])
