"""The training step beside a plain loop's, and what looking at the network after every epoch costs."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.learning_inputs import Inputs, small, thesis_lm, trained
from benchmarks.report import Measure, against_floor
from benchmarks.timing import compare, interleave, timer

if TYPE_CHECKING:
    from pellucid.train import Run

STEP_TARGET, DYNAMICS_TARGET = 1.1, 0.1


def step(*, device: str, quick: bool) -> Iterator[Measure]:
    """Steps as the training loop takes them over those of a plain loop, a few of each in turns."""
    from benchmarks.learning_plain import PlainLoop

    inputs = small(quick=quick, epochs=2) if device == "cpu" else thesis_lm(quick=quick, epochs=2)
    ways = {"": False} if device == "cpu" else {", recorded as a CUDA graph": True, ", step by step": False}
    plain = PlainLoop(inputs, device)
    steps = plain.prepared.training.steps()
    count = min(50 if device == "cuda" else 5, steps)
    rounds = min(6 if quick else 20, steps // count)
    takers = {way: _taker(inputs, device, recorded=recorded) for way, recorded in ways.items()}
    places = dict.fromkeys(("plain", *takers), 0)

    def turn(way: str) -> Callable[[], float]:
        def take() -> float:
            first = places[way] % (steps - count + 1)
            places[way] += count
            return plain.take(1, first, count) if way == "plain" else takers[way](first, count)

        return take

    samples = interleave({way: timer(turn(way)) for way in places}, rounds=rounds, warmup=2)
    for way in takers:
        found = compare(samples[way], samples["plain"])
        note = f"{1000 * found.ours / count:.1f} and {1000 * found.other / count:.1f} ms a step, {count} in turn"
        yield against_floor(f"step: {inputs.name}{way}", found, target=STEP_TARGET, note=note)


def _taker(inputs: Inputs, device: str, *, recorded: bool) -> Callable[[int, int], float]:
    """Takes some steps of an epoch as the training loop does: their batches, rates and updates, and the mean loss."""
    import torch

    from pellucid.train.optimisers import learning_rate
    from pellucid.train.preparing import prepare
    from pellucid.train.steps import Steps

    settings = inputs.settings
    torch.manual_seed(settings.seed)
    prepared = prepare(inputs.training, inputs.valid, None, settings)
    prepared.network.to(device)

    def loss(network: Any, batch: Any) -> torch.Tensor:
        return prepared.task.loss(network, batch, settings)

    where = torch.device(device)
    steps = Steps(prepared.network, loss, settings, where, half=device == "cuda", recorded=recorded)
    whole = settings.epochs * prepared.training.steps()

    def take(first: int, count: int) -> float:
        prepared.network.train()
        losses = torch.zeros(count, device=where)
        for step in range(first, first + count):
            rate = learning_rate(settings, 1, step + 1, whole)
            losses[step - first] = steps.take(prepared.training.batch(1, step), rate)
        return sum(losses.tolist()) / count

    return take


def dynamics(*, device: str, quick: bool) -> Iterator[Measure]:
    """What looks take of the time that the same training would take without them."""
    inputs = small(quick=quick, epochs=3 if quick else 5)
    with tempfile.TemporaryDirectory() as folder:
        yield watched(trained(inputs, Path(folder) / "run", device=device), inputs)


def watched(run: Run, inputs: Inputs) -> Measure:
    """The share of a watched training's epochs: looks over steps and validation."""
    rows = run.log[1:]
    looks, steps, valid = ([row[f"{name}_seconds"] for row in rows] for name in ("watching", "training", "validation"))
    ratio = sum(looks) / (sum(steps) + sum(valid))
    alone = f"{sum(looks) / sum(steps):.3f} of the steps alone"
    told = f"{_mean(looks)} a look, {_mean(steps)} of steps and {_mean(valid)} of validation an epoch; {alone}"
    what = f"dynamics: {inputs.name}, looks over the rest of the training"
    floor = statistics.mean(one + other for one, other in zip(steps, valid, strict=True))
    met = ratio <= DYNAMICS_TARGET
    return Measure(what, statistics.mean(looks), None, floor, ratio, DYNAMICS_TARGET, met, rounds=len(rows), note=told)


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.2f} s"
