"""The Gaussian probe: how well a few neurons tell the classes of a concept apart, and which few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from pellucid.neurons.concepts import OTHER, Concept
from pellucid.neurons.probing.gaussian_selection import Gaussians, fitted, prefixes, select
from pellucid.neurons.probing.material import Material, Reading, opened
from pellucid.neurons.probing.rows import MEMORY, Rows
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.neurons.sources import Sites
from pellucid.results import Result, ResultError, Table
from pellucid.uncertainty import GROUPS, jackknife

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model

Array = np.ndarray[Any, Any]
MEASURES = {
    "accuracy": "share of words whose class the Gaussians tell, in documents that nothing was learned from",
    "information": "what the neurons tell of the class, in nats: entropy of the classes less the cross-entropy",
}
DRAWS = 5
MOST_HELD = 2000
LIMIT = 2 << 30


@dataclass(frozen=True, eq=False)
class GaussianProbe(Result):
    """Accuracy and information of the first k neurons selected, [measure, neurons], beside k neurons drawn at random.

    Table `picks` has the neurons in the order in which they were chosen, with the criterion on held-out words; `means`
    [class, neuron] the mean activation of each class less the overall mean.
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
        """The neurons by the order of choice: 1 for the first, ½ for the second; 0 for those that were not chosen.

        The sign is that of the class's mean activation less the overall mean.
        """
        table = self.table("means")
        classes, neurons = table.axes["class"], [str(name) for name in table.axes["neuron"]]
        score = np.zeros(len(neurons))
        score[[neurons.index(name) for name in self.picks]] = 1 / np.arange(1, len(self.picks) + 1)
        chosen = [place for place, name in enumerate(classes) if name != OTHER]
        chance = np.full(len(neurons), score.sum() / len(neurons))
        return Ranking(
            axes={"class": tuple(classes[place] for place in chosen), "neuron": tuple(neurons)},
            values=np.where(table.columns["away"][chosen] < 0, -1.0, 1.0) * score,
            null=np.tile(chance, (len(chosen), 1)),
            low=None,
            high=None,
            resampled="no interval: neurons are chosen once, one after another; see the accuracy of the Gaussian probe",
            provenance=replace(self.provenance, arguments={**self.provenance.arguments, "method": "gaussian"}),
            tables={"overall": overall_table(neurons, score, null=chance)},
        )


def gaussian(
    source: Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    count: int = 50,
    by: str = "likelihood",
    held: int = MOST_HELD,
    test: float = 0.2,
    fewest: int = 20,
    seed: int = 0,
    memory: int = MEMORY,
    pooling: str = "mean",
    preset: str | None = None,
) -> GaussianProbe:
    """Selects `count` neurons greedily by Gaussians of the classes, and tests every prefix of them.

    Gaussians are fitted on nine tenths of the documents to learn from; of the other tenth, at most `held` words decide
    which neuron is chosen, `by` likelihood, information or accuracy. Accuracy and information are of the documents for
    testing. Chance is the mean of five random orders of the neurons. `preset="neurox"` chooses, as that library does,
    on words that the Gaussians were fitted on.
    """
    with opened(
        source, corpus, concept, Reading(sites, fewest, test, seed, memory, pooling), controlled=False
    ) as found:
        _check_size(found)
        made = class_gaussians(found.rows, found.data.goals, found.split.without(0), len(found.data.classes))
        dice = np.random.default_rng([seed, 3])
        numbers = np.flatnonzero(found.split.without(0) if preset == "neurox" else found.split.fold == 0)
        numbers = np.sort(dice.choice(numbers, min(held, len(numbers)), replace=False))
        rows, goals = found.rows.take(numbers), found.data.goals[numbers]
        chosen = select(made, rows, goals, min(count, len(found.rows.names)), by=by)
        orders = [dice.permutation(_alive(made))[: len(chosen.picks)] for _ in range(DRAWS)]
        told = {"preset": preset, "count": count, "by": by, "held": len(numbers), "test": test, "fewest": fewest}
        return _result(found, made, chosen.picks, chosen.scores, orders, told, seed)


def by_gaussians(
    source: Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    seed: int = 0,
    pooling: str = "mean",
) -> Ranking:
    """Neurons in the order in which Gaussians choose them, with the defaults of `gaussian`."""
    return gaussian(source, corpus, concept=concept, sites=sites, seed=seed, pooling=pooling).ranking()


def class_gaussians(rows: Rows, goals: Array, wanted: Array, classes: int) -> Gaussians:
    """The Gaussian of each class from the wanted rows, in one pass, about a pilot mean, in float64."""
    d = len(rows.names)
    counts = np.bincount(goals[wanted & (goals >= 0)], minlength=classes).astype(np.float64)
    if (counts < 2).any():
        raise ResultError("A Gaussian needs two or more words of every class in the documents to learn from.")
    first, second = np.zeros((classes, d)), np.zeros((classes, d, d))
    pilot: torch.Tensor | None = None
    for numbers, part in rows.batches(wanted & (goals >= 0), 1024, None):
        pilot = part.mean(0) if pilot is None else pilot
        away, codes = (part - pilot).double(), goals[numbers]
        for code in np.unique(codes):
            mine = away[torch.from_numpy(codes == code)]
            first[code] += mine.sum(0).numpy()
            second[code] += (mine.T @ mine).numpy()
    assert pilot is not None
    if not np.isfinite(first).all():
        name = rows.names[int(np.argwhere(~np.isfinite(first))[0, 1])]
        raise ResultError(f"{name} is not a number for some words (NaN or infinity); leave its site out.")
    offset = first / counts[:, None]
    second /= counts[:, None, None]
    for code in range(classes):
        second[code] -= np.outer(offset[code], offset[code])
    return fitted(counts, pilot.double().numpy() + offset, second)


def _check_size(found: Material) -> None:
    d, classes = len(found.rows.names), len(found.data.classes)
    needed = 3 * 8 * classes * d * d
    if needed > LIMIT:
        raise ResultError(
            f"Gaussians of {classes} classes over {d:,} neurons need {needed / 2**30:.1f} GB; choose fewer sites, such "
            f"as sites={found.rows.names[0].rpartition(':')[0]!r}, or fewer classes."
        )


def _alive(made: Gaussians) -> Array:
    return np.flatnonzero((np.einsum("zdd->zd", made.covariances) > 0).all(0))


def _result(
    found: Material, made: Gaussians, picks: Array, scores: Array, orders: list[Array], told: dict[str, Any], seed: int
) -> GaussianProbe:
    paths = [picks, *orders]
    hits, logs, counts = _tested(found, made, paths)  # [paths, k, groups]
    entropy = -(np.exp(made.prior) * made.prior).sum()

    def measures(kept: Array) -> Array:
        out_of = counts[kept].sum()
        right, likely = (part[:, :, kept].sum(-1) / out_of for part in (hits, logs))
        return np.stack([right, entropy + likely])  # [measure, paths, k]

    groups = np.flatnonzero(counts)
    whole = measures(groups)
    without = [measures(groups[groups != group])[:, 0] for group in groups]
    interval = jackknife(whole[:, 0], without, counts[groups].tolist())
    share = np.exp(made.prior)
    away = made.means - share @ made.means
    steps = tuple(range(1, len(picks) + 1))
    names = np.array([found.rows.names[pick] for pick in picks])
    return GaussianProbe(
        axes={"measure": tuple(MEASURES), "neurons": steps},
        values=whole[:, 0],
        null=whole[:, 1:].mean(axis=1),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled.replace("document", found.data.unit.removesuffix("s")),
        provenance=found.provenance("neurons.gaussian", told, seed),
        tables={
            "picks": Table({"step": steps}, {"neuron": names, "criterion": scores}),
            "means": Table({"class": found.data.classes, "neuron": found.rows.names}, {"away": away}),
        },
    )


def _tested(found: Material, made: Gaussians, paths: list[Array]) -> tuple[Array, Array, Array]:
    """Words told rightly and summed log-probabilities [paths, k, groups], and words [groups], of the test documents."""
    shape = (len(paths), len(paths[0]), GROUPS)
    hits, logs, counts = np.zeros(shape), np.zeros(shape), np.zeros(GROUPS)
    for numbers, part in found.rows.batches(found.split.test, 2048, None):
        groups, goals = found.split.group[numbers], found.data.goals[numbers]
        np.add.at(counts, groups, 1)
        for place, picks in enumerate(paths):
            likely = prefixes(made, picks, part)
            right = likely[:, goals, np.arange(len(goals))]  # [k, n]
            for group in np.unique(groups):
                mine = groups == group
                hits[place, :, group] += (likely.argmax(1) == goals)[:, mine].sum(1)
                logs[place, :, group] += right[:, mine].sum(1)
    return hits, logs, counts
