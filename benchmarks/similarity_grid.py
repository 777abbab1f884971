"""A grid of 13 × 13 layers from rows to scores, against the float32 matrix products that it cannot do without."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.report import Measure, against_floor
from benchmarks.similarity_peers import peers
from benchmarks.similarity_rows import (
    FALL,
    LEFT,
    RIGHT,
    SITES,
    WIDTH,
    Layers,
    collector,
    described,
    found_of,
    gathered,
    setting,
)
from benchmarks.sweep_measures import median, only_ours
from benchmarks.timing import Sample, Timer, compare, interleave, timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pellucid.collect.found import Found

PAIRS = SITES * SITES
CKA = ("cka", "cka-biased")
CHEAP = (*CKA, "svcca")
FULL = (*CHEAP, "pwcca", "pwcca-back")
STEEP = 1.75
"""Another fall of the spectrum, under which SVCCA keeps a fifth of the directions: streams with outliers have such."""
SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (WIDTH, 8192, SITES * WIDTH))
"""Rows, inner size and columns of the products that are tried; the last is the largest of the collector's own."""
PART = 8
"""The floor's products are timed over this part of the work: their rate is what counts."""


def grid(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Time from rows to scores over 2·n·d²·(L₁L₂ + L₁ + L₂) FLOP at the best float32 rate of the same rounds.

    Gathering and scoring are timed apart in each round and added up; the grid is `similarity.grid` itself.
    """
    import torch

    torch.set_num_threads(threads)
    n, rounds = (3000, 1) if quick else (20_000, 3)
    work = 2 * n * WIDTH**2 * (PAIRS + 2 * SITES)
    products = {_named(shape): _product(work, shape) for shape in (SHAPES[:2] if quick else SHAPES)}
    made = Made(n)
    print(f"  spectrum: {made.spectrum}", file=sys.stderr, flush=True)
    steep = Made(n, fall=STEEP)
    for each in (made, steep):  # scores need them, and the first time warms up
        each.gather()
    steep.batches.clear()
    timers = {
        "gather": timer(made.gather),
        "cka": timer(lambda: made.score(CKA)),
        "cheap": timer(lambda: made.score(CHEAP)),
        "steep": timer(lambda: steep.score(CHEAP)),
        "full": timer(lambda: made.score(FULL)),
    }
    found = interleave(timers | products, rounds=rounds, warmup=0)
    fastest = min(products, key=lambda name: median(found[name]))
    rate = work / median(found[fastest]) / 1e9
    told = f"floor {rate:.0f} GFLOP/s (product {fastest}), {threads} threads, {n:,} rows"
    for what, name, target, spectrum in (
        ("cka, cka-biased, svcca with chance", "cheap", 1.35, made.spectrum),
        ("the same, a steeper spectrum", "steep", 1.35, steep.spectrum),
        ("the same and pwcca both ways", "full", 2.0, made.spectrum),
    ):
        whole = together(found["gather"], found[name])
        note = f"{told}; gathering {median(found['gather']):.1f} s, scores {median(found[name]):.1f} s; {spectrum}"
        yield against_floor(f"grid: {what}", compare(whole, found[fastest]), target=target, note=note)
    yield from _others(made, found, fastest, threads=threads, quick=quick)


def _others(
    made: Made, found: dict[str, list[Sample]], fastest: str, *, threads: int, quick: bool
) -> Iterator[Measure]:
    """The interval, timed apart, and the peers, whose time for a few pairs is brought to all."""
    ours = {name: together(found["gather"], found[name]) for name in ("cka", "cheap")}
    yield _interval(made)
    yield from peers(made.rows, ours, threads=threads, floor=median(found[fastest]), quick=quick)


def _interval(made: Made) -> Measure:
    """What the block jackknife adds to a grid of CKA, document groups kept apart."""
    state = gathered(made.grouped, made.told, made.batches)
    found = found_of(made.grouped, made.told, state)
    with_interval = timer(lambda: _scores(found, ("cka",), interval=True))()
    without = timer(lambda: _scores(found, ("cka",)))()
    note = f"scores alone, 10 document groups; {without.wall:.2f} s without the interval"
    return only_ours("grid: cka with its interval", with_interval.wall, note=note)


class Made:
    """Made-up rows, and the two halves of a comparison of them: gathering moments, scoring every pair."""

    def __init__(self, n: int, *, fall: float = FALL) -> None:
        import numpy as np

        self.told, self.collector, self.grouped = setting(), collector(), collector(groups=True)
        self.batches = list(Layers(self.told, fall=fall).batches(n))
        self.found: Found | None = None
        some = self.rows(self.told.keys(LEFT)[0]).astype(np.float64)
        self.spectrum = described(np.linalg.eigvalsh(np.cov(some.T))[::-1])

    def rows(self, key: str) -> Any:
        """All rows of one layer, [n, width]."""
        import torch

        return torch.cat([batch.rows[key] for batch in self.batches]).numpy()

    def gather(self) -> None:
        """From empty sums to a finished sweep."""
        self.found = found_of(self.collector, self.told, gathered(self.collector, self.told, self.batches))

    def score(self, names: Sequence[str]) -> None:
        """Every score of every pair, and its chance."""
        assert self.found is not None, "gathered before"
        _scores(self.found, names)


def _scores(found: Found, names: Sequence[str], *, interval: bool = False) -> None:
    from pellucid import similarity

    result = similarity.grid(found, names, left=LEFT, right=RIGHT, interval=interval)
    assert result.values.shape == (len(names), SITES, SITES)
    assert (result.values > 0).all()


def together(*parts: Sequence[Sample]) -> list[Sample]:
    """Samples of several halves of the same work, added up round by round."""
    return [
        Sample(sum(sample.wall for sample in each), sum(sample.cpu for sample in each))
        for each in zip(*parts, strict=True)
    ]


def _named(shape: tuple[int, int, int]) -> str:
    return " × ".join(str(size) for size in shape)


def _product(work: int, shape: tuple[int, int, int]) -> Timer:
    """The time that `work` FLOP take in float32 products of one shape, from a part of them."""
    import torch

    rows, inner, columns = shape
    left, right = torch.randn(inner, rows).T, torch.randn(inner, columns)
    result = torch.empty(rows, columns)
    repeats = max(1, round(work / PART / (2 * rows * inner * columns)))
    share = work / (repeats * 2 * rows * inner * columns)

    def multiply() -> None:
        for _ in range(repeats):
            torch.mm(left, right, out=result)

    return scaled(multiply, share)


def scaled(run: Callable[[], object], share: float) -> Timer:
    """A timer of `run` whose times are multiplied by `share`."""
    timed = timer(run)

    def sample() -> Sample:
        found = timed()
        return Sample(share * found.wall, share * found.cpu)

    return sample
