"""Mates of a neuron: the units of its site that say nearly the same, found by clustering correlations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.neurons.ranking import by_site
from pellucid.results import Array, ResultError, Table
from pellucid.similarity.units import correlations

if TYPE_CHECKING:
    from pellucid.collect.found import Found

CUT = 0.5
"""Clusters are joined while their mean 1 − |ρ| is at most this."""
MOST = 20
"""Mates of a neuron that are shown, the nearest first."""


def clusters(strength: Array, *, cut: float = CUT) -> Array:
    """The cluster of every unit, [units], numbered from 1, by average linkage of 1 − |ρ| from |ρ| [units, units]."""
    if not 0 < cut < 1:
        raise ResultError(f"cut={cut} must lie between 0 and 1: clusters are joined while their mean 1 − |ρ| is below.")
    if len(strength) < 2:
        return np.ones(len(strength), dtype=np.int64)
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    make: Any = linkage
    cuts: Any = fcluster
    apart = np.clip(1 - (strength + strength.T) / 2, 0.0, 1.0)
    np.fill_diagonal(apart, 0.0)
    return cuts(make(squareform(apart, checks=False), "average"), cut, criterion="distance").astype(np.int64)


def site_correlations(found: Found, site: str) -> Array:
    """The correlation of every two units of a site of the first model, [units, units], from `Moments`; constants 0."""
    from pellucid.collect.moments import Moments
    from pellucid.similarity.pair import pair_of, side_of

    views = [(each, found[name]) for name, each in found.collectors.items() if isinstance(each, Moments)]
    for collector, view in views:
        key = next((key for key in (site, f"0:{site}") if key in view.keys), None)
        if key is not None and view.has(key, key):
            side = side_of(view, key, precision=collector.precision)
            return correlations(pair_of(view, side, side))
    raise ResultError(f"Mates of neurons need Moments({site!r}, pairs='diagonal') in the sweep.")


def mates(found: Found, neurons: Sequence[str], *, cut: float = CUT, most: int = MOST) -> Table:
    """The mates of each neuron, nearest first: `neuron`, `mate`, `correlation` (signed), and the cluster's `size`.

    A neuron alone in its cluster has one row, with its nearest unit and the size 1.
    """
    rows: list[tuple[str, str, float, int]] = []
    for site, units in by_site(neurons).items():
        rho = site_correlations(found, site)
        cluster = clusters(np.abs(rho), cut=cut)
        for unit in units:
            near = np.abs(rho[unit]).copy()
            near[unit] = -1.0
            own = np.flatnonzero((cluster == cluster[unit]) & (np.arange(len(cluster)) != unit))
            shown = own[np.argsort(-near[own], kind="stable")][:most] if len(own) else [int(near.argmax())]
            rows += [(f"{site}:{unit}", f"{site}:{mate}", float(rho[unit, mate]), len(own) + 1) for mate in shown]
    names = ("neuron", "mate", "correlation", "size")
    return Table.of_rows(dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True)))
