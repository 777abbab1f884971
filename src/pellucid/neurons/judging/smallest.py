"""The smallest sufficient set: how many first neurons of a ranking a probe needs, chosen on documents to learn from and
tested on others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.neurons.probing.intervals import accuracies
from pellucid.neurons.probing.material import Material
from pellucid.neurons.probing.probes import tested, tested_counts
from pellucid.neurons.probing.training import Settings, Task, fit
from pellucid.results import Array, Table

_POINTS = 3
"""Numbers of neurons that are tried at once between one that is not enough and one that is."""
_TURNS = 3
"""Probes of each number of neurons, every one of which another fold decides about: a single fold has few words."""
_NEAR = 20
"""A search ends where the next smaller number tried is less by one neuron, or by this part of the number."""


def smallest_sets(
    found: Material, order: Sequence[str], sizes: Sequence[int], shares: Sequence[float], settings: Settings
) -> Table:
    """For each share, the smallest number of first neurons whose probe is within it of the accuracy of all neurons.

    Three probes of each number learn from eight of the ten folds, stop by one and are told by another; by the words of
    these three folds together, the number is chosen: first among `sizes`, then between that which is enough and the
    next smaller one. It is enough if all larger numbers that were tried are, so that no lucky one is taken. Accuracies
    are those of the documents for testing, means over the three, with their interval, beside that of all neurons.
    """
    search = _Search(found, order, settings)
    search.try_all([*sizes, len(order)])
    while new := [size for share in shares for size in search.between(share)]:
        search.try_all(new)
    chosen = [search.enough(share) for share in shares]
    hits = np.stack([*(search.hits[size] for size in chosen), search.hits[len(order)]])
    unit = found.data.unit.removesuffix("s")
    values, interval = accuracies(hits, tested_counts(found), lambda share: share[..., 0], unit=unit)
    ends = {"low": interval.low, "high": interval.high}
    columns = {"neurons": np.array(chosen), "accuracy": values[:-1], "all neurons": np.full(len(chosen), values[-1])}
    columns |= {name: end[:-1] for name, end in ends.items() if end is not None}
    return Table({"within": tuple(shares)}, columns)


class _Search:
    """Probes of the first so many neurons: their accuracy on the folds that decide, and hits in documents for testing,
    by number."""

    def __init__(self, found: Material, order: Sequence[str], settings: Settings) -> None:
        self._found, self._settings, self._total = found, settings, len(order)
        place = {name: at for at, name in enumerate(found.rows.names)}
        self._places = np.array([place[name] for name in order])
        self.reached: dict[int, float] = {}
        self.hits: dict[int, Array] = {}

    def try_all(self, sizes: Sequence[int]) -> None:
        """Trains the probes of all numbers that were not tried before, together."""
        new = [size for size in sorted(set(sizes)) if size not in self.reached]
        fold, goals, turns = self._found.split.fold, self._found.data.goals, range(_TURNS)
        tasks: list[Task] = []
        for size in new:
            columns = np.zeros(self._total, dtype=bool)
            columns[self._places[:size]] = True
            tasks += [
                Task(goals, (fold >= 0) & (fold != turn) & (fold != turn + 1), fold == turn, columns) for turn in turns
            ]
        fitted = fit(self._found.rows, tasks, len(self._found.data.classes), self._settings)
        right, count = np.zeros(len(new)), 0
        for numbers, part in self._found.rows.batches((fold > 0) & (fold <= _TURNS), 2048, None):
            hit = (fitted.guesses(part) == goals[numbers]).reshape(len(new), _TURNS, -1)
            right += sum(hit[:, turn, fold[numbers] == turn + 1].sum(axis=1) for turn in turns)
            count += len(numbers)
        self.reached |= dict(zip(new, right / max(1, count), strict=True))
        hits = tested(self._found.rows, fitted, tasks, self._found)
        hits = hits.reshape(len(new), _TURNS, *hits.shape[1:]).mean(axis=1)
        self.hits |= dict(zip(new, hits, strict=True))

    def enough(self, share: float) -> int:
        """The smallest number tried from which on all probes are within a share of all neurons' accuracy."""
        bar = (1 - share) * self.reached[self._total]
        short = max((size for size, accuracy in self.reached.items() if accuracy < bar), default=0)
        return min(size for size in self.reached if size > short)

    def between(self, share: float) -> list[int]:
        """Numbers to try next, below one that is enough; none where the search is over."""
        upper = self.enough(share)
        lower = max((size for size in self.reached if size < upper), default=0)
        if upper - lower <= max(1, upper // _NEAR):
            return []
        inner = np.linspace(lower, upper, _POINTS + 2)[1:-1].round().astype(int).tolist()
        return [size for size in inner if lower < size < upper]
