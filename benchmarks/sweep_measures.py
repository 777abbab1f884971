"""Measures of the benchmark `sweep`: mostly speeds that must reach a target, not times that must not pass one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from benchmarks.report import Measure
from benchmarks.timing import Sample, compare


def at_least(
    what: str,
    ours: Sequence[Sample],
    other: Sequence[Sample],
    *,
    target: float | None,
    note: str,
    peer: bool = False,
    floor: float | None = None,
) -> Measure:
    """The other's time over ours: how many times as fast we are, which must reach `target`.

    The other is the floor, or with `peer` a peer, beside which `floor` may stand. Times are the samples' `wall`.
    """
    found = compare(other, ours)
    return Measure(
        what=what,
        ours=found.other,
        peer=found.ours if peer else None,
        floor=floor if peer else found.ours,
        ratio=found.ratio,
        target=target,
        met=None if target is None else found.ratio >= target,
        interval=found.interval,
        cpu_ratio=None if math.isnan(found.cpu_ratio) else found.cpu_ratio,
        rounds=found.rounds,
        note=note if target is None else f"{note}; times as fast, target: at least",
    )


def only_ours(what: str, seconds: float, *, note: str) -> Measure:
    """A time that has nothing beside it."""
    return Measure(what, seconds, None, None, None, None, None, note=note)


def unmeasured(what: str, reason: str, *, target: float | None = None) -> Measure:
    """What could not be measured, and why."""
    return Measure(what, None, None, None, None, target, None, note=reason)


def cpu_per(samples: Sequence[Sample], count: int) -> list[Sample]:
    """The samples with CPU-seconds per piece of work where the wall time was."""
    return [Sample(sample.cpu / count, sample.cpu / count) for sample in samples]


def median(samples: Sequence[Sample]) -> float:
    """The median wall time."""
    return statistics.median(sample.wall for sample in samples)
