"""Interleaved timing: contenders take turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """Seconds that one pass took."""

    wall: float
    cpu: float


Timer = Callable[[], Sample]


@dataclass(frozen=True)
class Comparison:
    """One contender against another: median seconds of both, and the median of the ratios within rounds."""

    ours: float
    other: float
    ratio: float
    interval: tuple[float, float]  # of the ratio's median, 95% or the widest that so few rounds allow
    cpu_ratio: float
    rounds: int


def timer(run: Callable[[], object], *, synchronize: Callable[[], None] | None = None) -> Timer:
    """A `Timer` of `run`; what `run` returns is let go inside the time. CPU-seconds are this process's."""

    def timed() -> Sample:
        if synchronize is not None:
            synchronize()
        cpu, wall = time.process_time(), time.perf_counter()
        run()
        if synchronize is not None:
            synchronize()
        return Sample(time.perf_counter() - wall, time.process_time() - cpu)

    return timed


def interleave(timers: Mapping[str, Timer], *, rounds: int, warmup: int = 1) -> dict[str, list[Sample]]:
    """Time every contender once a round, in an order that turns round every round."""
    samples: dict[str, list[Sample]] = {name: [] for name in timers}
    for number in range(-warmup, rounds):
        names = list(timers)[:: 1 if number % 2 == 0 else -1]
        for name in names:
            sample = timers[name]()
            if number >= 0:
                samples[name].append(sample)
    return samples


def compare(ours: Sequence[Sample], other: Sequence[Sample]) -> Comparison:
    """Compare two contenders of the same rounds."""
    ratios = [mine.wall / theirs.wall for mine, theirs in zip(ours, other, strict=True)]
    cpu_ratios = [mine.cpu / theirs.cpu for mine, theirs in zip(ours, other, strict=True) if theirs.cpu > 0]
    return Comparison(
        ours=statistics.median(sample.wall for sample in ours),
        other=statistics.median(sample.wall for sample in other),
        ratio=statistics.median(ratios),
        interval=median_interval(ratios),
        cpu_ratio=statistics.median(cpu_ratios) if cpu_ratios else math.nan,
        rounds=len(ratios),
    )


def median_interval(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float]:
    """Order-statistic interval of the median: no assumption about the distribution.

    The interval (x₍ₖ₎, x₍ₙ₊₁₋ₖ₎) covers the median with probability 1 − 2 P(Binomial(n, ½) < k); k is the
    largest that keeps it at `level`, and 1 where n is too small for that.
    """
    ordered = sorted(values)
    n = len(ordered)
    below, k = 0.0, 0
    while k < n:
        below += math.comb(n, k) / 2**n
        if 2 * below > 1 - level:
            break
        k += 1
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]
