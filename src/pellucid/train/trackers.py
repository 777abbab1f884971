"""Trackers: the curves of a training in TensorBoard or MLflow, beside the tables that it always writes."""

from __future__ import annotations

import json
import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.errors import TrainError, listing
from pellucid.saving import write_file

if TYPE_CHECKING:
    from pellucid.train.folder import Run

Row = Mapping[str, Any]
MOST_AT_ONCE = 500
"""Values that MLflow takes in one request, with room to spare."""
_PLACES = ("epoch", "step")
_SPLITS = ("train", "valid", "test")


class Tracker(ABC):
    """One place beside the run's own tables where its curves are shown, all of them over the number of steps taken.

    A value is told once: of a training that goes on after a kill, `begin` tells what the tables have and the tracker
    lacks, and what had been told of steps that are taken again is not told twice.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._told: set[tuple[str, int]] = set()

    def begin(self, run: Run) -> None:
        """Opens the tracker, new or where it was left, and tells it settings, chance and what the run's tables hold."""
        chance = {f"chance_{name}": value for name, value in (run.facts.get("chance") or {}).items()}
        self._told = self._open({**run.facts["settings"], **chance})
        for row in run.log:
            self.epoch(row)
        self.steps(run.steps)

    def epoch(self, row: Row) -> None:
        """Tells one row of the log: losses, scores, the learning rate, and which epoch it was."""
        self._tell({_curve(name): value for name, value in row.items() if name != "step"}, row["step"])

    def steps(self, rows: Iterable[Row]) -> None:
        """Tells the loss of every few steps."""
        for row in rows:
            scores = {name: value for name, value in row.items() if name not in _PLACES}
            self._tell({f"train/step_{name}": value for name, value in scores.items()}, row["step"])

    def end(self, test: Mapping[str, Any] | None, *, failed: bool = False) -> None:
        """Tells the scores on the test text, where there are any, and closes the tracker, as failed where it did."""
        last = max((step for _, step in self._told), default=0)
        self._tell(dict(_flat("test", test or {})), last)
        self._close(failed)

    def _tell(self, values: Mapping[str, Any], step: int) -> None:
        found = {name: float(value) for name, value in values.items() if _is_number(value)}
        new = {name: value for name, value in found.items() if (name, step) not in self._told}
        self._told.update((name, step) for name in new)
        if new:
            self._write(new, int(step))

    @abstractmethod
    def _open(self, about: Mapping[str, Any]) -> set[tuple[str, int]]:
        """Opens under a table of settings and chance, or goes on; what was told before, each as name and step."""

    @abstractmethod
    def _write(self, values: Mapping[str, float], step: int) -> None: ...

    @abstractmethod
    def _close(self, failed: bool) -> None: ...


class TensorBoard(Tracker):
    """Event files in the run's folder `tensorboard`, which `tensorboard --logdir` shows.

    A training that goes on writes another file, which replaces what the ones before it say.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._writer: Any = None

    def _open(self, about: Mapping[str, Any]) -> set[tuple[str, int]]:
        from torch.utils.tensorboard import SummaryWriter

        place = self.folder / "tensorboard"
        self._writer = SummaryWriter(str(place), purge_step=0 if place.is_dir() else None)
        rows = "\n".join(f"| {name} | {value} |" for name, value in about.items())
        self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")
        return set()

    def _write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def _close(self, failed: bool) -> None:
        self._writer.close()


class MLflow(Tracker):
    """A run of MLflow: in the database `mlflow.db` of the run's folder, or where MLFLOW_TRACKING_URI points.

    The experiment is called `pellucid`, or what MLFLOW_EXPERIMENT_NAME says. Which run of MLflow belongs to a training
    stands in its `mlflow.json`, so that a training that goes on stays one run there.
    """

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self.name = name
        elsewhere = os.environ.get("MLFLOW_TRACKING_URI")
        self.address = elsewhere or f"sqlite:///{self.folder / 'mlflow.db'}"
        self._home = elsewhere or "mlflow.db"  # what is written down: the run's folder may be moved
        self._client: Any = None
        self._run = ""

    def _open(self, about: Mapping[str, Any]) -> set[tuple[str, int]]:
        self._client = _mlflow_client(self.address)
        known = self._known()
        if known is None:
            experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME") or "pellucid")
            made = self._client.create_run(experiment, run_name=self.name)
            self._run = made.info.run_id
            kept = {"run": self._run, "address": self._home}
            write_file(self.folder / "mlflow.json", (json.dumps(kept, indent=2) + "\n").encode())
            for name, value in about.items():
                self._client.log_param(self._run, name, value)
            return set()
        self._run = known.info.run_id
        self._client.update_run(self._run, status="RUNNING")
        return {
            (name, point.step)
            for name in known.data.metrics
            for point in self._client.get_metric_history(self._run, name)
        }

    def _known(self) -> Any:
        """The run of MLflow that this training had before, or None where there is none at this address."""
        from mlflow.exceptions import MlflowException

        place = self.folder / "mlflow.json"
        kept = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
        if kept.get("address") != self._home:
            return None
        try:
            return self._client.get_run(kept["run"])
        except MlflowException:  # it was deleted there
            return None

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        local = self.address.startswith("sqlite:")  # MLflow's own choice would be a folder wherever we happen to be
        place = (self.folder / "mlflow-files").as_uri() if local else None
        return self._client.create_experiment(name, place, {"mlflow.experimentKind": "custom_model_development"})

    def _write(self, values: Mapping[str, float], step: int) -> None:
        from time import time

        from mlflow.entities import Metric

        now = round(1000 * time())
        points = [Metric(name, value, now, step) for name, value in values.items()]
        for first in range(0, len(points), MOST_AT_ONCE):
            self._client.log_batch(self._run, metrics=points[first : first + MOST_AT_ONCE])

    def _close(self, failed: bool) -> None:
        self._client.set_terminated(self._run, status="FAILED" if failed else "FINISHED")


TRACKERS = {"tensorboard": "tensorboard", "mlflow": "mlflow"}
"""The trackers, and the package that each needs."""


def open_trackers(names: Iterable[str], folder: str | Path, run_name: str | None = None) -> list[Tracker]:
    """Trackers by name for a run's folder, under its own name or another; nothing is written before they begin.

    A name that there is not, or one whose package is not installed, is refused here, before training starts.
    """
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in TRACKERS:
            raise TrainError(f"There is no tracker {name!r}; there are {listing(TRACKERS)} (a CSV is always written).")
        if find_spec(TRACKERS[name]) is None:
            raise TrainError(
                f"The tracker {name!r} needs the package {TRACKERS[name]}, which is not installed; install it with "
                f"`pip install 'pellucid[{name}]'`."
            )
    place = Path(folder).absolute()
    return [TensorBoard(place) if name == "tensorboard" else MLflow(place, run_name or place.name) for name in chosen]


def _mlflow_client(address: str) -> Any:
    """A client of MLflow that tells nobody else what is done, and does not report how it lays out its tables."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        client = MlflowClient(tracking_uri=address)
        client.search_experiments(max_results=1)
    except MlflowException as error:
        reason = " ".join(str(error).split())[:200]
        raise TrainError(f"MLflow cannot be reached at {address!r} ({reason}); mend MLFLOW_TRACKING_URI.") from error
    return client


def _curve(name: str) -> str:
    """A column of the log as trackers name curves: `valid_loss` becomes `valid/loss`, in one group with the others."""
    split, _, rest = name.partition("_")
    return f"{split}/{rest}" if rest and split in _SPLITS else name


def _flat(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    """The leaves of nested mappings, each with its path."""
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, inner in value.items():
        yield from _flat(f"{name}/{key}", inner)


def _is_number(value: Any) -> bool:
    """Whether a value has a place on a curve: texts, empty cells and infinities have none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
