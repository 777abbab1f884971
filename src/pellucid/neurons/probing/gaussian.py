"""The Gaussian probe: how well a few neurons tell the classes of a concept apart, and which few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.neurons.concepts import OTHER, Concept, as_concept
from pellucid.neurons.probing.class_gaussians import (
    class_gaussians,
    class_variances,
    drawn,
    gaussians_of_sweep,
    most_neurons,
    some,
    those_that_fit,
    warn_of_few,
)
from pellucid.neurons.probing.controls import control_goals, majority
from pellucid.neurons.probing.gaussian_selection import Gaussians, prefixes, select
from pellucid.neurons.probing.intervals import over_folds
from pellucid.neurons.probing.material import Material, Reading, opened
from pellucid.neurons.probing.rows import MEMORY, Rows, SomeNeurons
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.neurons.sources import Sites
from pellucid.results import Array, Provenance, Result, ResultError, Table
from pellucid.uncertainty import GROUPS, jackknife

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model

MEASURES = {
    "accuracy": "share of words whose class the Gaussians tell, in documents that nothing was learned from",
    "information": "what the neurons tell of the class, in nats: entropy of the classes less the cross-entropy",
    "control task": "accuracy of Gaussians of the same neurons that learn a random label for every word type",
    "selectivity": "accuracy less that of the control task",
}
DRAWS = 5
MOST_HELD = 2000


@dataclass(frozen=True, eq=False)
class GaussianProbe(Result):
    """What the first k neurons selected tell, [measure, neurons], beside k neurons drawn at random.

    Table `picks` has the neurons in the order in which they were chosen, with the criterion on held-out words, and
    `folds` the same of every seed; `means` [class, neuron] the mean activation of each class less the overall mean;
    `majority` what always saying the most frequent class gets right.
    """

    kind: ClassVar[str] = "neurons.gaussian"
    title: ClassVar[str] = "What a few neurons tell, by Gaussians"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "as many neurons drawn at random"

    @property
    def picks(self) -> list[str]:
        """The neurons in the order in which they were chosen."""
        return [str(name) for name in self.table("picks").columns["neuron"]]

    def ranking(self) -> Ranking:
        """The neurons by the order of choice: 1 for the first, ½ for the second, 0 for those that were not chosen; the
        mean over seeds. The sign is that of the class's mean activation less the overall mean.
        """
        table = self.table("means")
        folds = [[str(name) for name in names] for names in self.table("folds").columns["neuron"]]
        unit = str(self.provenance.arguments["unit"]).removesuffix("s")
        return _by_place(folds, tuple(map(str, table.axes["neuron"])), tuple(map(str, table.axes["class"])),
                         table.columns["away"], self.provenance, unit)  # fmt: skip


def _by_place(
    folds: Sequence[Sequence[str]],
    neurons: tuple[str, ...],
    classes: tuple[str, ...],
    away: Array,
    origin: Provenance,
    unit: str,
) -> Ranking:
    """The ranking of orders of choice, one of each fold; `away` [class, neuron] has the signs."""
    score = np.zeros((len(folds), len(neurons)))
    for own, names in zip(score, folds, strict=True):
        own[[neurons.index(str(name)) for name in names]] = 1 / np.arange(1, len(names) + 1)
    mean, interval = score.mean(axis=0), over_folds(score, unit=unit)
    chosen = [place for place, name in enumerate(classes) if name != OTHER]
    sign, chance = np.where(away[chosen] < 0, -1.0, 1.0), np.full(len(neurons), mean.sum() / len(neurons))
    low = high = None
    resampled = "no interval: neurons are chosen once, one after another; use seeds=2 or more of the Gaussian probe"
    if interval.low is not None and interval.high is not None:
        ends = np.sort(np.stack([sign * interval.low, sign * interval.high]), axis=0)
        low, high, resampled = ends[0], ends[1], interval.resampled
    return Ranking(
        axes={"class": tuple(classes[place] for place in chosen), "neuron": neurons},
        values=sign * mean,
        null=np.tile(chance, (len(chosen), 1)),
        low=low,
        high=high,
        resampled=resampled,
        provenance=replace(origin, arguments={**origin.arguments, "method": "gaussian"}),
        tables={"overall": overall_table(neurons, mean, null=chance, low=interval.low, high=interval.high)},
    )


def gaussian(
    source: Store | Model | Found,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    count: int = 50,
    by: str = "likelihood",
    held: int | None = None,
    seeds: int = 1,
    test: float = 0.2,
    fewest: int = 20,
    seed: int = 0,
    memory: int = MEMORY,
    pooling: str = "mean",
    preset: str | None = None,
) -> GaussianProbe:
    """Selects `count` neurons greedily by Gaussians of the classes, and tests every prefix of them.

    Gaussians are fitted on nine tenths of the documents to learn from; of the other tenth, at most `held` words (2,000)
    decide which neuron is chosen, `by` likelihood, information or accuracy; each of `seeds` leaves out another tenth,
    and the first is tested, on documents for testing. Chance is the mean of five random orders of the neurons. With
    more neurons than have covariances that fit in memory, those that tell held-out words best alone are read.
    `preset="neurox"` fits and chooses, as that library does, on all words to learn from.
    """
    if preset not in (None, "neurox"):
        raise ResultError(f"There is no preset {preset!r}; there is 'neurox'.")
    if not 1 <= seeds <= GROUPS:
        raise ResultError(f"seeds={seeds} cannot be chosen by; use 1 to {GROUPS}: each leaves out another tenth.")
    _refuse_sweep(source)
    reading = Reading(sites, fewest, test, seed, memory, pooling)
    with opened(source, corpus, concept, reading, controlled=False) as found:
        settings = _Settings(count, by, held, seed, preset)
        others = [_chosen(found, fold, settings).picked for fold in range(1, seeds)]
        first = _chosen(found, 0, settings)
        warn_of_few(found.data.classes, np.exp(first.made.prior) * first.learned.sum(), len(first.places))
        told = {"preset": preset, "count": count, "by": by, "held": first.held, "test": test, "fewest": fewest,
                "seeds": seeds, "read": len(first.places), "unit": found.data.unit}  # fmt: skip
        return _result(found, first, [first.picked, *others], told, seed)


def _refuse_sweep(source: object) -> None:
    from pellucid.collect.found import Found

    if isinstance(source, Found):
        raise ResultError(
            "A sweep keeps no words to test Gaussians on: rank(sweep, methods='gaussian') gives the order of neurons "
            "by its class covariances; for accuracies give a store, or a model and a corpus."
        )


def by_gaussians(
    source: Store | Model | Found,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    seed: int = 0,
    pooling: str = "mean",
    count: int = 50,
    fewest: int = 20,
) -> Ranking:
    """Neurons in the order in which Gaussians choose them, with the defaults of `gaussian`.

    A sweep with `ClassMoments(site, covariance="full")` has no held-out words: neurons are chosen by words drawn from
    its Gaussians, so by what these expect to tell.
    """
    from pellucid.collect.found import Found

    if not isinstance(source, Found):
        return gaussian(
            source, corpus, concept=concept, sites=sites, seed=seed, pooling=pooling, count=count, fewest=fewest
        ).ranking()
    if corpus is not None:
        raise ResultError("A Found has its text already; give a corpus with a model only.")
    asked = as_concept(concept)
    made = gaussians_of_sweep(source, asked, sites, fewest=fewest)
    warn_of_few(made.classes, made.counts, len(made.neurons))
    rows, goals = drawn(made.gaussians, MOST_HELD, np.random.default_rng([seed, 3]))
    picks = select(made.gaussians, rows, goals, min(count, len(made.neurons))).picks
    means = made.gaussians.means
    told = {"concept": asked.name, "count": count, "fewest": fewest, "selected on": "words drawn from the Gaussians"}
    return _by_place(
        [[made.neurons[pick] for pick in picks]],
        made.neurons,
        made.classes,
        means - np.exp(made.gaussians.prior) @ means,
        source.provenance("neurons.gaussian", told, seed=seed),
        "document",
    )


@dataclass(frozen=True)
class _Settings:
    count: int
    by: str
    held: int | None
    seed: int
    preset: str | None


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Neurons chosen without one fold: `made` are Gaussians of the neurons at `places`, of which `picks` are chosen."""

    made: Gaussians
    places: Array
    picks: Array
    picked: list[str]
    scores: Array
    means: Array
    learned: Array
    held: int
    dice: np.random.Generator


def _chosen(found: Material, fold: int, settings: _Settings) -> _Chosen:
    rows, goals, classes = found.rows, found.data.goals, len(found.data.classes)
    theirs = settings.preset == "neurox"
    learned = found.split.training if theirs else found.split.without(fold)
    dice = np.random.default_rng([settings.seed, 3] if fold == 0 else [settings.seed, 3, fold])
    numbers = np.flatnonzero(learned if theirs else found.split.fold == fold)
    most = settings.held or (len(numbers) if theirs else MOST_HELD)
    numbers = np.sort(dice.choice(numbers, min(most, len(numbers)), replace=False))
    asked, answers = rows.take(numbers), goals[numbers]
    lone = class_variances(rows, goals, learned, classes) if len(rows.names) > most_neurons(classes) else None
    places = np.arange(len(rows.names)) if lone is None else those_that_fit(lone, asked, answers, settings.count)
    made = class_gaussians(some(rows, places), goals, learned, classes)
    found_by = select(made, asked[:, places], answers, min(settings.count, len(places)), by=settings.by)
    names = [rows.names[places[pick]] for pick in found_by.picks]
    means = made.means if lone is None else lone.means
    return _Chosen(made, places, found_by.picks, names, found_by.scores, means, learned, len(numbers), dice)


def _result(found: Material, chosen: _Chosen, folds: list[list[str]], told: dict[str, Any], seed: int) -> GaussianProbe:
    made, data = chosen.made, found.data
    alive = np.flatnonzero((np.einsum("zdd->zd", made.covariances) > 0).all(0))
    orders = [chosen.dice.permutation(alive)[: len(chosen.picks)] for _ in range(DRAWS)]
    union, paths = _renumbered([chosen.picks, *orders])
    own = Gaussians(
        made.means[:, union], made.covariances[np.ix_(np.arange(len(made.prior)), union, union)], made.prior
    )
    rows = SomeNeurons(found.rows, chosen.places[union])
    random = control_goals(data.goals, data.types, found.split.training, len(data.classes), seed=seed)
    learnable, told_apart = _learnable(random, chosen.learned)
    control = class_gaussians(rows, learnable, chosen.learned, told_apart, dimensions=len(made.means[0]))
    real, heart = (
        _tested(found, rows, each, paths, goals) for each, goals in ((own, data.goals), (control, learnable))
    )
    counts, entropy = real.counts, -(np.exp(made.prior) * made.prior).sum()

    def measures(kept: Array) -> Array:
        out_of = counts[kept].sum()
        right, likely, known = (part[:, :, kept].sum(-1) / out_of for part in (real.hits, real.logs, heart.hits))
        return np.stack([right, entropy + likely, known, right - known])  # [measure, paths, k]

    groups = np.flatnonzero(counts)
    whole = measures(groups)
    without = [measures(groups[groups != group])[:, 0] for group in groups]
    interval = jackknife(whole[:, 0], without, counts[groups].tolist())
    steps = tuple(range(1, len(chosen.picks) + 1))
    guesses = [_guessed(found, goals) for goals in (data.goals, random)]
    return GaussianProbe(
        axes={"measure": tuple(MEASURES), "neurons": steps},
        values=whole[:, 0],
        null=whole[:, 1:].mean(axis=1),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled.replace("document", data.unit.removesuffix("s")),
        provenance=found.provenance("neurons.gaussian", told, seed),
        tables={
            "picks": Table({"step": steps}, {"neuron": np.array(chosen.picked), "criterion": chosen.scores}),
            "folds": Table({"fold": tuple(range(len(folds))), "step": steps}, {"neuron": np.array(folds)}),
            "means": Table({"class": data.classes, "neuron": found.rows.names},
                           {"away": chosen.means - np.exp(made.prior) @ chosen.means}),
            "majority": Table({"measure": ("accuracy", "control task")}, {"value": np.array(guesses)}),
        },
    )  # fmt: skip


def _renumbered(paths: list[Array]) -> tuple[Array, list[Array]]:
    """All neurons of several orders, and the orders as places among them."""
    union = np.unique(np.concatenate(paths))
    return union, [np.searchsorted(union, path) for path in paths]


def _learnable(goals: Array, learned: Array) -> tuple[Array, int]:
    """Classes numbered anew, −1 for those with fewer than two words to learn from, and how many are left."""
    counts = np.bincount(goals[learned & (goals >= 0)], minlength=int(goals.max()) + 1)
    number = np.where(counts >= 2, np.cumsum(counts >= 2) - 1, -1)
    return np.where(goals >= 0, number[goals], -1), int((counts >= 2).sum())


def _guessed(found: Material, goals: Array) -> float:
    """What always saying the most frequent class gets right in the documents for testing."""
    guess = majority(goals, found.split.training, len(found.data.classes))
    return float((goals[found.split.test] == guess).mean())


@dataclass(frozen=True, eq=False)
class _Tested:
    """Words told rightly and summed log-probabilities [paths, k, groups], and words [groups]."""

    hits: Array
    logs: Array
    counts: Array


def _tested(found: Material, rows: Rows, made: Gaussians, paths: list[Array], goals: Array) -> _Tested:
    """What Gaussians tell of the documents for testing; words without a goal count as not told."""
    shape = (len(paths), len(paths[0]), GROUPS)
    hits, logs, counts = np.zeros(shape), np.zeros(shape), np.zeros(GROUPS)
    for numbers, part in rows.batches(found.split.test, 2048, None):
        groups, answers = found.split.group[numbers], goals[numbers]
        np.add.at(counts, groups, 1)
        for place, picks in enumerate(paths):
            likely = prefixes(made, picks, part)
            right = likely[:, np.maximum(answers, 0), np.arange(len(answers))]  # [k, n]
            for group in np.unique(groups):
                mine = groups == group
                hits[place, :, group] += (likely.argmax(1) == answers)[:, mine].sum(1)
                logs[place, :, group] += right[:, mine].sum(1)
    return _Tested(hits, logs, counts)
