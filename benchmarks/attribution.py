"""Attribution beside captum and inseq: all layers from one sweep, completeness, answers, written text; memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from benchmarks.report import Measure, Report, announced, machine

PARTS = ("conductance", "completeness", "answers", "generation", "memory")


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device; all of them run on a CPU."""
    return PARTS if device == "cpu" else ()


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part, or one; `quick` takes small shapes, which say little of speed."""
    import torch

    torch.set_num_threads(threads)
    chosen = parts(device) if only is None else (only,)
    measures = tuple(announced(_measures(chosen, threads=threads, quick=quick)))
    return Report("attribution", machine(device=device, threads=threads), measures)


def _measures(chosen: tuple[str, ...], *, threads: int, quick: bool) -> Iterator[Measure]:
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
    for part in chosen:
        print(f"{part} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        yield from ways[part]()
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
