"""Interactive views: sizes of files, times to paint in Chromium, long texts with a model behind, and other packages."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import Measure, Report, announced, machine

USUAL = ("size", "paint", "live", "peers")
"""The parts of a run, in their order."""


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device."""
    return USUAL if device == "cpu" else ()


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part, or one; `quick` takes short texts and few rounds, which say little of the targets."""
    import torch

    torch.set_num_threads(threads)
    chosen = parts(device) if only is None else (only,)
    with TemporaryDirectory(prefix="pellucid-views-") as folder:
        measures = tuple(announced(_measures(chosen, Path(folder), threads=threads, quick=quick)))
    return Report("views", machine(device=device, threads=threads), measures)


def _measures(chosen: tuple[str, ...], folder: Path, *, threads: int, quick: bool) -> Iterator[Measure]:
    from benchmarks.views_live import live
    from benchmarks.views_paint import paint
    from benchmarks.views_peers import peers
    from benchmarks.views_size import size

    ways = {
        "size": lambda: size(folder, quick=quick),
        "paint": lambda: paint(folder, quick=quick),
        "live": lambda: live(quick=quick),
        "peers": lambda: peers(folder, threads=threads, quick=quick),
    }
    for part in chosen:
        print(f"{part} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        yield from ways[part]()
        print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
