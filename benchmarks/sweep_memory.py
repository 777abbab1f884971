"""Peak memory of a sweep with every collector, as the corpus grows; each size in a fresh process.

    python -m benchmarks.sweep_memory TOKENS sweep|plan

prints one JSON object. `plan` makes the sweep's plan and stops, to tell what of the growth is planning.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report import Measure
from benchmarks.sweep_children import peak_memory, told_by

MODULE = "benchmarks.sweep_memory"
TARGET = 1.15
BUDGET, SHARD_TOKENS = 2048, 8192  # the sweep's own on a CPU for a model as small as this
MB = 1 << 20


def memory(*, quick: bool) -> Iterator[Measure]:
    """The largest corpus' peak over the smallest's, and the highest peak over the lowest; if too much, what grows.

    A small corpus can peak higher than a larger one (it does at 10,000 tokens), which the first ratio alone would hide.
    """
    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    found: dict[int, dict[str, Any]] = {}
    for size in sizes:
        found[size] = told_by(MODULE, str(size), "sweep", threads=1)
        print(f"  memory: {_told(found[size])}", file=sys.stderr, flush=True)
    lowest = min(sizes, key=lambda size: found[size]["peak"])
    highest = max(sizes, key=lambda size: found[size]["peak"])
    note = "; ".join(_told(each) for each in found.values())
    for large, small, what in (
        (sizes[-1], sizes[0], f"{sizes[-1]:,} over {sizes[0]:,} tokens"),
        (highest, lowest, f"highest peak ({highest:,} tokens) over lowest ({lowest:,})"),
    ):
        ratio = found[large]["peak"] / found[small]["peak"]
        told = f"ratio of peak memory, at most the target; {note}"
        if ratio > TARGET and large > small:
            plans = [told_by(MODULE, str(size), "plan", threads=1) for size in (small, large)]
            told += f". What grows: {_growth(found[small], found[large], plans)}"
        yield Measure(
            f"memory: every collector, {what}", None, None, None, ratio, TARGET, ratio <= TARGET, rounds=1, note=told
        )


def _told(found: Mapping[str, Any]) -> str:
    return (
        f"{found['tokens']:,} tokens: peak {found['peak'] / MB:.0f} MB, {found['loaded'] / MB:.0f} MB of it before the "
        f"sweep, {found['seconds']:.0f} s"
    )


def _growth(smallest: Mapping[str, Any], largest: Mapping[str, Any], plans: list[dict[str, Any]]) -> str:
    """The growth of the peak in parts: planning, and the statistics themselves."""
    whole = largest["peak"] - smallest["peak"]
    planning = plans[1]["peak"] - plans[0]["peak"]
    states = largest["states"] - smallest["states"]
    return (
        f"{whole / MB:.0f} MB in all; the plan alone peaks {planning / MB:.0f} MB higher, and the finished statistics "
        f"are {states / MB:.1f} MB larger"
    )


def measured(tokens: int, mode: str) -> dict[str, Any]:
    """Sweep over (or only plan) about `tokens` tokens of generated English in this process; tell its peak."""
    from benchmarks.sweep_inputs import all_collectors, small_lm
    from pellucid import Corpus, sweep
    from pellucid.collect.encode import Encoder, Reading
    from pellucid.collect.plan import make_plan

    model = small_lm()
    encoder = Encoder(model, Reading())
    sample = encoder.encode(list(Corpus.grammar(200)))
    corpus = Corpus.grammar(round(tokens * len(sample) / sum(each.tokens for each in sample)))
    told: dict[str, Any] = {"loaded": peak_memory()}
    start = time.perf_counter()
    if mode == "plan":
        plan = make_plan([encoder], corpus, budget=BUDGET, shard_tokens=SHARD_TOKENS)
        told |= {"tokens": plan.counts.tokens[0]}
    else:
        collectors = all_collectors(surprise=True)
        found = sweep(model, corpus, collectors, threads=1, progress=False)
        sizes = [array.nbytes for state in found.states.values() for array in state.arrays.values()]
        told |= {"tokens": found.counts.tokens[0], "states": sum(sizes)}
    return {**told, "seconds": time.perf_counter() - start, "peak": peak_memory()}


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]), sys.argv[2])))
