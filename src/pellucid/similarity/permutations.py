"""Tests of similarity: whole documents of one side change places, which keeps what hangs together within a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.collector import split_key
from pellucid.collect.documents import DocumentSample
from pellucid.errors import listing
from pellucid.results import Array, Coordinate, Result, Table
from pellucid.similarity import tiles
from pellucid.similarity.metrics import chosen, phrases
from pellucid.similarity.pair import SimilarityError
from pellucid.similarity.sampled import centred
from pellucid.similarity.sources import Gathered

if TYPE_CHECKING:
    from pellucid.collect.documents import DocumentSampleView
    from pellucid.collect.found import Found

PERMUTATIONS = 999
FORMS: dict[str, tuple[tiles.Form, bool]] = {
    "cka": (tiles.linear, True),
    "rbf-cka": (tiles.rbf(1.0), True),
    "distance-correlation": (tiles.distances, True),
    "rsa": (tiles.squared_distances, False),
    "rsa-spearman": (tiles.distance_ranks, False),
}
"""Scores that are products of two matrices of all pairs of words, and whether these are U-centred, by rows and columns,
or by their mean alone."""


@dataclass(frozen=True, eq=False)
class SimilaritySignificance(Result):
    """p-values of every pair of sites, [measure, left, right]: how often shuffled documents score as high or higher.

    The table `scores` holds the `value` on the sampled words, and `mean` and `sd` under shuffling.
    """

    kind: ClassVar[str] = "similarity.significance"
    title: ClassVar[str] = "Chance that unrelated documents would look as alike"
    chance: ClassVar[str] = "0.5, the middle of what unrelated sides give"

    @property
    def measures(self) -> Mapping[str, str]:
        return {
            name: f"chance of a score as high from unrelated documents; the score is {about}"
            for name, about in phrases(self.axes["measure"]).items()
        }


def significance(
    found: Found,
    scores: str | Iterable[str] = "cka",
    *,
    left: str | None = None,
    right: str | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> SimilaritySignificance:
    """p-values from whole documents changing places, (1 + how many score as high)/(1 + permutations).

    Reads `DocumentSample`, equally long blocks of words of some documents. Words of a text hang together, so tests that
    shuffle single words find similarity everywhere.
    """
    wanted = chosen(scores)
    for metric in wanted:
        if metric.name not in FORMS:
            raise SimilarityError(f"There is no test of {metric.name!r}; there are those of {listing(sorted(FORMS))}.")
    if permutations < 99:
        raise SimilarityError(f"{permutations} permutations say too little; use 99 or more, best 999.")
    view = _view(found)
    sides = Gathered(found).chosen_sides(view.keys, left, right)
    blocks = {key: _finite(view, key) for side in sides for key in side}
    parts = [shuffled(blocks, sides, metric.name, permutations, seed) for metric in wanted]
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": tuple(metric.name for metric in wanted),
        "left": tuple(split_key(key)[1] for key in sides[0]),
        "right": tuple(split_key(key)[1] for key in sides[1]),
    }
    columns = {name: np.stack([getattr(part, name) for part in parts]) for name in ("value", "mean", "sd")}
    p, low, high = (np.stack([getattr(part, name) for part in parts]) for name in ("p", "low", "high"))
    arguments = {"permutations": permutations, "documents": view.documents, "sides": list(sides)}
    return SimilaritySignificance(
        axes=axes,
        values=p,
        null=np.full_like(p, 0.5),
        low=low,
        high=high,
        resampled=f"{permutations} permutations of {view.documents} documents (Clopper and Pearson, 95%)",
        provenance=found.provenance("similarity.significance", arguments, seed=seed),
        tables={"scores": Table(axes, columns)},
    )


@dataclass(frozen=True, eq=False)
class Shuffled:
    """Score, its mean and sd under shuffling, and p with its interval, each [left, right]."""

    value: Array
    mean: Array
    sd: Array
    p: Array
    low: Array
    high: Array


def shuffled(
    blocks: Mapping[str, Array],
    sides: tuple[tuple[str, ...], tuple[str, ...]],
    score: str,
    permutations: int,
    seed: int,
) -> Shuffled:
    """Every pair of sides over blocks [documents, words, width], and the same with the right side's documents shuffled.

    The score is the product of two matrices, centred and brought to length 1 before, which permuting rows and columns
    leaves alone. Both are held block by block, [site, pair of documents, words²], so that a permutation costs one copy
    of whole blocks, of each pair of documents once, and one product of all pairs of sites.
    """
    documents, words, _ = next(iter(blocks.values())).shape
    if documents < 5:
        raise SimilarityError(
            f"{documents} documents have {words} words or more, and a test needs at least 5; sweep with "
            "DocumentSample(…, words=…) for shorter blocks."
        )
    one, other = np.triu_indices(documents)
    twice = torch.from_numpy(np.where(one < other, 2, 1).astype(np.float32))[:, None]  # a pair counts in both orders
    left, right = (
        torch.stack([_apart(_unit(blocks[key].reshape(documents * words, -1), score), words) for key in side])
        for side in sides
    )
    left = (left[:, torch.from_numpy(one * documents + other)] * twice).flatten(1)  # [left, pairs·words²]
    moved = torch.empty(len(right), len(one), words**2)

    def scored(order: Array) -> Array:
        torch.index_select(right, 1, torch.from_numpy(order[one] * documents + order[other]), out=moved)
        return (left @ moved.flatten(1).T).double().numpy()

    value = scored(np.arange(documents))
    generator = np.random.default_rng(seed)
    scores = np.stack([scored(generator.permutation(documents)) for _ in range(permutations)])
    as_high = (scores >= value - 1e-6).sum(0)  # products are float32: a tie within their rounding counts
    p = (1 + as_high) / (1 + permutations)
    return Shuffled(value, scores.mean(0), scores.std(0, ddof=1), p, *_ends(as_high, permutations))


def _ends(count: Array, of: int) -> tuple[Array, Array]:
    """The interval of a share of which `count` of so many draws were seen (Clopper and Pearson 1934)."""
    from scipy.stats import beta

    low = np.where(count > 0, beta.ppf(0.025, np.maximum(count, 1), of - count + 1), 0.0)
    high = np.where(count < of, beta.ppf(0.975, count + 1, np.maximum(of - count, 1)), 1.0)
    return low, high


def _unit(rows: Array, score: str) -> Array:
    """The whole matrix of a score's form, centred and brought to length 1; zeros where it has no spread."""
    form, by_rows = FORMS[score]
    n, band = len(rows), form(centred(rows))
    whole = np.concatenate([band(start, stop) for start, stop in tiles.steps(n)])
    before = np.linalg.norm(whole)
    if by_rows:
        sums = whole.sum(1) / (n - 2)
        whole = whole - sums[:, None] - sums + whole.sum() / ((n - 1) * (n - 2))
    else:
        whole = whole - whole.sum() / (n * (n - 1))
    tiles.hollow(whole, 0)
    length = np.linalg.norm(whole)
    return whole / length if length > 1e-12 * before else np.zeros_like(whole)  # else nothing but rounding


def _apart(whole: Array, words: int) -> Tensor:
    """A matrix of all pairs of words, block by block, in float32: [documents², words²]."""
    documents = len(whole) // words
    blocks = whole.astype(np.float32).reshape(documents, words, documents, words).swapaxes(1, 2)
    return torch.from_numpy(blocks.reshape(documents**2, words**2))


def _view(found: Found) -> DocumentSampleView:
    if DocumentSample not in found:
        raise SimilarityError("p-values read DocumentSample, which this sweep did not collect; sweep with it too.")
    return found[DocumentSample]


def _finite(view: DocumentSampleView, key: str) -> Array:
    """The blocks of a key; NaN or infinity is refused by its word."""
    blocks = view.rows(key)
    bad = view.ordinal[~np.isfinite(blocks).all(2)]
    if len(bad):
        raise SimilarityError(
            f"{key!r} is NaN or infinite for word {bad.min() + 1:,} of the corpus; leave that site out, or run the "
            "model in float32."
        )
    return blocks
