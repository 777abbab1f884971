"""Claims about neurons: where each is made, what was published, and the numbers that they are judged by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from pellucid.studies import rules
from pellucid.studies.claims import told
from pellucid.studies.neurons.tables import METHODS, Array, Case, Grid
from pellucid.studies.rules import UNKNOWN, Number, resampled

TUTORIAL = "Sajjad et al. 2021 (tutorial)"
CLOSED = frozenset({"ADP", "AUX", "CCONJ", "DET", "NUM", "PART", "PRON", "PUNCT", "SCONJ"})
"""Tags with few words of their own, which grow seldom (and punctuation); all others are open."""


def slide(title: str) -> str:
    """A slide of the tutorial, as sources name it."""
    return f"{TUTORIAL}: {title}"


def relative(grid: Grid, row: str, column: int, whole: Number, chance: float) -> Number:
    """A number of a grid as a share of the whole, with its interval; `chance` is a share as well."""
    found = grid.at(row, column)
    low, high = (None if end is None else end / whole.value for end in (found.low, found.high))
    return Number(found.value / whole.value, chance, low, high)


def by_groups(values: Array, chance: float = 0.0) -> Number:
    """The mean of one value of each of several groups of documents, with its jackknife interval."""
    return of_means(lambda mean: mean, values, chance=chance)


def of_means(number: Callable[..., float], *rows: Array, chance: float = 0.0) -> Number:
    """A number of the means of several values of each group of documents, [groups] each, with its jackknife
    interval."""
    count = len(rows[0])
    if count < 2:
        return UNKNOWN
    without = [number(*(np.delete(row, group).mean() for row in rows)) for group in range(count)]
    return resampled(float(number(*(row.mean() for row in rows))), without, np.ones(count), chance)


def apart(one: Number, other: Number) -> Number:
    """The first number less the second, beside 0, as if they were independent: their intervals add up in squares."""
    value, squares = one.value - other.value, 0.0
    for number in (one, other):
        if number.low is None or number.high is None:
            return Number(value, 0.0)
        squares += ((number.high - number.low) / 2) ** 2
    return Number(value, 0.0, value - math.sqrt(squares), value + math.sqrt(squares))


def paired(differences: Array, *, seed: int = 0) -> Number:
    """The mean of differences [pairs] beside where it lies if the sign of each is a coin's."""
    if len(differences) < 2 * rules.FEWEST:
        return UNKNOWN
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(rules.DRAWS, len(differences)))
    low, high = np.quantile(signs @ differences / len(differences), [(1 - rules.LEVEL) / 2, (1 + rules.LEVEL) / 2])
    return Number(float(differences.mean()), 0.0, band=(float(low), float(high)))


def count_near(grid: Grid, share: float, total: int) -> int:
    """The number of neurons of a curve that is nearest to a share of all."""
    return min((int(count) for count in grid.columns), key=lambda count: abs(count - share * total))


def total_of(grid: Grid, first: int) -> dict[str, int]:
    """How many of the first neurons stand at every site, from the shares of a distribution."""
    return {str(site): round(float(share) * first) for site, share in zip(grid.columns, grid.values[0], strict=True)}


def random_draws(case: Case, score: str) -> Array:
    """A score with random neurons, drawn anew for every ranking: [rankings, columns].

    Without them in the model it is of one draw each; with them alone in a probe, the mean of several.
    """
    names = [f"{score} {method}" for method in METHODS if f"{score} {method}" in case.grids]
    return np.stack([case.grids[name].row("random") for name in names])


def draws_in(case: Case, name: str) -> Array:
    """Accuracies of probes of random neurons, draw by draw; not a number where only means of draws were kept."""
    return case.grids[name].values.flatten() if name in case.grids else np.full(1, math.nan)


def told_draws(draws: Array) -> str:
    """How many draws there are, and between which numbers they lie."""
    if np.isnan(draws).any():
        return "draws were not kept"
    return f"{len(draws)} draws {draws.min():.1%} to {draws.max():.1%}"


def beyond_draws(number: Number, value: float, draws: Array) -> bool | None:
    """Whether a number lies above chance, and a value above all draws; False below both, None where it may be either.

    The interval of the number is over documents; another draw of neurons is another matter.
    """
    found = number.above()
    if found is None:
        return None
    agree = value > draws.max() if found else value < draws.min()
    return found if agree else None


def several(parts: Sequence[tuple[str, Number]], *, per_cent: bool = False, against: str = "chance") -> str:
    """Numbers with what they are, one after another."""
    return " and ".join(f"{name} {told(number, per_cent=per_cent, against=against)}" for name, number in parts)
