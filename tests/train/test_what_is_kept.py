"""What a training leaves in its folder when it is killed at a bad moment, or when its weights stop being numbers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pellucid.errors import PellucidError, TrainError
from pellucid.train import Run, train
from pellucid.train import folder as folders
from pellucid.train.freezing import Freeze
from pellucid.train.steps import Steps
from pellucid.train.tasks import TASKS
from tests.train.test_loop import TEXT, Killed, tiny, without_times

WEIGHTS = "model.safetensors"


def scored(monkeypatch: pytest.MonkeyPatch, *scores: float) -> None:
    """Gives the next epochs these scores."""
    task, given = TASKS["lm"], iter(scores)
    real = type(task).evaluate
    monkeypatch.setattr(
        task, "evaluate", lambda *asked: {**real(task, *asked), task.best: next(given, 5.0)}, raising=False
    )


def killed_at(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    """Dies before the state after an epoch is written."""
    real = folders.write_latest

    def dying(folder: Path, latest: folders.Latest) -> None:
        if latest.facts["epoch"] == epoch:
            raise Killed
        real(folder, latest)

    monkeypatch.setattr(folders, "write_latest", dying)


def poisoned_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Makes weights no numbers by one step, whose loss is still good."""
    real, taken = Steps.take, list[int]()

    def broken(self: Any, batch: Any, rate: float) -> Any:
        found = real(self, batch, rate)
        taken.append(1)
        if len(taken) == number:
            with torch.no_grad():
                next(self.network.parameters())[0].fill_(float("nan"))
        return found

    monkeypatch.setattr(Steps, "take", broken)


def test_the_best_epoch_stays_until_the_state_knows_a_better_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the epochs taken again may score otherwise: then the best one is an epoch from before the kill."""
    options: dict[str, Any] = {"checkpoints": "best", "watch": False, "save_every": 0, "test": TEXT.take(20)}
    with monkeypatch.context() as patch:
        scored(patch, 9.0, 3.0, 1.0)
        killed_at(patch, 2)
        with pytest.raises(Killed):
            train(TEXT, tiny(epochs=3), tmp_path / "run", **options)
    with monkeypatch.context() as patch:
        scored(patch, 4.0, 4.0)
        run = train(TEXT, tiny(epochs=3), tmp_path / "run", **options)
    assert run.best == 1
    assert list(run.checkpoints()) == [1]
    assert run.test is not None
    assert run.test["epoch"] == 1


def test_a_run_that_goes_on_by_the_best_has_a_checkpoint_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"watch": False, "save_every": 0, "test": TEXT.take(20)}
    with monkeypatch.context() as patch:
        scored(patch, 9.0, 1.0)
        killed_at(patch, 2)
        with pytest.raises(Killed):
            train(TEXT, tiny(epochs=2), tmp_path / "run", checkpoints="last", **options)
    with monkeypatch.context() as patch:
        scored(patch, 4.0)
        run = train(TEXT, tiny(epochs=2), tmp_path / "run", checkpoints="best", **options)
    assert run.best == 1
    assert list(run.checkpoints()) == [2]


def test_a_training_that_begins_again_writes_its_checkpoints_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        killed_at(patch, 2)
        with pytest.raises(Killed):
            train(TEXT, tiny(), tmp_path / "run", checkpoints="all", watch=False, save_every=1e9)
    assert list(Run.open(tmp_path / "run").checkpoints()) == [0, 1, 2]
    place = folders.checkpoint_folder(tmp_path / "run", 1) / WEIGHTS
    good = place.read_bytes()
    place.write_bytes(b"of another run")
    run = train(TEXT, tiny(), tmp_path / "run", checkpoints="all", watch=False)
    assert list(run.checkpoints()) == [0, 1, 2]
    assert place.read_bytes() == good


@pytest.mark.parametrize("checkpoints", ["all", "last"])
def test_an_epoch_whose_last_step_breaks_the_weights_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoints: str
) -> None:
    whole = train(TEXT, tiny(), tmp_path / "whole", checkpoints="all", watch=False)
    steps = whole.log[1]["step"]
    poisoned_at(monkeypatch, 2 * steps)
    told = rf"weights were no numbers any more after step {2 * steps} \(epoch 2\).*checkpoint is that of epoch 1\."
    with pytest.raises(TrainError, match=told):
        train(TEXT, tiny(), tmp_path / "run", checkpoints=checkpoints, watch=True)
    run = Run.open(tmp_path / "run")
    assert run.facts["state"] == "stopped"
    assert list(run.checkpoints()) == ([0, 1] if checkpoints == "all" else [1])
    assert (run.checkpoint(1) / WEIGHTS).read_bytes() == (whole.checkpoint(1) / WEIGHTS).read_bytes()
    assert [row["epoch"] for row in run.log] == [0, 1]


def test_a_kill_before_the_first_file_was_whole_is_no_hindrance(tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.mkdir()
    (place / ".run.json.0123abcd.part").write_text('{"form')
    assert train(TEXT, tiny(epochs=1), place, watch=False).finished
    assert not list(place.rglob("*.part"))


def test_what_a_kill_left_half_written_goes_when_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "run"
    with monkeypatch.context() as patch:
        killed_at(patch, 2)
        with pytest.raises(Killed):
            train(TEXT, tiny(), place, checkpoints="all", save_every=0)
    for name in ("checkpoints/.epoch-0002.0123abcd.part", "dynamics/.epoch-0002.new"):
        (place / name).mkdir()
    (place / ".latest.safetensors.89abcdef.part").write_bytes(b"half")
    assert train(TEXT, tiny(), place, checkpoints="all").finished
    assert not [item for item in place.rglob(".*") if item.name != ".lock"]


def test_a_state_of_another_network_or_version_is_refused_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "run"
    with monkeypatch.context() as patch:
        killed_at(patch, 2)
        with pytest.raises(Killed):
            train(TEXT, tiny(), place, watch=False, save_every=0)
    state = folders.read_latest(place)
    assert state is not None
    names = sorted(name for name in state.tensors if name.startswith("network/"))
    others = {(f"{name}.renamed" if name == names[0] else name): tensor for name, tensor in state.tensors.items()}
    for latest, told in (
        (folders.Latest(others, state.facts), "another network than these libraries build"),
        (folders.Latest(state.tensors, {**state.facts, "format": 9}), "has format 9"),
    ):
        folders.write_latest(place, latest)
        before = {item: item.read_bytes() for item in place.rglob("*") if item.is_file()}
        with pytest.raises(TrainError, match=told):
            train(TEXT, tiny(), place, watch=False)
        assert {item: item.read_bytes() for item in place.rglob("*") if item.is_file()} == before
    (place / folders.LATEST).unlink()
    with caplog.at_level("INFO", "pellucid"):
        assert train(TEXT, tiny(), place, watch=False).finished
    assert "no state to go on from was saved yet, so training begins from the start" in caplog.messages


def test_a_file_is_no_folder_and_a_device_must_exist(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PellucidError, match="is a file; give the name of a folder"):
        train(TEXT, tiny(epochs=1), tmp_path / "file", watch=False)
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(PellucidError, match="device 'abacus' cannot be used"):
        train(TEXT, tiny(epochs=1), tmp_path / "run", watch=False, device="abacus")
    assert not (tmp_path / "run").exists()


def test_layers_frozen_before_a_kill_stay_frozen_on_the_same_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny(epochs=6, layers=3, learning_rate=1e-4, schedule="constant")
    options: dict[str, Any] = {"freeze": Freeze(threshold=0.5, patience=1), "save_every": 0}
    whole = train(TEXT, settings, tmp_path / "whole", **options)
    assert whole.log[-1]["frozen"] > 0
    with monkeypatch.context() as patch:
        killed_at(patch, 5)
        with pytest.raises(Killed):
            train(TEXT, settings, tmp_path / "cut", **options)
    state = folders.read_latest(tmp_path / "cut")
    assert state is not None
    assert state.facts["frozen"]
    cut = train(TEXT, settings, tmp_path / "cut", **options)
    assert without_times(cut.log) == without_times(whole.log)
    assert (cut.checkpoint() / WEIGHTS).read_bytes() == (whole.checkpoint() / WEIGHTS).read_bytes()


def test_freezing_waits_for_looks_where_earlier_epochs_were_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny(epochs=5, layers=3, learning_rate=1e-4, schedule="constant")
    with monkeypatch.context() as patch:
        killed_at(patch, 3)
        with pytest.raises(Killed):
            train(TEXT, settings, tmp_path / "run", watch=False, save_every=0)
    run = train(TEXT, settings, tmp_path / "run", freeze=Freeze(threshold=0.5, patience=1))
    assert run.log[3]["frozen"] == 0
    assert run.log[-1]["frozen"] > 0
