"""Sizes of files that hold a view, and the time that writing them takes beside the model's own pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import Measure
from benchmarks.sweep_inputs import MissingInput
from benchmarks.sweep_measures import unmeasured
from benchmarks.views_inputs import LAYERS, MB, encoder, median, smollm2, wikitext, within

if TYPE_CHECKING:
    from pellucid import Model

WRITING = 5.0
QUALITY = 0.7


def size(folder: Path, *, quick: bool) -> Iterator[Measure]:
    """Files of real attention, causal and not, at the lengths that have targets."""
    long, middle = (256, 128) if quick else (1024, 512)
    cases: list[tuple[str, Callable[[], Model], int, dict[str, Any], float, float]] = [
        (f"SmolLM2, {long:,} tokens × 144 heads, causal", smollm2, long, {"layers": LAYERS}, 45, 1),
        (f"MiniLM, {middle} tokens × 72 heads", encoder, middle, {}, 14, 1),
        (f"MiniLM stretched, {long:,} tokens × 144 heads", lambda: encoder(1024), long, {}, 110, 2),
        (f"the same, quality={QUALITY}", lambda: encoder(1024), long, {"quality": QUALITY}, 45, 2),
        ("SmolLM2, 128 tokens × 144 heads, causal", smollm2, 128, {"layers": LAYERS}, 1.5, 1),
    ]
    for what, model, tokens, options, limit, times in cases:
        try:
            yield from _file(what, model(), tokens, options, None if quick and tokens != 128 else limit, times, folder)
        except MissingInput as reason:
            yield unmeasured(f"size: {what}", str(reason))


def _file(
    what: str, model: Model, tokens: int, options: dict[str, Any], limit: float | None, times: float, folder: Path
) -> Iterator[Measure]:
    """One file: its size (`times` as many heads as were measured), and the time beyond the forward pass."""
    from pellucid.views import model_view

    text = wikitext(model, tokens)
    batch = model.tokenize(text)
    timed = times == 1 and tokens > 128
    plain = min(_timed(lambda: model.run(batch, [], logits=False)) for _ in range(2))
    path = folder / "view.html"
    used = time.process_time()
    rounds = range(3 if timed else 1)
    beyond = [_timed(lambda: model_view(model, text, **options).save(path)) - plain for _ in rounds]
    used = (time.process_time() - used) / len(beyond)
    found = times * path.stat().st_size / MB
    path.unlink()
    half = "" if times == 1 else f" (half as many heads measured: {found / times:.1f} MB)"
    note = f"{found:.1f} MB{half}{'' if limit is None else f', at most {limit:g} MB'}"
    yield within(f"size: {what}", found, limit, note, seconds=False)
    if timed:
        told = f"{used:.1f} CPU-seconds with the pass, of which a plain one takes {plain:.2f} s of wall time"
        yield median(f"written after the pass: {what}", beyond, WRITING, told)


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
