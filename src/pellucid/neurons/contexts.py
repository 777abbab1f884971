"""Contexts of neurons: which units are moved most by one and the same word, against what chance gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.concordance import in_context, word_at
from pellucid.neurons.survey import NARROW, WIDE
from pellucid.neurons.words import chance_shares, document_bootstrap, most_frequent, normal_height
from pellucid.reading import control, layers, view_with
from pellucid.results import Array, Result, ResultError, Table

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.moment_sums import MomentsView
    from pellucid.collect.topk import Contexts, TopContextsView

MEASURES = {
    "share": "share of its most frequent word among the unit's strongest contexts",
    "height": "how far their mean activation lies from the unit's mean, in its standard deviations",
}
ENDS = ("largest", "smallest")
_QUANTILE = 0.99
_POSITIONS = 1 << 24  # more than a sentence has words


@dataclass(frozen=True, eq=False)
class SelectiveUnits(Result):
    """The units whose strongest contexts agree most on one word, [measure, unit], from the most selective down.

    A unit is written as in edits, `neurons.3:17`.
    """

    kind: ClassVar[str] = "neurons.selective"
    title: ClassVar[str] = "Units that one word moves most"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "words drawn by their frequency in the corpus; for height, a normal unit"

    @property
    def units(self) -> Table:
        """Per unit its word, the end of its activations that the word stands at, and the documents it was met in."""
        return self.table("units")

    @property
    def contexts(self) -> Table:
        """The strongest contexts of every unit shown: text on the left, the word, text on the right."""
        return self.table("contexts")

    @property
    def sites(self) -> Table:
        """Per model and site: units, silent ones, those of high and low variance, their mean share, and how many are
        selective, beside chance."""
        return self.table("sites")


@dataclass(frozen=True, eq=False)
class _Site:
    """All units of one site at their better end; every array is [units]."""

    key: str
    units: Array
    end: Array
    word: Array
    share: Array
    height: Array
    silent: int
    wide: int
    narrow: int

    @property
    def name(self) -> str:
        """The site's name, without the number of its model."""
        number, colon, name = self.key.partition(":")
        return name if colon and number.isdigit() else self.key


def selective(found: Found, *, kind: str = "neurons", top: int = 50, seed: int = 0) -> SelectiveUnits:
    """The `top` units that one word moves most.

    It needs `TopContexts("neurons.*")` and `Moments("neurons.*", pairs="units")` (or of another `kind` of site). Of a
    unit's two ends, the one whose k contexts agree more counts. Chance is the expected share of the most frequent of k
    words drawn by their corpus frequencies, the better of two draws, by simulation with `seed`. Intervals resample the
    documents of a unit's contexts; they do not allow for the choice of the best units.
    """
    from pellucid.collect.moments import Moments
    from pellucid.collect.topk import TopContexts

    if top < 1:
        raise ResultError(f"top={top} shows nothing; use 1 or more.")
    contexts, mine = view_with(found, TopContexts, kind, ask=f'TopContexts("{kind}.*")')
    moments, _ = view_with(found, Moments, kind, ask=f'Moments("{kind}.*", pairs="units")')
    twin = control(found.models)
    other = {} if twin is None else layers(found.models, contexts.keys, kind, model=twin)
    read = _Read(found, contexts, moments, _Words(found, contexts, [*mine.values(), *other.values()]))
    chance = chance_shares(found.corpus_words, found.words, read.words.k, ends=len(ENDS), seed=seed)
    sites = [_site(read, key) for key in mine.values()]
    rows = _site_rows(found.models[0].name, sites, chance)
    if twin is not None:
        rows += _site_rows(found.models[twin].name, [_site(read, key) for key in other.values()], chance)
    best = enumerate(_best(sites, top))
    shown = [_shown(read, sites[number], place, seed=[seed, rank]) for rank, (number, place) in best]
    null = np.array([[float(chance.mean())], [normal_height(read.words.k, moments.n)]])
    return SelectiveUnits(
        axes={"measure": tuple(MEASURES), "unit": tuple(each["name"] for each in shown)},
        values=np.array([each["values"] for each in shown]).T,
        null=np.repeat(null, len(shown), axis=1),
        low=np.array([each["low"] for each in shown]).T,
        high=np.array([each["high"] for each in shown]).T,
        resampled="the documents of each unit's contexts (bootstrap, 95%; no width where they come from one document)",
        provenance=found.provenance("neurons.selective", {"kind": kind, "top": top}, seed=seed),
        tables={"units": _unit_table(shown), "contexts": _context_table(shown), "sites": _site_table(rows)},
    )


class _Words:
    """The words of all contexts, in small letters, as numbers in alphabetical order."""

    def __init__(self, found: Found, view: TopContextsView, keys: Sequence[str]) -> None:
        self.k = min(int((view.largest(key).ordinal >= 0).sum(1).min()) for key in keys)
        if self.k < 2:
            raise ResultError(
                "Contexts cannot agree where there is only one: collect with k of 2 or more, on more text."
            )
        sides = [side(key) for key in keys for side in (view.largest, view.smallest)]
        self._codes = np.unique(np.concatenate([self._code(side).ravel() for side in sides]))
        numbers, places = self._codes // _POSITIONS, self._codes % _POSITIONS - 1
        text = [
            word_at(found.sentence(number), place).lower()
            for number, place in zip(numbers.tolist(), places.tolist(), strict=True)
        ]
        self.names, self._numbers = np.unique(np.array(text), return_inverse=True)

    def _code(self, contexts: Contexts) -> Array:
        return contexts.sentence[:, : self.k] * _POSITIONS + contexts.position[:, : self.k] + 1

    def of(self, contexts: Contexts) -> Array:
        """The number of every context's word, [units, k]."""
        return self._numbers[np.searchsorted(self._codes, self._code(contexts))]


@dataclass(frozen=True, eq=False)
class _Read:
    """The sweep and what was read from it."""

    found: Found
    contexts: TopContextsView
    moments: MomentsView
    words: _Words

    def ends(self, key: str) -> dict[str, Contexts]:
        return {"largest": self.contexts.largest(key), "smallest": self.contexts.smallest(key)}

    def spread(self, key: str) -> tuple[Array, Array]:
        """Mean and sd of every unit."""
        return self.moments.mean(key), np.sqrt(self.moments.variance(key))


def _site(read: _Read, key: str) -> _Site:
    """The better end of every unit that is not silent."""
    ends, words = read.ends(key), read.words
    mean, sd = read.spread(key)
    alive = np.flatnonzero((ends["largest"].value[:, 0] > ends["smallest"].value[:, 0]) & (sd > 0))
    found: list[tuple[Array, Array, Array]] = []
    for contexts in ends.values():
        word, share = most_frequent(words.of(contexts)[alive])
        away = contexts.value[alive, : words.k].astype(np.float64).mean(axis=1) - mean[alive]
        found.append((word, share, np.abs(away) / sd[alive]))
    (word, share, height), (low_word, low_share, low_height) = found
    low = (low_share > share) | ((low_share == share) & (low_height > height))
    return _Site(
        key=key,
        units=alive,
        end=np.where(low, ENDS[1], ENDS[0]),
        word=np.where(low, low_word, word),
        share=np.where(low, low_share, share),
        height=np.where(low, low_height, height),
        silent=len(mean) - len(alive),
        wide=int((sd >= WIDE * np.median(sd)).sum()) if np.median(sd) > 0 else 0,
        narrow=int((sd[alive] <= NARROW * np.median(sd)).sum()),
    )


def _best(sites: Sequence[_Site], top: int) -> list[tuple[int, int]]:
    """Site number and place in it of the units with the largest shares, the higher of equals first."""
    number = np.concatenate([np.full(len(site.units), index) for index, site in enumerate(sites)])
    place = np.concatenate([np.arange(len(site.units)) for site in sites])
    if not len(number):
        raise ResultError("Every unit is silent on this text: it never changes, so no word moves it.")
    share, height = (np.concatenate([getattr(site, name) for site in sites]) for name in MEASURES)
    order = np.lexsort((place, number, -height, -share))[:top]
    return list(zip(number[order].tolist(), place[order].tolist(), strict=True))


def _shown(read: _Read, site: _Site, place: int, *, seed: Sequence[int]) -> dict[str, Any]:
    """Everything about one unit that the result shows."""
    unit, end, words = int(site.units[place]), str(site.end[place]), read.words
    contexts = read.ends(site.key)[end]
    value = contexts.value[unit, : words.k].astype(np.float64)
    sentences = [read.found.sentence(number) for number in contexts.sentence[unit, : words.k].tolist()]
    positions = contexts.position[unit, : words.k].tolist()
    documents = [sentence.document for sentence in sentences]
    hits = words.of(contexts)[unit] == site.word[place]
    numbers = np.unique(np.array(documents), return_inverse=True)[1]
    low, high = document_bootstrap(hits, value, numbers, seed=seed)
    mean, sd = (float(part[unit]) for part in read.spread(site.key))
    heights = sorted((abs(low[1] - mean) / sd, abs(high[1] - mean) / sd))
    lines = [in_context(sentence, position) for sentence, position in zip(sentences, positions, strict=True)]
    return {
        "name": f"{site.name}:{unit}",
        "values": (float(site.share[place]), float(site.height[place])),
        "low": (min(low[0], site.share[place]), min(heights[0], site.height[place])),
        "high": (max(high[0], site.share[place]), max(heights[1], site.height[place])),
        "word": str(words.names[site.word[place]]),
        "end": end,
        "documents": len(set(documents)),
        "contexts": [
            (f"{site.name}:{unit}", end, rank, float(number), document, *line)
            for rank, (number, document, line) in enumerate(zip(value, documents, lines, strict=True), start=1)
        ],
    }


def _unit_table(shown: Sequence[Mapping[str, Any]]) -> Table:
    columns = {name: np.array([each[name] for each in shown]) for name in ("word", "end", "documents")}
    return Table({"unit": tuple(each["name"] for each in shown)}, columns)


def _context_table(shown: Sequence[Mapping[str, Any]]) -> Table:
    names = ("unit", "end", "rank", "activation", "document", "left", "word", "right")
    rows = [row for each in shown for row in each["contexts"]]
    return Table.of_rows(dict(zip(names, zip(*rows, strict=True), strict=True)))


def _site_rows(model: str, sites: Sequence[_Site], chance: Array) -> list[tuple[Any, ...]]:
    bar = float(np.quantile(chance, _QUANTILE))
    return [
        (
            model,
            site.name,
            len(site.units) + site.silent,
            site.silent,
            site.wide,
            site.narrow,
            float(site.share.mean()) if len(site.units) else 0.0,
            float(chance.mean()),
            float((site.share > bar).mean()) if len(site.units) else 0.0,
            float((chance > bar).mean()),
        )
        for site in sites
    ]


def _site_table(rows: Sequence[tuple[Any, ...]]) -> Table:
    names = (
        "model", "site", "units", "silent", "high variance", "low variance", "mean share", "chance share", "selective",
        "selective by chance",
    )  # fmt: skip
    return Table.of_rows(dict(zip(names, zip(*rows, strict=True), strict=True)))
