"""Runs of trainings written by hand: what run.json and log.csv of a real one would say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pellucid.train.folder import LOG, STEPS, Row, Run, write_about, write_rows
from pellucid.train.settings import settings_for

CHANCE = {"loss": 6.9, "perplexity": math.exp(6.9)}
PER_EPOCH = 100


def facts(**changes: Any) -> dict[str, Any]:
    """What run.json of a language model's training says."""
    text = {"name": "some text", "fingerprint": "ab" * 16, "sentences": 120, "tokens": 3000}
    return {
        "format": 1,
        "state": "training",
        "settings": settings_for("lm", "thesis", seed=3).to_json(),
        "labels": None,
        "corpora": {"training": text, "valid": {**text, "name": "other text"}},
        "best": {"metric": "loss", "larger": False},
        "chance": CHANCE,
        "versions": {"pellucid": "1", "torch": "2", "transformers": "5", "numpy": "2"},
        "command": None,
        **changes,
    }


def rows(epochs: int, *, start: float = 10.0, frozen: bool = False) -> list[Row]:
    """A log whose validation loss falls from `start`; two layers are frozen after epoch 3, and one more after 5."""
    made: list[Row] = []
    for epoch in range(epochs + 1):
        loss = 5 + (start - 5) * math.exp(-epoch / 3)
        row: Row = {"epoch": epoch, "step": PER_EPOCH * epoch, "seconds": 3.0 * epoch}
        if epoch:
            row |= {"learning_rate": 5.8 * 0.7 ** ((epoch - 1) // 4), "train_loss": loss - 0.3}
        row |= {"valid_loss": loss, "valid_perplexity": math.exp(loss), "training_seconds": 2.5 * (epoch > 0)}
        if frozen and epoch:
            row["frozen"] = 0 if epoch < 3 else 2 if epoch < 5 else 3
        made.append(row)
    return made


def steps(epochs: int) -> list[Row]:
    """Two rows of steps for every epoch."""
    return [
        {"step": number, "epoch": (number - 1) // PER_EPOCH + 1, "loss": 9 - number / 1000}
        for number in range(PER_EPOCH // 2, PER_EPOCH * epochs + 1, PER_EPOCH // 2)
    ]


def written(folder: Path, log: list[Row], **changes: Any) -> Run:
    """A run on disk with this log."""
    folder.mkdir(exist_ok=True)
    write_about(folder, facts(**changes))
    write_rows(folder / LOG, log)
    epochs = log[-1]["epoch"] if log else 0
    write_rows(folder / STEPS, steps(epochs))
    return Run.open(folder)
