"""IoU of every neuron and concept by bit-packed masks beside NumPy's booleans, on a slice that both can do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.report import Measure
from benchmarks.timing import compare, interleave, timer

TARGET = 1 / 8
NEURONS, CONCEPTS, WORDS = 10_000, 1_000, 200_000


def overlap(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Packing included in ours alone; the slice is told, and what it makes of the whole."""
    import numpy as np

    from pellucid.neurons import iou_table

    neurons, concepts, words = (40, 16, 20_000) if quick else (200, 64, WORDS)
    dice = np.random.default_rng(0)
    fires, carried = dice.random((neurons, words)) < 0.05, dice.random((concepts, words)) < 0.1
    found: dict[str, Any] = {}

    def ours() -> None:
        found["ours"] = iou_table(fires, carried)

    def plain() -> None:
        table = np.zeros((neurons, concepts))
        for place, neuron in enumerate(fires):
            both = (neuron & carried).sum(1)
            table[place] = both / (neuron | carried).sum(1)
        found["plain"] = table

    samples = interleave({"ours": timer(ours), "plain": timer(plain)}, rounds=1 if quick else 3, warmup=0)
    assert np.allclose(found["ours"], found["plain"], atol=1e-15)
    result = compare(samples["ours"], samples["plain"])
    whole = result.ours * (NEURONS / neurons) * (CONCEPTS / concepts) * (WORDS / words)
    note = f"the same table to the last digit; {NEURONS:,} × {CONCEPTS:,} × {WORDS:,} would take about {whole:,.0f} s"
    yield Measure(
        what=f"overlap: IoU of {neurons} neurons × {concepts} concepts × {words:,} words, over NumPy's booleans",
        ours=result.ours,
        peer=result.other,
        floor=None,
        ratio=result.ratio,
        target=TARGET,
        met=result.ratio <= TARGET,
        interval=result.interval,
        cpu_ratio=result.cpu_ratio,
        rounds=result.rounds,
        note=note,
    )


if __name__ == "__main__":
    for measure in overlap(threads=1, quick="--quick" in sys.argv):
        print(measure)
