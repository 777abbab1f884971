"""The rate of `Moments` over all pairs of 13 × 768 units, against the best matrix product of the same process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.report import Measure
from benchmarks.sweep_measures import at_least, median
from benchmarks.timing import Sample, Timer, interleave, timer

if TYPE_CHECKING:
    from pellucid.collect.collector import Setting
    from pellucid.collect.words import WordBatch

SITES, WIDTH = 13, 768
PAIRS = SITES * (SITES + 1) // 2
BATCH = 2048  # rows that come at once, as from a batch of the sweep's own budget
SHAPES = ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (WIDTH, 4096, SITES * WIDTH))
"""Rows, inner size and columns of the products that are tried; the last is the largest of the collector's own."""


def moments(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Work is counted as the upper triangle of pairs, 91 · 2 · n · 768² FLOP; the floor is that at the best rate."""
    import torch

    from pellucid import Moments

    torch.set_num_threads(threads)
    rows, rounds = (4096, 1) if quick else (8192, 9)
    work = PAIRS * 2 * rows * WIDTH**2
    setting = made_setting()
    batches = [made_batch(setting, start) for start in range(0, rows, BATCH)]
    filled = Moments("resid.*").open(setting)

    def add() -> None:
        for batch in batches:
            filled.add(batch)

    def shard() -> None:
        accumulator = Moments("resid.*").open(setting)
        for batch in batches:
            accumulator.add(batch)
        assert accumulator.state().arrays["all/n"][0] == rows

    timers = {"add": timer(add), "shard": timer(shard)}
    products = {_named(shape): _product(work, shape) for shape in (SHAPES[:2] if quick else SHAPES)}
    found = interleave(timers | products, rounds=rounds)
    fastest = min(products, key=lambda name: median(found[name]))
    best, ours = work / median(found[fastest]) / 1e9, work / median(found["add"]) / 1e9
    note = f"{ours:.0f} of {best:.0f} GFLOP/s (product {fastest}), {threads} threads, {rows:,} rows a pass"
    yield at_least("moments: all pairs of 13 × 768", found["add"], found[fastest], target=0.85, note=note)
    told = f"the same with new sums and a state, as a shard of {rows:,} words has them"
    yield at_least("moments: from empty to state", found["shard"], found[fastest], target=None, note=told)


def made_setting() -> Setting:
    """What a sweep over the stream of a BERT-base tells its collectors, without the model."""
    import torch

    from pellucid.collect.collector import ModelFacts, Setting
    from pellucid.model.sites import Site

    sites = tuple(Site("resid", layer) for layer in range(SITES))
    facts = ModelFacts("rows", "", sites, {str(site): (WIDTH,) for site in sites}, False, "fused", "float32")
    return Setting((facts,), "mean", torch.device("cpu"))


def made_batch(setting: Setting, start: int) -> WordBatch:
    """Normal rows, numbered from `start`."""
    import numpy as np
    import torch

    from pellucid.collect.words import WordBatch

    generator = torch.Generator().manual_seed(start)
    rows = {key: torch.randn(BATCH, WIDTH, generator=generator) for key in setting.keys("resid.*")}
    numbers = np.arange(start, start + BATCH)
    return WordBatch(rows, numbers, np.zeros_like(numbers), numbers, 0, {})


def _named(shape: tuple[int, int, int]) -> str:
    return " × ".join(str(size) for size in shape)


def _product(work: int, shape: tuple[int, int, int]) -> Timer:
    """The time that about `work` FLOP take in float32 products of one shape, brought to exactly `work`."""
    import torch

    rows, inner, columns = shape
    left, right = torch.randn(inner, rows).T, torch.randn(inner, columns)
    result = torch.empty(rows, columns)
    repeats = max(1, round(work / (2 * rows * inner * columns)))
    share = work / (repeats * 2 * rows * inner * columns)

    def multiply() -> None:
        for _ in range(repeats):
            torch.mm(left, right, out=result)

    def scaled() -> Sample:
        sample = timer(multiply)()
        return Sample(share * sample.wall, share * sample.cpu)

    return scaled
