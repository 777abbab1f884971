"""`python -m benchmarks NAME [--json] [--quick] [--device cpu|cuda]` and `python -m benchmarks --list`."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module

from benchmarks.report import cores

NAMES = ("capture",)


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES, help="the benchmark to run")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--quick", action="store_true", help="the shortest inputs and few rounds")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=cores(), help="threads of torch (default: all cores)")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        for name in NAMES:
            print(f"{name}: {import_module(f'benchmarks.{name}').__doc__}")
        return 0
    if chosen.name is None:
        parser.error(f"a benchmark is needed: {', '.join(NAMES)}")
    benchmark = import_module(f"benchmarks.{chosen.name}")
    report = benchmark.run(device=chosen.device, threads=chosen.threads, quick=chosen.quick)
    print(json.dumps(report.as_object(), ensure_ascii=False) if chosen.json else report.table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
