"""Settings: defaults of every task and preset, and one clear sentence for what cannot be."""

from dataclasses import replace

import pytest

from pellucid.errors import TrainError
from pellucid.train.settings import PRESETS, TASK_NAMES, Settings, settings_for


def test_the_thesis_trains_as_published() -> None:
    lm, tagger = settings_for("lm", "thesis"), settings_for("tagger", "thesis")
    assert (lm.layers, lm.width, lm.heads, lm.feed_forward, lm.length, lm.batch) == (6, 240, 12, 1024, 32, 64)
    assert (lm.optimiser, lm.learning_rate, lm.decay, lm.decay_every, lm.clip) == ("sgd", 5.8, 0.7, 4, 0.5)
    assert (lm.dropout, lm.embedding_dropout, lm.mask, lm.rows, lm.epochs) == (0.1, 0.5, True, "stream", 50)
    assert (tagger.layers, tagger.heads, tagger.width, tagger.learning_rate) == (2, 8, 240, 1.8)
    assert (tagger.decay, tagger.decay_every, tagger.mask, tagger.vocabulary) == (0.65, 2, True, "word")


@pytest.mark.parametrize("task", TASK_NAMES)
@pytest.mark.parametrize("preset", PRESETS)
def test_settings_go_to_json_and_back(task: str, preset: str) -> None:
    if (preset, task) in {("identifiable", "mlm"), ("identifiable", "translate")}:
        with pytest.raises(TrainError, match="has no network for"):
            settings_for(task, preset)
        return
    settings = settings_for(task, preset, seed=3)
    assert Settings.of_json(settings.to_json()) == settings
    assert settings.seed == 3
    assert settings.task == task
    assert settings.preset == preset


def test_fine_tuning_is_gentler_but_does_as_it_is_told() -> None:
    assert settings_for("classify", source="zoo:mlm").learning_rate < settings_for("classify").learning_rate
    assert settings_for("classify", source="zoo:mlm", learning_rate=0.1).learning_rate == 0.1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"layer": 3}, "no setting 'layer'"),
        ({"epochs": 0}, "epochs=0"),
        ({"length": 2}, "length=2"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"optimiser": "lion"}, "adamw, sgd"),
        ({"width": 100, "heads": 6}, "cannot be shared out among 6 heads"),
        ({"learning_rate": float("inf")}, "learning_rate=inf"),
        ({"seed": -1}, "seed=-1"),
        ({"warmup": 2}, "warmup=2"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0"),
    ],
)
def test_what_cannot_be_is_said(changes: dict[str, object], told: str) -> None:
    with pytest.raises(TrainError, match=told):
        settings_for("lm", **changes)
    if "layer" not in changes:
        with pytest.raises(TrainError, match=told):
            replace(settings_for("lm"), **changes)


def test_unknown_names_list_what_exists() -> None:
    with pytest.raises(TrainError, match="lm, mlm, tagger, translate, classify, qa, nli"):
        settings_for("parser")
    with pytest.raises(TrainError, match="small, thesis, identifiable"):
        settings_for("lm", "large")
    with pytest.raises(TrainError, match="made by another version"):
        Settings.of_json({**settings_for("lm").to_json(), "colour": "blue"})
