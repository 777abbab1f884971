"""Every token that a model has written, explained from one forward pass, beside inseq token by token."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.attribution_inputs import FULL, PROMPT, QUICK, WRITTEN, Size, gpt2, text
from benchmarks.attribution_layers import MODULE, Slow
from benchmarks.peers import PeerError
from benchmarks.report import Measure
from benchmarks.sweep_measures import at_least, unmeasured
from benchmarks.timing import interleave, timer

if TYPE_CHECKING:
    from pellucid.attribution.sweep import Swept

SPEED = 2.0


def generation(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Saliency of the logits of 20 tokens after a prompt of 20."""
    from torch.utils.flop_counter import FlopCounterMode

    size = QUICK if quick else FULL
    what = f"generation: {WRITTEN} tokens, beside inseq"
    ours = _ours(size)
    with FlopCounterMode(display=False) as counter:
        found = ours()
    try:
        with tempfile.TemporaryDirectory() as folder:
            arguments = ("generation", "full" if size is FULL else "quick", folder, str(threads))
            with Slow(MODULE, *arguments, peer=True, threads=threads) as inseq:
                times = interleave({"ours": timer(ours), "inseq": inseq.time}, rounds=3 if quick else 5)
                ready = inseq.ready
            difference = _difference(found, Path(folder) / "generation.npy")
    except PeerError as reason:
        yield unmeasured(what, f"inseq: {reason}", target=SPEED)
        return
    note = f"inseq {ready['version']}, saliency of logits; {size.layers} layers × {size.width}, {PROMPT} tokens before"
    yield at_least(what, times["ours"], times["inseq"], target=None if quick else SPEED, note=note, peer=True)
    ratio = ready["flops"] / counter.get_total_flops()
    yield Measure("generation: FLOPs", None, None, None, ratio, None, None, note="inseq's over ours")
    note = "largest difference of a token's number, relative to the largest"
    yield Measure("generation: numbers", None, None, None, difference, None, None, note=note)


def _ours(size: Size) -> Callable[[], Swept]:
    from pellucid import Batch, Model
    from pellucid.attribution import Target
    from pellucid.attribution.computing import Settings, compute
    from pellucid.attribution.methods import chosen
    from pellucid.model.sites import expand

    model, ids = Model.load(gpt2(size)), text(PROMPT + WRITTEN)
    numbers: list[int] = ids[0].tolist()
    targets = [Target.token(numbers[place], position=place - 1) for place in range(PROMPT, PROMPT + WRITTEN)]
    batch, sites, settings = Batch.of_ids(ids), expand("embed", model.sites), Settings(baseline="zero")
    return lambda: compute(model, batch, targets, chosen("saliency"), sites, settings)[0]


def _difference(found: Swept, path: Path) -> float:
    """Both as one number for every token before each written one; inseq leaves the rest empty."""
    import numpy as np

    theirs = np.nan_to_num(np.load(path))[:, -WRITTEN:]  # [tokens, written, width]
    (site,) = {key[2] for key in found.parts}
    mine = np.stack([found.parts["saliency", number, site][0].numpy() for number in range(WRITTEN)], axis=1)
    before = np.arange(PROMPT + WRITTEN)[:, None] < PROMPT + np.arange(WRITTEN)[None]
    one, other = (np.where(before, np.abs(part).sum(axis=2), 0) for part in (mine[: len(theirs)], theirs))
    return float(np.abs(one - other).max() / np.abs(other).max())
