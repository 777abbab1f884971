"""Similarity grids beside the matrix products they must make, and beside comparisons of one pair at a time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from benchmarks.report import Measure, Report, announced, machine

USUAL = ("grid", "rbf", "memory", "precision")
"""The parts of a run on a CPU, in their order."""


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device."""
    return ("gpu",) if device == "cuda" else USUAL


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part of the device, or one; `quick` takes sizes of seconds, which say little of speed."""
    chosen = parts(device) if only is None else (only,)
    measures = tuple(announced(_measures(chosen, threads=threads, quick=quick)))
    return Report("similarity", machine(device=device, threads=threads), measures)


def _measures(chosen: tuple[str, ...], *, threads: int, quick: bool) -> Iterator[Measure]:
    from benchmarks.similarity_gpu import gpu
    from benchmarks.similarity_grid import grid
    from benchmarks.similarity_memory import memory
    from benchmarks.similarity_precision import precision
    from benchmarks.similarity_rbf import rbf

    ways = {
        "grid": lambda: grid(threads=threads, quick=quick),
        "rbf": lambda: rbf(threads=threads, quick=quick),
        "memory": lambda: memory(quick=quick),
        "precision": lambda: precision(threads=threads, quick=quick),
        "gpu": lambda: gpu(quick=quick),
    }
    for part in chosen:
        print(f"{part} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        yield from ways[part]()
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
