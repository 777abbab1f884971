"""The engines of a sweep: two processes against one, inline beside them, and what Ray adds to a shard."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from benchmarks.report import Measure
from benchmarks.sweep_inputs import MissingInput, minilm
from benchmarks.sweep_measures import at_least, median, only_ours, unmeasured
from benchmarks.timing import Sample, Timer, interleave, timer

if TYPE_CHECKING:
    from pellucid import Corpus, Found, Model

TEAMS = {"inline": ("inline", 1), "one": ("processes", 1), "two": ("processes", 2), "ray": ("ray", 2)}
"""Engine and workers of each contender; every worker has one thread."""
NEEDED = {"workers": ("inline", "one", "two"), "ray": ("inline", "two", "ray")}
BUDGET, SHARD_TOKENS = 2048, 8192
TARGET = 1.7


def engines(parts: Collection[str], *, quick: bool) -> Iterator[Measure]:
    """The parts `workers` and `ray`, whose sweeps take turns; MiniLM over as much text as keeps one thread busy."""
    from pellucid import Corpus, Model
    from pellucid.errors import SweepError

    seconds, rounds = (5.0, 1) if quick else (68.0, 2)
    try:
        model = Model.load(minilm(), device="cpu")
        names = [name for name in TEAMS if any(name in NEEDED[part] for part in parts)]
        if "ray" in names:
            _run(model, Corpus.grammar(2), "ray")  # brings Ray's own files into memory, and tells whether there is Ray
    except (MissingInput, SweepError) as missing:
        yield from (unmeasured(f"{part}: MiniLM", str(missing)) for part in parts)
        return
    corpus = Corpus.grammar(_sentences_for(model, seconds))
    shards, tokens = _plan_of(model, corpus)
    note = f"{tokens:,} tokens in {shards} shards, one thread each"
    print(f"  engines: {note}; {', '.join(names)}", file=sys.stderr, flush=True)
    counts: set[int] = set()
    timers = {name: _timer(model, corpus, name, counts) for name in names}
    found = interleave(timers, rounds=rounds, warmup=0)
    assert len(counts) == 1, f"the engines counted different numbers of words: {counts}"
    if "workers" in parts:
        yield from _workers(found, note)
    if "ray" in parts:
        few = Corpus.grammar(40)
        starts = interleave({name: _timer(model, few, name, set()) for name in NEEDED["ray"]}, rounds=rounds, warmup=0)
        yield from _ray(found, starts, shards, note)


def _workers(found: Mapping[str, list[Sample]], note: str) -> Iterator[Measure]:
    told = f"{note}; one worker takes the floor's time"
    yield at_least("workers: two processes over one", found["two"], found["one"], target=TARGET, note=told)
    told = f"{note}; inline takes the floor's time"
    yield at_least("workers: two processes over inline", found["two"], found["inline"], target=None, note=told)


def _ray(
    found: Mapping[str, list[Sample]], starts: Mapping[str, list[Sample]], shards: int, note: str
) -> Iterator[Measure]:
    """Start-up is what a sweep over a few sentences takes longer than inline; overhead is what remains beside it."""
    start = {name: median(starts[name]) - median(starts["inline"]) for name in ("two", "ray")}
    told = f"until both workers have done a few sentences, less what those take inline; processes {start['two']:.1f} s"
    yield only_ours("ray: start-up of two actors", start["ray"], note=told)
    rest = {name: median(found[name]) - start[name] for name in ("two", "ray")}
    overhead = (rest["ray"] - rest["two"]) / shards
    walls = f"Ray {median(found['ray']):.1f} s, processes {median(found['two']):.1f} s"
    told = f"{walls}, each less its start-up, and the difference over the number of shards; {note}"
    yield only_ours("ray: overhead per shard", overhead, note=told)


def _run(model: Model, corpus: Corpus, name: str) -> Found:
    from pellucid import Moments, sweep

    engine, workers = TEAMS[name]
    return sweep(
        model,
        corpus,
        Moments("resid.*"),
        engine=engine,
        workers=workers,
        threads=1,
        token_budget=BUDGET,
        shard_tokens=SHARD_TOKENS,
        progress=False,
    )


def _timer(model: Model, corpus: Corpus, name: str, counts: set[int]) -> Timer:
    """Times a sweep, and notes how many words it counted."""

    def counted() -> None:
        counts.add(_run(model, corpus, name).counts.words)

    return timer(counted)


def _sentences_for(model: Model, seconds: float) -> int:
    """Generated sentences that one thread needs about so long for."""
    from pellucid import Corpus

    _run(model, Corpus.grammar(50), "inline")
    start = time.perf_counter()
    _run(model, Corpus.grammar(500), "inline")
    return max(500, round(500 * seconds / (time.perf_counter() - start)))


def _plan_of(model: Model, corpus: Corpus) -> tuple[int, int]:
    """Shards and tokens of the sweep."""
    from pellucid.collect.encode import Encoder, Reading
    from pellucid.collect.plan import make_plan

    plan = make_plan([Encoder(model, Reading())], corpus, budget=BUDGET, shard_tokens=SHARD_TOKENS)
    return len(plan.shards), plan.counts.tokens[0]
