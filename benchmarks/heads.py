"""Attention heads: all statistics beside a plain eager forward, memory; all-heads ablation; pruned models' speed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from benchmarks.report import Measure, Report, announced, machine

PARTS = ("statistics", "memory", "ablation", "pruning")


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device; all of them run on a CPU."""
    return PARTS if device == "cpu" else ()


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part, or one; `quick` takes small inputs, which say little of speed."""
    import torch

    torch.set_num_threads(threads)
    chosen = parts(device) if only is None else (only,)
    measures = tuple(announced(_measures(chosen, threads=threads, quick=quick)))
    return Report("heads", machine(device=device, threads=threads), measures)


def _measures(chosen: tuple[str, ...], *, threads: int, quick: bool) -> Iterator[Measure]:
    from benchmarks.heads_ablation import ablation
    from benchmarks.heads_pruning import pruning
    from benchmarks.heads_statistics import memory, statistics

    ways = {
        "statistics": lambda: statistics(threads=threads, quick=quick),
        "memory": lambda: memory(quick=quick),
        "ablation": lambda: ablation(threads=threads, quick=quick),
        "pruning": lambda: pruning(threads=threads, quick=quick),
    }
    for part in chosen:
        print(f"{part} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        yield from ways[part]()
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
