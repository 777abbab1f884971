"""Probes by layer: how much of a concept can be told from each site alone, beside the controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.neurons.concepts import Concept
from pellucid.neurons.probing.controls import majority
from pellucid.neurons.probing.intervals import accuracies
from pellucid.neurons.probing.material import Reading, opened
from pellucid.neurons.probing.probes import (
    MEASURES,
    check_seeds,
    control_tasks,
    penalties,
    real_tasks,
    tested,
    tested_counts,
)
from pellucid.neurons.probing.rows import MEMORY
from pellucid.neurons.probing.training import Settings, fit
from pellucid.neurons.ranking import by_site
from pellucid.neurons.sources import Sites
from pellucid.results import Array, Result

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model


@dataclass(frozen=True, eq=False)
class LayerProbes(Result):
    """Accuracy of a probe on each site alone, beside its controls, [measure, site]."""

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

    All probes of a model learn in one training: each reads the neurons of its own site. The numbers are means over
    `seeds` probes of a site, each of which leaves out another tenth of the documents and has its own control task.
    """
    check_seeds(seeds)
    settings = Settings(*penalties(penalty, l1, l2), epochs=epochs, seed=seed, device=device)
    with opened(source, corpus, concept, Reading(sites, fewest, test, seed, memory, pooling), random=random) as found:
        assert found.twin is not None
        names = list(by_site(found.rows.names))
        owner = np.array([name.rpartition(":")[0] for name in found.rows.names])
        real = [task for name in names for task in real_tasks(found, seeds, owner == name)]
        controls = [task for name in names for task in control_tasks(found, seeds, seed, owner == name)]
        classes = len(found.data.classes)
        tasks = [*real, *controls]
        mine = tested(found.rows, fit(found.rows, tasks, classes, settings), tasks, found)
        twins = tested(found.twin, fit(found.twin, real, classes, settings), real, found)
        hits = np.concatenate([mine, twins])
        hits = hits.reshape(3, len(names), seeds, *hits.shape[1:]).mean(axis=2)  # [3, sites, groups, classes]
        counts = tested_counts(found)
        values, interval = accuracies(hits, counts, _beside, unit=found.data.unit.removesuffix("s"))
        rest, learned = found.split.test, found.split.training
        guesses = [
            np.mean([(task.goals[rest] == majority(task.goals, learned, classes)).mean() for task in some[:seeds]])
            for some in (real, controls)
        ]
        null = np.array([guesses[0], guesses[0], guesses[1], guesses[0] - guesses[1]])
        told = {"penalty": penalty, "l1": settings.l1, "l2": settings.l2, "epochs": epochs, "test": test,
                "seeds": seeds}  # fmt: skip
        return LayerProbes(
            axes={"measure": tuple(MEASURES), "site": tuple(names)},
            values=values,
            null=np.repeat(null[:, None], len(names), axis=1),
            low=interval.low,
            high=interval.high,
            resampled=interval.resampled,
            provenance=found.provenance("neurons.per_layer", {**told, "left out": dict(found.data.left_out)}, seed),
        )


def _beside(accuracy: Array) -> Array:
    """The measures [4, sites] of the accuracies [3, sites, 1 + classes] of probe, control task and random model."""
    real, control, random = accuracy[..., 0]
    return np.stack([real, random, control, real - control])
