"""A finished run that is asked for again: given back where it has what is asked, and refused where it has not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pellucid.errors import TrainError
from pellucid.train import Freeze, Run, train
from pellucid.train import folder as folders
from pellucid.train.trackers import Tracker
from tests.train.test_loop import TEXT, tiny


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs that kept 1 and 3, and was watched."""
    place = tmp_path_factory.mktemp("asked") / "run"
    train(TEXT, tiny(epochs=3), place, valid=TEXT.take(40), test=TEXT.take(20), checkpoints=[1])
    return place


def again(place: Path, **options: Any) -> Run:
    return train(TEXT, tiny(epochs=3), place, **{"valid": TEXT.take(40), "test": TEXT.take(20), **options})


def files(place: Path) -> dict[Path, bytes]:
    return {item: item.read_bytes() for item in place.rglob("*") if item.is_file()}


@pytest.mark.parametrize("checkpoints", [[1], "last", [3], [1, 3], []])
def test_what_it_has_is_given_back_unchanged(finished: Path, checkpoints: Any) -> None:
    before = files(finished)
    run = again(finished, checkpoints=checkpoints)
    assert list(run.checkpoints()) == [1, 3]
    assert files(finished) == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"checkpoints": "all"},
            r"Checkpoints 'all' were asked for.*kept epochs 1, 3, not epochs 0, 2; train in another",
        ),
        ({"checkpoints": [0, 1]}, r"Checkpoints 0,1 were asked for.*kept epochs 1, 3, not epoch 0; train in another"),
        ({"freeze": Freeze()}, r"trained without freezing, and now it is with freezing \(threshold=0.99, patience=2\)"),
        ({"trackers": ["paper"]}, "no tracker 'paper'"),
    ],
)
def test_what_it_lacks_is_refused_in_a_sentence(finished: Path, options: dict[str, Any], told: str) -> None:
    before = files(finished)
    with pytest.raises(TrainError, match=told):
        again(finished, **{"checkpoints": [1], **options})
    assert files(finished) == before


def test_it_says_that_nothing_was_trained(finished: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "pellucid"):
        again(finished, checkpoints="last")
    assert [each.message for each in caplog.records] == [
        f"The run in {str(finished)!r} is finished, so nothing was trained; it kept epochs 1, 3."
    ]


def test_the_best_epoch_must_have_been_kept(finished: Path, tmp_path: Path) -> None:
    for best, kept in ((3, True), (2, False)):
        place = copied(finished, tmp_path / f"best-{best}")
        rows = [{**row, "valid_perplexity": 1.0 if row["epoch"] == best else 9.0} for row in Run.open(place).log]
        folders.write_rows(place / folders.LOG, rows)
        if kept:
            assert again(place, checkpoints="best").best == best
        else:
            with pytest.raises(TrainError, match="kept epochs 1, 3, not epoch 2"):
                again(place, checkpoints="best")


def test_a_run_that_was_not_watched_cannot_be_watched_later(tmp_path: Path) -> None:
    train(TEXT, tiny(epochs=1), tmp_path / "run", watch=False)
    with pytest.raises(TrainError, match=r"was not watched.*--no-watch"):
        train(TEXT, tiny(epochs=1), tmp_path / "run")
    assert train(TEXT, tiny(epochs=1), tmp_path / "run", watch=False).finished


class Noted(Tracker):
    """A tracker that writes down what it is told."""

    def _open(self, about: Any) -> set[tuple[str, int]]:
        self.values: dict[tuple[str, int], float] = {}
        return set()

    def _write(self, values: Any, step: int) -> None:
        self.values.update({(name, step): value for name, value in values.items()})

    def _close(self, failed: bool) -> None:
        text = json.dumps([[*key, value] for key, value in sorted(self.values.items())])
        (self.folder / "noted.json").write_text(text)


def test_a_tracker_is_told_later_what_the_tables_hold(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pellucid.train import asked

    opened: list[list[str]] = []

    def open_noted(names: Any, folder: Path, _name: str) -> list[Tracker]:
        opened.append(list(names))
        return [Noted(folder) for _ in opened[-1]]

    monkeypatch.setattr(asked, "open_trackers", open_noted)
    place = copied(finished, tmp_path / "run")
    (place / ".curves.png.0123abcd.part").write_text("half")
    run = again(place, checkpoints=[1], trackers=["tensorboard"])
    assert run.facts["asked"]["trackers"] == ["tensorboard"]
    assert not (place / ".curves.png.0123abcd.part").exists()
    told = {(name, step): value for name, step, value in json.loads((place / "noted.json").read_text())}
    for row in run.log:
        assert told["valid/loss", row["step"]] == row["valid_loss"]
    assert run.test is not None
    assert told["test/perplexity", run.log[-1]["step"]] == run.test["scores"]["perplexity"]
    again(place, checkpoints=[1], trackers=["tensorboard"])
    assert opened == [["tensorboard"], []]  # it has it now


def copied(run: Path, place: Path) -> Path:
    import shutil

    shutil.copytree(run, place)
    return place
