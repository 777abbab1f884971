"""Learning curves: the scores of a training on its validation text, epoch by epoch, beside what guessing gives."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np

from pellucid.errors import TrainError
from pellucid.results import Array, Coordinate, Provenance, Result, Table, versions
from pellucid.train.folder import Row, Run

_VALID = "valid_"
_TRAINING = {
    "loss": "train_loss",
    "learning_rate": "learning_rate",
    "frozen": "frozen",
    "training_seconds": "training_seconds",
    "validation_seconds": "validation_seconds",
    "watching_seconds": "watching_seconds",
}
"""Columns of the table `training`, and those of the log that they come from."""
_PHRASES = {
    "loss": "mean cross-entropy of the goals, in nats",
    "perplexity": "e to the loss: among how many equally likely tokens the network hesitates",
    "accuracy": "share of the goals that were met",
    "f1": "harmonic mean of precision and recall; for labels the plain mean over them",
    "exact": "share of the answers given word for word",
    "bleu": "BLEU of the whole text, 0 to 100",
}


@dataclass(frozen=True, eq=False)
class LearningCurves(Result):
    """Scores on the validation text after every epoch, [measure, epoch]; epoch 0 is the network before training.

    The table `training` has for every epoch from 1 on the mean `loss` on the training text (with dropout, and while
    the network was still changing), the `learning_rate` at its end, and where they were logged the number of layers
    `frozen` and the seconds spent on training, validation and watching. `chance` has a guess's score for each measure.
    """

    kind: ClassVar[str] = "train.curves"
    title: ClassVar[str] = "How a training went"
    chance: ClassVar[str] = "guessing by how often each answer occurs in training"

    @property
    def measures(self) -> Mapping[str, str]:
        return {str(name): _PHRASES.get(str(name), str(name)) for name in self.axes["measure"]}

    @property
    def run(self) -> str:
        """The name of the run."""
        return str(self.provenance.arguments["run"])


def learning_curves(run: Run) -> LearningCurves:
    """The curves of a training, finished or not, from its log.

    A score that was not measured at every epoch, or was infinite at one (a perplexity may be), is left out.
    """
    log = run.log
    if not log:
        raise TrainError(f"The run in {str(run.folder)!r} has not finished an epoch yet; wait for the first.")
    names = [name for name in log[0] if name.startswith(_VALID) and _everywhere(log, name)]
    if not names:
        raise TrainError(f"The log in {str(run.folder)!r} has no score on a validation text; train again.")
    measures = tuple(name.removeprefix(_VALID) for name in names)
    epochs = tuple(int(row["epoch"]) for row in log)
    values = np.array([[float(row[name]) for row in log] for name in names])
    guess = {name: float(value) for name, value in (run.facts.get("chance") or {}).items() if name in measures}
    tables = _tables(log, guess)
    whole = np.array([[guess[name]] * len(epochs) for name in measures]) if len(guess) == len(measures) else None
    axes: dict[str, tuple[Coordinate, ...]] = {"measure": measures, "epoch": epochs}
    resampled = "no interval: one training is one draw; train again with other seeds to see how much it matters"
    return LearningCurves(axes, values, whole, None, None, resampled, _provenance(run), tables)


def _tables(log: Sequence[Row], guess: Mapping[str, float]) -> dict[str, Table]:
    tables: dict[str, Table] = {}
    trained = [row for row in log if row["epoch"]]
    columns: dict[str, Array] = {
        name: np.array([float(row[column]) for row in trained])
        for name, column in _TRAINING.items()
        if trained and _everywhere(trained, column)
    }
    if columns:
        tables["training"] = Table({"epoch": tuple(int(row["epoch"]) for row in trained)}, columns)
    if guess:
        tables["chance"] = Table({"measure": tuple(guess)}, {"value": np.array(list(guess.values()))})
    return tables


def _everywhere(log: Sequence[Row], name: str) -> bool:
    values = [row.get(name) for row in log]
    return all(isinstance(value, int | float) and math.isfinite(value) for value in values)


def _provenance(run: Run) -> Provenance:
    """Where the curves come from; the fingerprint is of all that decided the training: settings and texts."""
    told: dict[str, Any] = {name: run.facts.get(name) for name in ("settings", "corpora", "labels")}
    fingerprint = blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).hexdigest()
    return Provenance(
        LearningCurves.kind,
        arguments={"run": run.name, **run.facts["settings"]},
        models=({"name": run.name, "fingerprint": fingerprint},),
        corpus=run.facts["corpora"]["valid"],
        seed=run.settings.seed,
        versions={**versions(), **run.facts["versions"]},
        command=run.facts.get("command"),
    )
