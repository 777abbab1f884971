"""The cost of capture beside a plain forward pass, TransformerLens and nnsight; start-up time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.peers import PEERS, Peer, PeerError
from benchmarks.report import Measure, Report, against_floor, against_peer, announced, machine, without_peer
from benchmarks.shapes import CPU_SHAPES, CUDA_SHAPES, Shape, build, token_ids
from benchmarks.startup import startup
from benchmarks.timing import Timer, compare, interleave, timer

if TYPE_CHECKING:
    from pellucid import Batch, Model

Attention = Literal["fused", "eager"]
REFERENCES = ("heads.*", "neurons.*", "resid.*", "query.*", "key.*", "value.*")
PATTERNS = ("pattern.*",)


@dataclass(frozen=True)
class Plan:
    """How much is measured, and where."""

    device: str
    threads: int
    rounds: int
    peer_rounds: int
    lengths: int  # how many of each shape's lengths, shortest first


def run(*, device: str, threads: int, quick: bool) -> Report:
    """Measure every shape of the device; `quick` takes the shortest length and few rounds."""
    import torch

    torch.set_num_threads(threads)
    plan = Plan(device, threads, rounds=5, peer_rounds=3, lengths=1) if quick else Plan(device, threads, 15, 7, 2)
    measures = tuple(announced(_measures(plan)))
    return Report("capture", machine(device=device, threads=threads), measures)


def _measures(plan: Plan) -> Iterator[Measure]:
    if plan.device == "cpu":
        yield from startup(rounds=plan.rounds)
    for shape in CUDA_SHAPES if plan.device == "cuda" else CPU_SHAPES:
        lengths = shape.lengths[: plan.lengths]
        yield from _fused(shape, lengths, plan)
        yield from _eager(shape, lengths, plan)
        if plan.device == "cpu":
            yield from _beside_peers(shape, lengths[0], plan)


def _fused(shape: Shape, lengths: tuple[int, ...], plan: Plan) -> Iterator[Measure]:
    """References and patterns under fused attention, over the plain fused pass."""
    model = _load(shape, "fused", head=False, device=plan.device)
    for length in lengths:
        timers = {
            "plain": _plain(model, shape, length, plan),
            "references": _captured(model, shape, length, REFERENCES, plan),
            "patterns": _captured(model, shape, length, PATTERNS, plan),
        }
        found = interleave(timers, rounds=plan.rounds)
        where = f"{shape.name}, {shape.batch} × {length}"
        for name, target in (("references", 1.05), ("patterns", 1.7)):
            yield against_floor(f"{where}: {name}, fused", compare(found[name], found["plain"]), target=target)


def _eager(shape: Shape, lengths: tuple[int, ...], plan: Plan) -> Iterator[Measure]:
    """Patterns under eager attention, over the plain eager pass."""
    model = _load(shape, "eager", head=False, device=plan.device)
    for length in lengths:
        timers = {
            "plain": _plain(model, shape, length, plan),
            "patterns": _captured(model, shape, length, PATTERNS, plan),
        }
        found = interleave(timers, rounds=plan.rounds)
        what = f"{shape.name}, {shape.batch} × {length}: patterns, eager"
        yield against_floor(what, compare(found["patterns"], found["plain"]), target=1.02)


def _beside_peers(shape: Shape, length: int, plan: Plan) -> Iterator[Measure]:
    """References, ours over each peer's, for the shape with the language-model head that peers expect."""
    model = _load(shape, "fused", head=True, device=plan.device)
    timers = {
        "plain": _plain(model, shape, length, plan),
        "ours": _captured(model, shape, length, REFERENCES, plan),
    }
    labels: dict[str, str] = {}
    reasons: dict[str, str] = {}
    with ExitStack() as stack:
        for name in PEERS:
            try:
                peer = stack.enter_context(Peer(name, shape, length, threads=plan.threads))
            except PeerError as error:
                reasons[name] = str(error)
            else:
                timers[name], labels[name] = peer.time, peer.label
        found = interleave(timers, rounds=plan.peer_rounds)
    ours, floor = (statistics.median(sample.wall for sample in found[name]) for name in ("ours", "plain"))
    for name in PEERS:
        what = f"{shape.name}, {shape.batch} × {length}: references, {name}"
        if name in reasons:
            yield without_peer(what, ours=ours, floor=floor, reason=reasons[name])
        else:
            yield against_peer(what, compare(found["ours"], found[name]), floor=floor, note=labels[name])


def _load(shape: Shape, attention: Attention, *, head: bool, device: str) -> Model:
    import torch

    from pellucid import Model

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    own_name = {"fused": "sdpa", "eager": "eager"}[attention]
    network = build(shape, head=head, attention=own_name, device=device, dtype=dtype)
    model = Model.load(network, attention=attention)
    assert model.attention == attention
    return model


def _plain(model: Model, shape: Shape, length: int, plan: Plan) -> Timer:
    """The pass that `model.run` makes when no site is asked for, called on the transformers model itself."""
    import torch

    arguments = _arguments(model, _batch(shape, length, plan))

    def forward() -> object:
        with torch.no_grad():
            return model.hf(**arguments)

    return _timer(forward, plan)


def _arguments(model: Model, batch: Batch) -> dict[str, Any]:
    """What `model.run` calls its transformers model with."""
    seen: dict[str, Any] = {}

    def note(_module: object, _positional: object, keywords: dict[str, Any]) -> None:
        seen.update(keywords)

    handle = model.hf.register_forward_pre_hook(note, with_kwargs=True)
    try:
        model.run(batch)
    finally:
        handle.remove()
    return seen


def _captured(model: Model, shape: Shape, length: int, sites: tuple[str, ...], plan: Plan) -> Timer:
    batch = _batch(shape, length, plan)
    return _timer(lambda: model.run(batch, sites=sites), plan)


def _batch(shape: Shape, length: int, plan: Plan) -> Batch:
    from pellucid import Batch

    return Batch.of_ids(token_ids(shape, length, device=plan.device))


def _timer(run: Callable[[], object], plan: Plan) -> Timer:
    import torch

    return timer(run, synchronize=torch.cuda.synchronize if plan.device == "cuda" else None)
