"""The grid over a million words on a GPU: words per second, and the share of the card's own float32 matrix rate."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.report import Measure
from benchmarks.similarity_rows import (
    LEFT,
    RIGHT,
    SITES,
    WIDTH,
    Layers,
    batch_of,
    collector,
    found_of,
    setting,
)
from benchmarks.sweep_measures import at_least, only_ours
from benchmarks.timing import Sample, timer

BATCH = 8192
KINDS = 4
"""Batches that are made before and given again and again: making rows takes longer than multiplying them."""


def gpu(*, quick: bool) -> Iterator[Measure]:
    """Gathering is timed over rows that lie on the card; scoring happens on the host, and is told apart."""
    import torch

    from pellucid import similarity

    n = (50_000 if quick else 1_000_000) // BATCH * BATCH
    device = torch.device("cuda")
    told, chosen = setting(device=device), collector()
    layers = Layers(told, device=device)
    batches = [batch_of(layers.rows(BATCH * number, BATCH), BATCH * number) for number in range(KINDS)]
    sums = chosen.open(told)
    sums.add(batches[0])  # warms up

    def gather() -> None:
        for number in range(n // BATCH):
            sums.add(batches[number % KINDS])

    work = 2 * n * WIDTH**2 * (SITES * SITES + 2 * SITES)
    gathering = timer(gather, synchronize=torch.cuda.synchronize)()
    size = 8192
    left, right = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    torch.mm(left, right)
    product = timer(lambda: [torch.mm(left, right) for _ in range(8)], synchronize=torch.cuda.synchronize)()
    floor = product.wall / (8 * 2 * size**3) * work
    rates = f"{work / gathering.wall / 1e12:.1f} of {work / floor / 1e12:.1f} TFLOP/s (float32 product of 8192³)"
    note = f"{n:,} words, {n / gathering.wall:,.0f} words/s; {rates}"
    yield at_least("gpu: moments of 13 × 13", [gathering], [Sample(floor, floor)], target=None, note=note)
    found = found_of(chosen, told, sums.state())
    scored = timer(lambda: similarity.grid(found, ("cka", "cka-biased"), left=LEFT, right=RIGHT, interval=False))()
    yield only_ours("gpu: scores on the host", scored.wall, note="cka, cka-biased with chance, once for all words")
