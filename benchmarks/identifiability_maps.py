"""Linear maps from every layer to the input from one sweep, beside states gathered first; memory as text grows.

    python -m benchmarks.identifiability_maps WORDS ROUNDS THREADS [TIMES]

prints one JSON object; with ROUNDS 0 it analyses once and tells its peak alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchmarks.heads_statistics import text_of
from benchmarks.report import Measure, against_floor
from benchmarks.sweep_children import peak_memory, told_by
from benchmarks.sweep_inputs import MissingInput, minilm, treebank
from benchmarks.sweep_measures import unmeasured
from benchmarks.timing import Sample, compare, interleave, timer

MODULE = "benchmarks.identifiability_maps"
BUDGET, SHARD_TOKENS = 2048, 8192
WORDS, GROWTH = 50_000, 1.15
MB = 1 << 20


def maps(*, threads: int, quick: bool) -> Iterator[Measure]:
    """The sweep for moments with the fit over a plain forward, beside states gathered in memory and solved by NumPy."""
    words, rounds = (3_000, 1) if quick else (WORDS, 3)
    what = f"linear token maps of all of MiniLM's layers, {words:,} words of UD English"
    try:
        treebank("train")
        minilm()
    except MissingInput as missing:
        yield unmeasured(what, str(missing))
        return
    told = told_by(MODULE, str(words), str(rounds), str(threads), threads=threads)
    samples = {name: [Sample(**each) for each in told[name]] for name in ("ours", "plain", "gathered")}
    result = compare(samples["ours"], samples["plain"])
    other = compare(samples["gathered"], samples["ours"])
    note = (
        f"{told['tokens']:,} tokens, {threads} threads; gathering {told['states'] / MB:,.0f} MB of states and solving "
        f"takes {other.ratio:.2f} times as long as ours; mapped states differ by {told['apart']:.0e} of their spread"
    )
    yield against_floor(f"{what}, over a plain forward", result, target=None, note=note)


def memory(*, quick: bool) -> Iterator[Measure]:
    """Peak memory of attention and token identifiability over ten times the text, each size in a fresh process."""
    small, large = (5_000, 10_000) if quick else (5_000, WORDS)
    what = f"memory: attention and token identifiability, {large:,} over {small:,} words"
    try:
        treebank("train")
        minilm()
    except MissingInput as missing:
        yield unmeasured(what, str(missing))
        return
    peaks = {size: told_by(MODULE, str(small), "0", "1", str(size // small), threads=1) for size in (small, large)}
    ratio = peaks[large]["peak"] / peaks[small]["peak"]
    note = "; ".join(f"{size:,} words: peak {told['peak'] / MB:.0f} MB" for size, told in peaks.items())
    yield Measure(what, None, None, None, ratio, GROWTH, ratio <= GROWTH, rounds=1, note=f"ratio of peaks; {note}")


def measured(words: int, rounds: int, threads: int, times: int = 1) -> dict[str, Any]:
    """Ours, the plain forward and the gathering in this process, in turns; or both analyses once, and their peak."""
    import numpy as np
    import torch

    from benchmarks.sweep_plain import plain_forward
    from pellucid import Model, sweep
    from pellucid.collect.moments import Moments
    from pellucid.identifiability import attention, tokens
    from pellucid.identifiability.token_maps import RIDGE, fit_linear

    torch.set_num_threads(threads)
    corpus, told = text_of(words, times), dict[str, Any]()
    model = Model.load(minilm(), device="cpu")
    if not rounds:
        attention(model, corpus)
        tokens(model, corpus, maps=("identity", "linear"), random=False, progress=False)
        return {"peak": peak_memory()}
    layers = [str(site) for site in model.sites if site.kind == "resid"]
    limits: dict[str, Any] = {"budget": BUDGET, "shard_tokens": SHARD_TOKENS, "long": "truncate"}
    every, solved = ",".join(layers), dict[str, Any]()

    def ours() -> None:
        wanted = Moments(every, pairs=((layers[0], every),))
        found = sweep(
            model,
            corpus,
            wanted,
            pooling="all",
            token_budget=BUDGET,
            shard_tokens=SHARD_TOKENS,
            long="truncate",
            progress=False,
        )
        solved["ours"] = fit_linear(found[Moments], layers[1:], layers[0])

    kept: list[list[Any]] = []
    forward, count = plain_forward(model, corpus, **limits)
    special = torch.tensor(model.tokenizer.all_special_ids)

    def see(states: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        words = inputs["attention_mask"].bool() & ~torch.isin(inputs["input_ids"], special)
        kept.append([each[words].double() for each in states])

    seeing, _ = plain_forward(model, corpus, **limits, see=see)

    def gathered() -> None:
        kept.clear()
        seeing()
        states = {key: torch.cat(each).numpy() for key, each in zip(layers, zip(*kept, strict=True), strict=True)}
        told["states"] = sum(each.nbytes for each in states.values())
        states = {key: each - each.mean(0) for key, each in states.items()}
        goal = states[layers[0]]
        solved["gathered"] = {}
        for key in layers[1:]:
            products = states[key].T @ states[key]
            products[np.diag_indices_from(products)] += RIDGE * np.trace(products) / len(products)
            solved["gathered"][key] = np.linalg.solve(products, states[key].T @ goal)
        solved["states"], solved["goal"] = states, float(goal.std())

    timers = {"ours": timer(ours), "plain": timer(forward), "gathered": timer(gathered)}
    found = interleave(timers, rounds=rounds, warmup=0)
    told["tokens"] = count
    told["apart"] = max(
        float(np.abs(solved["states"][key] @ (solved["ours"][f"{key}/linear/weight"] - weight)).max()) / solved["goal"]
        for key, weight in solved["gathered"].items()
    )
    return {**told, **{name: [asdict(each) for each in samples] for name, samples in found.items()}}


if __name__ == "__main__":
    print(json.dumps(measured(*(int(argument) for argument in sys.argv[1:]))))
