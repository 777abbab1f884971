"""Equal scores: which neurons are the first where the cut goes through equals, as methods that choose a few leave them.

In the model's order, neurons that no method chose would look like agreement, and all stand in the first layer.
"""

from __future__ import annotations

import numpy as np

from pellucid.results import Array


def chance_of_first(scores: Array, k: int) -> Array:
    """The chance of every neuron to be among the first `k`, [neuron], when equals come in any order.

    1 above the cut, 0 below it, and (k − neurons above) / (neurons at it) for those whose score is that of the cut.
    """
    cut = np.partition(scores, len(scores) - k)[len(scores) - k]
    above, equal = scores > cut, scores == cut
    return above + equal * (k - above.sum()) / equal.sum()


def equals_at_cut(scores: Array, k: int) -> int:
    """Neurons that are equal where the first `k` end, if some of them are among these and some are not; else 0."""
    chance = chance_of_first(scores, k)
    return int(((chance > 0) & (chance < 1)).sum())


def first_at_random(scores: Array, k: int, dice: np.random.Generator) -> Array:
    """Whether each neuron is among the first `k`, [neuron], with equals in random order."""
    inside = np.zeros(len(scores), dtype=bool)
    inside[np.lexsort((dice.permutation(len(scores)), -scores))[:k]] = True
    return inside


def overlaps(scores: Array, k: int, draws: int, dice: np.random.Generator) -> Array:
    """Jaccard of the first `k` neurons of every two rankings, [rankings, rankings], from scores [rankings, neurons].

    Where the cut of any goes through equals, the mean over so many draws of their orders, each ranking's its own; a
    ranking has 1 with itself.
    """
    tied = any(equals_at_cut(row, k) for row in scores)
    found = np.zeros((len(scores), len(scores)))
    for _ in range(draws if tied else 1):
        inside = np.stack([first_at_random(row, k, dice) for row in scores]).astype(np.float64)
        shared = inside @ inside.T
        found += shared / (2 * k - shared)
    return found / (draws if tied else 1)
