"""All statistics of heads over real text beside a plain eager forward of the same batches; and memory as text grows.

    python -m benchmarks.heads_statistics WORDS ROUNDS THREADS

prints one JSON object; with ROUNDS 0 it sweeps once and tells its peak alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from benchmarks.report import Measure, against_floor
from benchmarks.sweep_children import peak_memory, told_by
from benchmarks.sweep_inputs import MissingInput, minilm, treebank
from benchmarks.sweep_measures import unmeasured
from benchmarks.timing import Sample, compare, interleave, timer

if TYPE_CHECKING:
    from pellucid import Corpus

MODULE = "benchmarks.heads_statistics"
BUDGET, SHARD_TOKENS = 2048, 8192
WORDS, TARGET, GROWTH = 100_000, 1.5, 1.15
MB = 1 << 20


def statistics(*, threads: int, quick: bool) -> Iterator[Measure]:
    """The sweep for every analysis of heads over the plain eager forward, in turns in a fresh process."""
    words, rounds = (5_000, 1) if quick else (WORDS, 3)
    what = f"statistics: all of MiniLM's heads over {words:,} words of UD English, over a plain eager forward"
    try:
        treebank("train")
        minilm()
    except MissingInput as missing:
        yield unmeasured(what, str(missing))
        return
    told = told_by(MODULE, str(words), str(rounds), str(threads), threads=threads)
    samples = {name: [Sample(**each) for each in told[name]] for name in ("sweep", "workers", "plain")}
    ways = {"sweep": "in one process", "workers": f"by {threads} workers of one thread, their start included"}
    for name, how in ways.items():
        result = compare(samples[name], samples["plain"])
        note = (
            f"{told['words']:,} words, {told['tokens']:,} tokens, {threads} threads, tokenizing of the text "
            f"included in ours alone; {told['words'] / result.ours:,.0f} words/s"
        )
        yield against_floor(f"{what}, {how}", result, target=TARGET, note=note)


def memory(*, quick: bool) -> Iterator[Measure]:
    """Peak memory of the sweep over ten times the text, each size in a fresh process.

    The larger text is the smaller one over and over: with other sentences, the longest of them would tell.
    """
    small, large = (1_000, 5_000) if quick else (10_000, WORDS)
    what = f"memory: statistics of heads, {large:,} over {small:,} words"
    try:
        treebank("train")
        minilm()
    except MissingInput as missing:
        yield unmeasured(what, str(missing))
        return
    peaks = {size: told_by(MODULE, str(small), "0", "1", str(size // small), threads=1) for size in (small, large)}
    ratio = peaks[large]["peak"] / peaks[small]["peak"]
    note = "; ".join(
        f"{size:,} words: peak {told['peak'] / MB:.0f} MB, {told['loaded'] / MB:.0f} MB of it before the sweep"
        for size, told in peaks.items()
    )
    yield Measure(what, None, None, None, ratio, GROWTH, ratio <= GROWTH, rounds=1, note=f"ratio of peaks; {note}")


def text_of(words: int, times: int = 1) -> Corpus:
    """The first sentences of UD English train with about so many words, in memory: the plain forward reads no file.

    With `times`, they come as often, in documents of their own.
    """
    from pellucid import Corpus

    corpus = Corpus.conllu(treebank("train"))
    total = sentences = 0
    for sentence in corpus:
        total, sentences = total + len(sentence.words), sentences + 1
        if total >= words:
            break
    first = list(corpus.take(sentences))
    again = [
        replace(sentence, id=f"{sentence.id} {time}", document=f"{sentence.document} {time}")
        for time in range(1, times)
        for sentence in first
    ]
    return Corpus.of([*first, *again], name="UD English")


def measured(words: int, rounds: int, threads: int, times: int = 1) -> dict[str, Any]:
    """The sweep and the plain forward in this process, in turns; or one sweep, and its peak."""
    import torch

    from benchmarks.sweep_plain import plain_forward
    from pellucid import Model, sweep
    from pellucid.heads import functions, head_collectors, shapes, statistics

    torch.set_num_threads(threads)
    corpus = text_of(words, times)
    model = Model.load(minilm(), device="cpu", attention="eager")  # all patterns are wanted
    told: dict[str, Any] = {"loaded": peak_memory()}

    def swept(engine: str = "inline") -> None:
        found = sweep(
            model,
            corpus,
            head_collectors(model),
            token_budget=BUDGET,
            shard_tokens=SHARD_TOKENS,
            long="truncate",
            engine=engine,
            workers=1 if engine == "inline" else threads,
            progress=False,
        )
        for analysis in (statistics, functions, shapes):
            analysis(found)
        told.setdefault("peak", peak_memory())
        told["words"], told["tokens"] = found.counts.words, found.counts.tokens[0]

    if not rounds:
        swept()
        return told
    forward, tokens = plain_forward(model, corpus, budget=BUDGET, shard_tokens=SHARD_TOKENS, long="truncate")
    timers = {"sweep": timer(swept), "workers": timer(lambda: swept("processes")), "plain": timer(forward)}
    found = interleave(timers, rounds=rounds, warmup=0)
    assert tokens == told["tokens"]
    return {**told, **{name: [asdict(each) for each in samples] for name, samples in found.items()}}


if __name__ == "__main__":
    print(json.dumps(measured(*(int(argument) for argument in sys.argv[1:]))))
