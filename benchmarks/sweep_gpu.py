"""Sweeps on a GPU: `Moments` of the whole stream of a GPT-2 large, over the plain forward of the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from benchmarks.report import Measure, against_floor
from benchmarks.sweep_inputs import gpt2_large, paragraphs
from benchmarks.sweep_plain import plain_forward
from benchmarks.timing import Timer, compare, interleave, timer

if TYPE_CHECKING:
    import torch

    from pellucid import Corpus, Model

BUDGET, SHARD_TOKENS = 16_384, 1 << 17  # the sweep's own on a GPU, for statistics as large as these
LIMIT = 16 * 2**30  # bytes: all pairs of 37 × 1280 units take 9 GB, more than a sweep allows unless it is told to
ROUNDS = {"units": 3, "diagonal": 3, "all": 1}


def gpu(*, quick: bool) -> Iterator[Measure]:
    """For bfloat16 and float32 and each choice of pairs; texts of some 200 tokens, in two shards of full size.

    All pairs come last: their statistics are large, and moving them takes longer than all the rest.
    """
    import torch

    corpus = paragraphs(200 if quick else 1340, documents=2)
    for chosen in (("units", "diagonal"),) if quick else (("units", "diagonal"), ("all",)):
        for dtype in (torch.bfloat16, torch.float32):
            model = gpt2_large(dtype, device="cuda")
            assert model.fingerprint  # hashing the weights is done once per model, and outside the time
            forward, tokens = plain_forward(model, corpus, budget=BUDGET, shard_tokens=SHARD_TOKENS)
            for pairs in chosen:
                yield _measure(model, corpus, pairs, _timer(forward), tokens, dtype)
            del model, forward
            torch.cuda.empty_cache()


def _measure(model: Model, corpus: Corpus, pairs: str, plain: Timer, tokens: int, dtype: torch.dtype) -> Measure:
    from pellucid import Moments, sweep

    collector = Moments("resid.*", pairs=pairs, memory_limit=LIMIT)

    def swept(corpus: Corpus = corpus) -> int:
        found = sweep(model, corpus, collector, token_budget=BUDGET, shard_tokens=SHARD_TOKENS, progress=False)
        return found.counts.tokens[0]

    plain()
    if pairs != "all":  # a few texts warm up as well as all; of all pairs even theirs would take long
        swept(paragraphs(20, documents=1))
    found = interleave({"plain": plain, "sweep": _timer(swept)}, rounds=ROUNDS[pairs], warmup=0)
    result = compare(found["sweep"], found["plain"])
    note = f"{tokens / result.ours:,.0f} tokens/s, the plain forward {tokens / result.other:,.0f}; {tokens:,} tokens"
    name = str(dtype).removeprefix("torch.")
    return against_floor(f"gpu: GPT-2 large, {name}, moments of pairs={pairs!r}", result, target=None, note=note)


def _timer(run: Callable[[], object]) -> Timer:
    import torch

    return timer(run, synchronize=torch.cuda.synchronize)
