"""Surprise: how well a language model foresees the words of a text, early and late in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.concordance import in_context
from pellucid.reading import control, layers, view_with
from pellucid.results import Array, Result, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.surprise import SurpriseView
    from pellucid.collect.topk import Contexts

MEASURES = {
    "nats": "mean −log p of a token or word, given all before it",
    "perplexity": "exp of the nats: so many equally likely choices would be as hard",
}
Run = tuple[int, int]
"""Position buckets from one number to before another, taken together."""


@dataclass(frozen=True, eq=False)
class SurpriseByPosition(Result):
    """Surprise per token, per word, and per word by its position in the sentence, [measure, unit]."""

    kind: ClassVar[str] = "overview.surprise"
    title: ClassVar[str] = "How surprising the text is to the model"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "a guess among all tokens of the vocabulary"

    @property
    def words(self) -> Table:
        """The most and the least surprising words in their sentences."""
        return self.table("words")


def surprise(found: Found) -> SurpriseByPosition:
    """Surprise from `Surprise()`: units are `token`, `word`, and words by position, such as `word 1` or `words 3–4`.

    Chance is log V nats per token, and that times the tokens of a mean word per word. Positions met in one document
    group only are joined to their neighbours. The interval of a perplexity is that of its nats, taken to exp. With a
    randomly initialised model in the sweep, its values are the table `random model`.
    """
    from pellucid.collect.surprise import Surprise

    chosen, mine = view_with(found, Surprise, "logits", ask="Surprise()")
    view: SurpriseView = chosen
    (key,) = mine.values()
    runs = _runs(view, key)
    nats = _nats(view, key, runs)
    interval = over_groups(view, partial(_nats, key=key, runs=runs), lambda part: part.words(key))
    twin = control(found.models)
    other = [] if twin is None else list(layers(found.models, view.keys, "logits", model=twin).values())
    axes = {"measure": tuple(MEASURES), "unit": ("token", "word", *(_label(run) for run in runs))}
    tables = {"words": _words(found, view, key)}
    if other:
        tables["random model"] = Table(axes, {"value": _both(_nats(view, other[0], runs))})
    return SurpriseByPosition(
        axes=axes,
        values=_both(nats),
        null=_both(_chance(view, key, len(runs))),
        low=None if interval.low is None else _both(interval.low),
        high=None if interval.high is None else _both(interval.high),
        resampled=interval.resampled,
        provenance=found.provenance("overview.surprise"),
        tables=tables,
    )


def _both(nats: Array) -> Array:
    """Nats and perplexities, [measure, unit]."""
    return np.stack([nats, np.exp(nats)])


def _nats(view: SurpriseView, key: str, runs: Sequence[Run]) -> Array:
    """Mean nats per token, per word, and per word of each run of positions."""
    words, nats = view.by_position(key)
    by_run = [float(nats[start:stop].sum() / words[start:stop].sum()) for start, stop in runs]
    return np.array([view.per_token(key), view.per_word(key), *by_run])


def _chance(view: SurpriseView, key: str, runs: int) -> Array:
    per_word = view.chance(key) * view.tokens(key) / view.words(key)
    return np.array([view.chance(key), per_word, *[per_word] * runs])


def _runs(view: SurpriseView, key: str) -> list[Run]:
    """Position buckets, neighbours joined until words of two document groups are in each (or of the only one)."""
    groups = [view.group(number) for number in view.groups] or [view]
    counts = np.stack([part.by_position(key)[0] for part in groups if part.words(key)])  # [groups, buckets]
    return joined(counts)


def joined(counts: Array) -> list[Run]:
    """Runs of columns of `counts` [groups, buckets], each with a count in two rows or more (in all, of a single row).

    Empty columns before the first count are left out; what is left at the end joins the last run.
    """
    enough = min(2, len(counts))
    filled = np.flatnonzero(counts.any(axis=0))
    runs: list[Run] = []
    start, last = int(filled[0]), int(filled[-1]) + 1
    for stop in range(start + 1, last + 1):
        if counts[:, start:stop].any(axis=1).sum() >= enough:
            runs.append((start, stop))
            start = stop
    if start < last:
        runs[-1:] = [(runs[-1][0] if runs else start, last)]
    return runs


def _label(run: Run) -> str:
    """The positions of a run: bucket 0 is word 1, bucket b the words 2^(b−1)+1 to 2^b."""
    first = 1 if run[0] == 0 else 2 ** (run[0] - 1) + 1
    last = 2 ** (run[1] - 1)
    return f"word {first}" if first == last else f"words {first}–{last}"


def _words(found: Found, view: SurpriseView, key: str) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, contexts in (("most", view.most(key)), ("least", view.least(key))):
        rows += _lines(found, name, contexts)
    names = ("surprising", "rank", "nats", "document", "left", "word", "right")
    return Table.of_rows(dict(zip(names, zip(*rows, strict=True), strict=True)))


def _lines(found: Found, name: str, contexts: Contexts) -> list[tuple[Any, ...]]:
    there = contexts.ordinal[0] >= 0
    places = zip(contexts.value[0, there], contexts.sentence[0, there], contexts.position[0, there], strict=True)
    lines: list[tuple[Any, ...]] = []
    for rank, (nats, number, position) in enumerate(places, start=1):
        sentence = found.sentence(int(number))
        lines.append((name, rank, float(nats), sentence.document, *in_context(sentence, int(position))))
    return lines
