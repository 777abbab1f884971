"""What chance gives for the mean of google/svcca, in closed form: no draws, so that it can be had for any shape."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from pellucid.similarity.nulls import Null
from pellucid.similarity.pair import SimilarityError
from pellucid.similarity.presets import LEADING

Array = np.ndarray[Any, Any]
_NODES, _ORDERS = 20_000, 200


@lru_cache(maxsize=64)
def google_null(n: int, p: int, q: int) -> Null:
    """Mean and sd of the mean over the leading correlations that make up 98% of Σρ, for independent sides.

    n points, ranks p and q, p + q < n. Squared correlations λ follow the Wachter law W. With the cut c such that
    ∫_(λ>c) √λ dW = .98·m, m = ∫√λ dW and s = W(λ > c), the mean is G = .98·m/s. To first order G moves by Σf(λ_i)/p,
    f = .98√λ/s − G/s·[1(λ>c) − (1(λ>c)√λ − .98√λ)/√c], and the variance of Σf(λ_i) is ½Σ_k k·c_k² for the waves c_k
    of f on the support (Johansson 1998).
    """
    if min(p, q) < 1 or p + q >= n:
        raise SimilarityError(
            f"Ranks {p} and {q} among {n} points leave no law of chance here; the ranks together must be below {n}."
        )
    angle, value, density = _law(p / (n - 1), q / (n - 1))
    root = np.sqrt(value)
    sums = np.cumsum(density * root)  # angles rise, so values fall
    whole = float(sums[-1])
    place = int(np.searchsorted(sums, LEADING * whole))
    kept = np.arange(len(angle)) <= place
    over = (sums[place] - LEADING * whole) / (density[place] * root[place])  # of the last step, the part too many
    share = float(density[kept].sum() - over * density[place])
    mean = LEADING * whole / share
    cut = root[place]
    moved = LEADING * root / share - mean / share * (kept - (kept * root - LEADING * root) / cut)
    half = 0.5 / min(p, q)  # a whole number is kept: half a correlation more, on average
    rounded = (LEADING * whole + half * cut) / (share + half)
    orders = np.arange(1, _ORDERS + 1)
    waves = 2 / len(angle) * (np.cos(orders[:, None] * angle) @ moved)
    return Null(float(rounded), float(np.sqrt(orders @ waves**2 / 2)) / min(p, q))


def _law(left: float, right: float) -> tuple[Array, Array, Array]:
    """Angles θ on (0, π), squared correlations λ = (a+b)/2 + (b−a)/2·cos θ, and the weight of the law at each.

    The density is √((λ−a)(b−λ)) / (2π·min(left, right)·λ(1−λ)) on [a, b] (Wachter 1980).
    """
    one, other = np.sqrt(left * (1 - right)), np.sqrt(right * (1 - left))
    low, high = (one - other) ** 2, (one + other) ** 2
    angle = (np.arange(_NODES) + 0.5) * np.pi / _NODES
    value = (low + high) / 2 + (high - low) / 2 * np.cos(angle)
    inside = ((high - low) / 2 * np.sin(angle)) ** 2
    weight = inside / (2 * np.pi * min(left, right) * value * (1 - value)) * np.pi / _NODES
    return angle, value, weight
