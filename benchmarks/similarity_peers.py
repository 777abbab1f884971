"""Comparisons of one pair at a time, beside the grid: SVCCA and CKA in NumPy, torch_cka, netrep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.peers import PeerError
from benchmarks.report import Measure
from benchmarks.similarity_rows import SITES
from benchmarks.sweep_children import Worker
from benchmarks.sweep_measures import at_least, unmeasured
from benchmarks.timing import Sample, timer

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

PAIRS = SITES * SITES
MODULE = "benchmarks.similarity_peer_worker"
PART = 512  # rows that packages are timed over: two batches of theirs


def peers(
    rows: Callable[[str], Array], ours: Mapping[str, Sequence[Sample]], *, threads: int, floor: float, quick: bool
) -> Iterator[Measure]:
    """A few pairs of layers by each peer, brought to 169; ours are whole grids from rows on, with chance.

    `ours` are grids of CKA (`cka`), and of CKA and SVCCA (`cheap`); each peer stands beside the one that does its work.
    """
    layers = [(rows("0:resid.3"), rows("1:resid.5")), (rows("0:resid.9"), rows("1:resid.12"))]
    for name, score, kind in (("SVCCA", svcca, "cheap"), ("CKA", cka, "cka")):
        mine = ours[kind][: len(layers)]
        samples = [timer(lambda pair=pair, score=score: score(*pair))() for pair in layers[: len(mine)]]
        times = [Sample(PAIRS * sample.wall, PAIRS * sample.cpu) for sample in samples]
        note = f"{len(times)} pairs one by one, {times[0].wall / PAIRS:.2f} s each, times {PAIRS}"
        yield at_least(f"grid: against {name} in NumPy", mine, times, target=None, note=note, peer=True, floor=floor)
    for name in ("torch_cka", "netrep"):
        yield _package(name, ours["cka"][:1], words=len(layers[0][0]), threads=threads, floor=floor, quick=quick)


def _package(name: str, ours: Sequence[Sample], *, words: int, threads: int, floor: float, quick: bool) -> Measure:
    """A package in its own environment, over a part of the rows; its time grows with them."""
    what, some = f"grid: against {name}", PART * (1 if quick else 4)
    try:
        with Worker(MODULE, name, str(some), peer=True, threads=threads) as worker:
            sample = worker.time()
            version = worker.ready["version"]
    except PeerError as reason:
        return unmeasured(what, str(reason))
    share = words / some
    note = f"{name} {version}, all {PAIRS} pairs over {some:,} rows, times {share:.1f}"
    whole = [Sample(share * sample.wall, share * sample.cpu)]
    return at_least(what, ours, whole, target=None, note=note, peer=True, floor=floor)


def svcca(x: Array, y: Array) -> float:
    """Mean canonical correlation after both sides were cut to 99% of their variance: two SVDs of whole rows, then CCA.

    The left singular vectors are orthonormal already, so that QR is not needed.
    """
    import numpy as np

    bases: list[Array] = []
    for side in (x, y):
        left, sizes, _ = np.linalg.svd(side - side.mean(0), full_matrices=False)
        shares = np.cumsum(sizes**2) / np.sum(sizes**2)
        bases.append(left[:, : int(np.searchsorted(shares, 0.99)) + 1])
    return float(np.linalg.svd(bases[0].T @ bases[1], compute_uv=False).mean())


def cka(x: Array, y: Array) -> float:
    """Linear CKA in feature space: three products of whole rows for every pair."""
    import numpy as np

    x, y = x - x.mean(0), y - y.mean(0)
    both = np.linalg.norm(x.T @ y) ** 2
    return float(both / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)))
