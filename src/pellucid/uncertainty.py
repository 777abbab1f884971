"""Uncertainty: how far a number would move with other text, found by leaving out one group of documents at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
GROUPS = 10
"""Document groups of a sweep; with fewer, the interval says so."""


class Grouped(Protocol):
    """A view whose document groups were kept apart."""

    @property
    def groups(self) -> tuple[int, ...]: ...
    def group(self, number: int) -> Self: ...
    def without(self, number: int) -> Self: ...


V = TypeVar("V", bound=Grouped)


@dataclass(frozen=True, eq=False)
class Interval:
    """Both ends of an interval, in the shape of the estimate, or None; `resampled` names the unit, or says why none."""

    low: Array | None
    high: Array | None
    resampled: str

    def within(self, least: Array | float, most: Array | float) -> Interval:
        """The same with both ends kept between the least and the most that the number can be."""
        if self.low is None or self.high is None:
            return self
        return Interval(np.clip(self.low, least, most), np.clip(self.high, least, most), self.resampled)


def jackknife(estimate: Array, without: Sequence[Array], sizes: Sequence[float], *, level: float = 0.95) -> Interval:
    """The interval of an estimate from the estimates `without` each of G document groups, whose `sizes` may differ.

    With h_j = n/m_j for a group of m_j of the n words and θ_(j) the estimate without it, the variance is
    Σ_j (h_j·θ − (h_j−1)·θ_(j) − θ_J)² / (h_j−1) / G, where θ_J = G·θ − Σ_j (1 − 1/h_j)·θ_(j); the interval is θ ± t·sd
    with G−1 degrees of freedom (Busing, Meijer & van der Leeden 1999).
    """
    count = len(without)
    if count < 2:
        found = "one document group" if count else "document groups that were not kept apart"
        return Interval(None, None, f"no interval: all of the text lies in {found}")
    weights = np.asarray(sizes, dtype=np.float64)
    assert len(weights) == count and bool((weights > 0).all())
    others = np.stack(list(without))  # [G, …]
    ratio = (weights.sum() / weights).reshape(-1, *[1] * estimate.ndim)
    centre = count * estimate - ((1 - 1 / ratio) * others).sum(axis=0)
    pseudo = ratio * estimate - (ratio - 1) * others
    deviation = np.sqrt(((pseudo - centre) ** 2 / (ratio - 1)).sum(axis=0) / count)
    reach = t_quantile((1 + level) / 2, count - 1) * deviation
    return Interval(estimate - reach, estimate + reach, _unit(count, level))


def over_groups(view: V, statistic: Callable[[V], Array], size: Callable[[V], float]) -> Interval:
    """The jackknife interval of a statistic of a view, each document group left out in turn.

    `size` gives the words of a group; empty groups are no groups.
    """
    sizes = {number: size(view.group(number)) for number in view.groups}
    kept = {number: words for number, words in sizes.items() if words > 0}
    several = len(kept) > 1
    without = [statistic(view.without(number)) if several else np.empty(0) for number in kept]
    return jackknife(statistic(view), without, list(kept.values()))


def _unit(count: int, level: float) -> str:
    few = f", fewer than {GROUPS}" if count < GROUPS else ""
    return f"{count} document groups{few} (jackknife, {level:.0%})"


def t_quantile(chance: float, freedom: int) -> float:
    """The value below which Student's t falls with a chance of ½ to 1, by halving the interval."""
    if not 0.5 <= chance < 1 or freedom < 1:
        raise ValueError(f"no t quantile for a chance of {chance} and {freedom} degrees of freedom")
    below, above = 0.0, 1.0
    while _t_distribution(above, freedom) < chance:
        above *= 2
    for _ in range(200):
        middle = (below + above) / 2
        below, above = (middle, above) if _t_distribution(middle, freedom) < chance else (below, middle)
    return (below + above) / 2


def _t_distribution(value: float, freedom: int) -> float:
    """Student's distribution for t ≥ 0 as a finite sum (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan2(value, math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2 == 1
    term, total = (cosine if odd else 1.0), 0.0
    for step in range(freedom // 2):
        total += term
        upper = 2 * step + (2 if odd else 1)
        term *= upper / (upper + 1) * cosine**2
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return (1 + within) / 2


def document_groups(documents: Sequence[str]) -> Array:
    """The group of every text, [n]: at most `GROUPS` of whole documents, in their order."""
    order = {name: number for number, name in enumerate(dict.fromkeys(documents))}
    count = min(GROUPS, len(order))
    return np.array([order[name] * count // len(order) for name in documents])


def over_documents(
    values: Array,
    documents: Sequence[str],
    statistic: Callable[[Array], Array] = lambda part: part.mean(axis=0),
    *,
    sizes: Sequence[float] | None = None,
) -> tuple[Array, Interval]:
    """A statistic of numbers [n, …] of texts (their mean), and its jackknife interval over groups of documents.

    `sizes` are what the texts weigh in the statistic, such as their tokens; by default all weigh the same.
    """
    group = document_groups(documents)
    weights = np.ones(len(group)) if sizes is None else np.asarray(sizes, dtype=np.float64)
    held = {number: float(weights[group == number].sum()) for number in dict.fromkeys(group.tolist())}
    kept = {number: size for number, size in held.items() if size > 0}
    without = [statistic(values[group != number]) for number in kept] if len(kept) > 1 else []
    whole = statistic(values)
    return whole, jackknife(whole, without, list(kept.values()) if len(kept) > 1 else [])


def range_of_draws(total: int, special: int, drawn: int, *, level: float = 0.95) -> tuple[int, int]:
    """How many special ones are among some `drawn` from `total` with `special` ones: the narrowest range of whole
    numbers whose tails hold at most (1 − level)/2 each (hypergeometric distribution)."""
    every, tail = math.comb(total, drawn), (1 - level) / 2
    chances = [math.comb(special, k) * math.comb(total - special, drawn - k) / every for k in range(drawn + 1)]
    below = np.cumsum(chances)
    return int(np.argmax(below > tail)), int(np.argmax(below >= 1 - tail - 1e-12))
