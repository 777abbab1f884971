"""`python -m benchmarks NAME [--json] [--quick] [--device cpu|cuda] [--only PART]`, `python -m benchmarks --list`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from importlib import import_module

from benchmarks.report import cores

NAMES = (
    "attribution",
    "capture",
    "flow",
    "heads",
    "identifiability",
    "learning",
    "neurons",
    "similarity",
    "sweep",
    "views",
)
# The C library's allocator gives freed memory back to the system, and the next pass pays for getting it again, page
# by page: a cost that depends on sizes and order. With `--allocator kept` these settings make everyone keep memory.
KEPT = {"MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_MMAP_MAX_": "0"}


def main() -> int:
    """Run one benchmark and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES, help="the benchmark to run")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--quick", action="store_true", help="the shortest inputs and few rounds")
    parser.add_argument("--only", metavar="PART", help="one part of a benchmark that has them (all but capture)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=cores(), help="threads of torch (default: all cores)")
    parser.add_argument(
        "--allocator",
        choices=("kept", "system"),
        default="system",
        help="whether the C library decides what becomes of freed memory (default), or all contenders keep it",
    )
    chosen = parser.parse_args()
    if chosen.list:
        for name in NAMES:
            print(f"{name}: {import_module(f'benchmarks.{name}').__doc__}")
        return 0
    if chosen.name is None:
        parser.error(f"a benchmark is needed: {', '.join(NAMES)}")
    if chosen.allocator == "kept" and any(os.environ.get(name) != value for name, value in KEPT.items()):
        # They are read when a process starts, and inherited by the peers.
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], {**os.environ, **KEPT})
    benchmark = import_module(f"benchmarks.{chosen.name}")
    options = {"device": chosen.device, "threads": chosen.threads, "quick": chosen.quick}
    parts: tuple[str, ...] | None = benchmark.parts(chosen.device) if hasattr(benchmark, "parts") else None
    if parts == ():
        parser.error(f"{chosen.name} has no part on {chosen.device}")
    if chosen.only is not None:
        if parts is None or chosen.only not in parts:
            known = f"the parts on {chosen.device} are {', '.join(parts)}" if parts else "it has no parts"
            parser.error(f"{chosen.name} has no part {chosen.only!r}; {known}")
        options["only"] = chosen.only
    report = benchmark.run(**options)
    report = replace(report, machine={**report.machine, "allocator": chosen.allocator})
    print(json.dumps(report.as_object(), ensure_ascii=False) if chosen.json else report.table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
