"""Training beside a plain PyTorch loop: steps, the cost of watching, memory, freezing; on a GPU the thesis's LM."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.report import Report

PARTS = {"cpu": ("step", "dynamics", "memory", "freezing"), "cuda": ("step", "thesis", "freezing")}
"""The parts of a run on each device, in their order; on a GPU `thesis` tells what watching costs, too."""


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device."""
    return PARTS[device]


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part of the device, or one; `quick` takes sizes of seconds, which say little of speed."""
    from benchmarks.learning_freezing import freezing
    from benchmarks.learning_memory import memory
    from benchmarks.learning_step import dynamics, step
    from benchmarks.learning_thesis import thesis

    known = {
        "step": lambda: step(device=device, quick=quick),
        "dynamics": lambda: dynamics(device=device, quick=quick),
        "memory": lambda: memory(threads=threads, quick=quick),
        "freezing": lambda: freezing(device=device, quick=quick),
        "thesis": lambda: thesis(quick=quick),
    }
    ways = {part: known[part] for part in PARTS[device]}
    return in_parts("learning", ways, device=device, threads=threads, only=only)
