"""Rankings of every neuron of MiniLM from one sweep beside a plain forward of the same batches; memory as text grows.

    python -m benchmarks.neurons_streaming SITES WORDS ROUNDS THREADS [TIMES]

prints one JSON object; SITES is `all` (Probeless, IoU and selectivity), `groups` (the same with document groups apart,
for intervals) or `covariances` (what Gaussian rankings need). No random twin reads the text.
With ROUNDS 0 it sweeps once, over the text TIMES over, and tells its peak alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.heads_statistics import text_of
from benchmarks.report import Measure, against_floor
from benchmarks.sweep_children import peak_memory, told_by
from benchmarks.sweep_inputs import MissingInput, minilm, treebank
from benchmarks.sweep_measures import unmeasured
from benchmarks.timing import Sample, compare, interleave, timer

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector

MODULE = "benchmarks.neurons_streaming"
BUDGET = 2048
WORDS, GROWTH = 200_000, 1.15
TARGETS: dict[str, float | None] = {"all": 1.3, "groups": None, "covariances": 1.6}
WHAT = {
    "all": "Probeless, IoU and selectivity of all 11,904 neurons for 17 tags",
    "groups": "the same rankings with intervals",
    "covariances": "class covariances of the residual stream for 17 tags",
}
ABOUT = {
    "all": "no intervals (groups=False) and no random twin, which default calls have",
    "groups": "ten document groups apart (groups=True) as in default calls; no random twin",
    "covariances": "no document groups, no random twin",
}
MB = 1 << 20


def streaming(*, threads: int, quick: bool) -> Iterator[Measure]:
    """One sweep and its rankings over the plain forward, in turns in a fresh process."""
    words, rounds = (5_000, 1) if quick else (WORDS, 3)
    for sites, target in TARGETS.items():
        what = f"streaming: {WHAT[sites]}, MiniLM over {words:,} words of UD English, over a plain forward"
        missing = _missing()
        if missing is not None:
            yield unmeasured(what, missing)
            continue
        told = told_by(MODULE, sites, str(words), str(rounds), str(threads), threads=threads)
        samples = {name: [Sample(**each) for each in told[name]] for name in ("sweep", "plain")}
        result = compare(samples["sweep"], samples["plain"])
        note = (
            f"{told['words']:,} words, {told['tokens']:,} tokens, {threads} threads, tokenizing of the text "
            f"included in ours alone; {told['words'] / result.ours:,.0f} words/s; {ABOUT[sites]}"
        )
        yield against_floor(what, result, target=target, note=note)


def memory(*, quick: bool) -> Iterator[Measure]:
    """Peak memory of the sweep over four times the text, each size in a fresh process; both are of several shards.

    The larger text is the smaller one over and over: other sentences would take memory themselves.
    """
    part, small, large = (1_000, 1_000, 4_000) if quick else (20_000, WORDS, 4 * WORDS)
    what = f"memory: rankings of all neurons, {large:,} over {small:,} words"
    missing = _missing()
    if missing is not None:
        yield unmeasured(what, missing)
        return
    peaks = {size: told_by(MODULE, "all", str(part), "0", "1", str(size // part), threads=1)
             for size in (part, small, large)}  # fmt: skip
    ratio = peaks[large]["peak"] / peaks[small]["peak"]
    note = "; ".join(
        f"{size:,} words: peak {told['peak'] / MB:.0f} MB, {told['loaded'] / MB:.0f} MB of it before the sweep"
        for size, told in peaks.items()
    )
    yield Measure(what, None, None, None, ratio, GROWTH, ratio <= GROWTH, rounds=1, note=f"ratio of peaks; {note}")


def _missing() -> str | None:
    try:
        treebank("train")
        minilm()
    except MissingInput as missing:
        return str(missing)
    return None


def collectors_for(sites: str) -> list[Collector]:
    """What the sweep gathers."""
    import pellucid as pl
    from pellucid.collect.class_histograms import ClassHistograms
    from pellucid.neurons.class_sums import class_collectors
    from pellucid.neurons.histograms import histogram_collectors

    if sites == "covariances":
        return [pl.ClassMoments("resid.*", label="upos", covariance="full")]
    every = ("resid.*", "neurons.*")
    if sites == "groups":
        return [*class_collectors(every, "upos"), *histogram_collectors(every, "upos")]  # those of default calls
    return [pl.ClassMoments(every, label="upos", covariance="diagonal"), ClassHistograms(every, label="upos")]


def measured(sites: str, words: int, rounds: int, threads: int, times: int = 1) -> dict[str, Any]:
    """The sweep with its rankings and the plain forward in this process, in turns; or one sweep, and its peak."""
    import torch

    from benchmarks.sweep_plain import plain_forward
    from pellucid import Model, sweep
    from pellucid.collect.encode import Reading
    from pellucid.collect.job import make_job
    from pellucid.collect.sweep import default_shard
    from pellucid.neurons import iou, probeless, selectivity

    torch.set_num_threads(threads)
    corpus, model = text_of(words, times), Model.load(minilm(), device="cpu")
    told: dict[str, Any] = {"loaded": peak_memory()}
    named = {collector.kind: collector for collector in collectors_for(sites)}
    job = make_job([model], named, Reading(long="truncate"), token_budget=BUDGET)
    batches: dict[str, Any] = {"shard_tokens": default_shard(job, [model]), "long": "truncate"}

    def swept() -> None:
        found = sweep(model, corpus, collectors_for(sites), progress=False, token_budget=BUDGET, **batches)
        for ranking in (probeless, iou, selectivity) if sites != "covariances" else ():
            ranking(found, concept="upos")
        told.setdefault("peak", peak_memory())
        told["words"], told["tokens"] = found.counts.words, found.counts.tokens[0]

    if not rounds:
        swept()
        return told
    forward, tokens = plain_forward(model, corpus, budget=BUDGET, **batches)
    found = interleave({"sweep": timer(swept), "plain": timer(forward)}, rounds=rounds, warmup=0)
    assert tokens == told["tokens"]
    return {**told, **{name: [asdict(each) for each in samples] for name, samples in found.items()}}


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], *(int(word) for word in sys.argv[2:6]))))
