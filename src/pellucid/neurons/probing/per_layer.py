"""Probes by layer: how much of a concept can be told from each site alone, beside the controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.neurons.arrays import of_arrays
from pellucid.neurons.concepts import Concept
from pellucid.neurons.probing.controls import majority
from pellucid.neurons.probing.intervals import accuracies, in_range
from pellucid.neurons.probing.material import Material, Reading, opened
from pellucid.neurons.probing.probes import (
    MEASURES,
    beside,
    check_seeds,
    control_tasks,
    measured,
    penalties,
    real_tasks,
    tested,
    tested_counts,
)
from pellucid.neurons.probing.rows import MEMORY, Rows
from pellucid.neurons.probing.training import Settings, Task, fit
from pellucid.neurons.ranking import by_site
from pellucid.neurons.sources import Sites
from pellucid.results import Array, Result

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model


@dataclass(frozen=True, eq=False)
class LayerProbes(Result):
    """Accuracy of a probe on each site alone, beside its controls, [measure, site].

    Arrays have no model, and so do without the measure `random model`.
    """

    kind: ClassVar[str] = "neurons.per_layer"
    title: ClassVar[str] = "What a probe tells from each layer"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "always the most frequent class"


def per_layer(
    source: Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    random: Store | None = None,
    penalty: str = "l2",
    l1: float = 1e-3,
    l2: float = 1e-3,
    seeds: int = 3,
    epochs: int = 60,
    test: float = 0.2,
    fewest: int = 20,
    seed: int = 0,
    memory: int = MEMORY,
    pooling: str | None = None,
    device: str = "cpu",
) -> LayerProbes:
    """A probe of a concept on each site, with majority, random-initialised model, control task and selectivity.

    One site is read and learned from at a time, by all its probes in one training. The numbers are means over `seeds`
    probes of a site, each of which leaves out another tenth of the documents and has its own control task. Arrays
    (`array_store`, `neurox_store`) have no model: they do without the measure `random model`.
    """
    check_seeds(seeds)
    settings = Settings(*penalties(penalty, l1, l2), epochs=epochs, seed=seed, device=device)
    reading = Reading(sites, fewest, test, seed, memory, pooling)
    with opened(source, corpus, concept, reading, random=random, controlled=not of_arrays(source)) as found:
        real, controls = real_tasks(found, seeds), control_tasks(found, seeds, seed)
        classes, names = len(found.data.classes), tuple(by_site(found.rows.names))
        hits = _hits(found, real, controls, settings)
        counts = tested_counts(found)
        values, interval = accuracies(hits, counts, _beside, unit=found.data.unit.removesuffix("s"))
        interval = in_range(interval, measured(found))
        rest, learned = found.split.test, found.split.training
        guesses = [
            np.mean([(task.goals[rest] == majority(task.goals, learned, classes)).mean() for task in some])
            for some in (real, controls)
        ]
        null = beside(np.array([*guesses, guesses[0]])[: len(hits)])
        told = {"penalty": penalty, "l1": settings.l1, "l2": settings.l2, "epochs": epochs, "test": test,
                "seeds": seeds}  # fmt: skip
        return LayerProbes(
            axes={"measure": measured(found), "site": names},
            values=values,
            null=np.repeat(null[:, None], len(names), axis=1),
            low=interval.low,
            high=interval.high,
            resampled=interval.resampled,
            provenance=found.provenance("neurons.per_layer", told, seed),
        )


def _hits(found: Material, real: list[Task], controls: list[Task], settings: Settings) -> Array:
    """Hits of probe, control task and, if any, random model on each site, mean over seeds: [2 or 3, sites, groups,
    classes]."""

    def right(rows: Rows, tasks: list[Task]) -> Array:
        hits = tested(rows, fit(rows, tasks, len(found.data.classes), settings), tasks, found)
        return hits.reshape(-1, len(real), *hits.shape[1:]).mean(axis=1)

    parts = [right(own, [*real, *controls]) for own in found.rows.by_site()]
    if found.twin is not None:
        random = [right(twin, real) for twin in found.twin.by_site()]
        parts = [np.concatenate(both) for both in zip(parts, random, strict=True)]
    return np.stack(parts, axis=1)


def _beside(accuracy: Array) -> Array:
    """The measures [measures, sites] of the accuracies [2 or 3, sites, 1 + classes]."""
    return beside(accuracy[..., 0])
