"""Rules of studies: numbers beside what chance gives, and whether they lie beyond it; no model is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.heads.weighing.agreement import ranks
from pellucid.uncertainty import jackknife, range_of_draws

Array = np.ndarray[Any, Any]
LEVEL = 0.95
DRAWS = 2000
"""Permutations of a test."""
FEWEST = 2
"""Heads of a kind, and heads of all others, below which the two are not compared."""


@dataclass(frozen=True)
class Number:
    """A number beside what chance gives, with the interval of the number, or the range in which chance lies."""

    value: float
    chance: float
    low: float | None = None
    high: float | None = None
    band: tuple[float, float] | None = None

    def above(self) -> bool | None:
        """True where the number is larger than chance gives, False where it is smaller, None where it may be either.

        With a band, the number must lie outside of it; without one, its interval must not hold the chance level.
        """
        if not math.isfinite(self.value):
            return None
        if self.band is not None:
            return True if self.value > self.band[1] else False if self.value < self.band[0] else None
        if self.low is None or self.high is None:
            return None
        return True if self.low > self.chance else False if self.high < self.chance else None

    def below(self) -> bool | None:
        """The same with the sides changed."""
        found = self.above()
        return None if found is None else not found


UNKNOWN = Number(math.nan, math.nan)
"""A number that could not be worked out."""


def beaten(values: Array, chosen: Array) -> float:
    """How likely a chosen one [n, bool] has the larger value [n] than one of the others; ties count half.

    This is the area under the ROC curve: 1 where all chosen ones come first, ½ by chance.
    """
    mine, others = values[chosen], values[~chosen]
    return float((np.sign(mine[:, None] - others[None]) / 2 + 0.5).mean())


def precedence(values: Array, chosen: Array, *, seed: int = 0) -> Number:
    """`beaten`, beside where it lies if it is dealt out at random which are chosen (95% of the permutations)."""
    if min(int(chosen.sum()), int((~chosen).sum())) < FEWEST:
        return UNKNOWN
    return _permuted(beaten(values, chosen), 0.5, lambda dice: beaten(values, dice.permutation(chosen)), seed)


def agreement(first: Array, second: Array, *, seed: int = 0) -> Number:
    """Spearman's ρ of two lists of values [n], beside where it lies if one is dealt out at random."""
    if len(first) < 2 * FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return UNKNOWN
    one, other = (ranks(each) - (len(each) + 1) / 2 for each in (first, second))
    size = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return _permuted(float(one @ other) / size, 0.0, lambda dice: float(one @ dice.permutation(other)) / size, seed)


def difference(values: Array, first: Array, second: Array, *, seed: int = 0) -> Number:
    """The mean of the first ones less that of the second, beside where it lies if both kinds are dealt out anew."""
    if min(int(first.sum()), int(second.sum())) < FEWEST:
        return UNKNOWN
    both, count = np.concatenate([values[first], values[second]]), int(first.sum())

    def apart(order: Array) -> float:
        return float(order[:count].mean() - order[count:].mean())

    return _permuted(apart(both), 0.0, lambda dice: apart(dice.permutation(both)), seed)


def _permuted(value: float, chance: float, draw: Callable[[np.random.Generator], float], seed: int) -> Number:
    dice = np.random.default_rng(seed)
    drawn = np.array([draw(dice) for _ in range(DRAWS)])
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Number(value, chance, band=(float(low), float(high)))


def survivors(total: int, special: int, left: int, found: int) -> Number:
    """How many `found` of the heads `left` are special, beside a draw of as many from `total` with `special` ones.

    The band is that of `range_of_draws`.
    """
    if not 0 < left < total or not 0 < special < total:
        return UNKNOWN
    low, high = range_of_draws(total, special, left, level=LEVEL)
    return Number(float(found), left * special / total, band=(float(low), float(high)))


def share(count: int, total: int, chance: float) -> Number:
    """A share of some heads, with Wilson's interval, beside what another network has."""
    z, n = 1.959964, total
    p = count / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    reach = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low, high = (0.0 if count == 0 else middle - reach), (1.0 if count == n else middle + reach)
    return Number(p, chance, low, high)


def resampled(value: float, without: Sequence[float] | Array, sizes: Sequence[float] | Array, chance: float) -> Number:
    """A number with its jackknife interval over document groups."""
    found = jackknife(np.array(value), [np.array(each) for each in without], [float(size) for size in sizes])
    if found.low is None or found.high is None:
        return Number(value, chance)
    return Number(value, chance, float(found.low), float(found.high))


def middle_layers(count: int) -> Array:
    """Which of so many layers [layers, bool] lie in the middle third of the network."""
    depth = (np.arange(count) + 0.5) / count
    return (depth > 1 / 3) & (depth < 2 / 3)


OUTER = ("first", "last")
"""The thirds of a network that are not its middle."""


def middle_less(values: Array, outer: str) -> float:
    """The mean of the middle third of the layers less that of an outer one; NaN where there is no middle."""
    middle = np.flatnonzero(middle_layers(len(values)))
    if not len(middle):
        return math.nan
    other = values[: middle[0]] if outer == "first" else values[middle[-1] + 1 :]
    return float(values[middle].mean() - other.mean())


def in_the_middle(beside: Sequence[Number], values: Array, *, wanted: int = 1) -> bool | None:
    """Whether values [layers] are largest (`wanted` 1) or smallest (−1) in the middle third of the layers.

    True where the middle lies beyond each outer third, told by `middle_less` with its interval, and the layer that has
    most lies in it; False where it lies on the other side of one of them.
    """
    sides = [each.above() if wanted > 0 else each.below() for each in beside]
    if False in sides:
        return False
    inside = bool(middle_layers(len(values))[int((wanted * values).argmax())])
    return True if inside and all(sides) else None


def centre(values: Array) -> float:
    """The mean depth (0 first layer, 1 last) of what is positive in values [layers], weighted by it; ½ without any."""
    weights = np.maximum(values, 0.0)
    if not weights.sum() or len(values) < 2:
        return 0.5
    return float((weights * np.linspace(0, 1, len(values))).sum() / weights.sum())


def rise(row: Array) -> float:
    """How much values [layers] rise from the first layer to the last, along the straight line that fits them best."""
    return float(np.polyfit(np.linspace(0, 1, len(row)), row, 1)[0]) if len(row) > 1 else math.nan
