"""Bootstrap stability: how far a ranking stays the same when the documents that it is made of are drawn again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.class_sums import class_collectors, sums_of
from pellucid.neurons.concepts import Concept, as_concept, scored
from pellucid.neurons.histograms import binned, histogram_collectors, joined
from pellucid.neurons.judging.agreement import Stability, stability
from pellucid.neurons.overlap import Cut, binned_overlap
from pellucid.neurons.precision import binned_precision
from pellucid.neurons.probeless import mean_distances
from pellucid.neurons.ranking import Ranking, neuron_names
from pellucid.neurons.scores import Scores, ranking_of
from pellucid.neurons.selectivity import d_prime
from pellucid.neurons.sources import Gather, Sites, found_in, site_of, view_of
from pellucid.results import ResultError

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model

Scored = Callable[[Any, Sequence[str], dict[str, tuple[int, ...]]], Scores]


def _sums(statistic: Callable[..., Scores], view: Any, keys: Sequence[str], grouping: Any) -> Scores:
    return statistic(sums_of(view, keys, grouping))


def _bins(statistic: Callable[..., Scores], view: Any, keys: Sequence[str], grouping: Any) -> Scores:
    return joined([statistic(binned(view, key, grouping)) for key in keys])


WAYS: dict[str, Scored] = {
    "probeless": partial(_sums, mean_distances),
    "selectivity": partial(_sums, d_prime),
    "iou": partial(_bins, partial(binned_overlap, cut=Cut(0.95, None, "both"))),
    "precision": partial(_bins, binned_precision),
}
"""The rankings whose statistics are sums over documents, each from a view, its keys and the places of classes."""

SUMS = ("probeless", "selectivity")
"""Those of them that are made of means and variances; the others are made of histograms."""


def gathering(methods: Sequence[str]) -> Gather:
    """The collectors that rankings by these methods are drawn again from, each once."""
    kinds = dict.fromkeys(class_collectors if name in SUMS else histogram_collectors for name in methods)

    def gather(chosen: tuple[str, ...], label: str) -> list[Collector]:
        return [each for kind in kinds for each in kind(chosen, label)]

    return gather


def resampled_stability(
    source: Found | Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    method: str = "probeless",
    sites: Sites = None,
    counts: Sequence[int] = (5, 10, 20, 50),
    draws: int = 20,
    pooling: str | None = None,
    seed: int = 0,
) -> Stability:
    """The mean Jaccard of the first k neurons of rankings whose documents are drawn again, from one reading of text.

    Each of `draws` rankings is made of as many document groups as there are, drawn with replacement: the bootstrap of
    a ranking. A sweep must have kept its groups apart.
    """
    from pellucid.collect.class_histograms import ClassHistograms
    from pellucid.collect.classes import ClassMoments

    if method not in WAYS:
        raise ResultError(f"A ranking by {method!r} is not made of sums over documents; there are {listing(WAYS)}.")
    if draws < 2:
        raise ResultError(f"draws={draws} leaves nothing to compare; use 2 or more.")
    asked, sums = as_concept(concept), method in SUMS
    found = found_in(source, corpus, asked, gathering([method]), sites=sites, control=False, seed=seed, pooling=pooling)
    view, keys = view_of(found, ClassMoments if sums else ClassHistograms, asked, sites)
    if len(view.groups) < 2:
        raise ResultError(
            "Documents can be drawn again where groups of them were kept apart: collect with groups=True, from a "
            "text of several documents."
        )
    grouping, dice = asked.grouped(view.label, view.values), np.random.default_rng([seed, 12])
    widths = [len(view.means(key)[0]) if sums else len(view.edges(key)) for key in keys]
    neurons = [name for key, width in zip(keys, widths, strict=True) for name in neuron_names(site_of(key), width)]
    told = {"method": method, "concept": asked.name}
    origin = found.provenance("neurons.ranking", told, seed=seed)
    again: list[Ranking] = []
    for _ in range(draws):
        chosen = dice.choice(view.groups, len(view.groups))
        scores = WAYS[method](_drawn(view, chosen.tolist()), keys, grouping)
        again.append(ranking_of(scores, [], classes=scored(grouping), neurons=neurons, provenance=origin))
    made = stability(again, counts=counts, seed=seed)
    unit = f"{draws} rankings, each of {len(view.groups)} document groups drawn with replacement (bootstrap, 95%)"
    return replace(made, resampled=unit if made.low is not None else made.resampled)


def _drawn(view: Any, groups: Sequence[int]) -> Any:
    """A view of some document groups, each as often as it was drawn."""
    from pellucid.collect.value_groups import of_groups

    return type(view)(view.columns, of_groups([view.parts[group] for group in groups], view.state, view.common))
