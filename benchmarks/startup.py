"""How long it takes until Pellucid answers: fresh processes, beside a bare interpreter."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.report import Measure
from benchmarks.timing import Sample, Timer, interleave

IMPORT = """
import sys, time
start = time.perf_counter()
import pellucid
print(time.perf_counter() - start, "torch" in sys.modules)
"""
HELP = [str(Path(sys.executable).with_name("pellucid")), "--help"]
SOURCE = Path(__file__).resolve().parent.parent / "src"


def startup(*, rounds: int) -> list[Measure]:
    """`import pellucid` within 50 ms and without torch, `pellucid --help` within 200 ms."""
    loaded: list[bool] = []

    def timed_import() -> Sample:
        seconds, torch_loaded = _run([sys.executable, "-c", IMPORT]).split()
        loaded.append(torch_loaded == "True")
        return Sample(float(seconds), float("nan"))

    found = interleave(
        {"bare": _process([sys.executable, "-c", "pass"]), "import": timed_import, "help": _process(HELP)},
        rounds=rounds,
    )
    bare, imported, helped = (
        statistics.median(sample.wall for sample in found[name]) for name in ("bare", "import", "help")
    )
    note = "target in seconds; floor: python -c pass"
    torch_free = not any(loaded)
    return [
        Measure(
            what="import pellucid",
            ours=imported,
            peer=None,
            floor=bare,
            ratio=imported / bare,
            target=0.05,
            met=imported < 0.05 and torch_free,
            rounds=rounds,
            note=f"{note}; {'torch is not loaded' if torch_free else 'LOADS TORCH'}",
        ),
        Measure(
            what="pellucid --help",
            ours=helped,
            peer=None,
            floor=bare,
            ratio=helped / bare,
            target=0.2,
            met=helped < 0.2,
            rounds=rounds,
            note=note,
        ),
    ]


def _process(command: list[str]) -> Timer:
    def timed() -> Sample:
        start = time.perf_counter()
        _run(command)
        return Sample(time.perf_counter() - start, float("nan"))

    return timed


def _run(command: list[str]) -> str:
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    return done.stdout
