"""Head clusters: heads grouped by how alike their attention is, and placed on a plane."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.divergence import HeadDivergence
from pellucid.collect.effective_weights import RAW
from pellucid.collect.found import Found
from pellucid.heads.roles.sweeping import check_readable, patterns_of, phrases_of, swept
from pellucid.reading import view_with
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.model import Model

MEASURES = {
    "inside": "mean Jensen–Shannon distance to the other heads of its cluster, 0 (alike) to 1; 0 where it is alone",
    "outside": "mean Jensen–Shannon distance to the nearest other cluster; 0 where there is no other",
}
_HEADS = 100
"""Heads up to which every word is read where nothing else is asked for."""


@dataclass(frozen=True, eq=False)
class HeadClusters(Result):
    """How near every head is to its own and to the nearest other cluster, [measure, head]; `3.5` is head 5 of layer 3.

    The table `places` holds every head's `cluster` (numbered from 1, the largest first) and its place `x`, `y` on a
    plane that keeps the distances as well as it can (classical scaling); `distances` holds those of all pairs.
    """

    kind: ClassVar[str] = "heads.clusters"
    title: ClassVar[str] = "Heads that look alike"
    chance: ClassVar[str] = "the same distances where the weights of one of two heads were dealt out at random"

    @property
    def measures(self) -> Mapping[str, str]:
        return phrases_of(self, MEASURES)

    @property
    def members(self) -> dict[int, tuple[str, ...]]:
        """The heads of every cluster, by its number."""
        told = self.table("places").columns["cluster"]
        names = [str(name) for name in self.axes["head"]]
        return {
            int(number): tuple(name for name, own in zip(names, told, strict=True) if own == number)
            for number in np.unique(told)
        }


def clusters(
    source: Found | Model,
    corpus: Corpus | None = None,
    *,
    count: int | None = None,
    within: float = 0.5,
    weights: str = RAW,
) -> HeadClusters:
    """Clusters of heads by the distance √(JS/ln 2) of their attention, from `HeadDivergence()` (Clark et al. 2019).

    Heads are joined by average linkage: until `count` clusters are left, or (without `count`) until no two clusters are
    nearer than `within`. `weights` are raw or effective (absolute values, each row summing to one).
    """
    fresh = () if isinstance(source, Found) else (cluster_collector(source, weights=weights, every=1),)
    found = swept(source, corpus, *fresh, weights=weights)
    view, mine = view_with(found, HeadDivergence, "pattern", ask="HeadDivergence()", weights=weights)
    distances = _distances(view.divergence())
    names = tuple(f"{layer}.{head}" for layer, key in mine.items() for head in range(view.heads[key]))
    if count is not None and not 1 <= count <= len(names):
        raise ResultError(f"count={count} clusters cannot be made of {len(names)} heads.")
    cluster = joined(distances, count=count, within=within)
    axes: dict[str, tuple[Coordinate, ...]] = {"measure": tuple(MEASURES), "head": names}
    interval = over_groups(view, lambda part: _near(_distances(part.divergence()), cluster), lambda part: part.n())
    x, y = plane(distances)
    return HeadClusters(
        axes=axes,
        values=_near(distances, cluster),
        null=_near(_distances(view.chance()), cluster),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("heads.clusters", {"count": count, "within": within, "weights": weights}),
        tables={
            "places": Table({"head": names}, {"cluster": cluster, "x": x, "y": y}),
            "distances": Table({"head": names, "other": names}, {"distance": distances}),
        },
    )


def cluster_collector(
    model: Model, *, side: str = "source", weights: str = RAW, every: int | None = None
) -> HeadDivergence:
    """What `clusters` reads of the first model of a sweep; give the sweep the same `side`.

    Every two heads are compared, so that of models with many heads each `every`-th word is read only (default: as many
    comparisons as 100 heads need on all words).
    """
    sites = patterns_of(model, side=side)
    check_readable(model, sites, weights)
    stack = None if sites == "pattern.*" else sites.partition(".")[0]
    heads = sum(model.size(site)[0] for site in model.sites if site.kind == "pattern" and site.stack == stack)
    least = max(1, math.ceil((heads / _HEADS) ** 2)) if every is None else every
    return HeadDivergence(f"0:{sites}", every=least, weights=weights)


def joined(distances: Array, *, count: int | None, within: float) -> Array:
    """Clusters by average linkage from distances [heads, heads], numbered from 1, the largest first: [heads]."""
    members = [[head] for head in range(len(distances))]
    between = np.array(distances, dtype=np.float64)
    np.fill_diagonal(between, np.inf)
    while len(members) > (count or 1):
        one, other = sorted(divmod(int(between.argmin()), len(between)))
        if count is None and between[one, other] > within:
            break
        sizes = len(members[one]), len(members[other])
        row = (sizes[0] * between[one] + sizes[1] * between[other]) / sum(sizes)
        between[one], between[:, one] = row, row
        between[one, one] = np.inf
        between = np.delete(np.delete(between, other, axis=0), other, axis=1)
        members[one] += members.pop(other)
    found = np.zeros(len(distances), dtype=np.int64)
    for number, heads in enumerate(sorted(members, key=lambda each: (-len(each), min(each))), start=1):
        found[heads] = number
    return found


def plane(distances: Array) -> tuple[Array, Array]:
    """Places on a plane whose distances are as near to the given ones as classical scaling makes them, [heads] each."""
    size = len(distances)
    centred = np.eye(size) - 1 / size
    values, vectors = np.linalg.eigh(-0.5 * centred @ distances**2 @ centred)
    found: list[Array] = []
    for place in (-1, -2):
        if size < -place:
            found.append(np.zeros(size))
            continue
        axis = vectors[:, place] * np.sqrt(max(0.0, float(values[place])))
        found.append(axis * (1 if axis[np.abs(axis).argmax()] >= 0 else -1))  # one sign, whatever the solver chose
    return found[0], found[1]


def _distances(divergence: Array) -> Array:
    return np.sqrt(np.clip(divergence / np.log(2), 0.0, 1.0))


def _near(distances: Array, cluster: Array) -> Array:
    """Mean distance of every head to its own and to the nearest other cluster, [2, heads]."""
    numbers = np.unique(cluster)
    inside, outside = np.zeros(len(cluster)), np.zeros(len(cluster))
    for head, own in enumerate(cluster):
        mates = (cluster == own) & (np.arange(len(cluster)) != head)
        inside[head] = distances[head, mates].mean() if mates.any() else 0.0
        others = [distances[head, cluster == number].mean() for number in numbers if number != own]
        outside[head] = min(others, default=0.0)
    return np.stack([inside, outside])
