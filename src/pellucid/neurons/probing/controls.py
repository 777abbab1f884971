"""Controls of probes: what is reached by guessing, and by a task that has nothing to do with the model."""

from __future__ import annotations

import numpy as np

from pellucid.results import Array


def majority(goals: Array, learned: Array, classes: int) -> int:
    """The most frequent class of the rows to learn from; the first of equals."""
    return int(np.bincount(goals[learned & (goals >= 0)], minlength=classes).argmax())


def control_goals(goals: Array, types: Array, learned: Array, classes: int, *, seed: int) -> Array:
    """A control task [rows]: every word type has one label, drawn from the classes as often as they occur.

    A probe can only learn it by heart, type by type (Hewitt & Liang 2019). Rows without a class have none here either.
    """
    shares = np.bincount(goals[learned & (goals >= 0)], minlength=classes).astype(np.float64)
    drawn = np.random.default_rng([seed, 7]).choice(classes, size=int(types.max()) + 1, p=shares / shares.sum())
    return np.where(goals >= 0, drawn[types], -1)
