"""IoU of every neuron and concept by bit-packed masks beside NumPy's booleans and one matrix product, and all of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.report import Measure
from benchmarks.timing import compare, interleave, timer

if TYPE_CHECKING:
    import numpy as np

TARGET = 1 / 8
NEURONS, CONCEPTS, WORDS = 10_000, 1_000, 200_000


def overlap(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Packing included in ours alone; a slice that all can do, then the whole by ours alone."""
    import numpy as np

    from pellucid.neurons import iou_table

    neurons, concepts, words = (40, 16, 20_000) if quick else (200, 64, WORDS)
    fires, carried = _marks(neurons, words, 0.05), _marks(concepts, words, 0.1)
    found: dict[str, Any] = {}

    def ours() -> None:
        found["ours"] = iou_table(fires, carried)

    def plain() -> None:
        table = np.zeros((neurons, concepts))
        for place, neuron in enumerate(fires):
            both = (neuron & carried).sum(1)
            table[place] = both / (neuron | carried).sum(1)
        found["plain"] = table

    def product() -> None:
        both = (fires.astype(np.float32) @ carried.T.astype(np.float32)).astype(np.float64)
        found["product"] = both / (fires.sum(1)[:, None] + carried.sum(1) - both)

    ways = {"ours": timer(ours), "plain": timer(plain), "product": timer(product)}
    samples = interleave(ways, rounds=1 if quick else 3, warmup=0)
    for name in ("plain", "product"):
        assert np.allclose(found["ours"], found[name], atol=1e-15)
    told = f"overlap: IoU of {neurons} neurons × {concepts} concepts × {words:,} words"
    for name, peer in (("plain", "NumPy's booleans"), ("product", "NumPy's product of the same as float32")):
        result = compare(samples["ours"], samples[name])
        yield Measure(
            what=f"{told}, over {peer}",
            ours=result.ours,
            peer=result.other,
            floor=None,
            ratio=result.ratio,
            target=TARGET if name == "plain" else None,
            met=result.ratio <= TARGET if name == "plain" else None,
            interval=result.interval,
            cpu_ratio=result.cpu_ratio,
            rounds=result.rounds,
            note="the same table to the last digit; one thread but for the product",
        )
    if not quick:
        yield _whole()


def _whole() -> Measure:
    from pellucid.neurons import iou_table

    fires, carried = _marks(NEURONS, WORDS, 0.05), _marks(CONCEPTS, WORDS, 0.1)
    start = time.perf_counter()
    iou_table(fires, carried)
    seconds = time.perf_counter() - start
    what = f"overlap: IoU of {NEURONS:,} neurons × {CONCEPTS:,} concepts × {WORDS:,} words"
    return Measure(what, seconds, None, None, None, None, None, rounds=1, note="all of it, once, by ours alone")


def _marks(rows: int, words: int, share: float) -> np.ndarray[Any, Any]:
    """Booleans [rows, words], so large a share of them true."""
    import numpy as np

    dice = np.random.default_rng(rows)
    return np.stack([dice.random(words, dtype=np.float32) < share for _ in range(rows)])


if __name__ == "__main__":
    for measure in overlap(threads=1, quick="--quick" in sys.argv):
        print(measure)
