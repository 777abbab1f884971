"""Sweeps and stores beside their floors and peers: extraction, moments, memory, engines, reading, a GPU, a treebank."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from benchmarks.report import Measure, Report, announced, machine

USUAL = ("extract", "moments", "memory", "workers", "ray", "store")
"""The parts of a run on a CPU, in their order; `ud` comes only when it is asked for."""


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device."""
    return ("gpu",) if device == "cuda" else (*USUAL, "ud")


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every usual part of the device, or one; `quick` takes sizes of seconds, which say little of speed."""
    usual = ("gpu",) if device == "cuda" else USUAL
    chosen = usual if only is None else (only,)
    assert set(chosen) <= set(parts(device))
    measures = tuple(announced(_measures(chosen, threads=threads, quick=quick)))
    return Report("sweep", machine(device=device, threads=threads), measures)


def _measures(chosen: tuple[str, ...], *, threads: int, quick: bool) -> Iterator[Measure]:
    from benchmarks.sweep_engines import engines
    from benchmarks.sweep_extract import extract
    from benchmarks.sweep_gpu import gpu
    from benchmarks.sweep_memory import memory
    from benchmarks.sweep_moments import moments
    from benchmarks.sweep_store import store
    from benchmarks.sweep_ud import ud

    shared = tuple(part for part in chosen if part in ("workers", "ray"))  # they share their sweeps
    ways = {
        "extract": lambda: extract(threads=threads, quick=quick),
        "moments": lambda: moments(threads=threads, quick=quick),
        "memory": lambda: memory(quick=quick),
        "workers": lambda: engines(shared, quick=quick),
        "ray": lambda: engines(shared, quick=quick),
        "store": lambda: store(threads=threads, quick=quick),
        "gpu": lambda: gpu(quick=quick),
        "ud": lambda: ud(threads=threads, quick=quick),
    }
    for part in chosen:
        if part == "ray" and "workers" in chosen:
            continue
        print(f"{part} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        yield from ways[part]()
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
