"""Trackers: TensorBoard and MLflow show the run's own tables, and a training that goes on stays one curve."""

from __future__ import annotations

import ast
import importlib.util
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from pellucid.errors import TrainError
from pellucid.train import trackers
from pellucid.train.trackers import MLflow, open_trackers
from tests.train.runs_by_hand import facts, rows, steps, written

EPOCHS = 4
CURVES = {"epoch", "seconds", "learning_rate", "train/loss", "train/step_loss", "valid/loss", "valid/perplexity"}


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No address of MLflow from outside, and a working folder in which nothing may be left."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    assert not list((tmp_path / "here").iterdir())


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Path:
    """A database of MLflow with all its tables and no run: laying them out takes seconds."""
    place = tmp_path_factory.mktemp("empty") / "mlflow.db"
    trackers._mlflow_client(f"sqlite:///{place}")
    return place


def started(folder: Path, empty: Path) -> Path:
    """A run's folder with a database in it."""
    folder.mkdir()
    shutil.copy(empty, folder / "mlflow.db")
    return folder


def followed(name: str, folder: Path, *, killed: int | None = None) -> None:
    """Tells a tracker a whole training; or one that was killed after an epoch, and went on from the one before it."""
    log, told = rows(EPOCHS), steps(EPOCHS)
    run = written(folder, [])
    (tracker,) = open_trackers([name], folder, "a run")
    tracker.begin(run)

    def tell(tracker, epochs):
        for epoch in epochs:
            tracker.epoch(log[epoch])
            tracker.steps(row for row in told if row["epoch"] == epoch)

    if killed is None:
        tell(tracker, range(EPOCHS + 1))
    else:
        tell(tracker, range(killed + 1))
        run = written(folder, log[:killed])  # what was saved is an epoch older than what was told
        (tracker,) = open_trackers([name], folder, "a run")
        tracker.begin(run)
        tell(tracker, range(killed, EPOCHS + 1))
    tracker.end({"loss": 5.5, "perplexity": 244.7})


def expected() -> dict[str, list[tuple[int, float]]]:
    """Every curve as it must be shown, from the tables."""
    log, found = rows(EPOCHS), dict[str, list[tuple[int, float]]]()
    columns = {"train/loss": "train_loss", "valid/loss": "valid_loss", "valid/perplexity": "valid_perplexity"}
    columns |= {name: name for name in ("epoch", "seconds", "learning_rate", "training_seconds")}
    for curve, column in columns.items():
        found[curve] = [(row["step"], float(row[column])) for row in log if column in row]
    found["train/step_loss"] = [(row["step"], row["loss"]) for row in steps(EPOCHS)]
    found["test/loss"], found["test/perplexity"] = [(400, 5.5)], [(400, 244.7)]
    return found


def board(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def flow(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What MLflow's database holds of the only run in it, read past MLflow."""
    with sqlite3.connect(folder / "mlflow.db") as base:
        assert len(base.execute("select run_uuid from runs").fetchall()) == 1
        points = base.execute("select key, step, value from metrics order by key, step").fetchall()
    found: dict[str, list[tuple[int, float]]] = {}
    for key, step, value in points:
        found.setdefault(key, []).append((step, value))
    return found


@pytest.mark.parametrize("killed", [None, 2])
def test_tensorboard_shows_the_tables(tmp_path, killed):
    followed("tensorboard", tmp_path / "run", killed=killed)
    shown = board(tmp_path / "run")
    assert shown.keys() >= CURVES
    for curve, points in expected().items():
        assert [step for step, _ in shown[curve]] == [step for step, _ in points], curve
        assert [value for _, value in shown[curve]] == pytest.approx([value for _, value in points]), curve
    assert shown.keys() == expected().keys()


@pytest.mark.parametrize("killed", [None, 2])
def test_mlflow_holds_the_tables_in_one_run(tmp_path, empty, killed):
    if killed:
        started(tmp_path / "run", empty)
    followed("mlflow", tmp_path / "run", killed=killed)
    assert flow(tmp_path / "run") == expected()
    with sqlite3.connect(tmp_path / "run" / "mlflow.db") as base:
        told = dict(base.execute("select key, value from params").fetchall())
        ((name, status),) = base.execute("select name, status from runs").fetchall()
    assert told == {name: str(value) for name, value in facts()["settings"].items()} | {
        "chance_loss": str(facts()["chance"]["loss"]),
        "chance_perplexity": str(facts()["chance"]["perplexity"]),
    }
    assert (name, status) == ("a run", "FINISHED")


def test_a_training_that_failed_is_one_that_failed_there(tmp_path, empty):
    run = written(started(tmp_path / "run", empty), rows(1))
    (tracker,) = open_trackers(["mlflow"], tmp_path / "run")
    tracker.begin(run)
    tracker.end(None, failed=True)
    with sqlite3.connect(tmp_path / "run" / "mlflow.db") as base:
        assert base.execute("select status from runs").fetchall() == [("FAILED",)]


def test_a_tracker_that_comes_late_is_told_what_was_before(tmp_path, empty):
    run = written(started(tmp_path / "run", empty), rows(3))
    for tracker in open_trackers(["tensorboard", "mlflow"], tmp_path / "run"):
        tracker.begin(run)
        tracker.end({})
    found = flow(tmp_path / "run")
    assert [step for step, _ in found["valid/loss"]] == [0, 100, 200, 300]
    assert [step for step, _ in found["train/step_loss"]] == [50, 100, 150, 200, 250, 300]
    assert Counter(map(len, board(tmp_path / "run").values())) == Counter(map(len, found.values()))


def test_a_moved_run_goes_on_in_its_own_database(tmp_path, empty):
    followed("mlflow", started(tmp_path / "old", empty))
    (tmp_path / "old").rename(tmp_path / "new")
    run = written(tmp_path / "new", rows(EPOCHS))
    (tracker,) = open_trackers(["mlflow"], tmp_path / "new")
    tracker.begin(run)
    tracker.end({})
    assert flow(tmp_path / "new") == expected()


def test_an_address_and_a_name_from_outside_are_honoured(tmp_path, empty, monkeypatch):
    started(tmp_path / "shared", empty)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'shared' / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    followed("mlflow", tmp_path / "run")
    assert not (tmp_path / "run" / "mlflow.db").exists()
    assert flow(tmp_path / "shared") == expected()
    with sqlite3.connect(tmp_path / "shared" / "mlflow.db") as base:
        assert ("mine",) in base.execute("select name from experiments").fetchall()


def test_what_has_no_place_on_a_curve_is_left_out(tmp_path, empty):
    run = written(started(tmp_path / "run", empty), [])
    (tracker,) = open_trackers(["mlflow"], tmp_path / "run")
    tracker.begin(run)
    tracker.epoch({"epoch": 0, "step": 0, "valid_loss": 2.0, "valid_perplexity": float("inf"), "train_loss": None})
    tracker.epoch({"epoch": 1, "step": 9, "valid_loss": float("nan"), "note": "text", "done": True})
    tracker.end({})
    assert flow(tmp_path / "run") == {"epoch": [(0, 0.0), (9, 1.0)], "valid/loss": [(0, 2.0)]}


def test_unknown_trackers_and_missing_packages_are_said_before_anything_is_written(tmp_path, monkeypatch):
    with pytest.raises(TrainError, match="no tracker 'wandb'; there are tensorboard, mlflow"):
        open_trackers(["mlflow", "wandb"], tmp_path / "run")
    real = importlib.util.find_spec
    monkeypatch.setattr(trackers, "find_spec", lambda name: None if name == "mlflow" else real(name))
    with pytest.raises(
        TrainError, match=r"mlflow, which is not installed; install it with `pip install 'pellucid\[mlf"
    ):
        open_trackers(["tensorboard", "mlflow"], tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert open_trackers([], tmp_path / "run") == []
    assert len(open_trackers(["tensorboard", "tensorboard"], tmp_path / "run")) == 1


def test_an_address_that_cannot_be_reached_is_said_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    run = written(tmp_path / "run", [])
    with pytest.raises(TrainError, match="MLflow cannot be reached at 'nonsense://nowhere'"):
        MLflow(tmp_path / "run", "x").begin(run)


def test_trackers_import_nothing_that_may_be_missing():
    body = ast.parse(Path(trackers.__file__).read_text(encoding="utf-8")).body
    modules = [node.module for node in body if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    assert "json" in modules
    assert not [name for name in modules if (name or "").startswith(("mlflow", "tensorboard", "torch"))]
