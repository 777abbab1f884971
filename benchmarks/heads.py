"""Attention heads: all statistics beside a plain eager forward, memory; all-heads ablation; pruned models' speed."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.report import Report

PARTS = ("statistics", "memory", "ablation", "pruning")


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device; all of them run on a CPU."""
    return PARTS if device == "cpu" else ()


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part, or one; `quick` takes small inputs, which say little of speed."""
    from benchmarks.heads_ablation import ablation
    from benchmarks.heads_pruning import pruning
    from benchmarks.heads_statistics import memory, statistics

    ways = {
        "statistics": lambda: statistics(threads=threads, quick=quick),
        "memory": lambda: memory(quick=quick),
        "ablation": lambda: ablation(threads=threads, quick=quick),
        "pruning": lambda: pruning(threads=threads, quick=quick),
    }
    return in_parts("heads", ways, device=device, threads=threads, only=only)
