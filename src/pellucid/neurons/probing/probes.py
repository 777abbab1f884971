"""Probes: linear classifiers of a concept on neurons, never without their controls, and the ranking of their
weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.collect.progress import Progress
from pellucid.errors import listing
from pellucid.neurons.arrays import of_arrays
from pellucid.neurons.concepts import Concept, scored_places
from pellucid.neurons.probing.controls import control_goals, majority
from pellucid.neurons.probing.converging import converge as converged
from pellucid.neurons.probing.intervals import accuracies, in_range, over_folds
from pellucid.neurons.probing.material import Material, Reading, opened
from pellucid.neurons.probing.rows import MEMORY, Rows
from pellucid.neurons.probing.training import Fitted, Settings, Task, fit
from pellucid.neurons.ranking import Ranking, accuracy_table, overall_table
from pellucid.neurons.sources import Sites
from pellucid.results import Array, Provenance, Result, ResultError, Table
from pellucid.uncertainty import GROUPS

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model

ALL = "all classes"
PENALTIES = ("elastic", "l1", "l2", "none")
MEASURES = {
    "accuracy": "share of words whose class the probe tells, in documents that it did not learn from",
    "random model": "the same for a probe on the randomly initialised model",
    "control task": "the same for a probe that learns a random label for every word type",
    "selectivity": "accuracy less that of the control task",
}


@dataclass(frozen=True, eq=False)
class Probe(Result):
    """Accuracy of a probe beside its controls, [measure, class]; the first class is all together.

    Arrays have no model, and so do without the measure `random model`.

    Tables: `weights` [class, neuron] with its interval over documents and the size that the control task gives it;
    `seeds`, each probe on its own; `words`, how many of each class were learned from and tested; `margins`, accuracy
    less each control, all classes together, with the interval of the difference.
    """

    kind: ClassVar[str] = "neurons.probe"
    title: ClassVar[str] = "What a probe tells from the neurons"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "always the most frequent class"

    @property
    def weights(self) -> Table:
        """Weights of the standardised neurons, mean over seeds."""
        return self.table("weights")

    def ranking(self) -> Ranking:
        """The neurons by the weights of the probe; overall is Σ over classes of |weight|.

        The table `accuracy` has the probe's own accuracy, all classes together, and its controls.
        """
        assert self.null is not None
        low, high = (None if end is None else end[:, 0] for end in (self.low, self.high))
        names = [str(name) for name in self.axes["measure"]]
        told = accuracy_table(names, self.values[:, 0], majority=self.null[:, 0], low=low, high=high)
        return weight_ranking(self.tables, self.provenance, told)


def weight_ranking(tables: Mapping[str, Table], origin: Provenance, accuracy: Table) -> Ranking:
    """The ranking of the weights of a probe, from its tables `weights` and `neurons`, with its `accuracy`."""
    table = tables["weights"]
    classes, neurons = table.axes["class"], table.axes["neuron"]
    chosen = scored_places(map(str, classes))
    each = tables["neurons"].columns
    low, high = (each.get(name) for name in ("low", "high"))
    told = origin.arguments
    interval = [table.columns[name][chosen] if name in table.columns else None for name in ("low", "high")]
    unit = str(told["learned"]) if interval[0] is not None else "no interval: a single probe was trained"
    return Ranking(
        axes={"class": tuple(classes[place] for place in chosen), "neuron": neurons},
        values=table.columns["weight"][chosen],
        null=table.columns["control"][chosen],
        low=interval[0],
        high=interval[1],
        resampled=unit,
        provenance=replace(origin, arguments={**told, "method": f"probe-{told['penalty']}"}),
        tables={"overall": overall_table([str(name) for name in neurons], each["score"], null=each["control"],
                                         low=low, high=high), "accuracy": accuracy},
    )  # fmt: skip


def probe(
    source: Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    random: Store | None = None,
    penalty: str = "elastic",
    l1: float = 1e-3,
    l2: float = 1e-3,
    seeds: int = 3,
    converge: bool = False,
    epochs: int = 60,
    batch: int | None = None,
    test: float = 0.2,
    fewest: int = 20,
    seed: int = 0,
    memory: int = MEMORY,
    pooling: str | None = None,
    device: str = "cpu",
    progress: bool | None = None,
) -> Probe:
    """A linear probe of a concept with its controls: majority, random-initialised model, control task, selectivity.

    It minimises mean cross-entropy + l1·Σ|w| + l2/2·Σw² on neurons standardised with training moments. Each of the
    `seeds` probes leaves out another tenth of the documents, which stops it early, and has its own control task; with
    `converge` training goes on to the optimum. `source` is a store that holds the model and its random twin (or
    `random` is a store of the twin), or a model, which reads the `corpus` beside its twin. Arrays (`array_store`,
    `neurox_store`) have no model: they do without the measure `random model`.
    """
    settings = Settings(*penalties(penalty, l1, l2), epochs=epochs, batch=batch, seed=seed, device=device)
    check_seeds(seeds)
    reading = Reading(sites, fewest, test, seed, memory, pooling)
    with (
        opened(source, corpus, concept, reading, random=random, controlled=not of_arrays(source)) as found,
        Progress(progress) as shown,
    ):
        classes = len(found.data.classes)
        shown.begin("probe and control task", epochs, unit="epochs")
        tasks = [*real_tasks(found, seeds), *control_tasks(found, seeds, seed)]
        trained = _trained(found.rows, tasks, classes, settings, converge, shown.advance)
        hits = tested(found.rows, trained, tasks, found)
        if found.twin is not None:
            shown.begin("probe on random model", epochs, unit="epochs")
            twin = _trained(found.twin, tasks[:seeds], classes, settings, converge, shown.advance)
            hits = np.concatenate([hits, tested(found.twin, twin, tasks[:seeds], found)])
        told = {"penalty": penalty, **asdict(settings), "seeds": seeds, "converge": converge, **asdict(reading)}
        return _result(found, trained, tasks, hits.reshape(-1, seeds, *hits.shape[1:]), told)


def penalties(penalty: str, l1: float, l2: float) -> tuple[float, float]:
    """The weights of both penalties under a name."""
    if penalty not in PENALTIES:
        raise ResultError(f"There is no penalty {penalty!r}; the penalties are {listing(PENALTIES)}.")
    return l1 if penalty in ("elastic", "l1") else 0.0, l2 if penalty in ("elastic", "l2") else 0.0


def check_seeds(seeds: int) -> None:
    """Raises where so many probes cannot each leave out another tenth of the documents."""
    if not 1 <= seeds <= GROUPS:
        raise ResultError(f"seeds={seeds} cannot be trained; use 1 to {GROUPS}: each leaves out another tenth.")


def real_tasks(found: Material, seeds: int, columns: Array | None = None) -> list[Task]:
    """The concept itself, each without another fold."""
    goals, split = found.data.goals, found.split
    return [Task(goals, split.without(fold), split.fold == fold, columns) for fold in range(seeds)]


def control_tasks(found: Material, seeds: int, seed: int, columns: Array | None = None) -> list[Task]:
    """A control task for each fold, with labels of its own."""
    data, split = found.data, found.split
    return [
        Task(
            control_goals(data.goals, data.types, split.training, len(data.classes), seed=seed + 1000 * fold),
            split.without(fold),
            split.fold == fold,
            columns,
        )
        for fold in range(seeds)
    ]


def _trained(rows: Rows, tasks: list[Task], classes: int, settings: Settings, converge: bool, advance: Any) -> Fitted:
    fitted = fit(rows, tasks, classes, settings, advance=advance)
    return converged(rows, tasks, fitted, settings) if converge else fitted


def tested(rows: Rows, fitted: Fitted, tasks: list[Task], found: Material) -> Array:
    """Words that each task gets right in the documents for testing, by group and real class: [tasks, groups,
    classes]."""
    data, split = found.data, found.split
    hits = np.zeros((len(tasks), GROUPS, len(data.classes)))
    for numbers, part in rows.batches(split.test, 2048, None):
        guesses = fitted.guesses(part)
        place = split.group[numbers], data.goals[numbers]
        for task, guess in enumerate(guesses):
            np.add.at(hits[task], place, guess == tasks[task].goals[numbers])
    return hits


def tested_counts(found: Material) -> Array:
    """Words of every class in each group of the documents for testing, [groups, classes]."""
    counts = np.zeros((GROUPS, len(found.data.classes)))
    np.add.at(counts, (found.split.group[found.split.test], found.data.goals[found.split.test]), 1)
    return counts


def _guessed(found: Material, tasks: list[Task]) -> Array:
    """What always saying the most frequent class gets right, by group and real class: [tasks, groups, classes]."""
    test, classes = found.split.test, len(found.data.classes)
    hits = np.zeros((len(tasks), GROUPS, classes))
    for place, task in enumerate(tasks):
        guess = majority(task.goals, found.split.training, classes)
        right = task.goals[test] == guess
        np.add.at(hits[place], (found.split.group[test], found.data.goals[test]), right)
    return hits


def measured(found: Material) -> tuple[str, ...]:
    """The measures of a probe; without a random twin, all but that of the random model."""
    return tuple(name for name in MEASURES if found.twin is not None or name != "random model")


def beside(accuracy: Array) -> Array:
    """The measures [measures, …] of the accuracies [2 or 3, …] of probe, control task and, if any, random model."""
    real, control, *random = accuracy
    return np.stack([real, *random, control, real - control])


def _beside(accuracy: Array) -> Array:
    """The measures [measures, classes] of the accuracies [2 or 3, seeds, classes]."""
    return beside(accuracy.mean(axis=1))


def _result(found: Material, trained: Fitted, tasks: list[Task], hits: Array, told: dict[str, Any]) -> Probe:
    """The result of all probes; `hits` [probe, control and, if any, random model, seeds, groups, classes]."""
    seeds, data = hits.shape[1], found.data
    unit, counts = data.unit.removesuffix("s"), tested_counts(found)
    values, interval = accuracies(hits, counts, _beside, unit=unit)
    names, interval = measured(found), in_range(interval, measured(found))
    guessed = _guessed(found, tasks).reshape(2, seeds, *hits.shape[2:])
    null, _ = accuracies(np.stack([*guessed, guessed[0]])[: len(hits)], counts, _beside)
    tables = {
        **weight_tables(found, trained, seeds),
        "seeds": _seed_table(hits, counts, trained.epochs[:seeds]),
        "words": _word_table(found, counts),
        "margins": _margins(np.stack([*hits, guessed[0]]), counts),
    }
    learned = over_folds(trained.weights[:seeds], unit=unit).resampled
    arguments = {**told, "learned": learned, "unit": data.unit}
    return Probe(
        axes={"measure": names, "class": (ALL, *data.classes)},
        values=values,
        null=null,
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("neurons.probe", arguments, told["seed"]),
        tables=tables,
    )


def weight_tables(found: Material, trained: Fitted, seeds: int) -> dict[str, Table]:
    """The tables of weights, by class and neuron, and of neurons across classes; the controls follow the probes."""
    real, control = trained.weights[:seeds].astype(np.float64), np.abs(trained.weights[seeds:].astype(np.float64))
    every, chance = np.abs(real).sum(axis=1), control.sum(axis=1)
    axes = {"class": found.data.classes, "neuron": found.rows.names}
    tables: dict[str, Table] = {}
    for name, part, beside, own in (
        ("weights", real, control, axes),
        ("neurons", every, chance, {"neuron": found.rows.names}),
    ):
        interval = over_folds(part) if name == "weights" else over_folds(part).within(0.0, np.inf)
        columns = {"weight" if name == "weights" else "score": part.mean(axis=0), "control": beside.mean(axis=0)}
        if interval.low is not None and interval.high is not None:
            columns |= {"low": interval.low, "high": interval.high}
        tables[name] = Table(own, columns)
    return tables


def _seed_table(hits: Array, counts: Array, epochs: Array) -> Table:
    share = hits.sum(axis=(2, 3)) / counts.sum()
    names = ("accuracy", "control task", "random model")
    columns = dict(zip(names, share, strict=False))  # arrays have no random model
    return Table({"seed": tuple(range(share.shape[1]))}, {**columns, "epochs": np.asarray(epochs)})


def _margins(hits: Array, counts: Array) -> Table:
    """Accuracy less that of each control, from hits [probe, control, random model (if any) and guesses, seeds, groups,
    classes]."""

    def less(accuracy: Array) -> Array:
        real, control, *others = accuracy.mean(axis=1)[:, 0]
        return real - np.stack([*others[::-1], control])

    values, interval = accuracies(hits, counts, less)
    ends = {name: end for name, end in (("low", interval.low), ("high", interval.high)) if end is not None}
    names = ("majority", "random model", "control task") if len(values) > 2 else ("majority", "control task")
    return Table({"control": names}, {"value": values, **ends})


def _word_table(found: Material, counts: Array) -> Table:
    learned = np.bincount(found.data.goals[found.split.training], minlength=len(found.data.classes))
    return Table({"class": found.data.classes}, {"learned": learned, "tested": counts.sum(axis=0).astype(np.int64)})


def by_elastic_probe(
    source: Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    seed: int = 0,
    pooling: str | None = None,
    penalty: str = "elastic",
    l1: float = 1e-3,
    l2: float = 1e-3,
    seeds: int = 3,
    converge: bool = False,
    epochs: int = 60,
    batch: int | None = None,
    test: float = 0.2,
    fewest: int = 20,
    memory: int = MEMORY,
    device: str = "cpu",
) -> Ranking:
    """Neurons by the weights of a probe with both penalties, trained as `probe` does.

    Arrays have no model and so no random twin; their weights stand beside those of the control task all the same.
    """
    found = probe(
        source, corpus, concept=concept, sites=sites, penalty=penalty, l1=l1, l2=l2, seeds=seeds, converge=converge,
        epochs=epochs, batch=batch, test=test, fewest=fewest, seed=seed, memory=memory, pooling=pooling, device=device,
    )  # fmt: skip
    return found.ranking()


by_l1_probe = partial(by_elastic_probe, penalty="l1", l2=0.0)
by_l2_probe = partial(by_elastic_probe, penalty="l2", l1=0.0)
