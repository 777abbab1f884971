"""The run folder: tables, the state to go on from, and folders that are something else."""

import json
from pathlib import Path

import pytest
import torch

from pellucid.errors import TrainError
from pellucid.train import folder as folders
from pellucid.train.folder import Latest, Run
from pellucid.train.settings import settings_for


def about(**changes: object) -> dict[str, object]:
    return {
        "format": 1,
        "state": "training",
        "settings": settings_for("lm").to_json(),
        "labels": None,
        "best": {"metric": "perplexity", "larger": False},
        "corpora": {},
        **changes,
    }


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [{"epoch": 0, "valid_loss": 5.123456789012345}, {"epoch": 1, "train_loss": 0.1, "valid_loss": 1e-300}]
    folders.write_rows(tmp_path / "log.csv", rows)
    found = folders.read_rows(tmp_path / "log.csv")
    assert found == [{**rows[0], "train_loss": None}, rows[1]]
    assert (tmp_path / "log.csv").read_text().splitlines()[0] == "epoch,valid_loss,train_loss"
    assert folders.read_rows(tmp_path / "none.csv") == []


def test_the_latest_state_is_exact(tmp_path: Path) -> None:
    tensors = {
        "network/a": torch.randn(3, 5),
        "random/cpu": torch.get_rng_state(),
        "optimiser/0/step": torch.tensor(7.0),
    }
    facts = {"epoch": 3, "total": 0.1 + 0.2, "log": [{"epoch": 1, "valid_loss": 1 / 3}]}
    assert folders.read_latest(tmp_path) is None
    folders.write_latest(tmp_path, Latest(tensors, facts))
    found = folders.read_latest(tmp_path)
    assert found is not None
    assert found.facts == {"format": 1, **facts}
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in tensors.items())
    (tmp_path / folders.LATEST).write_bytes(b"broken")
    with pytest.raises(TrainError, match="damaged"):
        folders.read_latest(tmp_path)


@pytest.mark.parametrize(
    ("written", "told"),
    [({"format": 2}, r"has format 2, and this Pellucid reads format 1; go on with"), ({}, "damaged"), ([], "damaged")],
)
def test_a_state_of_another_version_is_refused(tmp_path: Path, written: object, told: str) -> None:
    from safetensors.torch import save_file

    save_file({"network/a": torch.zeros(2)}, tmp_path / folders.LATEST, {"about": json.dumps(written)})
    with pytest.raises(TrainError, match=told):
        folders.read_latest(tmp_path)


def test_what_a_kill_left_half_written_is_found_and_nothing_else(tmp_path: Path) -> None:
    left = [".run.json.0123abcd.part", "checkpoints/.epoch-0001.89abcdef.part/model.safetensors"]
    left += ["dynamics/.epoch-0002.new/look.json", "dynamics/..epoch-0003.new.00000000.part/look.json"]
    mine = ["run.json", ".lock", "mine.part", ".notes.part", "checkpoints/epoch-0001/model.safetensors"]
    mine += ["dynamics/epoch-0002/look.json", "other/.x.0123abcd.part"]
    for name in [*left, *mine]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert len(folders.leftovers(tmp_path)) == len(left)
    folders.clear_leftovers(tmp_path)
    there = {str(item.relative_to(tmp_path)) for item in tmp_path.rglob("*") if item.is_file()}
    assert there == set(mine)
    assert {item.name for item in (tmp_path / "checkpoints").iterdir()} == {"epoch-0001"}
    assert folders.leftovers(tmp_path / "nowhere") == []


def test_what_was_left_beside_a_folder_goes_by_its_name_alone(tmp_path: Path) -> None:
    for name in (".out.0123abcd.part", ".out2.0123abcd.part", ".out.part", "out.0123abcd.part"):
        (tmp_path / name).mkdir()
    folders.clear_beside(tmp_path / "out")
    assert {item.name for item in tmp_path.iterdir()} == {".out2.0123abcd.part", ".out.part", "out.0123abcd.part"}


def test_the_best_epoch_is_the_first_of_equals(tmp_path: Path) -> None:
    folders.write_about(tmp_path, about())
    rows = [{"epoch": 0, "valid_perplexity": 90.0}, {"epoch": 1, "valid_perplexity": 7.0}]
    folders.write_rows(tmp_path / "log.csv", [*rows, {"epoch": 2, "valid_perplexity": 7.0}])
    assert Run.open(tmp_path).best == 1
    assert folders.best_epoch(Run.open(tmp_path).log, "valid_perplexity", larger=True) == 0


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "it has no run.json"),
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"format": 1}', "damaged"),
        (json.dumps(about(format=2)), "format 2.*update"),
        (json.dumps(about(format=0)), "format 0.*version that made it"),
    ],
)
def test_other_folders_are_refused(tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(TrainError, match=told):
        Run.open(tmp_path)


def test_a_checkpoint_that_was_not_kept_lists_those_that_were(tmp_path: Path) -> None:
    folders.write_about(tmp_path, about())
    run = Run.open(tmp_path)
    with pytest.raises(TrainError, match="kept no epoch"):
        run.checkpoint()
    for epoch in (2, 10):
        folders.checkpoint_folder(tmp_path, epoch).mkdir(parents=True)
    assert list(run.checkpoints()) == [2, 10]
    assert run.checkpoint().name == "epoch-0010"
    with pytest.raises(TrainError, match="did not keep epoch 3; it kept 2, 10"):
        run.checkpoint(3)
