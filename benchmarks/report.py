"""What a benchmark gives back: measures with their targets, as one JSON object or as a table."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from benchmarks.timing import Comparison

HEADINGS = ("measure", "ours", "peer", "floor", "ratio", "interval", "target", "met", "note")


@dataclass(frozen=True)
class Measure:
    """One number beside its target. `ours`, `peer` and `floor` are seconds."""

    what: str
    ours: float | None
    peer: float | None
    floor: float | None
    ratio: float | None
    target: float | None
    met: bool | None
    interval: tuple[float, float] | None = None
    cpu_ratio: float | None = None
    rounds: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Report:
    """All measures of one benchmark, and the machine that they were taken on."""

    name: str
    machine: dict[str, str | int]
    measures: tuple[Measure, ...]

    def as_object(self) -> dict[str, object]:
        """The report as plain values, ready for JSON."""
        return asdict(self)

    def table(self) -> str:
        """The report as lines of text."""
        rows = [HEADINGS, *(_cells(measure) for measure in self.measures)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        machine = ", ".join(f"{key} {value}" for key, value in self.machine.items())
        return "\n".join([f"{self.name}: {machine}", "", lines[0], "-" * len(lines[0]), *lines[1:]])


def against_floor(what: str, found: Comparison, *, target: float | None, note: str = "") -> Measure:
    """Our time over the floor's, which must not pass `target`."""
    return Measure(
        what=what,
        ours=found.ours,
        peer=None,
        floor=found.other,
        ratio=found.ratio,
        target=target,
        met=None if target is None else found.ratio <= target,
        interval=found.interval,
        cpu_ratio=found.cpu_ratio,
        rounds=found.rounds,
        note=note,
    )


def against_peer(what: str, found: Comparison, *, floor: float, note: str = "") -> Measure:
    """Our time over a peer's, which must not pass 1; `floor` is the plain pass beside both."""
    return Measure(
        what=what,
        ours=found.ours,
        peer=found.other,
        floor=floor,
        ratio=found.ratio,
        target=1.0,
        met=found.ratio <= 1.0,
        interval=found.interval,
        cpu_ratio=found.cpu_ratio,
        rounds=found.rounds,
        note=note,
    )


def without_peer(what: str, *, ours: float | None, floor: float | None, reason: str) -> Measure:
    """A peer that could not be measured, and why."""
    return Measure(what=what, ours=ours, peer=None, floor=floor, ratio=None, target=1.0, met=None, note=reason)


def announced(measures: Iterable[Measure]) -> Iterator[Measure]:
    """The same measures, each named on standard error as it comes: a whole benchmark takes a while."""
    for measure in measures:
        print("  ".join(_cells(measure)), file=sys.stderr, flush=True)
        yield measure


def machine(*, device: str, threads: int) -> dict[str, str | int]:
    """The machine and the versions that decide the numbers."""
    found: dict[str, str | int] = {"processor": _processor(), "cores": cores(), "threads": threads}
    if device == "cuda":
        import torch

        found["gpu"] = torch.cuda.get_device_name()
    found["python"] = platform.python_version()
    for package in ("torch", "transformers"):
        found[package] = metadata.version(package)
    return found


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _cells(measure: Measure) -> tuple[str, ...]:
    interval = "-" if measure.interval is None else "{:.3f}–{:.3f}".format(*measure.interval)
    met = {True: "yes", False: "NO", None: "-"}[measure.met]
    return (
        measure.what,
        _seconds(measure.ours),
        _seconds(measure.peer),
        _seconds(measure.floor),
        "-" if measure.ratio is None else f"{measure.ratio:.3f}",
        interval,
        "-" if measure.target is None else f"{measure.target:g}",
        met,
        measure.note,
    )


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"
