"""Chance of the best: what scores become when labels are dealt out at random, and the better end or class counts.

A neuron is scored at the better end of its values, and overall by its best class. So chance is the mean of the largest
of all that was tried, and not that of one of them.
"""

from __future__ import annotations

import numpy as np

from pellucid.neurons.bitmasks import overlap
from pellucid.results import Array

DRAWS = 200
_PAIRS = 32
"""Different sizes of masks that are drawn as they are; of more, sizes are drawn in steps of √2."""
_WORDS = 20_000
"""Words among which labels are dealt out for average precision; with more, spread is that of so many, made smaller."""
_FEW, _RARE, _NUMBERS = 50, 5000, 1_000_000
"""A class that has fewer words than the one among so many, and at most the next in all, is dealt out by itself, as
many numbers as the last says."""


def overlap_chance(
    upper: Array, lower: Array | None, counts: Array, places: list[int], seed: int
) -> tuple[Array, Array]:
    """The expected IoU of a class at the better end, [class, neuron], and of the best class, [neuron].

    `upper` and `lower` [neuron] are how many words neurons fire on at each end, and `counts` [all classes] the words of
    each class; scored are those at `places`.
    """
    n, sizes = int(counts.sum()), np.stack([upper, upper if lower is None else lower], axis=1).round().astype(np.int64)
    own = counts[places].astype(np.float64)[:, None]
    level = sizes if len(np.unique(sizes, axis=0)) <= _PAIRS else _rounded(sizes, n)
    pairs, which = np.unique(level, axis=0, return_inverse=True)
    found = [_largest_overlap(one, None if lower is None else two, counts, places, [seed, 8, at])
             for at, (one, two) in enumerate(pairs.tolist())]  # fmt: skip
    drawn, best = np.array([each for each, _ in found]).T, np.array([each for _, each in found])
    plain, near = (np.maximum(*(_expected(part[:, end], own, n) for end in (0, 1))) for part in (sizes, pairs))
    ratio, overall = drawn / np.maximum(near, 1e-300), best / np.maximum(near.max(0), 1e-300)
    return plain * ratio[:, which.ravel()], plain.max(0) * overall[which.ravel()]


def _rounded(sizes: Array, n: int) -> Array:
    steps = np.round(2 * np.log2(np.maximum(sizes, 1)))
    return np.where(sizes > 0, np.minimum(np.round(2 ** (steps / 2)), n), 0).astype(np.int64)


def _expected(size: Array, own: Array, n: int) -> Array:
    """IoU of masks whose overlap is as large as it is on average, [class, neuron]."""
    return overlap(size * own / max(1, n), size, own)


def _largest_overlap(
    upper: int, lower: int | None, counts: Array, places: list[int], seed: list[int]
) -> tuple[Array, float]:
    """Mean IoU at the better end [class], and of the best class, over draws of words for both masks.

    Masks that hold more than all words together are drawn by the words that they leave out, which are never the same.
    """
    dice, n, whole = np.random.default_rng(seed), int(counts.sum()), counts.astype(np.int64)
    turned = lower is not None and upper + lower > n
    first, second = (n - upper, n - lower) if turned and lower is not None else (upper, lower)
    best = np.zeros((DRAWS, len(places)))
    for draw in range(DRAWS):
        left = whole
        for size in (first,) if second is None else (first, second):
            hit = dice.multivariate_hypergeometric(left, min(size, int(left.sum())), method="marginals")
            left = left - hit
            common, large = (whole - hit, n - size) if turned else (hit, size)
            best[draw] = np.maximum(best[draw], overlap(common[places], np.array(large), whole[places]))
    return best.mean(axis=0), float(best.max(axis=1).mean())


def precision_chance(ties: Array, counts: Array, places: list[int], seed: int) -> tuple[Array, Array]:
    """The expected average precision of a class at the better end, [class, neuron], and of the best class, [neuron].

    `ties` [end, neuron] is S = Σ_b n_b/N_b over a neuron's different values (or bins) b, from the largest on, with n_b
    words at b and N_b down to it. At one end, a class with R of n words has E = (S + (R−1)(n−S)/(n−1))/n exactly; what
    the better of both ends adds comes from labels dealt out among words without equal values, S = H(n), and is taken
    as proportional to S − 1: 0 for a neuron that is always the same.
    """
    n, own = int(counts.sum()), counts[places].astype(np.float64)[:, None]
    spread, best = _largest_precision(counts, places, len(ties), seed)
    plain = np.max([_of_ties(part, own, n) for part in ties], axis=0)
    free = _of_ties(np.array([_untied(n)]), own, n)
    moves = ((ties.max(axis=0) - 1) / max(_untied(n) - 1, 1e-300)).clip(0, 1)[None]
    return plain + moves * spread[:, None], plain.max(axis=0) + moves[0] * (best - free.max())


def _of_ties(ties: Array, own: Array, n: int) -> Array:
    return (ties + (own - 1) * (n - ties) / max(1, n - 1)) / n


def _untied(n: int) -> float:
    """S where all values differ: H(n)."""
    return float((1 / np.arange(1, n + 1)).sum())


def _largest_precision(counts: Array, places: list[int], ends: int, seed: int) -> tuple[Array, float]:
    """What the better end adds to the mean average precision, [class], and the mean of the best class's."""
    n, less = int(counts.sum()), min(1.0, _WORDS / int(counts.sum()))
    dice = np.random.default_rng([seed, 9])
    away = _dealt(counts, less, ends, dice)
    added = away.max(axis=1).mean(axis=0)
    rare = (counts > 0) & (counts * less < _FEW) & (counts <= _RARE) & (less < 1)
    for place in np.flatnonzero(rare):
        alone = _dealt_alone(int(counts[place]), n, ends, dice)
        added[place], away[:, :, place] = alone.max(axis=1).mean(), alone[:DRAWS]
    free = _of_ties(np.array([_untied(n)]), counts[places].astype(np.float64)[:, None], n)[:, 0]
    return added[places], float((free + away[..., places]).max(axis=(1, 2)).mean())


def _dealt(counts: Array, less: float, ends: int, dice: np.random.Generator) -> Array:
    """How far the average precision of each class lies from its mean when labels are dealt out, [draw, end, class].

    Of many words a share `less` is dealt out, and the spread made smaller accordingly.
    """
    few = np.where(counts > 0, np.maximum(1, np.round(counts * less)), 0).astype(np.int64)
    codes, size = np.repeat(np.arange(len(few)), few).astype(np.int16), int(few.sum())
    found = np.zeros((DRAWS, ends, len(few)))
    starts = np.concatenate([[0], np.cumsum(few)[:-1]])
    place = np.arange(size) - np.repeat(starts, few) + 1  # 1, 2, … inside each class
    for draw in range(DRAWS):
        where = np.argsort(dice.permutation(codes), kind="stable") + 1
        for end, rank in enumerate((where, size + 1 - where)[:ends]):
            hits = place if end == 0 else np.repeat(few, few) + 1 - place
            found[draw, end] = np.bincount(codes, weights=hits / rank, minlength=len(few)) / np.maximum(few, 1)
    return (found - found.mean(axis=(0, 1))) * less**0.5


def _dealt_alone(count: int, n: int, ends: int, dice: np.random.Generator) -> Array:
    """The same of one class of few words among all n, [draw, end]: more draws, as a single lucky word weighs much."""
    ranks = np.sort(dice.integers(1, n + 1, (max(DRAWS, _NUMBERS // count), count)), axis=1)
    hits = np.arange(1, count + 1)
    found = np.stack([(hits / each).mean(1) for each in (ranks, n + 1 - ranks[:, ::-1])[:ends]], axis=1)
    return found - found.mean()


def distance_chance(counts: Array, places: list[int], seed: int) -> float:
    """The expected |d′| of the best class: means of classes of so many words each, drawn from one normal law."""
    there = np.flatnonzero(counts > 0)
    rows = counts[there].astype(np.float64)
    means = np.random.default_rng([seed, 10]).normal(size=(10 * DRAWS, len(there))) / np.sqrt(rows)
    total = (means * rows).sum(axis=1, keepdims=True)
    away = means - (total - means * rows) / np.maximum(rows.sum() - rows, 1)
    scored = [at for at, place in enumerate(there.tolist()) if place in places]
    return float(np.abs(away[:, scored]).max(axis=1).mean()) if len(there) > 1 and scored else 0.0
