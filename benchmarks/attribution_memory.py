"""Peak memory of a sweep under several limits, each in a fresh process.

    python -m benchmarks.attribution_memory LIMIT_MB SIZE

prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from benchmarks.attribution_inputs import FULL, NAMED, bert, text
from benchmarks.report import Measure
from benchmarks.sweep_children import peak_memory, told_by

MODULE = "benchmarks.attribution_memory"
MB = 1 << 20
TARGET = 1.25
LIMITS = {"full": (256, 512, 1024, 2048), "quick": (32, 128)}


def memory(*, threads: int, quick: bool) -> Iterator[Measure]:
    """What a sweep over all layers adds to the process, over its limit."""
    size = "quick" if quick else "full"
    for limit in LIMITS[size]:
        found = told_by(MODULE, str(limit), size, threads=threads)
        ratio = found["added"] / (limit * MB)
        note = (
            f"memory added by the sweep over the limit, at most the target; {found['added'] / MB:.0f} MB added to "
            f"{found['before'] / MB:.0f}; {found['seconds']:.1f} s; {NAMED[size].called}"
        )
        yield Measure(f"memory: limit {limit} MB", None, None, None, ratio, TARGET, ratio <= TARGET, note=note)


def measured(limit: int, name: str) -> dict[str, float]:
    """One sweep of conductance over all layers in this process, after a small one that has loaded everything."""
    import time

    import torch

    from pellucid import Batch, Model
    from pellucid.attribution import Target
    from pellucid.attribution.computing import Settings, compute
    from pellucid.attribution.methods import chosen
    from pellucid.model.sites import expand

    torch.set_num_threads(torch.get_num_threads())
    size = NAMED.get(name, FULL)
    model = Model.load(bert(size, "classifier"))
    sites = expand(f"resid.1-{size.layers}", model.sites)

    def sweep(tokens: int, steps: int) -> None:
        settings = Settings(baseline="zero", steps=steps, memory_limit=limit * MB)
        compute(model, Batch.of_ids(text(tokens)), [Target.label(1)], chosen("conductance"), sites, settings)

    sweep(4, 2)
    before, start = peak_memory(), time.perf_counter()
    sweep(size.tokens, size.steps)
    return {"before": before, "added": peak_memory() - before, "seconds": time.perf_counter() - start}


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]), sys.argv[2])))
