"""What was measured on every text, and what it comes to over all of them: means, intervals and chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pellucid.attribution.trials.measures import Array
from pellucid.uncertainty import Interval, document_groups, jackknife

_SPREAD = 1.96
"""Standard deviations of the random draws on either side of their mean, for 95% of them."""


@dataclass(eq=False)
class Tally:
    """Numbers of I items, each a target of a text: values [I, methods], chance [draws, I, methods], weights [I].

    What they come to is Σ value / Σ weight, so that a ratio of sums is kept as such. More axes may follow.
    """

    items: int
    values: dict[str, Array] = field(default_factory=dict[str, Array])
    random: dict[str, Array] = field(default_factory=dict[str, Array])
    weights: dict[str, Array] = field(default_factory=dict[str, Array])

    def add(self, name: str, item: int, value: Array, *, random: Array | None = None, weight: float = 1.0) -> None:
        """Takes in the numbers of one item; `random` has one row for every draw."""
        for held, given in ((self.values, value), (self.weights, np.asarray(weight))):
            if name not in held:
                held[name] = np.zeros((self.items, *given.shape))
            held[name][item] = given
        if random is not None:
            if name not in self.random:
                self.random[name] = np.zeros((len(random), self.items, *random.shape[1:]))
            self.random[name][:, item] = random

    def mean(self, name: str, keep: Array | None = None) -> Array:
        """What the values come to, over all items or those to keep."""
        chosen = slice(None) if keep is None else keep
        return self.values[name][chosen].sum(axis=0) / self.weights[name][chosen].sum()

    def interval(self, name: str, documents: Sequence[str]) -> Interval:
        """The interval of the mean, from leaving out one group of whole documents at a time."""
        group = document_groups(documents)
        numbers = np.unique(group)
        without = [self.mean(name, group != number) for number in numbers] if len(numbers) > 1 else [np.empty(0)]
        return jackknife(self.mean(name), without, [float((group == number).sum()) for number in numbers])

    def chance(self, name: str) -> tuple[Array, Array, Array]:
        """The mean over random draws of what they come to, and the range of 95% of the draws."""
        draws = self.random[name].sum(axis=1) / self.weights[name].sum()
        middle, reach = draws.mean(axis=0), _SPREAD * draws.std(axis=0, ddof=1)
        return middle, middle - reach, middle + reach
