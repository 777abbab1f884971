"""Chance where neurons are dealt out: the neurons of a unit, which is the same at all sites, go together.

A unit of the stream has much the same values at neighbouring sites, so that single neurons are far from independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pellucid.neurons import Ranking
from pellucid.neurons.judging.equals import chance_of_first
from pellucid.neurons.judging.findings import classes_served
from pellucid.neurons.ranking import split_name
from pellucid.studies import rules
from pellucid.studies.neurons.tables import Array
from pellucid.studies.rules import UNKNOWN, Number


def depth_of(ranking: Ranking, first: int, sites: Sequence[str]) -> Number:
    """The mean depth (0 the first site, 1 the last) of the first neurons less that of all others.

    Beside it stands where it lies if the sites of some units, drawn at random, are turned round.
    """
    inside, depth = _firsts(ranking, first, sites), _depth(sites)
    away = (inside * (depth - 0.5)[:, None]).sum(axis=0)  # [units]
    scale = 1 / first + 1 / max(1, inside.size - first)
    if first < rules.FEWEST or inside.size - first < rules.FEWEST:
        return UNKNOWN
    return _beside(float(away.sum()) * scale, 0.0,
                   lambda dice: float(away @ dice.choice([-1.0, 1.0], len(away))) * scale)  # fmt: skip


def depth_between(one: Ranking, other: Ranking, first: int, sites: Sequence[str]) -> Number:
    """The mean depth of the first neurons of a ranking less that of another's.

    Beside it stands where it lies if units, drawn at random, change places: those of the one become the other's.
    """
    depth, parts = _depth(sites), [_firsts(each, first, sites) for each in (one, other)]
    sums = np.stack([(part * depth[:, None]).sum(axis=0) for part in parts])  # [2, units]
    counts = np.stack([part.sum(axis=0) for part in parts])

    def apart(turned: Array) -> float:
        mine, theirs = (
            np.where(turned, sums[1 - at], sums[at]).sum() / max(1, np.where(turned, counts[1 - at], counts[at]).sum())
            for at in (0, 1)
        )
        return float(mine - theirs)

    units = counts.shape[1]
    return _beside(apart(np.zeros(units, dtype=bool)), 0.0, lambda dice: apart(dice.random(units) < 0.5))


def hidden_units(ranking: Ranking, first: int) -> Number:
    """How many of the first neurons are hidden units (`neurons.L`), beside what is dealt out otherwise at random.

    Units are dealt out to the kinds of sites, each with all of its blocks.
    """
    top, count = set(ranking.top(first)), dict[tuple[bool, int], int]()
    for name in ranking.neurons:
        site, unit = split_name(name)
        key = site.startswith("neurons."), unit
        count[key] = count.get(key, 0) + (name in top)
    hidden, inside = np.array([key[0] for key in count]), np.array([*count.values()], dtype=float)
    if not 0 < hidden.sum() < len(hidden):
        return UNKNOWN
    even = first * sum(name.startswith("neurons.") for name in ranking.neurons) / len(ranking.neurons)
    return _beside(float(inside[hidden].sum()), even, lambda dice: float(dice.permutation(inside)[hidden].sum()))


def several_classes(ranking: Ranking, first: int, sites: Sequence[str]) -> Number:
    """Of the neurons that are among the first of any class, the share of those of several.

    Beside it stands where it lies if every class has other units at random, each with all of its sites.
    """
    chances = np.stack([_ordered(ranking, chance_of_first(ranking.scores(cls), first), sites)
                        for cls in ranking.classes])  # fmt: skip

    def share(given: Array) -> float:
        law = classes_served(given.reshape(len(given), -1))
        return float(law[2:].sum() / law[1:].sum())

    def dealt(dice: np.random.Generator) -> float:
        return share(np.stack([each[:, dice.permutation(each.shape[1])] for each in chances]))

    return _beside(share(chances), None, dealt)


def _depth(sites: Sequence[str]) -> Array:
    return np.linspace(0, 1, len(sites)) if len(sites) > 1 else np.full(1, 0.5)


def _firsts(ranking: Ranking, first: int, sites: Sequence[str]) -> Array:
    """Whether each neuron is among the first, [sites, units]."""
    top = set(ranking.top(first))
    return _ordered(ranking, np.array([name in top for name in ranking.neurons], dtype=float), sites)


def _ordered(ranking: Ranking, values: Array, sites: Sequence[str]) -> Array:
    """Numbers of neurons [neurons] by site and unit, [sites, units]; sites of a stream are all as wide."""
    place, found = {site: at for at, site in enumerate(sites)}, np.zeros((len(sites), len(values) // len(sites)))
    for name, value in zip(ranking.neurons, values, strict=True):
        site, unit = split_name(name)
        found[place[site], unit] = value
    return found


def _beside(value: float, chance: float | None, draw: Callable[[np.random.Generator], float]) -> Number:
    """A number beside 95% of draws, and beside their mean where chance is not known otherwise."""
    dice = np.random.default_rng(0)
    drawn = np.array([draw(dice) for _ in range(rules.DRAWS)])
    low, high = np.quantile(drawn, [(1 - rules.LEVEL) / 2, (1 + rules.LEVEL) / 2])
    return Number(value, float(drawn.mean()) if chance is None else chance, band=(float(low), float(high)))
