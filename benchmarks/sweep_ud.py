"""A whole treebank on a real model with every collector, over the plain forward of the same batches; peak memory.

    python -m benchmarks.sweep_ud SENTENCES ROUNDS THREADS

prints one JSON object; SENTENCES 0 means all of UD English EWT train.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchmarks.report import Measure, against_floor
from benchmarks.sweep_children import peak_memory, told_by
from benchmarks.sweep_inputs import MissingInput, all_collectors, minilm, treebank
from benchmarks.sweep_measures import unmeasured
from benchmarks.timing import Sample, compare, interleave, timer

MODULE = "benchmarks.sweep_ud"
BUDGET, SHARD_TOKENS = 2048, 8192
MB = 1 << 20


def ud(*, threads: int, quick: bool) -> Iterator[Measure]:
    """The sweep and the plain forward in turns, in a fresh process whose peak is read after the first sweep."""
    what = "ud: UD English train on MiniLM, every collector"
    sentences, rounds = (200, 1) if quick else (0, 2)
    try:
        treebank("train")
        minilm()
    except MissingInput as missing:
        yield unmeasured(what, str(missing))
        return
    told = told_by(MODULE, str(sentences), str(rounds), str(threads), threads=threads)
    samples = {name: [Sample(**each) for each in told[name]] for name in ("sweep", "plain")}
    result = compare(samples["sweep"], samples["plain"])
    note = (
        f"{told['words']:,} words, {told['tokens']:,} tokens, {threads} threads; {told['words'] / result.ours:,.0f} "
        f"words/s; peak {told['peak'] / MB:.0f} MB, {told['loaded'] / MB:.0f} MB of it before the sweep"
    )
    yield against_floor(what, result, target=None, note=note)


def measured(sentences: int, rounds: int, threads: int) -> dict[str, Any]:
    """Everything that `ud` tells, in this process."""
    import torch

    from benchmarks.sweep_plain import plain_forward
    from pellucid import Corpus, Model, sweep

    torch.set_num_threads(threads)
    model = Model.load(minilm(), device="cpu")
    corpus = Corpus.conllu(treebank("train"))
    corpus = corpus.take(sentences) if sentences else corpus
    told: dict[str, Any] = {"loaded": peak_memory()}

    def swept() -> None:
        found = sweep(
            model,
            corpus,
            all_collectors(surprise=False),
            token_budget=BUDGET,
            shard_tokens=SHARD_TOKENS,
            long="truncate",
            progress=False,
        )
        told.setdefault("peak", peak_memory())
        told["words"], told["tokens"] = found.counts.words, found.counts.tokens[0]

    first = timer(swept)()
    forward, tokens = plain_forward(model, corpus, budget=BUDGET, shard_tokens=SHARD_TOKENS, long="truncate")
    assert tokens == told["tokens"]
    plain = timer(forward)
    beside = plain()
    found = interleave({"sweep": timer(swept), "plain": plain}, rounds=rounds - 1, warmup=0)
    told["sweep"] = [asdict(each) for each in (first, *found["sweep"])]
    told["plain"] = [asdict(each) for each in (beside, *found["plain"])]
    return told


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
