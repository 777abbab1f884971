"""Class sums: counts, means and variances of neurons by class, and the ranking that a statistic of them gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.neurons.caution import warn_of_sentence_labels
from pellucid.neurons.concepts import Concept, scored
from pellucid.neurons.ranking import Ranking, neuron_names
from pellucid.neurons.scores import Again, Scores, class_table, ranking_of
from pellucid.neurons.sources import Sites, site_of, twin_keys, view_of
from pellucid.results import Array, Table

if TYPE_CHECKING:
    from pellucid.collect.classes import ClassMomentsView
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found


@dataclass(frozen=True, eq=False)
class ClassSums:
    """What is known of every neuron by class: `counts` [class], `means` and `variances` [class, neuron].

    `variances` are None where only means were gathered. A class without rows (in a part of the text) counts for
    nothing.
    """

    classes: tuple[str, ...]
    counts: Array
    means: Array
    variances: Array | None

    @property
    def total(self) -> Array:
        """The variance over all rows, [neuron]."""
        assert self.variances is not None
        shares = (self.counts / self.counts.sum())[:, None]
        centre = (shares * self.means).sum(0)
        return (shares * (self.variances + (self.means - centre) ** 2)).sum(0)

    @property
    def within(self) -> Array:
        """The variance inside classes, [neuron]: their variances weighted by their rows."""
        assert self.variances is not None
        return (self.counts[:, None] * self.variances).sum(0) / self.counts.sum()


Statistic = Callable[[ClassSums], Scores]


def class_collectors(sites: tuple[str, ...], label: str) -> Sequence[Collector]:
    """What rankings from class means and variances need."""
    from pellucid.collect.classes import ClassMoments

    return [ClassMoments(sites, label=label, covariance="diagonal", groups=True)]


def ranking_from_sums(
    found: Found,
    concept: Concept,
    statistic: Statistic,
    *,
    method: str,
    sites: Sites = None,
    arguments: Mapping[str, Any] | None = None,
    seed: int | None = None,
    tables: Callable[[ClassSums, tuple[str, ...]], Mapping[str, Table]] | None = None,
) -> Ranking:
    """The ranking of a statistic of class means, with a jackknife over document groups and the random control."""
    from pellucid.collect.classes import ClassMoments

    view, keys = view_of(found, ClassMoments, concept, sites)
    warn_of_sentence_labels(found.about, concept, stacklevel=3)
    grouping = concept.grouped(view.label, view.values)
    neurons = tuple(name for key in keys for name in neuron_names(site_of(key), view.means(key).shape[1]))
    sums = sums_of(view, keys, grouping)
    places = [place for own in grouping.values() for place in own]
    groups = {number: float(view.group(number).counts[places].sum()) for number in view.groups}
    again = [
        Again(statistic(sums_of(view.without(number), keys, grouping)), size) for number, size in groups.items() if size
    ]
    beside = twin_keys(found, view, keys)
    return ranking_of(
        statistic(sums),
        again,
        classes=scored(grouping),
        neurons=neurons,
        provenance=found.provenance(
            "neurons.ranking",
            {"method": method, "concept": concept.name, "rule": concept.rule, **dict(arguments or {})},
            seed=seed,
        ),
        random_model=statistic(sums_of(view, beside, grouping)).signed if beside else None,
        tables={
            "classes": class_table(sums.classes, sums.counts),
            **(tables(sums, neurons) if tables is not None else {}),
        },
    )


def sums_of(view: ClassMomentsView, keys: Sequence[str], grouping: Mapping[str, Sequence[int]]) -> ClassSums:
    """The statistics of some keys side by side, their values put together into classes."""
    counts = np.array([view.counts[list(places)].sum() for places in grouping.values()], dtype=np.float64)
    spread = "square" in view.state.arrays or any(name.startswith("product") for name in view.state.arrays)
    means = np.concatenate([view.means(key) for key in keys], axis=1)
    variances = np.concatenate([view.variances(key) for key in keys], axis=1) if spread else None
    made: list[Array] = []
    inside: list[Array] = []
    for places in grouping.values():
        weights = view.counts[list(places)].astype(np.float64)
        shares = (weights / max(1.0, weights.sum()))[:, None]
        own = means[list(places)]
        centre = (shares * own).sum(0)
        made.append(centre)
        if variances is not None:
            inside.append((shares * (variances[list(places)] + (own - centre) ** 2)).sum(0))
    return ClassSums(tuple(grouping), counts, np.stack(made), np.stack(inside) if variances is not None else None)
