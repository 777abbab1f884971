"""What a head's output leaves open about its attention: null spaces and effective attention.

A head's output at a query is o = Σ_j a_j·v_j. Whatever can be added to the weights a without changing o lies in the
left null space of the values V [keys, d] that the query may see (Brunner et al. 2020). As long as the d rows of the
head's output projection W_H are independent, V stands for T = V·W_H; where they are not, give `output_space.through` of
V in its place. All is in float64.
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
NEAR = 100.0
"""How many times the cut the smallest eigenvalue that counts, and the cut the largest that does not, must be for a rank
to be sure."""
_AT_ONCE = 2**23


Part = tuple[Tensor, Tensor, Tensor]
Ranks = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Space:
    """The null space of what each query of each head sees; every tensor is [heads, queries].

    `sees` are keys in sight, `rank` of their values and `rank_with_sum` of [values, 1], which a pattern that keeps its
    row sums must respect. The gap of a rank: `over` is the smallest eigenvalue of VᵀV that counts over the cut
    n·ε·λ_max below which it would not (infinite where it is so by far), `under` the cut over the largest one that does
    not count (infinite where there is none); `over_with_sum` and `under_with_sum` are those of [values, 1]. `rounding`
    is how many times the cut the rounding of the values' own numbers reaches, which is far in half precision.
    """

    sees: Tensor
    rank: Tensor
    rank_with_sum: Tensor
    over: Tensor
    under: Tensor
    over_with_sum: Tensor
    under_with_sum: Tensor
    rounding: float

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
        """Whether one of both ranks hangs on the cut, or on how the values were rounded."""
        over, under = (torch.minimum(*pair) for pair in self._gaps)
        return (over < max(NEAR, self.rounding)) | (under < NEAR)

    @property
    def _gaps(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        return (self.over, self.over_with_sum), (self.under, self.under_with_sum)


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


def space(pattern: Tensor, values: Tensor, *, dtype: torch.dtype | None = None) -> Space:
    """Ranks and null-space dimensions for every head and query; see `Space`.

    `dtype` is the precision that the values were computed in (default: their own).
    """
    check_numbers(pattern, values)
    heads, queries = pattern.shape[:2]
    v, sight = values_of_heads(values.double(), heads), in_sight(pattern)
    noise = torch.finfo(dtype or values.dtype).eps ** 2
    safe = max(SAFE, v.shape[1] * noise)
    rank, over, under = _ranks(v, sight, safe)
    with_sum, over_with_sum, under_with_sum = _ranks(with_ones(v), sight, safe)
    sees = sight.sum(-1).expand(heads, queries)
    return Space(sees, rank, with_sum, over, under, over_with_sum, under_with_sum, noise / EPS)


def gaps(pattern: Tensor, values: Tensor, head: int) -> dict[str, Tensor]:
    """`over`, `under`, `over_with_sum` and `under_with_sum` of one head, [queries] each: near 1, a rank hangs on the
    cut.

    `space` tells them only where a rank is not safe by far; here they are worked out for every query.
    """
    own, sight = values_of_heads(values.double(), len(pattern))[head : head + 1], in_sight(pattern)
    found: dict[str, Tensor] = {}
    for end, v in (("", own), ("_with_sum", with_ones(own))):
        _, over, under = _ranks(v, sight, torch.inf)
        found |= {f"over{end}": over[0], f"under{end}": under[0]}
    return found


def projected(rows: Tensor, values: Tensor, sight: Tensor) -> Tensor:
    """Rows [heads, queries, keys] projected on what the values [heads, keys, d] in `sight` span.

    `sight` is [queries, keys] for all heads, or [heads, queries, keys].
    """
    if sight.dim() == 3:
        return _by_head(rows, values, sight)
    if bool(sight.all()):
        return _by_all(rows, values)
    ends = _prefix_ends(sight)
    if ends is not None:
        return _by_prefix(rows, values, sight, ends)
    found = torch.zeros_like(rows)
    for heads, chosen, keys, grams in _grams(sight, values):
        solved = _solved(grams, (rows[heads, chosen] * keys) @ values[heads], keys.sum(-1))
        found[heads, chosen] = (solved @ values[heads].transpose(-1, -2)) * keys
    return found


def _by_head(rows: Tensor, values: Tensor, sight: Tensor) -> Tensor:
    """The same where heads see different keys; those that see all that any head sees are taken together."""
    found, whole = torch.zeros_like(rows), sight.any(0)
    same = (sight == whole).flatten(1).all(1)
    if bool(same.any()):
        found[same] = projected(rows[same], values[same], whole)
    for head in (~same).nonzero()[:, 0].tolist():
        one = slice(head, head + 1)
        found[one] = projected(rows[one], values[one], sight[head])
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
        back = inverse(grams, torch.tensor(float(count), device=v.device)) @ v.transpose(-1, -2)
        found[rest] = (rows[rest] @ v) @ back
    return found


def _by_prefix(rows: Tensor, values: Tensor, sight: Tensor, ends: Tensor) -> Tensor:
    """The same where query i sees the first `ends[i]` of the keys that any query sees.

    As long as the values of a prefix are independent, its rows stay as they are. Later rows need G_i⁻¹·o_i: by
    Cholesky's decomposition wherever that is safe by far, and by eigenvalues elsewhere.
    """
    prefixes = _Prefixes(values, sight, ends)
    rows = rows * sight
    mixed = rows @ values
    new = torch.zeros_like(mixed)
    for head, row, grams in prefixes.left():
        new[head, row] = _solved_safely(grams, mixed[head, row], ends[row])
    return torch.where(prefixes.alone[..., None], rows, (new @ values.transpose(-1, -2)) * sight)


def _ranks(v: Tensor, sight: Tensor, safe: float) -> Ranks:
    """The rank of what each query sees of the values [heads, keys, d], and how far the smallest eigenvalue that counts
    is over the cut and the largest that does not under it, [heads, queries] each; infinite where it is `safe`."""
    shape = (len(v), len(sight))
    rank = torch.zeros(shape, dtype=torch.long, device=v.device)
    over = torch.full(shape, torch.inf, dtype=torch.float64, device=v.device)
    ends = _prefix_ends(sight)
    if ends is None:
        for heads, rows, keys, grams in _grams(sight, v):
            rank[heads, rows], over[heads, rows] = _counted(grams, keys.sum(-1))
    else:
        prefixes = _Prefixes(v, sight, ends, safe)
        rank = torch.where(prefixes.alone, ends, rank)
        for head, row, grams in prefixes.left():
            factors, failed = torch.linalg.cholesky_ex(grams)
            rest = ~((failed == 0) & (_least(factors, grams) > safe))
            rank[head, row] = grams.shape[-1]
            few, few_over = _counted(grams[rest][None], ends[row[rest]])
            rank[head[rest], row[rest]], over[head[rest], row[rest]] = few[0], few_over[0]
    return rank, over, _under(v, sight, rank)


def _under(v: Tensor, sight: Tensor, rank: Tensor) -> Tensor:
    """The cut over the largest squared singular value that does not count, [heads, queries]; infinite without any.

    Eigenvalues of VᵀV are as far off as the cut is near; those that do not count are told by the values themselves.
    """
    found = torch.full(rank.shape, torch.inf, dtype=torch.float64, device=v.device)
    count = sight.sum(-1)
    alike = bool((sight == sight[:1]).all())  # then one query stands for all
    left = (rank < count.clamp(max=v.shape[-1])).nonzero()
    left = left[left[:, 1] == 0] if alike else left[left[:, 1].argsort(stable=True)]
    for start in range(0, len(left), 64):  # of like length, where queries see prefixes
        head, row = left[start : start + 64].unbind(1)
        keys = sight[row].any(0)
        squares = torch.linalg.svdvals(v[head][:, keys] * sight[row][:, keys, None]).square()
        cut = (count[row] * EPS * squares[:, 0]).clamp(min=TINY)
        largest = squares.gather(1, rank[head, row][:, None])[:, 0]
        told = torch.where(squares[:, 0] > 0, cut / largest.clamp(min=TINY), torch.inf)
        if alike:
            found[head] = told[:, None]
        else:
            found[head, row] = told
    return found


class _Prefixes:
    """Queries that see prefixes of the keys: whose values are independent, and the sums v·vᵀ of the others."""

    def __init__(self, values: Tensor, sight: Tensor, ends: Tensor, safe: float = SAFE) -> None:
        self._v = values[:, sight.any(0)]  # [heads, n, d]
        self._ends = ends
        few = min(self._v.shape[1:])
        first = self._v[:, :few]
        known = _pivots(first @ first.transpose(-1, -2)).cummin(-1).values > safe
        independent = torch.zeros(len(values), self._v.shape[1] + 1, dtype=torch.bool, device=values.device)
        independent[:, 0], independent[:, 1 : few + 1] = True, known
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
            for part in rows.split(max(1, _AT_ONCE // width**2)):
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


def _grams(sight: Tensor, v: Tensor) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Some heads, some of their queries, the keys [queries or 1, keys] in sight, and Σ v·vᵀ over these, [.., d, d]."""
    everywhere = torch.arange(len(sight), device=v.device)
    if bool((sight == sight[:1]).all()):
        seen = v * sight[0, :, None]
        yield slice(None), everywhere, sight[:1], (seen.transpose(-1, -2) @ seen)[:, None]
        return
    width = v.shape[-1]
    for head, own in enumerate(v):
        products = (own[:, :, None] * own[:, None, :]).flatten(1)  # [keys, d·d], of one head at a time
        for rows in everywhere.split(max(1, 2**24 // width**2)):
            grams = (sight[rows].double() @ products).unflatten(-1, (width, width))
            yield slice(head, head + 1), rows, sight[rows], grams[None]


def with_ones(v: Tensor) -> Tensor:
    """Values with a column of ones, as long as the values are, so that the cut means the same for both."""
    scale = v.square().sum(-1).mean(-1).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)[:, None, None]
    return torch.cat([v, torch.ones_like(v[..., :1]) * scale], dim=-1)


def _counted(grams: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks of G [heads, queries, d, d] over `count` [queries] keys, and the smallest that counts over the cut."""
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


def inverse(grams: Tensor, count: Tensor) -> Tensor:
    """G⁺ of G [.., d, d] over `count` keys."""
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
