"""Gaussian selection of neurons by rank-1 updates beside refitting for every candidate at every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.report import Measure
from benchmarks.timing import compare, interleave, timer

TARGET = 1 / 50
CLASSES, HELD = 4, 500


def gaussian(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Neurons selected from 768 (quick: from 96) by rank-1 updates over a Gaussian refitted for every candidate."""
    import numpy as np
    import torch

    from pellucid.neurons.probing.gaussian_selection import fitted, select

    width, count = (96, 12) if quick else (768, 50)
    dice = np.random.default_rng(0)
    mixed = np.eye(width) + dice.normal(size=(width, width)) / width**0.5
    goals = dice.integers(0, CLASSES, HELD)
    centres = 0.4 * dice.normal(size=(CLASSES, width))
    rows = (dice.normal(size=(HELD, width)) + centres[goals]) @ mixed
    covariances = np.repeat((mixed.T @ mixed)[None], CLASSES, axis=0)
    made = fitted(np.full(CLASSES, 5000.0), centres @ mixed, covariances)
    found: dict[str, list[int]] = {}

    def selecting() -> None:
        found["ours"] = select(made, torch.from_numpy(rows), goals, count).picks.tolist()

    def refitting() -> None:
        found["refitted"] = refitted(made, rows, goals, count)

    selecting()  # the first call starts threads
    samples = interleave({"ours": timer(selecting), "refitted": timer(refitting)}, rounds=1 if quick else 3, warmup=0)
    result = compare(samples["ours"], samples["refitted"])
    same = found["ours"] == found["refitted"]
    note = f"{CLASSES} classes, {HELD} held-out words, {threads} threads; the same picks: {'yes' if same else 'no'}"
    what = f"Gaussian selection: {count} of {width} neurons, over refitting"
    yield Measure(
        what=what,
        ours=result.ours,
        peer=result.other,
        floor=None,
        ratio=result.ratio,
        target=TARGET,
        met=same and result.ratio <= TARGET,
        interval=result.interval,
        cpu_ratio=result.cpu_ratio,
        rounds=result.rounds,
        note=note,
    )


def refitted(made: Any, rows: Any, goals: Any, count: int) -> list[int]:
    """The same choice with a Gaussian of its own for every candidate at every step, in NumPy."""
    import numpy as np
    from scipy.linalg import solve_triangular

    picks: list[int] = []
    everyone = np.arange(len(goals))
    for _ in range(count):
        best, chosen = -np.inf, -1
        for unit in range(rows.shape[1]):
            if unit in picks:
                continue
            mine = [*picks, unit]
            logs = np.empty((len(made.prior), len(goals)))
            for z, (mean, covariance) in enumerate(zip(made.means, made.covariances, strict=True)):
                factor = np.linalg.cholesky(covariance[np.ix_(mine, mine)])
                scaled: Any = solve_triangular(factor, (rows[:, mine] - mean[mine]).T, lower=True)
                logs[z] = made.prior[z] - (scaled**2).sum(0) / 2 - np.log(np.diag(factor)).sum()
            score = float((logs[goals, everyone] - np.logaddexp.reduce(logs, axis=0)).mean())
            if score > best:
                best, chosen = score, unit
        picks.append(chosen)
    return picks
