"""What float32 products cost a score where features have means in the hundreds, beside float64 and the bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.report import Measure
from benchmarks.similarity_rows import FALL, LEFT, RIGHT, Layers, collector, found_of, gathered, setting

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SAFE = ("cka", "cka-biased", "svcca")
WHOLE = ("cca", "pwcca", "pwcca-back", "regression", "regression-back")
TARGET = 1e-8
MEAN = 800.0
STEEP = 1.75


def precision(*, threads: int, quick: bool) -> Iterator[Measure]:
    """The largest error over all pairs of layers; `ratio` is the error, or the error over its bound.

    With the steeper spectrum, float32 cannot tell the weakest directions from rounding, and they are left out.
    """
    import torch

    torch.set_num_threads(threads)
    for fall in (FALL, STEEP):
        yield from _errors(fall, quick=quick)


def _errors(fall: float, *, quick: bool) -> Iterator[Measure]:
    from pellucid import similarity
    from pellucid.similarity.planning import float32_error
    from pellucid.similarity.sources import Gathered

    n, sites, width = (1500, 2, 96) if quick else (20_000, 3, 768)
    plain = setting(sites=sites, width=width)
    batches = list(Layers(plain, fall=fall, means=MEAN).batches(n))
    values: dict[str, Array] = {}
    bound = 0.0
    for name in ("float64", "float32"):
        chosen = collector(precision=name)
        told = replace(plain, pilot=chosen.pilot(batches[0], plain))  # as a sweep does before its first shard
        found = found_of(chosen, told, gathered(chosen, told, batches))
        values[name] = similarity.grid(found, (*SAFE, *WHOLE), left=LEFT, right=RIGHT, interval=False).values
        if name == "float32":
            pairs = Gathered(found).moment_pairs((plain.keys(LEFT), plain.keys(RIGHT)))
            bound = float32_error(pairs.side(key) for key in plain.keys((LEFT, RIGHT)))
    off = abs(values["float32"] - values["float64"]).max((1, 2))
    errors = dict(zip((*SAFE, *WHOLE), off.tolist(), strict=True))
    told_of = f"{n:,} rows of {width}, means up to {MEAN:g}, {sites} × {sites} layers, spectrum i^−{fall:g}"
    for name in SAFE:
        note = f"error {errors[name]:.1e} against float64, at most the target; {told_of}"
        yield Measure(
            f"precision: {name}, i^−{fall:g}", None, None, None, errors[name], TARGET, errors[name] <= TARGET, note=note
        )
    for name in WHOLE:
        if bound == float("inf"):
            note = f"error {errors[name]:.1e}: float32 loses directions, the grid warns and asks for float64; {told_of}"
            yield Measure(f"precision: {name}, i^−{fall:g}", None, None, None, errors[name], None, None, note=note)
            continue
        share = errors[name] / bound
        note = f"error {errors[name]:.1e} over the bound {bound:.1e}, at most 1; {told_of}"
        yield Measure(f"precision: {name}, i^−{fall:g}", None, None, None, share, 1.0, share <= 1, note=note)
