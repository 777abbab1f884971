"""Word-level activations of all layers to disk: our store beside loops over single sentences, and the forward alone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers import PeerError
from benchmarks.report import Measure
from benchmarks.sweep_children import Worker
from benchmarks.sweep_inputs import MissingInput, save_bert, word_lists
from benchmarks.sweep_measures import at_least, cpu_per, median, unmeasured
from benchmarks.timing import Sample, interleave

MODULE = "benchmarks.sweep_extract_worker"
OURS = ("float32", "float16", "plain")
LOOPS: dict[str, float | None] = {"hdf5": 1.7, "json": 7.0, "fast-json": None}
"""The loops beside us, and how many times as fast as them we mean to be; NeuroX writes the first two."""
TOLERANCE = 1e-4  # relative, of each layer's mean |x|: the same numbers, up to the batch's rounding
HALF = 1e-3  # the same for float16


def extract(*, threads: int, quick: bool) -> Iterator[Measure]:
    """CPU-seconds per word; the model is loaded beforehand, planning and tokenizing are in the time."""
    count, rounds = (16, 1) if quick else (160, 3)
    what = f"extract: BERT-base, 13 layers, {threads} thread{'s' if threads > 1 else ''}"
    with tempfile.TemporaryDirectory(prefix="bench-") as name, ExitStack() as stack:
        place = Path(name)
        try:
            save_bert(place / "model")
        except MissingInput as missing:
            yield unmeasured(what, str(missing), target=LOOPS["hdf5"])
            return
        sentences, source = word_lists(count)
        (place / "sentences.json").write_text(json.dumps(sentences), encoding="utf-8")
        arguments = (str(place / "model"), str(place / "sentences.json"), str(place))
        workers = {
            way: stack.enter_context(Worker(MODULE, way, *arguments, peer=False, threads=threads)) for way in OURS
        }
        reasons: dict[str, str] = {}
        for way in LOOPS:
            try:
                workers[way] = stack.enter_context(Worker(MODULE, way, *arguments, peer=True, threads=threads))
            except PeerError as error:
                reasons[way] = str(error)
        check_agreement({way: worker.ready for way, worker in workers.items() if worker.ready})
        found = interleave({way: worker.time for way, worker in workers.items()}, rounds=rounds, warmup=0)
        words = sum(len(sentence) for sentence in sentences)
        sizes = {way: worker.ready["bytes"] // worker.ready["words"] for way, worker in workers.items() if worker.ready}
    yield from _measures(what, found, reasons, words, f"CPU-seconds per word, {words:,} words of {source}", sizes)


def check_agreement(ready: Mapping[str, dict[str, object]]) -> None:
    """Raises unless all ways found the same words and numbers: only then are they compared."""
    first = ready["float32"]
    for way, told in ready.items():
        assert told["words"] == first["words"], f"{way} found {told['words']} words, not {first['words']}"
        for mine, other in zip(first["means"], told["means"], strict=True):  # pyright: ignore[reportArgumentType]
            tolerance = HALF if way == "float16" else TOLERANCE
            assert abs(mine - other) <= tolerance * abs(mine), f"{way} has other numbers: {other} where {mine} is meant"


def _measures(
    what: str,
    found: Mapping[str, list[Sample]],
    reasons: Mapping[str, str],
    words: int,
    note: str,
    sizes: Mapping[str, int],
) -> Iterator[Measure]:
    samples = {way: cpu_per(each, words) for way, each in found.items()}
    floor = median(samples["plain"])
    for way, target in LOOPS.items():
        title = f"{what}, float32 store, {way} loop"
        if way in reasons:
            yield unmeasured(title, reasons[way], target=target)
            continue
        wall = median(found[way]) / median(found["float32"])
        told = f"{note}; wall {wall:.2f}×; {sizes['float32']:,} bytes a word on disk, theirs {sizes[way]:,}"
        yield at_least(title, samples["float32"], samples[way], target=target, note=told, peer=True, floor=floor)
    for way in ("float32", "float16"):
        told = f"{note}; the floor is the plain batched forward alone; {sizes[way]:,} bytes a word on disk"
        yield at_least(f"{what}, {way} store", samples[way], samples["plain"], target=None, note=told)
