"""What a head's output leaves open about its attention: null spaces, effective attention, and a second pattern.

A head's output at a query is o = Σ_j a_j·v_j. Whatever can be added to the weights a without changing o lies in the
left null space of the values V [keys, d] that the query may see (Brunner et al. 2020). The head's output projection
adds nothing to it as long as its d columns are independent, so that V stands for T = V·W_H. All is in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pellucid.errors import ModelError

EPS = torch.finfo(torch.float64).eps
TINY = torch.finfo(torch.float64).tiny
SAFE = 1e-8
"""The least squared pivot, as a share of the trace, with which values count as independent without a closer look."""
STILL = 1e-6
"""The length of a part of a unit vector below which it counts as none."""
SLIGHT = 1e-3
"""How much less than the largest weight of a query others are aimed at."""
NEAR = 100.0
"""How many times the cut the smallest eigenvalue that counts must be for a rank to be sure."""


Part = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Space:
    """The null space of what each query of each head sees; every tensor is [heads, queries].

    `sees` are keys in sight, `rank` of their values and `rank_with_sum` of [values, 1], which a pattern that keeps its
    row sums must respect. `margin` is the smallest eigenvalue of VᵀV that counts, over the cut n·ε·λ_max below which it
    would not: where it is small, the rank is a matter of the cut.
    """

    sees: Tensor
    rank: Tensor
    rank_with_sum: Tensor
    margin: Tensor

    @property
    def free(self) -> Tensor:
        """Dimensions in which weights may move without changing the output."""
        return self.sees - self.rank

    @property
    def free_with_sum(self) -> Tensor:
        """The same where the weights of a query must still sum to one."""
        return self.sees - self.rank_with_sum

    @property
    def uncertain(self) -> Tensor:
        """Whether the rank hangs on the cut: an eigenvalue that counts lies within `NEAR` times it."""
        return self.margin < NEAR


def in_sight(pattern: Tensor) -> Tensor:
    """Which keys each query may see, [queries, keys], from a pattern [heads, queries, keys]: any head looks there.

    Masks leave exact zeros, and all heads of a layer have the same mask; a single head's zero may be an underflow.
    """
    return (pattern != 0).any(dim=0)


def values_of_heads(values: Tensor, heads: int) -> Tensor:
    """Values [key–value heads, keys, d] as [heads, keys, d]: grouped queries share them in runs."""
    return values.repeat_interleave(heads // values.shape[0], dim=0)


def check_numbers(pattern: Tensor, values: Tensor, where: str = "this layer") -> None:
    """Raises where weights [heads, …] or values [key–value heads, …] are NaN or infinite, and says in which head."""
    for noun, tensor in (("Attention weights", pattern), ("Values", values)):
        broken = ~torch.isfinite(tensor).flatten(1).all(1)
        if bool(broken.any()):
            raise ModelError(
                f"{noun} of {where} are NaN or infinite in head {int(broken.nonzero()[0, 0])}, so what they leave open "
                "cannot be told; leave that layer out, or run the model in float32."
            )


def effective(pattern: Tensor, values: Tensor) -> Tensor:
    """Effective attention [heads, queries, keys]: the pattern without its part in the left null space of the values.

    With o_i = Σ_j a_ij·v_j it is v_j·G_i⁺·o_i, where G_i = Σ v_j·v_jᵀ over the keys that query i may see: those of the
    whole text, or of its prefix where the model is causal. It gives the same output; its numbers have signs, and its
    rows do not sum to one.
    """
    check_numbers(pattern, values)
    weights = pattern.double()
    return projected(weights, values_of_heads(values.double(), len(weights)), in_sight(pattern))


def space(pattern: Tensor, values: Tensor) -> Space:
    """Ranks and null-space dimensions for every head and query; see `Space`."""
    check_numbers(pattern, values)
    heads, queries = pattern.shape[:2]
    v, sight = values_of_heads(values.double(), heads), in_sight(pattern)
    rank, margin = _ranks(v, sight)
    with_sum, _ = _ranks(with_ones(v), sight)
    return Space(sight.sum(-1).expand(heads, queries), rank, with_sum, margin)


def margins(pattern: Tensor, values: Tensor, head: int) -> Tensor:
    """The smallest eigenvalue of one head's VᵀV that counts, over the cut, [queries]: near 1, a rank is a matter of it.

    `space` tells it only where a rank is not safe by far; here it is worked out for every query.
    """
    found = torch.empty(pattern.shape[1], dtype=torch.float64, device=pattern.device)
    own = values_of_heads(values.double(), len(pattern))[head : head + 1]
    for rows, keys, grams in _grams(in_sight(pattern), own):
        found[rows] = _counted(grams, keys.sum(-1))[1][0]
    return found


def second_pattern(pattern: Tensor, values: Tensor, *, seed: int = 0) -> Tensor:
    """Another true attention pattern with the same output and row sums, [heads, queries, keys].

    It is A + ε·N with N random in the left null space of [V, 1] of the keys that a query sees, and ε the largest number
    (of either sign) that leaves every weight at 0 or more. Where the null space is empty, the row stays as it is.
    """
    check_numbers(pattern, values)
    weights, sight = pattern.double(), in_sight(pattern)
    values = with_ones(values_of_heads(values.double(), len(weights)))
    drawn = torch.randn(weights.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    drawn = drawn.to(weights.device) * sight
    free = drawn - projected(drawn, values, sight)
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
    weights, sight = pattern[head].double(), in_sight(pattern)
    values = with_ones(values_of_heads(values.double(), len(pattern))[head : head + 1])
    found = weights.clone()
    aim = -torch.nn.functional.one_hot(weights.argmax(-1), weights.shape[-1]).to(weights)
    lots = torch.rand(weights.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    aim -= SLIGHT * lots.to(weights)  # where the largest weight is determined, others move
    for _ in range(weights.shape[-1]):
        support = sight & (found > 0)
        wanted = aim * support
        free = wanted - projected(wanted[None], values, support)[0]
        free -= projected(free[None], values, support)[0]  # once more: what is short has lost digits
        still = free.norm(dim=-1, keepdim=True) < STILL
        if bool(still.all()):
            break
        room = torch.where(free < 0, found / (-free).clamp(min=TINY), torch.inf)
        step, first = room.min(-1, keepdim=True)
        moved = (found + torch.where(still, 0.0, step) * free * support).clamp(min=0)
        found = torch.where(still, found, moved.scatter(-1, first, 0.0))
    return found


def projected(rows: Tensor, values: Tensor, sight: Tensor) -> Tensor:
    """Rows [heads, queries, keys] projected on what the values [heads, keys, d] in `sight` [queries, keys] span."""
    if bool(sight.all()):
        return _by_all(rows, values)
    ends = _prefix_ends(sight)
    if ends is not None:
        return _by_prefix(rows, values, sight, ends)
    found = torch.zeros_like(rows)
    for chosen, keys, grams in _grams(sight, values):
        solved = _solved(grams, (rows[:, chosen] * keys) @ values, keys.sum(-1))
        found[:, chosen] = (solved @ values.transpose(-1, -2)) * keys
    return found


def _by_all(rows: Tensor, values: Tensor) -> Tensor:
    """The same where every query sees all keys; rows of heads whose values are independent stay as they are."""
    count, width = values.shape[1:]
    found = rows.clone()
    rest = torch.ones(len(values), dtype=torch.bool, device=values.device)
    if count <= width:
        rest = _pivots(values @ values.transpose(-1, -2)).amin(-1) <= SAFE
    if bool(rest.any()):
        v = values[rest]
        grams = v.transpose(-1, -2) @ v
        back = _inverse(grams, torch.tensor(float(count), device=v.device)) @ v.transpose(-1, -2)
        found[rest] = (rows[rest] @ v) @ back
    return found


def _by_prefix(rows: Tensor, values: Tensor, sight: Tensor, ends: Tensor) -> Tensor:
    """The same where query i sees the first `ends[i]` of the keys that any query sees.

    As long as the values of a prefix are independent, its rows stay as they are. Later rows need G_i⁻¹·o_i: by
    Cholesky's decomposition wherever that is safe by far, and by eigenvalues elsewhere.
    """
    prefixes = _Prefixes(values, sight, ends)
    mixed = (rows * sight) @ values
    new = torch.zeros_like(mixed)
    for head, row, grams in prefixes.left():
        new[head, row] = _solved_safely(grams, mixed[head, row], ends[row])
    return torch.where(prefixes.alone[..., None], rows, (new @ values.transpose(-1, -2)) * sight)


def _ranks(v: Tensor, sight: Tensor) -> tuple[Tensor, Tensor]:
    """The rank of what each query sees of the values [heads, keys, d], and the margin of it, [heads, queries] each."""
    shape = (len(v), len(sight))
    rank = torch.zeros(shape, dtype=torch.long, device=v.device)
    margin = torch.full(shape, torch.inf, dtype=torch.float64, device=v.device)
    ends = _prefix_ends(sight)
    if ends is None:
        for rows, keys, grams in _grams(sight, v):
            rank[:, rows], margin[:, rows] = _counted(grams, keys.sum(-1))
        return rank, margin
    prefixes = _Prefixes(v, sight, ends)
    rank = torch.where(prefixes.alone, ends, rank)
    for head, row, grams in prefixes.left():
        factors, failed = torch.linalg.cholesky_ex(grams)
        rest = ~((failed == 0) & (_least(factors, grams) > SAFE))
        rank[head, row] = grams.shape[-1]
        few, few_margin = _counted(grams[rest][None], ends[row[rest]])
        rank[head[rest], row[rest]], margin[head[rest], row[rest]] = few[0], few_margin[0]
    return rank, margin


class _Prefixes:
    """Queries that see prefixes of the keys: whose values are independent, and the sums v·vᵀ of the others."""

    def __init__(self, values: Tensor, sight: Tensor, ends: Tensor) -> None:
        self._v = values[:, sight.any(0)]  # [heads, n, d]
        self._ends = ends
        few = min(self._v.shape[1:])
        first = self._v[:, :few]
        safe = _pivots(first @ first.transpose(-1, -2)).cummin(-1).values > SAFE
        independent = torch.zeros(len(values), self._v.shape[1] + 1, dtype=torch.bool, device=values.device)
        independent[:, 0], independent[:, 1 : few + 1] = True, safe
        self.alone = independent[:, ends]
        """Where weights are determined by the output, [heads, queries]."""

    def left(self) -> Iterator[Part]:
        """The other queries, some at a time: head, query and Σ v·vᵀ, [m], [m] and [m, d, d]."""
        width = self._v.shape[-1]
        for head, v in enumerate(self._v):
            rows = (~self.alone[head]).nonzero()[:, 0]
            if not len(rows):
                continue
            sums = (v[:, :, None] * v[:, None, :]).cumsum(0)  # [n, d, d]
            for part in rows.split(max(1, 2**23 // width**2)):
                yield torch.full_like(part, head), part, sums[self._ends[part] - 1]


def _prefix_ends(sight: Tensor) -> Tensor | None:
    """How many of the keys that any query sees each query sees, where they are always the first of them; else None.

    Queries that all see the same keys are no prefixes either: one decomposition serves them all.
    """
    keys = sight.any(0)
    counts = sight.sum(-1)
    first = keys.cumsum(0) <= counts[:, None]
    if bool((counts == counts[0]).all()) or not bool((sight == (first & keys)).all()):
        return None
    return counts


def _grams(sight: Tensor, v: Tensor) -> list[Part]:
    """Parts of the queries, the keys [queries or 1, keys] that they see, and Σ v·vᵀ over these, [heads, …, d, d]."""
    everywhere = torch.arange(len(sight), device=v.device)
    if bool((sight == sight[:1]).all()):
        seen = v * sight[0, :, None]
        return [(everywhere, sight[:1], (seen.transpose(-1, -2) @ seen)[:, None])]
    width = v.shape[-1]
    products = (v[..., :, None] * v[..., None, :]).flatten(2)  # [heads, keys, d·d]
    return [
        (rows, sight[rows], (sight[rows].double() @ products).unflatten(-1, (width, width)))
        for rows in everywhere.split(max(1, 2**24 // (len(v) * width * width)))
    ]


def with_ones(v: Tensor) -> Tensor:
    """Values with a column of ones, as long as the values are, so that the cut means the same for both."""
    scale = v.square().sum(-1).mean(-1).sqrt().clamp(min=TINY)[:, None, None]
    return torch.cat([v, torch.ones_like(v[..., :1]) * scale], dim=-1)


def _counted(grams: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks and margins of G [heads, queries, d, d] over `count` [queries] keys."""
    spectrum = torch.linalg.eigvalsh(grams)
    kept = _kept(spectrum, count)
    return kept.sum(-1), torch.where(kept, spectrum / _cut(spectrum, count), torch.inf).amin(-1)


def _cut(spectrum: Tensor, count: Tensor) -> Tensor:
    """n·ε·λ_max [heads, queries, 1], below which an eigenvalue counts as 0."""
    return (count[..., None] * EPS * spectrum[..., -1:]).clamp(min=TINY)


def _kept(spectrum: Tensor, count: Tensor) -> Tensor:
    """Which eigenvalues, in rising order, count: those over the cut, and never more than there are keys."""
    width = spectrum.shape[-1]
    at_most = torch.arange(width, device=spectrum.device) >= width - count[..., None]
    return (spectrum > _cut(spectrum, count)) & at_most


def _inverse(grams: Tensor, count: Tensor) -> Tensor:
    """G⁺ of G [heads, d, d] over `count` keys."""
    spectrum, vectors = torch.linalg.eigh(grams)
    inverse = torch.where(_kept(spectrum, count), 1 / spectrum, 0.0)
    return (vectors * inverse[..., None, :]) @ vectors.transpose(-1, -2)


def _solved(grams: Tensor, outputs: Tensor, count: Tensor) -> Tensor:
    """G⁺·o for G [heads, queries or 1, d, d] and o [heads, queries, d]."""
    spectrum, vectors = torch.linalg.eigh(grams)
    inverse = torch.where(_kept(spectrum, count), 1 / spectrum, 0.0)
    if grams.shape[-3] == 1:
        return ((outputs @ vectors[..., 0, :, :]) * inverse) @ vectors[..., 0, :, :].transpose(-1, -2)
    mixed = (outputs[..., None, :] @ vectors)[..., 0, :] * inverse
    return (mixed[..., None, :] @ vectors.transpose(-1, -2))[..., 0, :]


def _solved_safely(grams: Tensor, outputs: Tensor, count: Tensor) -> Tensor:
    """G⁺·o for G [m, d, d] and o [m, d], by Cholesky's decomposition where no pivot is small."""
    factors, failed = torch.linalg.cholesky_ex(grams)
    safe = (failed == 0) & (_least(factors, grams) > SAFE)
    found = torch.empty_like(outputs)
    found[safe] = torch.cholesky_solve(outputs[safe][..., None], factors[safe])[..., 0]
    if not bool(safe.all()):
        rest = ~safe
        found[rest] = _solved(grams[rest][None], outputs[rest][None], count[rest])[0]
    return found


def _pivots(grams: Tensor) -> Tensor:
    """Squared pivots [heads, n] of G [heads, n, n] over the trace up to them; 0 from the first bad one on."""
    factors, failed = torch.linalg.cholesky_ex(grams)
    squares = factors.diagonal(dim1=-2, dim2=-1).square()
    shares = squares / grams.diagonal(dim1=-2, dim2=-1).cumsum(-1).clamp(min=TINY)
    good = (failed == 0)[:, None] | (torch.arange(grams.shape[-1], device=grams.device) < failed[:, None] - 1)
    return torch.where(good, shares, 0.0)


def _least(factors: Tensor, grams: Tensor) -> Tensor:
    """The smallest squared pivot over the trace."""
    trace = grams.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=TINY)
    return factors.diagonal(dim1=-2, dim2=-1).square().amin(-1) / trace
