"""Random forests: neurons by how much the splits at them sort the classes (Gini importance)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.neurons.concepts import OTHER, Concept
from pellucid.neurons.probing.controls import control_goals
from pellucid.neurons.probing.intervals import over_folds
from pellucid.neurons.probing.material import Material, Reading, opened
from pellucid.neurons.probing.rows import MEMORY
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.neurons.sources import Sites
from pellucid.results import Array, ResultError, Table
from pellucid.uncertainty import GROUPS

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model

ACCURACIES = ("forest", "shuffled labels", "majority", "control task", "selectivity")
"""The columns of the table `accuracy`."""


def forest(
    source: Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    trees: int = 100,
    seeds: int = 3,
    rows: int = 10_000,
    test: float = 0.2,
    fewest: int = 20,
    seed: int = 0,
    memory: int = MEMORY,
    pooling: str = "mean",
) -> Ranking:
    """Neurons by the Gini importance of scikit-learn's random forest, mean over forests that each leave out a tenth.

    A forest tells all classes apart at once, so a class has no order of its own, and its importance has no sign: the
    sign in a class is that of the class's mean activation less the overall mean. Chance is the importance in a forest
    of shuffled labels. At most `rows` words are learned from, and no more than `memory` holds. The table `accuracy` has
    forest, shuffled labels, majority, control task and selectivity, on documents for testing.
    """
    if trees < 1 or not 1 <= seeds <= GROUPS:
        raise ResultError(f"trees={trees}, seeds={seeds} make no forest; use 1 or more trees and 1 to {GROUPS} seeds.")
    reading = Reading(sites, fewest, test, seed, memory, pooling)
    with opened(source, corpus, concept, reading, controlled=False) as found:
        most = max(1, min(rows, memory // (4 * len(found.rows.names))))
        real, shuffled, accuracy = zip(*(_grown(found, fold, trees, most, seed) for fold in range(seeds)), strict=True)
        told = {"method": "forest", "trees": trees, "seeds": seeds, "rows": most, **asdict(reading)}
        return _ranking(found, np.stack(real), np.stack(shuffled), np.array(accuracy), told, seed)


def _grown(found: Material, fold: int, trees: int, rows: int, seed: int) -> tuple[Array, Array, tuple[float, ...]]:
    """Importances [neurons] of a forest and of one with shuffled labels, and the accuracies of `ACCURACIES`."""
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError:
        raise ResultError("Random forests need scikit-learn: pip install scikit-learn.") from None
    maker: Any = RandomForestClassifier
    dice = np.random.default_rng([seed, 11, fold])
    learned, held = np.flatnonzero(found.split.without(fold)), np.flatnonzero(found.split.test)
    learned = np.sort(dice.choice(learned, min(rows, len(learned)), replace=False))
    held = np.sort(dice.choice(held, min(rows, len(held)), replace=False))
    data, classes = found.data, int(found.data.goals.max()) + 1
    random = control_goals(data.goals, data.types, found.split.training, classes, seed=seed + 1000 * fold)
    values, goals = found.rows.take(learned).numpy(), data.goals[learned]
    asked, answers = found.rows.take(held).numpy(), data.goals[held]
    labels = goals, dice.permutation(goals), random[learned]
    made = [maker(trees, random_state=seed + fold).fit(values, each) for each in labels]
    right = [float((each.predict(asked) == wanted).mean())
             for each, wanted in zip(made, (answers, answers, random[held]), strict=True)]  # fmt: skip
    sure = float((answers == np.bincount(goals).argmax()).mean())
    accuracy = right[0], right[1], sure, right[2], right[0] - right[2]
    return made[0].feature_importances_, made[1].feature_importances_, accuracy


def _ranking(
    found: Material, real: Array, shuffled: Array, accuracy: Array, told: dict[str, Any], seed: int
) -> Ranking:
    classes = tuple(name for name in found.data.classes if name != OTHER)
    sign = _sides(found, classes)
    interval = over_folds(real, unit=found.data.unit.removesuffix("s"))
    score, null = real.mean(axis=0), shuffled.mean(axis=0)
    low = high = None
    if interval.low is not None and interval.high is not None:
        ends = np.sort(np.stack([sign * interval.low, sign * interval.high]), axis=0)
        low, high = ends[0], ends[1]
    return Ranking(
        axes={"class": classes, "neuron": found.rows.names},
        values=sign * score,
        null=np.tile(null, (len(classes), 1)),
        low=low,
        high=high,
        resampled=interval.resampled,
        provenance=found.provenance("neurons.forest", told, seed),
        tables={
            "overall": overall_table(found.rows.names, score, null=null, low=interval.low, high=interval.high),
            "accuracy": Table({"seed": tuple(range(len(accuracy)))},
                              {name: accuracy[:, place] for place, name in enumerate(ACCURACIES)}),
        },
    )  # fmt: skip


def _sides(found: Material, classes: tuple[str, ...]) -> Array:
    """+1 where the class's mean activation lies above that of all words to learn from, −1 where below."""
    total = np.zeros((len(found.data.classes), len(found.rows.names)))
    wanted = found.split.training
    for numbers, part in found.rows.batches(wanted, 2048, None):
        np.add.at(total, found.data.goals[numbers], part.numpy().astype(np.float64))
    counts = np.bincount(found.data.goals[wanted], minlength=len(total))[:, None]
    away = total / np.maximum(1, counts) - total.sum(axis=0) / counts.sum()
    return np.where(away[[found.data.classes.index(name) for name in classes]] < 0, -1.0, 1.0)
