"""Freezing layers that have settled: time and quality of a training with it, over the same one without."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.learning_inputs import small, thesis_lm, trained
from benchmarks.report import Measure

if TYPE_CHECKING:
    from pellucid.train import Freeze, Run


def freezing(*, device: str, quick: bool) -> Iterator[Measure]:
    """Seconds of all steps, and the last validation loss; a quick run freezes sooner, so that something is frozen."""
    from pellucid.train import Freeze

    epochs = 6 if quick else 16
    inputs = small(quick=quick, epochs=epochs) if device == "cpu" else thesis_lm(quick=quick, epochs=epochs)
    rule = Freeze(threshold=0.9, patience=1) if quick else Freeze()
    with tempfile.TemporaryDirectory() as folder:
        without = trained(inputs, Path(folder) / "without", device=device)
        frozen = trained(inputs, Path(folder) / "with", device=device, freeze=rule)
        seconds, before = (sum(row["training_seconds"] for row in run.log) for run in (frozen, without))
        told = _told(frozen, rule)
        what = f"freezing: {inputs.name}, {epochs} epochs"
        yield Measure(
            f"{what}, steps", seconds, None, before, seconds / before, None, None, rounds=1, note=f"seconds; {told}"
        )
        losses = [run.log[-1]["valid_loss"] for run in (frozen, without)]
        scores = [run.log[-1]["valid_perplexity"] for run in (frozen, without)]
    quality = "validation loss {:.4f} with and {:.4f} without; perplexity {:.2f} and {:.2f}".format(*losses, *scores)
    yield Measure(f"{what}, loss", None, None, None, losses[0] / losses[1], None, None, rounds=1, note=quality)


def _told(run: Run, rule: Freeze) -> str:
    """After which epochs how many layers were frozen, and what an epoch took in the end."""
    counts = [(int(row["epoch"]), int(row["frozen"])) for row in run.log[1:]]
    risen = [(epoch, now) for (_, last), (epoch, now) in zip([(0, 0), *counts], counts, strict=False) if now > last]
    when = ", ".join(f"{count} after epoch {epoch}" for epoch, count in risen) or "none"
    first, last = (run.log[place]["training_seconds"] for place in (1, -1))
    return (
        f"rule {rule.threshold:g} over {rule.patience + 1} looks; layers frozen: {when}; steps of the first epoch "
        f"{first:.2f} s, of the last {last:.2f} s"
    )
