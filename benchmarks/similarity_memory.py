"""Peak memory of a grid as the words grow; each size in a fresh process.

    python -m benchmarks.similarity_memory WORDS SITES

prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from benchmarks.report import Measure
from benchmarks.sweep_children import peak_memory, told_by

MODULE = "benchmarks.similarity_memory"
TARGET = 1.05
BLOCK = 8192  # rows that `Moments` multiplies at once
MB = 1 << 20


def memory(*, quick: bool) -> Iterator[Measure]:
    """The peak with many words over the peak with few: rows are made batch by batch, and none is kept."""
    sizes, sites = ((1000, 9000, 20_000), 2) if quick else ((5000, 10_000, 40_000), 13)
    peaks = [told_by(MODULE, str(size), str(sites), threads=1)["peak"] for size in sizes]
    told = "; ".join(f"{size:,} words: peak {peak / MB:.0f} MB" for size, peak in zip(sizes, peaks, strict=True))
    note = f"ratio of peak memory, at most the target; {told}; rows gather in blocks of 8,192, which fewer do not fill"
    for size, peak in zip(sizes[:-1], peaks[:-1], strict=True):
        ratio = peaks[-1] / peak
        target = TARGET if size > BLOCK else None
        what = f"memory: grid of {sites} × {sites}, {sizes[-1]:,} over {size:,} words"
        yield Measure(what, None, None, None, ratio, target, ratio <= target if target else None, rounds=1, note=note)


def measured(words: int, sites: int) -> dict[str, int]:
    """Gather and score in this process."""
    import torch

    from benchmarks.similarity_rows import LEFT, RIGHT, Layers, collector, found_of, gathered, setting
    from pellucid import similarity

    torch.set_num_threads(1)
    told, chosen = setting(sites=sites), collector()
    state = gathered(chosen, told, Layers(told).batches(words))
    found = found_of(chosen, told, state)
    similarity.grid(found, ("cka", "cka-biased"), left=LEFT, right=RIGHT, interval=False)
    return {"peak": peak_memory()}


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]), int(sys.argv[2]))))
