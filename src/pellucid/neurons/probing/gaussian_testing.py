"""What Gaussians tell of the documents for testing: of the model, of a control task, and of the random twin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pellucid.neurons.probing.class_gaussians import class_gaussians
from pellucid.neurons.probing.controls import control_goals, majority
from pellucid.neurons.probing.gaussian_choosing import Choosing, Chosen, chosen, that_change
from pellucid.neurons.probing.gaussian_selection import Gaussians, prefixes
from pellucid.neurons.probing.intervals import in_range
from pellucid.neurons.probing.material import Material
from pellucid.neurons.probing.rows import Rows, SomeNeurons
from pellucid.results import Array
from pellucid.uncertainty import GROUPS, Interval, jackknife

MEASURES = {
    "accuracy": "share of words whose class the Gaussians tell, in documents that nothing was learned from",
    "information": "what the neurons tell of the class, in nats: entropy of the classes less the cross-entropy",
    "random model": "accuracy of as many neurons of the randomly initialised model, chosen there in the same way",
    "control task": "accuracy of Gaussians of the same neurons that learn a random label for every word type",
    "selectivity": "accuracy less that of the control task",
}
DRAWS = 5
"""Random orders of the neurons that stand beside those chosen."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Each of `names` with the first k neurons of every order, [measure, orders, k]; the first order is that chosen,
    and has the interval."""

    names: tuple[str, ...]
    values: Array
    interval: Interval


def scored(found: Material, first: Chosen, twin: Array | None, seed: int) -> Scores:
    """All measures of the neurons chosen, and of as many at random; `twin` has the hits of `of_twin`."""
    made, data = first.made, found.data
    rows, own, orders = _orders(found.rows, first)
    labels = _control(found, seed)
    learnable, told_apart = _learnable(labels, first.learned)
    control = class_gaussians(rows, learnable, first.learned, told_apart, dimensions=len(found.rows.names))
    real, heart = (
        _tested(found, rows, each, orders, goals) for each, goals in ((own, data.goals), (control, learnable))
    )
    counts, entropy = real.counts, -(np.exp(made.prior) * made.prior).sum()
    steps = np.arange(1, len(first.picks) + 1)
    names = tuple(name for name in MEASURES if twin is not None or name != "random model")

    def measures(kept: Array) -> Array:
        out_of = counts[kept].sum()
        right, likely, known = (part[:, :, kept].sum(-1) / out_of for part in (real.hits, real.logs, heart.hits))
        told = {"accuracy": right, "information": entropy + likely, "control task": known, "selectivity": right - known}
        if twin is not None:  # where fewer neurons of the twin change than are chosen, more tell no more
            told["random model"] = twin[:, np.minimum(steps, twin.shape[1] - 1)][:, :, kept].sum(-1) / out_of
        return np.stack([told[name] for name in names])  # [measure, orders, k]

    groups = np.flatnonzero(counts)
    whole = measures(groups)
    without = [measures(groups[groups != group])[:, 0] for group in groups]
    interval = jackknife(whole[:, 0], without, counts[groups].tolist())
    return Scores(names, whole, in_range(interval, names))


def of_twin(found: Material, how: Choosing) -> Array | None:
    """Words that neurons of the random twin tell rightly, [orders, 1 + k, groups]: those chosen there, then as many
    drawn at random there; the first k is 0, where the most frequent class is told of every word."""
    if found.twin is None:
        return None
    first = chosen(found, found.twin, 0, how, fewer=True)
    test, guess = found.split.test, first.made.prior.argmax()
    guessed = np.bincount(found.split.group[test], found.data.goals[test] == guess, minlength=GROUPS)
    blind = np.broadcast_to(guessed, (1 + DRAWS, 1, GROUPS))
    if not len(first.picks):
        return blind
    rows, own, orders = _orders(found.twin, first)
    return np.concatenate([blind, _tested(found, rows, own, orders, found.data.goals).hits], axis=1)


def guesses(found: Material, seed: int) -> Array:
    """What always saying the most frequent class gets right in the documents for testing: of the classes, and of the
    control task."""
    classes, test = len(found.data.classes), found.split.test
    return np.array([
        (goals[test] == majority(goals, found.split.training, classes)).mean()
        for goals in (found.data.goals, _control(found, seed))
    ])  # fmt: skip


def _control(found: Material, seed: int) -> Array:
    data = found.data
    return control_goals(data.goals, data.types, found.split.training, len(data.classes), seed=seed)


def _orders(rows: Rows, first: Chosen) -> tuple[Rows, Gaussians, list[Array]]:
    """The neurons chosen and `DRAWS` orders of as many at random, as places among all neurons of these; the rows and
    Gaussians of those."""
    made, alive = first.made, that_change(first.made)
    drawn = [first.dice.permutation(alive)[: len(first.picks)] for _ in range(DRAWS)]
    union = np.unique(np.concatenate([first.picks, *drawn]))
    covariances = made.covariances[np.ix_(np.arange(len(made.prior)), union, union)]
    own = Gaussians(made.means[:, union], covariances, made.prior)
    orders = [np.searchsorted(union, order) for order in (first.picks, *drawn)]
    return SomeNeurons(rows, first.places[union]), own, orders


def _learnable(goals: Array, learned: Array) -> tuple[Array, int]:
    """Classes numbered anew, −1 for those with fewer than two words to learn from, and how many are left."""
    counts = np.bincount(goals[learned & (goals >= 0)], minlength=int(goals.max()) + 1)
    number = np.where(counts >= 2, np.cumsum(counts >= 2) - 1, -1)
    return np.where(goals >= 0, number[goals], -1), int((counts >= 2).sum())


@dataclass(frozen=True, eq=False)
class _Tested:
    """Words told rightly and summed log-probabilities [orders, k, groups], and words [groups]."""

    hits: Array
    logs: Array
    counts: Array


def _tested(found: Material, rows: Rows, made: Gaussians, orders: list[Array], goals: Array) -> _Tested:
    """What Gaussians tell of the documents for testing; words without a goal count as not told."""
    shape = (len(orders), len(orders[0]), GROUPS)
    hits, logs, counts = np.zeros(shape), np.zeros(shape), np.zeros(GROUPS)
    for numbers, part in rows.batches(found.split.test, 2048, None):
        groups, answers = found.split.group[numbers], goals[numbers]
        np.add.at(counts, groups, 1)
        for place, picks in enumerate(orders):
            likely = prefixes(made, picks, part)
            right = likely[:, np.maximum(answers, 0), np.arange(len(answers))]  # [k, n]
            for group in np.unique(groups):
                mine = groups == group
                hits[place, :, group] += (likely.argmax(1) == answers)[:, mine].sum(1)
                logs[place, :, group] += right[:, mine].sum(1)
    return _Tested(hits, logs, counts)
