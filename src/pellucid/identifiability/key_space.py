"""Key space: which of the weights that a head's output leaves open its own keys could make at all.

A head's weights are a softmax of q·k_j plus what does not depend on the query. Whatever query it gets, the logarithms
of its weights can only move within the span of its keys K [keys, d_k], up to a constant per row: with small d_k, most
attention matrices with the same output are out of its reach (Bhardwaj et al. 2021). All is in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pellucid.collect.null_space import (
    EPS,
    NEAR,
    TINY,
    check_numbers,
    in_sight,
    projected,
    space,
    values_of_heads,
    with_ones,
)
from pellucid.collect.other_patterns import second_pattern

REACHED = 1e-6
"""The share of a change of log-weights that may lie outside what keys span, and still count as within reach."""
LEAST = 1e-9
"""The length of a change of log-weights below which it counts as none."""
_AT_ONCE = 2**23


@dataclass(frozen=True, eq=False)
class Reach:
    """What keys leave of the freedom of weights; every tensor is [heads, queries].

    `free` dimensions in which weights may move with the same output and row sums; `free_with_keys` those of them in
    which the head's keys can move them from where they are; `uncertain` where that number hangs on a cut. `outside` is
    the share of the change to a second pattern (half-way to `second_pattern`, in logarithms) that lies outside what
    keys span, 0 where there is no second pattern; `second` where there is one. There may be none although weights are
    free: weights of exactly 0 cannot become less.
    """

    free: Tensor
    free_with_keys: Tensor
    uncertain: Tensor
    outside: Tensor
    second: Tensor

    @property
    def reached(self) -> Tensor:
        """Whether the second pattern is another one, and one that the keys could make."""
        return (self.free > 0) & self.second & (self.outside < REACHED)


def reach(pattern: Tensor, values: Tensor, keys: Tensor, *, seed: int = 0, dtype: torch.dtype | None = None) -> Reach:
    """What the keys [key–value heads, n, d_k] leave open of a pattern [heads, queries, n] over values [.., n, d_v].

    From weights a, a change δ of the query moves them by S·K·δ with S = diag(a) − a·aᵀ. The dimensions in which it can
    do so without changing the output are those of span(S·K) in the left null space of the values: rank(S·K) −
    rank(Vᵀ·Q), with Q an orthonormal basis of span(S·K). Squared singular values below n·ε of the largest count as 0.
    `dtype` is the precision that values were computed in (default: their own).
    """
    check_numbers(pattern, values)
    check_numbers(pattern, keys)
    told, weights, sight = space(pattern, values, dtype=dtype), pattern.double(), in_sight(pattern)
    v, k = (values_of_heads(each.double(), len(weights)) for each in (values, keys))
    free = told.free_with_sum
    with_keys, uncertain = torch.zeros_like(free), told.uncertain.clone()
    for head, row in _parts((free > 0).nonzero(), k.shape[1] * k.shape[2]):
        moved = _tangent(weights[head, row], k[head])  # [m, n, d_k]
        with_keys[head, row], near = _common(moved, v[head], sight[row])
        uncertain[head, row] |= near
    other = second_pattern(weights, values, seed=seed)
    outside, length = _way(weights, other, keys)
    return Reach(free, with_keys, uncertain, outside, length > LEAST)


def _parts(places: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    """Heads and queries [m] each, so many at a time that m × size numbers fit."""
    return [(part[:, 0], part[:, 1]) for part in places.split(max(1, _AT_ONCE // max(1, size)))] if len(places) else []


def _tangent(weights: Tensor, keys: Tensor) -> Tensor:
    """S·K of weights [m, n] and keys [m, n, d_k], [m, n, d_k]."""
    mean = weights[:, None, :] @ keys  # [m, 1, d_k]
    return weights[..., None] * (keys - mean)


def _common(moved: Tensor, values: Tensor, sight: Tensor) -> tuple[Tensor, Tensor]:
    """Dimensions of span(moved) in which values [m, n, d_v] in sight [m, n] stay as they are; whether a cut is near."""
    count = sight.sum(-1)[:, None] * EPS
    left, sizes, _ = torch.linalg.svd(moved, full_matrices=False)
    kept, near = _counting(sizes.square(), count, sizes.square()[:, :1])
    seen = values * sight[..., None]
    largest = torch.linalg.eigvalsh(seen.mT @ seen)[:, -1:]
    effect = torch.linalg.svdvals(seen.mT @ (left * kept[:, None, :])).square()
    counted, close = _counting(effect, count, largest)
    return kept.sum(-1) - counted.sum(-1), near | close


def _counting(squares: Tensor, share: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
    """Which squared singular values [m, r] count, and whether one of these is within `NEAR` times the cut, [m]."""
    cut = (share * largest).clamp(min=TINY)
    kept = squares > cut
    return kept, (kept & (squares < NEAR * cut)).any(-1)


def outside_keys(weights: Tensor, other: Tensor, keys: Tensor) -> Tensor:
    """The share of log a′ − log a outside span(K, 1), [heads, queries], for a′ half-way from weights a to other ones.

    Half-way, since no softmax has the weights of exactly 0 that a second pattern has. Keys without weight are left out.
    """
    return _way(weights, other, keys)[0]


def _way(weights: Tensor, other: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """The same, and the length of log a′ − log a beyond a constant."""
    support = weights > 0
    keys = values_of_heads(keys.double(), len(weights))
    between = (weights + other) / 2
    ratio = torch.where(support, (between.clamp(min=TINY) / weights.clamp(min=TINY)).log(), 0.0)
    left = (ratio - projected(ratio, with_ones(keys), support)) * support
    centred = (ratio - ratio.sum(-1, keepdim=True) / support.sum(-1, keepdim=True).clamp(min=1)) * support
    length = centred.norm(dim=-1)
    return torch.where(length > LEAST, left.norm(dim=-1) / length.clamp(min=TINY), 0.0), length
