"""Conductance of all layers from one sweep: FLOPs beside plain passes, time and numbers beside captum, run by run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.attribution_inputs import FULL, QUICK, Size, bert, text
from benchmarks.peers import PATIENCE, PeerError
from benchmarks.report import Measure
from benchmarks.sweep_children import Worker
from benchmarks.sweep_measures import at_least, unmeasured
from benchmarks.timing import Sample, Timer, timer

if TYPE_CHECKING:
    from pellucid import Model
    from pellucid.attribution import Target
    from pellucid.attribution.sweep import Swept

MODULE = "benchmarks.attribution_peer_worker"
SPEED = {"conductance": 9.0, "answers": 12.0}


class Slow(Worker):
    """A worker that may take half an hour for an answer."""

    patience = 6 * PATIENCE


def conductance(*, threads: int, quick: bool) -> Iterator[Measure]:
    """A classifier's layers: FLOPs over those of as many forward and backward passes, then captum."""
    size = QUICK if quick else FULL
    model, targets = _model(size, "classifier")
    yield _flops(model, size, _ours(model, size, targets, rule="gauss", sites="embed,resid.*"))
    yield from _beside_captum("conductance", model, size, targets, threads=threads, quick=quick)


def answers(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Start and end of an answer at every layer: two gradients of the same forward passes."""
    size = QUICK if quick else FULL
    model, targets = _model(size, "qa")
    yield from _beside_captum("answers", model, size, targets, threads=threads, quick=quick)


def _model(size: Size, head: str) -> tuple[Model, list[Target]]:
    from pellucid import Model
    from pellucid.attribution import Target

    targets = [Target.label(1)] if head == "classifier" else [Target.start(3), Target.end(5)]
    return Model.load(bert(size, head)), targets


def _ours(model: Model, size: Size, targets: list[Target], *, rule: str, sites: str = "resid.*") -> Callable[[], Swept]:
    """One sweep that gives the conductance of every site, for every target."""
    from pellucid import Batch
    from pellucid.attribution.computing import Settings, compute
    from pellucid.attribution.methods import chosen
    from pellucid.model.sites import expand

    batch, places = Batch.of_ids(text(size.tokens)), expand(sites, model.sites)
    settings = Settings(baseline="zero", rule=rule, steps=size.steps)
    return lambda: compute(model, batch, targets, chosen("conductance"), places, settings)[0]


def _flops(model: Model, size: Size, ours: Callable[[], Swept]) -> Measure:
    """The sweep's FLOPs over those of steps + 1 plain forward and backward passes."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as whole:
        found = ours()
    network: Any = model.hf
    given = network.get_input_embeddings()(text(size.tokens)).detach().requires_grad_()
    with FlopCounterMode(display=False) as once:
        torch.autograd.grad(network(inputs_embeds=given).logits[0, 1], given)
    points = size.steps + 1
    assert found.points == points
    ratio = whole.get_total_flops() / (points * once.get_total_flops())
    note = f"FLOPs over those of {points} forward and {points} backward passes, at most the target; {size.called}"
    return Measure("conductance: FLOPs", None, None, None, ratio, 1.01, ratio <= 1.01, note=note)


def _beside_captum(
    job: str, model: Model, size: Size, targets: list[Target], *, threads: int, quick: bool
) -> Iterator[Measure]:
    speed = None if quick else SPEED[job]  # small shapes say little of speed
    what = f"{job}: all layers, beside captum"
    sites = f"resid.1-{size.layers}"
    ours, same = (_ours(model, size, targets, rule=rule, sites=sites) for rule in ("gauss", "captum"))
    try:
        with tempfile.TemporaryDirectory() as folder:
            arguments = (job, "full" if size is FULL else "quick", folder, str(threads))
            with Slow(MODULE, *arguments, peer=True, threads=threads) as captum:
                times = _turns(timer(ours), captum.time, 1 if quick else 2)
                version = captum.ready["version"]
            difference = _difference(same(), Path(folder) / f"{job}.npy", size, len(targets))
    except PeerError as reason:
        yield unmeasured(what, str(reason), target=speed)
        return
    note = f"captum {version}, {len(targets) * size.layers} runs; {size.called}"
    yield at_least(what, *times, target=speed, note=note, peer=True)
    note = "largest difference in captum's rule, relative to the largest number, at most the target"
    yield Measure(f"{job}: numbers", None, None, None, difference, 1e-6, difference <= 1e-6, note=note)


def _turns(ours: Timer, theirs: Timer, rounds: int) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Both in turns, ours once beforehand to warm up; the peer's runs are long enough not to need it."""
    ours()
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return [mine for mine, _ in pairs], [other for _, other in pairs]


def _difference(found: Swept, path: Path, size: Size, targets: int) -> float:
    import numpy as np

    from pellucid.model.sites import Site

    theirs = np.load(path)
    mine = [
        found.parts["conductance", number, Site("resid", layer + 1)].numpy()
        for number in range(targets)
        for layer in range(size.layers)
    ]
    return float(np.abs(np.stack(mine) - theirs).max() / np.abs(theirs).max())
