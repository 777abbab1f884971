"""Function scores: how well each head does each of the jobs that heads are known for, and how well chance would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pellucid.collect.head_links import FOLLOWED, RARE, SAME, TO_DEPENDENT, TO_HEAD
from pellucid.heads.roles.chance import holm, p_values
from pellucid.heads.roles.layers import stacked
from pellucid.results import Array

if TYPE_CHECKING:
    from pellucid.collect.head_targets import HeadTargetsView

POSITIONAL, SYNTACTIC, RARE_WORDS, SINK, INDUCTION, DUPLICATE = (
    "positional",
    "syntactic",
    "rare words",
    "sink",
    "induction",
    "duplicate",
)
LINKS = {RARE_WORDS: RARE, INDUCTION: FOLLOWED, DUPLICATE: SAME}
"""Functions that look for one kind of link."""


@dataclass(frozen=True, eq=False)
class Scored:
    """One function's choices (offsets, relations, or a single one), each [choices, layers, heads] but `n` and `offset`.

    `share` of `n` [choices, layers, 1] queries that hit, `chance` of random positions, `p` uncorrected and `corrected`
    (Holm, over choices and heads); `best` [layers, heads] is the choice that tells for a head. Relations also have the
    share of the best fixed offset, `baseline` [choices, layers, 1], and that `offset`. Where a layer has no such head,
    `share`, `p` and `corrected` are NaN.
    """

    names: tuple[str, ...]
    share: Array
    chance: Array
    n: Array
    p: Array
    corrected: Array
    best: Array
    baseline: Array | None = None
    offset: Array | None = None

    def at_best(self, array: Array) -> Array:
        """An array [choices, layers, heads] at each head's own choice, [layers, heads]."""
        whole = np.broadcast_to(array, self.share.shape)
        return np.take_along_axis(whole, self.best[None], axis=0)[0]


def _divided(part: Array, whole: Array) -> Array:
    share = np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)
    return np.where(np.isnan(part), np.nan, share)


def _scored(
    names: Sequence[str], hits: Array, cases: Array, spread: Array, worth: Callable[[Array, Array], Array] | None = None
) -> Scored:
    """Hits and squared deviations [choices, layers, heads], and cases [choices, layers, (n, expected, variance)]."""
    n, expected, variance = (cases[..., place][..., None] for place in range(3))
    share, chance = _divided(hits, n), _divided(expected, n)
    p = p_values(hits, expected, np.maximum(variance, spread), n)
    chosen = share if worth is None else worth(share, n)
    return Scored(tuple(names), share, np.broadcast_to(chance, share.shape), n, p, holm(p), chosen.argmax(0))


def positional(view: HeadTargetsView, keys: Sequence[str], offsets: Sequence[str]) -> Scored:
    """Hits at some offsets, among queries with a word there."""
    hits, known = zip(*(view.at_offsets(key) for key in keys), strict=True)
    places = [_offsets(view).index(name) for name in offsets]
    sums, cases = stacked(hits, axis=1)[places], np.stack(known, axis=1)[places]
    return _scored(offsets, sums[:, :, 0], cases, sums[:, :, 1])


def offsets_of(view: HeadTargetsView, keys: Sequence[str], *, least: int) -> list[str]:
    """Offsets at which at least so many queries have a word."""
    n = np.stack([view.at_offsets(key)[1][:, 0] for key in keys]).max(0)
    return [name for name, count in zip(_offsets(view), n, strict=True) if count >= least]


def _offsets(view: HeadTargetsView) -> list[str]:
    return [f"{offset:+d}" if offset else "0" for offset in view.offsets]


def linked(view: HeadTargetsView, keys: Sequence[str], kind: str) -> Scored:
    """Hits of one kind of link, among queries that have one."""
    return _links(view, keys, [kind])


def rare(view: HeadTargetsView, keys: Sequence[str]) -> Scored:
    """Texts in which most words have their largest weight on the least frequent word in sight."""
    hits, known = zip(*(view.texts(key) for key in keys), strict=True)
    sums, cases = stacked(hits), np.stack(known)
    return _scored([RARE], sums[None, :, 0], cases[None], sums[None, :, 1])


def syntactic(view: HeadTargetsView, keys: Sequence[str], relations: Sequence[str]) -> Scored:
    """Hits of relations in both directions, beside the offset at which most of these words stand.

    A head's own relation is the one in which it is furthest above that offset.
    """
    places = [view.kinds.index(name) for name in relations]
    distances = np.stack([view.distances(key)[places] for key in keys], axis=1)  # [relations, layers, offsets]
    n = np.stack([view.cases(key)[places, 0] for key in keys], axis=1)
    baseline = _divided(distances.max(-1), n)[..., None]
    offset = distances.argmax(-1)[..., None] - view.facts["reach"]
    found = _links(view, keys, relations, lambda share, count: np.where(count > 0, share - baseline, -2.0))
    return Scored(
        found.names,
        found.share,
        found.chance,
        found.n,
        found.p,
        found.corrected,
        found.best,
        baseline=baseline,
        offset=offset,
    )


def _links(
    view: HeadTargetsView,
    keys: Sequence[str],
    kinds: Sequence[str],
    worth: Callable[[Array, Array], Array] | None = None,
) -> Scored:
    places = [view.kinds.index(kind) for kind in kinds]
    hits = stacked([view.links(key)[places, 0] for key in keys], axis=1)
    spread = stacked([view.spread(key)[places] for key in keys], axis=1)
    cases = np.stack([view.cases(key)[places, :3] for key in keys], axis=1)
    return _scored(kinds, hits, cases, spread, worth)


def sink(view: HeadTargetsView, keys: Sequence[str]) -> Scored:
    """The share of attention on special tokens and the first position; chance is uniform attention."""
    mass, even = zip(*(view.rows("sink", key) for key in keys), strict=True)
    spread = stacked([view.rows("spread", key)[0] for key in keys])[None]
    cases = np.array([[view.n(key), each, 0.0] for key, each in zip(keys, even, strict=True)])[None]
    return _scored(["sink"], stacked(mass)[None], cases, spread)


def relations_of(view: HeadTargetsView, keys: Sequence[str], *, least: int, without: Sequence[str]) -> list[str]:
    """Relations with a direction that at least so many queries have, without those of some names."""
    n = np.stack([view.cases(key)[:, 0] for key in keys]).max(0)
    return [
        name
        for name, count in zip(view.kinds, n, strict=True)
        if name.endswith((TO_HEAD, TO_DEPENDENT)) and count >= least and _relation(name) not in without
    ]


def _relation(name: str) -> str:
    return name.removesuffix(TO_HEAD).removesuffix(TO_DEPENDENT).strip()
