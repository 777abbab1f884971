"""Benchmarks in parts: each is measured in turn and named on standard error, with the seconds it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping

from benchmarks.report import Measure, Report, announced, machine

Ways = Mapping[str, Callable[[], Iterator[Measure]]]
"""How each part is measured."""


def in_parts(name: str, ways: Ways, *, device: str, threads: int, only: str | None) -> Report:
    """The report of a benchmark: all of its parts, or one."""
    import torch

    torch.set_num_threads(threads)
    chosen = tuple(ways) if only is None else (only,)
    return Report(name, machine(device=device, threads=threads), tuple(announced(_measures(ways, chosen))))


def _measures(ways: Ways, chosen: tuple[str, ...]) -> Iterator[Measure]:
    for part in chosen:
        print(f"{part} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        yield from ways[part]()
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
