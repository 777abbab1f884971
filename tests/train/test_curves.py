"""Learning curves: the numbers of a run's log, beside what guessing gives, as a result like all others."""

from __future__ import annotations

import math

import pytest

from pellucid.errors import TrainError
from pellucid.results import Result, ResultError
from pellucid.train.curves import LearningCurves, learning_curves
from tests.train.runs_by_hand import CHANCE, facts, rows, written


def test_the_curves_are_the_log(tmp_path):
    log = rows(6, frozen=True)
    found = learning_curves(written(tmp_path / "lm", log))
    assert dict(found.axes) == {"measure": ("loss", "perplexity"), "epoch": tuple(range(7))}
    assert found.measure("loss").tolist() == [row["valid_loss"] for row in log]
    assert found.measure("perplexity").tolist() == [row["valid_perplexity"] for row in log]
    training = found.table("training")
    assert training.axes["epoch"] == tuple(range(1, 7))  # nothing was trained before the first
    assert training.columns["loss"].tolist() == [row["train_loss"] for row in log[1:]]
    assert training.columns["learning_rate"].tolist() == [row["learning_rate"] for row in log[1:]]
    assert training.columns["frozen"].tolist() == [0, 0, 2, 2, 3, 3]
    assert training.columns["training_seconds"].tolist() == [2.5] * 6
    assert found.run == "lm"
    assert "one training is one draw" in found.resampled


def test_chance_stands_beside_every_score(tmp_path):
    found = learning_curves(written(tmp_path / "all", rows(2)))
    assert found.null is not None
    for at, name in enumerate(found.axes["measure"]):
        assert found.null[at].tolist() == [CHANCE[str(name)]] * 3
    some = learning_curves(written(tmp_path / "some", rows(2), chance={"perplexity": 90.0, "other": 1.0}))
    assert some.null is None  # not known for the loss
    assert some.table("chance").axes["measure"] == ("perplexity",)
    assert some.table("chance").columns["value"].tolist() == [90.0]
    none = learning_curves(written(tmp_path / "none", rows(2), chance=None))
    assert none.null is None
    assert "chance" not in none.tables


def test_a_training_that_has_only_begun(tmp_path):
    found = learning_curves(written(tmp_path / "r", rows(0)))
    assert found.axes["epoch"] == (0,)
    assert "training" not in found.tables
    with pytest.raises(TrainError, match="has not finished an epoch yet"):
        learning_curves(written(tmp_path / "empty", []))


def test_scores_that_are_infinite_or_missing_somewhere_are_left_out(tmp_path):
    log = rows(3)
    log[0]["valid_perplexity"] = math.inf
    assert learning_curves(written(tmp_path / "r", log)).axes["measure"] == ("loss",)
    for row in log[1:]:
        del row["valid_loss"]
    with pytest.raises(TrainError, match="no score on a validation text"):
        learning_curves(written(tmp_path / "s", log))


def test_frame_saving_and_origin(tmp_path):
    run = written(tmp_path / "lm", rows(3, frozen=True))
    found = learning_curves(run)
    frame = found.to_frame()
    assert list(frame.columns) == ["measure", "epoch", "value", "null", "low", "high"]
    assert frame[frame["measure"] == "loss"]["value"].tolist() == [row["valid_loss"] for row in run.log]
    found.save(tmp_path / "saved")
    assert LearningCurves.load(tmp_path / "saved").same(found)
    assert Result.load(tmp_path / "saved").same(found)
    origin = found.provenance
    assert origin.corpus["name"] == "other text"
    assert origin.seed == 3
    assert origin.arguments["learning_rate"] == 5.8
    assert set(found.measures) == {"loss", "perplexity"}
    with pytest.raises(ResultError, match="no measure 'los'"):
        found.measure("los")


def test_the_fingerprint_is_of_what_decided_the_training(tmp_path):
    def fingerprint(name, **changes):
        return learning_curves(written(tmp_path / name, rows(1), **changes)).provenance.models[0]["fingerprint"]

    assert fingerprint("a") == fingerprint("b", state="finished")
    other = {**facts()["settings"], "seed": 4}
    assert fingerprint("c", settings=other) != fingerprint("d")
