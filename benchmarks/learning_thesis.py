"""The thesis's language model on a GPU: an epoch's seconds, and those of fifty with dynamics, beside a plain loop."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.learning_inputs import Inputs, thesis_lm, trained
from benchmarks.learning_step import watched
from benchmarks.report import Measure

EPOCHS = 50
TARGET = 480.0
"""Seconds that fifty epochs with dynamics may take."""


@dataclass(frozen=True)
class _Taken:
    """Seconds from the call to the end of the first epoch, and of each epoch after it."""

    first: float
    epoch: float

    @property
    def projected(self) -> float:
        """Seconds of all epochs."""
        return self.first + (EPOCHS - 1) * self.epoch


def thesis(*, quick: bool) -> Iterator[Measure]:
    """A few epochs of each kind, with and without a CUDA graph; the later ones stand for all that are to come."""
    epochs = 3 if quick else 5
    inputs = thesis_lm(quick=quick, epochs=epochs)
    plain = _plain(inputs, epochs)
    for way, recorded in (("CUDA graph", True), ("step by step", False)):
        taken, looks = _ours(inputs, recorded=recorded)
        what = f"thesis: {inputs.name}, {EPOCHS} epochs with dynamics, {way}"
        note = (
            f"projected; an epoch takes {taken.epoch:.2f} s with validation and a look, and {plain.epoch:.2f} s with "
            "validation in a plain loop"
        )
        ratio = taken.projected / plain.projected
        yield Measure(what, taken.projected, None, plain.projected, ratio, None, None, rounds=epochs - 1, note=note)
        if recorded:
            share = taken.projected / TARGET
            told = f"projected seconds over the {TARGET:.0f} that are allowed"
            yield Measure(what, taken.projected, None, None, share, 1.0, share <= 1, rounds=epochs - 1, note=told)
            yield looks


def _ours(inputs: Inputs, *, recorded: bool) -> tuple[_Taken, Measure]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run = trained(inputs, Path(folder) / "run", device="cuda", recorded=recorded)
        whole = time.perf_counter() - start
        ends = [row["seconds"] for row in run.log]
        later = [after - before for before, after in pairwise(ends[1:])]
        before = whole - (ends[-1] - ends[1])  # all that is done once, and the first epoch
        return _Taken(before, statistics.median(later)), watched(run, inputs)


def _plain(inputs: Inputs, epochs: int) -> _Taken:
    from benchmarks.learning_plain import PlainLoop

    start = time.perf_counter()
    loop = PlainLoop(inputs, "cuda")
    taken: list[float] = []
    for number in range(epochs):
        seconds = loop.epoch(number + 1) + loop.validation()
        taken.append(time.perf_counter() - start if number == 0 else seconds)
    return _Taken(taken[0], statistics.median(taken[1:]))
