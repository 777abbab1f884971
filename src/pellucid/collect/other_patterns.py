"""Other attention patterns with the same output and row sums: a random one, and one far from a head's own."""

from __future__ import annotations

import torch
from torch import Tensor

from pellucid.collect.null_space import TINY, check_numbers, inverse, projected, values_of_heads, with_ones

STILL = 1e-6
"""The length of a part of a unit vector below which it counts as none."""
SLIGHT = 1e-3
"""How much less than the largest weight of a query others are aimed at."""
_OFF = 1e-14
"""How much of its length a direction without effect may have in effect, before an inverse is worked out anew."""
_FULL = 1e-3
"""The share of a key's values that the others must not span for an inverse to be brought up to date without it."""


def second_pattern(pattern: Tensor, values: Tensor, *, seed: int = 0) -> Tensor:
    """Another true attention pattern with the same output and row sums, [heads, queries, keys].

    It is A + ε·N with N random in the left null space of [V, 1] of the keys that have weight, and ε the largest number
    (of either sign) that leaves every weight at 0 or more. Where the null space is empty, the row stays as it is. A key
    in sight whose weight is 0 in a head (an underflow) stays at 0 there: else ε could be 0.
    """
    check_numbers(pattern, values)
    weights = pattern.double()
    support = weights > 0
    values = with_ones(values_of_heads(values.double(), len(weights)))
    drawn = torch.randn(weights.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    drawn = drawn.to(weights.device) * support
    free = (drawn - projected(drawn, values, support)) * support
    empty = free.norm(dim=-1, keepdim=True) < STILL * drawn.norm(dim=-1, keepdim=True)
    ahead = torch.where(free < 0, weights / (-free).clamp(min=TINY), torch.inf).amin(-1, keepdim=True)
    behind = torch.where(free > 0, weights / free.clamp(min=TINY), torch.inf).amin(-1, keepdim=True)
    step = torch.where(ahead >= behind, ahead, -behind)
    still = empty | ~torch.isfinite(step)
    return torch.where(still, weights, (weights + torch.where(still, 0.0, step) * free).clamp(min=0))


def far_pattern(pattern: Tensor, values: Tensor, head: int) -> Tensor:
    """Another true attention pattern of one head with the same output and row sums, far from its own, [queries, keys].

    Each row gives up as much as it can of its largest weight: it moves in the left null space of [V, 1] towards less of
    it until a weight is 0, leaves that key out, and goes on until nothing is free. Where it is free in others alone,
    these move.
    """
    check_numbers(pattern, values)
    weights = pattern[head].double()
    v = with_ones(values_of_heads(values.double(), len(pattern))[head : head + 1])[0]
    found = weights.clone()
    aim = -torch.nn.functional.one_hot(weights.argmax(-1), weights.shape[-1]).to(weights)
    lots = torch.rand(weights.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    aim -= SLIGHT * lots.to(weights)  # where the largest weight is determined, others move
    rows = torch.arange(len(weights), device=weights.device)  # those that are not at their corner yet
    spans = _Spans(v, weights > 0)
    while len(rows):
        support = found[rows] > 0
        free = spans.free(aim[rows] * support, support)
        open_ = free.norm(dim=-1) >= STILL
        rows, free, support = rows[open_], free[open_], support[open_]
        spans.keep(open_)
        room = torch.where(free < 0, found[rows] / (-free).clamp(min=TINY), torch.inf)
        step, first = room.min(-1, keepdim=True)
        open_ = torch.isfinite(step[:, 0])
        moved = (found[rows] + torch.where(open_[:, None], step, 0.0) * free * support).clamp(min=0)
        found[rows] = torch.where(open_[:, None], moved.scatter(-1, first, 0.0), found[rows])
        spans.leave_out(first[:, 0])
        spans.keep(open_)
        rows = rows[open_]
    return found


class _Spans:
    """The inverses (Σ v·vᵀ)⁺ of rows whose keys leave one by one: brought up to date, and made anew where they are off.

    An eigendecomposition for every row and key would take minutes for a long text.
    """

    def __init__(self, v: Tensor, support: Tensor) -> None:
        self._v = v  # [keys, d]
        self._inverse = self._anew(support)

    def _anew(self, support: Tensor) -> Tensor:
        """The inverses of rows with a support [rows, keys], some at a time, [rows, d, d]."""
        made = [
            inverse((self._v * part[..., None]).mT @ self._v, part.sum(-1))
            for part in support.split(max(1, 2**23 // self._v.numel()))
        ]
        return torch.cat(made) if made else self._v.new_zeros(0, self._v.shape[1], self._v.shape[1])

    def free(self, wanted: Tensor, support: Tensor) -> Tensor:
        """What of the wanted directions [rows, keys] has no effect."""
        found = self._off_span(wanted, support)
        wrong = (found @ self._v).norm(dim=-1) > _OFF * self._v.norm()
        if bool(wrong.any()):
            self._inverse[wrong] = self._anew(support[wrong])
            found[wrong] = self._off_span(wanted[wrong], support[wrong], self._inverse[wrong])
        return found

    def _off_span(self, wanted: Tensor, support: Tensor, inverses: Tensor | None = None) -> Tensor:
        found, inverses = wanted, self._inverse if inverses is None else inverses
        for _ in range(2):  # twice: what is short has lost digits
            spanned = torch.einsum("rd,rde->re", found @ self._v, inverses)
            found = found - (spanned @ self._v.T) * support
        return found

    def keep(self, rows: Tensor) -> None:
        """Leaves the rows that are marked."""
        if not bool(rows.all()):
            self._inverse = self._inverse[rows]

    def leave_out(self, keys: Tensor) -> None:
        """One key [rows] of every row leaves: (G − v·vᵀ)⁺ = G⁺ + u·uᵀ / (1 − v·u) with u = G⁺·v."""
        gone = self._v[keys]  # [rows, d]
        turned = (self._inverse @ gone[..., None])[..., 0]
        left = 1 - (gone * turned).sum(-1)
        turned = (
            turned / left.clamp(min=_FULL).sqrt()[:, None]
        )  # where it is less, it is found to be off, and made anew
        self._inverse.addcmul_(turned[:, :, None], turned[:, None, :])
