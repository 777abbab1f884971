"""RBF CKA of 26 × 26 layers over a sample of words, against two Gram matrices made anew for every pair."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.report import Measure
from benchmarks.similarity_rows import Layers, setting
from benchmarks.sweep_measures import at_least
from benchmarks.timing import Sample, timer

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

TARGET = 20.0
MEASURED = 2  # pairs that are timed one by one


def rbf(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Debiased RBF CKA of every pair of 26 layers, through `SampleSet`, and of a few pairs with whole matrices."""
    import torch

    from pellucid.similarity import Samples, SampleSet
    from pellucid.similarity.sampled import rbf_cka

    torch.set_num_threads(threads)
    n = 500 if quick else 4000
    rows = {key: part.numpy() for key, part in Layers(setting()).rows(0, n).items()}
    values: dict[tuple[str, str], float] = {}

    def ours() -> None:
        sample = SampleSet(rows)
        values.update({(one, other): rbf_cka(Samples(sample, one, other)) for one in rows for other in rows})

    mine = timer(ours)()
    keys = list(rows)
    theirs: list[Sample] = []
    for place in range(MEASURED):
        left, right = keys[place], keys[-1 - place]
        found: list[float] = []
        theirs.append(timer(lambda x=left, y=right, found=found: found.append(one_pair(rows[x], rows[y])))())
        assert abs(found[0] - values[left, right]) < 1e-6, "both ways give the same score"
    pairs = len(rows) ** 2
    whole = Sample(*(pairs * statistics.median(getattr(each, what) for each in theirs) for what in ("wall", "cpu")))
    each = whole.wall / pairs
    note = f"{n:,} words, {threads} threads; {MEASURED} pairs one by one, {each:.2f} s each, times {pairs}"
    yield at_least("rbf: 26 × 26 pairs", [mine], [whole], target=TARGET, note=note, peer=True)


def one_pair(x: Array, y: Array) -> float:
    """Debiased CKA with Gaussian kernels as wide as the median distance, from two n × n matrices in NumPy."""
    import numpy as np

    kernels: list[Array] = []
    for side in (x, y):
        wide = side.astype(np.float64)
        wide -= wide.mean(0)
        norms = (wide**2).sum(1)
        squared = np.maximum(norms[:, None] + norms - 2 * wide @ wide.T, 0.0)
        np.fill_diagonal(squared, 0.0)
        kernel = np.exp(-squared / (2 * np.median(squared)))
        np.fill_diagonal(kernel, 0.0)
        kernels.append(kernel)
    left, right = kernels
    return float(_hsic(left, right) / np.sqrt(_hsic(left, left) * _hsic(right, right)))


def _hsic(left: Array, right: Array) -> float:
    """n(n−3) times the unbiased HSIC of two matrices with zero diagonals (Song et al. 2012)."""
    n = len(left)
    sums = left.sum(0), right.sum(0)
    inner = float((left * right).sum())
    return inner + float(sums[0].sum() * sums[1].sum()) / ((n - 1) * (n - 2)) - 2 / (n - 2) * float(sums[0] @ sums[1])
