"""Random forests: neurons by how much the splits at them sort the classes (Gini importance)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.neurons.arrays import of_arrays
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.concepts import Concept, scored_places
from pellucid.neurons.probing.controls import control_goals
from pellucid.neurons.probing.gini import class_importances
from pellucid.neurons.probing.intervals import over_folds
from pellucid.neurons.probing.material import Material, Reading, opened
from pellucid.neurons.probing.rows import MEMORY, Rows, memory_option
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.neurons.sources import Sites
from pellucid.results import Array, ResultError, Table
from pellucid.uncertainty import GROUPS

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model

ACCURACIES = ("forest", "random model", "shuffled labels", "majority", "control task", "selectivity")
"""The columns of the table `accuracy`; arrays have no model, and so no random one."""


def forest(
    source: Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    random: Store | None = None,
    trees: int = 100,
    seeds: int = 3,
    rows: int = 10_000,
    test: float = 0.2,
    fewest: int = 20,
    seed: int = 0,
    memory: int = MEMORY,
    pooling: str | None = None,
) -> Ranking:
    """Neurons by the Gini importance of scikit-learn's random forest, mean over forests that each leave out a tenth.

    A class's score is its part of the importance, n·Δ[p(1 − p)] over splits at the neuron; overall is that of all
    classes. It has no sign: that is of the class's mean activation less the overall mean. Chance is a forest of
    shuffled labels. At most `rows` words are learned from, and no more than `memory` holds, where a warning tells that;
    `words` in the arguments of the result has their number in each forest. The table `accuracy` has forest, random
    model (the same words in the model's random twin, which a store holds or `random` is a store of), shuffled labels,
    majority, control task and selectivity, on documents for testing.
    """
    if rows < 2:
        raise ResultError(f"rows={rows} words make no forest; use 2 or more, such as 10,000.")
    if trees < 1 or not 1 <= seeds <= GROUPS:
        raise ResultError(f"trees={trees}, seeds={seeds} make no forest; use 1 or more trees and 1 to {GROUPS} seeds.")
    reading = Reading(sites, fewest, test, seed, memory, pooling)
    with opened(source, corpus, concept, reading, random=random, controlled=not of_arrays(source)) as found:
        words = [min(rows, int(found.split.without(fold).sum())) for fold in range(seeds)]
        most = min(rows, _fitting(memory, len(found.rows.names), max(words)))
        made = [_grown(found, fold, trees, most, seed) for fold in range(seeds)]
        told = {"method": "forest", "trees": trees, "seeds": seeds, "rows": most,
                "words": [min(most, count) for count in words], **asdict(reading)}  # fmt: skip
        return _ranking(found, made, told, seed)


def _fitting(memory: int, neurons: int, words: int) -> int:
    """How many words memory holds; warns where these are not all to learn from."""
    held = max(2, memory // (4 * neurons))
    if held < words:
        warnings.warn(
            f"memory={memory} bytes holds {held:,} words of {neurons:,} neurons, so a forest learns from these, and "
            f"not from {words:,}; for all use {4 * neurons * words} or more ({memory_option(4 * neurons * words)}), or "
            "fewer sites.",
            NeuronWarning,
            stacklevel=3,
        )
    return held


@dataclass(frozen=True, eq=False)
class _Grown:
    """Importances [classes, neurons] of a forest and of one with shuffled labels, and accuracies by name."""

    real: Array
    shuffled: Array
    accuracy: dict[str, float]


def _grown(found: Material, fold: int, trees: int, rows: int, seed: int) -> _Grown:
    dice = np.random.default_rng([seed, 11, fold])
    learned, held = np.flatnonzero(found.split.without(fold)), np.flatnonzero(found.split.test)
    learned = np.sort(dice.choice(learned, min(rows, len(learned)), replace=False))
    held = np.sort(dice.choice(held, min(rows, len(held)), replace=False))
    data, classes = found.data, len(found.data.classes)
    control = control_goals(data.goals, data.types, found.split.training, classes, seed=seed + 1000 * fold)
    goals, answers = data.goals[learned], data.goals[held]
    tasks = (goals, answers), (dice.permutation(goals), answers), (control[learned], control[held])
    made, right = _fitted(found.rows, learned, held, tasks, trees, seed + fold)
    accuracy = {
        "forest": right[0],
        "shuffled labels": right[1],
        "majority": float((answers == np.bincount(goals).argmax()).mean()),
        "control task": right[2],
        "selectivity": right[0] - right[2],
    }
    if found.twin is not None:
        accuracy["random model"] = _fitted(found.twin, learned, held, tasks[:1], trees, seed + fold)[1][0]
    return _Grown(class_importances(made[0], classes), class_importances(made[1], classes), accuracy)


def _fitted(
    rows: Rows, learned: Array, held: Array, tasks: Sequence[tuple[Array, Array]], trees: int, seed: int
) -> tuple[list[Any], list[float]]:
    """A forest of the learned rows for each task, goals to learn and to test, and the share that each gets right."""
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError:
        raise ResultError("Random forests need scikit-learn: pip install scikit-learn.") from None
    maker: Any = RandomForestClassifier
    values, asked = rows.take(learned).numpy(), rows.take(held).numpy()
    made = [maker(trees, random_state=seed).fit(values, goals) for goals, _ in tasks]
    right = [float((each.predict(asked) == answers).mean()) for each, (_, answers) in zip(made, tasks, strict=True)]
    return made, right


def _ranking(found: Material, made: Sequence[_Grown], told: dict[str, Any], seed: int) -> Ranking:
    names, unit = found.rows.names, found.data.unit.removesuffix("s")
    chosen = scored_places(found.data.classes)
    real, shuffled = (np.stack(parts) for parts in zip(*((each.real, each.shuffled) for each in made), strict=True))
    own, every = (over_folds(part, unit=unit).within(0.0, 1.0) for part in (real[:, chosen], real.sum(axis=1)))
    sign = _sides(found)[chosen]
    score, null = real.mean(axis=0), shuffled.mean(axis=0)
    low = high = None
    if own.low is not None and own.high is not None:
        low, high = np.sort(np.stack([sign * own.low, sign * own.high]), axis=0)
    columns = [name for name in ACCURACIES if name in made[0].accuracy]
    return Ranking(
        axes={"class": tuple(found.data.classes[place] for place in chosen), "neuron": names},
        values=sign * score[chosen],
        null=null[chosen],
        low=low,
        high=high,
        resampled=own.resampled,
        provenance=found.provenance("neurons.forest", told, seed),
        tables={
            "overall": overall_table(names, score.sum(axis=0), null=null.sum(axis=0), low=every.low, high=every.high),
            "accuracy": Table({"seed": tuple(range(len(made)))},
                              {name: np.array([each.accuracy[name] for each in made]) for name in columns}),
        },
    )  # fmt: skip


def _sides(found: Material) -> Array:
    """+1 where a class's mean activation lies above that of all words to learn from, −1 where below, [classes,
    neurons]."""
    total = np.zeros((len(found.data.classes), len(found.rows.names)))
    wanted = found.split.training
    for numbers, part in found.rows.batches(wanted, 2048, None):
        np.add.at(total, found.data.goals[numbers], part.numpy().astype(np.float64))
    counts = np.bincount(found.data.goals[wanted], minlength=len(total))[:, None]
    return np.where(total / np.maximum(1, counts) - total.sum(axis=0) / counts.sum() < 0, -1.0, 1.0)
