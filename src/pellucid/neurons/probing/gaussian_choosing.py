"""Which neurons Gaussians choose: fitted on words to learn from, decided by words held out of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pellucid.neurons.probing.class_gaussians import (
    class_gaussians,
    class_variances,
    most_neurons,
    some,
    those_that_fit,
)
from pellucid.neurons.probing.gaussian_selection import Gaussians, Selection, select
from pellucid.neurons.probing.material import Material
from pellucid.neurons.probing.rows import Rows
from pellucid.results import Array, ResultError

MOST_HELD = 2000
"""Words that decide which neuron is chosen, unless another number is given."""


MOST_CHOSEN = 50
"""Neurons that are chosen where no number is given and as many change."""


@dataclass(frozen=True)
class Choosing:
    """How neurons are chosen: how many (None: `MOST_CHOSEN`, or all that change), by which criterion, by how many
    held-out words."""

    count: int | None
    by: str
    held: int | None
    seed: int
    preset: str | None

    def __post_init__(self) -> None:
        for name, number in (("count", self.count), ("held", self.held)):
            if number is not None and number < 1:
                raise ResultError(f"{name}={number} chooses nothing; use 1 or more, or leave it out for the default.")


@dataclass(frozen=True, eq=False)
class Chosen:
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

    def shortened(self, count: int) -> Chosen:
        """The same with the first so many neurons alone: what a greedy choice of as many gives."""
        return replace(self, picks=self.picks[:count], picked=self.picked[:count], scores=self.scores[:count])


def chosen(found: Material, rows: Rows, fold: int, how: Choosing, *, fewer: bool = False) -> Chosen:
    """The neurons of some rows of the material, the model's or its random twin's, that are chosen without a fold.

    Where fewer neurons change than are to be chosen, these are all that are chosen, if `fewer` may be or no number was
    given. The prior is that of all neurons, where memory lets only some be read too.
    """
    goals, classes = found.data.goals, len(found.data.classes)
    theirs = how.preset == "neurox"
    learned = found.split.training if theirs else found.split.without(fold)
    dice = np.random.default_rng([how.seed, 3] if fold == 0 else [how.seed, 3, fold])
    numbers = np.flatnonzero(learned if theirs else found.split.fold == fold)
    most = how.held if how.held is not None else len(numbers) if theirs else MOST_HELD
    numbers = np.sort(dice.choice(numbers, min(most, len(numbers)), replace=False))
    asked, answers = rows.take(numbers), goals[numbers]
    lone = class_variances(rows, goals, learned, classes) if len(rows.names) > most_neurons(classes) else None
    wanted = how.count if how.count is not None else min(MOST_CHOSEN, most_neurons(classes))
    places = np.arange(len(rows.names)) if lone is None else those_that_fit(lone, asked, answers, wanted)
    made = class_gaussians(some(rows, places), goals, learned, classes, dimensions=len(rows.names))
    count = min(wanted, len(that_change(made))) if fewer or how.count is None else wanted
    picked = select(made, asked[:, places], answers, count, by=how.by) if count or not fewer else _NONE
    names = [rows.names[places[pick]] for pick in picked.picks]
    means = made.means if lone is None else lone.means
    return Chosen(made, places, picked.picks, names, picked.scores, means, learned, len(numbers), dice)


_NONE = Selection(np.zeros(0, np.int64), np.zeros(0))


def that_change(made: Gaussians) -> Array:
    """The places of the neurons that change with the text."""
    return np.flatnonzero((np.einsum("zdd->zd", made.covariances) > 0).all(0))
