"""Attribution beside captum and inseq: all layers from one sweep, completeness, answers, written text; memory."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.report import Report

PARTS = ("conductance", "completeness", "answers", "generation", "memory")


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device; all of them run on a CPU."""
    return PARTS if device == "cpu" else ()


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part, or one; `quick` takes small shapes, which say little of speed."""
    from benchmarks.attribution_completeness import completeness
    from benchmarks.attribution_generation import generation
    from benchmarks.attribution_layers import answers, conductance
    from benchmarks.attribution_memory import memory

    ways = {
        "conductance": lambda: conductance(threads=threads, quick=quick),
        "completeness": lambda: completeness(quick=quick),
        "answers": lambda: answers(threads=threads, quick=quick),
        "generation": lambda: generation(threads=threads, quick=quick),
        "memory": lambda: memory(threads=threads, quick=quick),
    }
    return in_parts("attribution", ways, device=device, threads=threads, only=only)
