"""Training beside a plain PyTorch loop: steps, the cost of watching, memory, freezing; on a GPU the thesis's LM."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from benchmarks.report import Measure, Report, announced, machine

PARTS = {"cpu": ("step", "dynamics", "memory", "freezing"), "cuda": ("step", "thesis", "freezing")}
"""The parts of a run on each device, in their order; on a GPU `thesis` tells what watching costs, too."""


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device."""
    return PARTS[device]


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part of the device, or one; `quick` takes sizes of seconds, which say little of speed."""
    import torch

    torch.set_num_threads(threads)
    chosen = PARTS[device] if only is None else (only,)
    assert set(chosen) <= set(PARTS[device])
    measures = tuple(announced(_measures(chosen, device=device, threads=threads, quick=quick)))
    return Report("learning", machine(device=device, threads=threads), measures)


def _measures(chosen: tuple[str, ...], *, device: str, threads: int, quick: bool) -> Iterator[Measure]:
    from benchmarks.learning_freezing import freezing
    from benchmarks.learning_memory import memory
    from benchmarks.learning_step import dynamics, step
    from benchmarks.learning_thesis import thesis

    ways = {
        "step": lambda: step(device=device, quick=quick),
        "dynamics": lambda: dynamics(device=device, quick=quick),
        "memory": lambda: memory(threads=threads, quick=quick),
        "freezing": lambda: freezing(device=device, quick=quick),
        "thesis": lambda: thesis(quick=quick),
    }
    for part in chosen:
        print(f"{part} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        yield from ways[part]()
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
