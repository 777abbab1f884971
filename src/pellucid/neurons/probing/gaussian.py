"""The Gaussian probe: how well a few neurons tell the classes of a concept apart, and which few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.arrays import of_arrays
from pellucid.neurons.concepts import Concept, as_concept, scored_places
from pellucid.neurons.probing.class_gaussians import drawn, gaussians_of_sweep, warn_of_few, warn_of_still
from pellucid.neurons.probing.gaussian_choosing import MOST_CHOSEN, MOST_HELD, Choosing, Chosen, chosen, that_change
from pellucid.neurons.probing.gaussian_selection import select
from pellucid.neurons.probing.gaussian_testing import MEASURES, Scores, guesses, of_twin, scored
from pellucid.neurons.probing.material import Material, Reading, opened
from pellucid.neurons.probing.rows import MEMORY
from pellucid.neurons.ranking import Ranking, accuracy_table, overall_table
from pellucid.neurons.sources import Sites
from pellucid.results import Array, Provenance, Result, ResultError, Table
from pellucid.uncertainty import GROUPS

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model


@dataclass(frozen=True, eq=False)
class GaussianProbe(Result):
    """What the first k neurons selected tell, [measure, neurons], beside k neurons drawn at random.

    The measure `random model` is of k neurons of the randomly initialised model, selected and drawn there; arrays have
    no model, and so do without.

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
        mean over seeds. The sign is that of the class's mean activation less the overall mean. The table `places`
        [seed, neuron] has the place in every seed, each without other documents (0: not chosen), in the stead of an
        interval; `accuracy` has what all neurons chosen tell, and their controls.
        """
        table = self.table("means")
        folds = [[str(name) for name in names] for names in self.table("folds").columns["neuron"]]
        unit = str(self.provenance.arguments["unit"])
        made = _by_place(folds, tuple(map(str, table.axes["neuron"])), tuple(map(str, table.axes["class"])),
                         table.columns["away"], self.provenance, unit)  # fmt: skip
        names = [str(name) for name in self.axes["measure"] if name != "information"]
        places = [self.place("measure", name) for name in names]
        low, high = (None if end is None else end[places, -1] for end in (self.low, self.high))
        sure, guess = self.table("majority").columns["value"].tolist()
        majority = {"accuracy": sure, "random model": sure, "control task": guess, "selectivity": sure - guess}
        told = accuracy_table(names, self.values[places, -1], majority=np.array([majority[name] for name in names]),
                              low=low, high=high)  # fmt: skip
        return replace(made, tables={**made.tables, "accuracy": told})


def _by_place(
    folds: Sequence[Sequence[str]],
    neurons: tuple[str, ...],
    classes: tuple[str, ...],
    away: Array,
    origin: Provenance,
    unit: str,
) -> Ranking:
    """The ranking of orders of choice, one of each fold; `away` [class, neuron] has the signs.

    It has no interval: 1 over a place lies in 0 to 1 and leaps from fold to fold, so that t of a few reaches far
    beyond; the places themselves are told.
    """
    at = {name: number for number, name in enumerate(neurons)}
    places = np.zeros((len(folds), len(neurons)), dtype=np.int64)
    for own, names in zip(places, folds, strict=True):
        own[[at[str(name)] for name in names]] = np.arange(1, len(names) + 1)
    mean = np.where(places > 0, 1 / np.maximum(1, places), 0.0).mean(axis=0)
    chosen = scored_places(classes)
    sign, chance = np.where(away[chosen] < 0, -1.0, 1.0), np.full(len(neurons), mean.sum() / len(neurons))
    resampled = "no interval: neurons are chosen once, one after another; use seeds=2 or more of the Gaussian probe"
    if len(folds) > 1:
        resampled = f"no interval: places chosen without other {unit}, {len(folds)} times, are in the table 'places'"
    return Ranking(
        axes={"class": tuple(classes[place] for place in chosen), "neuron": neurons},
        values=sign * mean,
        null=np.tile(chance, (len(chosen), 1)),
        low=None,
        high=None,
        resampled=resampled,
        provenance=replace(origin, arguments={**origin.arguments, "method": "gaussian"}),
        tables={
            "overall": overall_table(neurons, mean, null=chance),
            "places": Table({"seed": tuple(range(len(folds))), "neuron": neurons}, {"place": places}),
        },
    )


def gaussian(
    source: Store | Model | Found,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    random: Store | None = None,
    count: int | None = None,
    by: str = "likelihood",
    held: int | None = None,
    seeds: int = 3,
    test: float = 0.2,
    fewest: int = 20,
    seed: int = 0,
    memory: int = MEMORY,
    pooling: str | None = None,
    preset: str | None = None,
) -> GaussianProbe:
    """Selects `count` neurons (default: 50, or all that change) greedily by Gaussians of the classes, and tests every
    prefix of them.

    Gaussians are fitted on nine tenths of the documents to learn from; of the other tenth, at most `held` words (2,000)
    decide which neuron is chosen, `by` likelihood, information or accuracy; each of `seeds` leaves out another tenth,
    and the first is tested, on documents for testing. Chance is the mean of five random orders of the neurons. With
    more neurons than have covariances that fit in memory, those that tell held-out words best alone are read. A store
    holds the model's random twin too, or `random` is a store of it; as many neurons are chosen there in the same way.
    `preset="neurox"` fits and chooses, as that library does, on all words to learn from, and so once.
    """
    if preset not in (None, "neurox"):
        raise ResultError(f"There is no preset {preset!r}; there is 'neurox'.")
    if not 1 <= seeds <= GROUPS:
        raise ResultError(f"seeds={seeds} cannot be chosen by; use 1 to {GROUPS}: each leaves out another tenth.")
    _refuse_sweep(source)
    how, seeds = Choosing(count, by, held, seed, preset), 1 if preset is not None else seeds
    reading = Reading(sites, fewest, test, seed, memory, pooling)
    with opened(source, corpus, concept, reading, random=random, controlled=not of_arrays(source)) as found:
        twin, total = of_twin(found, how), len(found.rows.names)
        others = [chosen(found, found.rows, fold, how).picked for fold in range(1, seeds)]
        first = chosen(found, found.rows, 0, how)
        first = first.shortened(min(map(len, [first.picked, *others])))  # in a fold fewer neurons may change
        if count is None:
            warn_of_still(len(first.picks), min(MOST_CHOSEN, total), total)
        warn_of_few(found.data.classes, np.exp(first.made.prior) * first.learned.sum(), total)
        told = {"preset": preset, "count": len(first.picks), "by": by, "held": first.held, "test": test,
                "fewest": fewest, "seeds": seeds, "read": len(first.places), "unit": found.data.unit}  # fmt: skip
        folds = [first.picked, *(each[: len(first.picks)] for each in others)]
        return _result(found, first, folds, scored(found, first, twin, seed), told, seed)


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
    pooling: str | None = None,
    count: int | None = None,
    seeds: int | None = None,
    test: float | None = None,
    fewest: int = 20,
    memory: int | None = None,
) -> Ranking:
    """Neurons in the order in which Gaussians choose them, with the defaults of `gaussian`.

    A sweep with `ClassMoments(site, covariance="full")` has no held-out words: neurons are chosen by words drawn from
    its Gaussians, so by what these expect to tell; `seeds`, `test` and `memory` have no use there, and are refused.
    """
    from pellucid.collect.found import Found

    if not isinstance(source, Found):
        return gaussian(
            source, corpus, concept=concept, sites=sites, seed=seed, pooling=pooling, count=count, fewest=fewest,
            seeds=3 if seeds is None else seeds, test=0.2 if test is None else test,
            memory=MEMORY if memory is None else memory,
        ).ranking()  # fmt: skip
    if corpus is not None:
        raise ResultError("A Found has its text already; give a corpus with a model only.")
    given = {"seeds": seeds, "test": test, "memory": memory}
    unused = [name for name, value in given.items() if value is not None]
    if unused:
        raise ResultError(
            f"A sweep keeps no words to hold out, so Gaussians of it have no use for {listing(unused)}: leave it out, "
            "or give a store, or a model and a corpus."
        )
    asked = as_concept(concept)
    made = gaussians_of_sweep(source, asked, sites, fewest=fewest)
    warn_of_few(made.classes, made.counts, len(made.neurons))
    rows, goals = drawn(made.gaussians, MOST_HELD, np.random.default_rng([seed, 3]))
    alive, means = len(that_change(made.gaussians)), made.gaussians.means
    if count is None:
        count = min(MOST_CHOSEN, alive)
        warn_of_still(count, min(MOST_CHOSEN, len(made.neurons)), len(made.neurons))
    picks = select(made.gaussians, rows, goals, count).picks
    told = {"concept": asked.name, "count": count, "fewest": fewest, "left out": dict(made.left_out),
            "selected on": "words drawn from the Gaussians"}  # fmt: skip
    return _by_place(
        [[made.neurons[pick] for pick in picks]],
        made.neurons,
        made.classes,
        means - np.exp(made.gaussians.prior) @ means,
        source.provenance("neurons.gaussian", told, seed=seed),
        "documents",
    )


def _result(
    found: Material, first: Chosen, folds: list[list[str]], scores: Scores, told: dict[str, Any], seed: int
) -> GaussianProbe:
    interval, steps = scores.interval, tuple(range(1, len(first.picks) + 1))
    return GaussianProbe(
        axes={"measure": scores.names, "neurons": steps},
        values=scores.values[:, 0],
        null=scores.values[:, 1:].mean(axis=1),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled.replace("document", found.data.unit.removesuffix("s")),
        provenance=found.provenance("neurons.gaussian", told, seed),
        tables={
            "picks": Table({"step": steps}, {"neuron": np.array(first.picked), "criterion": first.scores}),
            "folds": Table({"fold": tuple(range(len(folds))), "step": steps}, {"neuron": np.array(folds)}),
            "means": Table({"class": found.data.classes, "neuron": found.rows.names},
                           {"away": first.means - np.exp(first.made.prior) @ first.means}),
            "majority": Table({"measure": ("accuracy", "control task")}, {"value": guesses(found, seed)}),
        },
    )  # fmt: skip
