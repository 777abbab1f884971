"""The alpha-beta rule with α = 1, β = 0: an output's relevance goes to what pushed it up, in proportion.

Every function here gives the very output of the network, with a gradient so changed that activation × gradient is the
relevance. Where nothing pushed an output up, those that pushed it down share its relevance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pellucid.attribution.lrp.ledger import UNSHARED, Ledger, times
from pellucid.model.gradient import exactly

Bilinear = Callable[[Tensor, Tensor], Tensor]
_CHUNK = 2**24
"""Numbers of a normalisation's impacts [tokens, width, width] that are held at a time."""


def shared_product(function: Bilinear, left: Tensor, right: Tensor, output: Tensor, ledger: Ledger) -> Tensor:
    """The terms of a product share its relevance; where both factors are activations, each gets half of a term's.

    An attention weight of exactly 1 (a token that sees only itself) cannot change: the whole term goes to the value.
    """
    if not (left.requires_grad and right.requires_grad):
        return _shared(output, *_pushes(function, left, right), ledger)
    settled = left.detach() == 1
    pushed_up, pushed_down = _pushes(function, left.masked_fill(settled, 0), right)
    for push in (pushed_up, pushed_down):
        push.register_hook(lambda slope: slope / 2)
    if bool(settled.any()):
        up, down = _pushes(function, settled.to(left.dtype), right)
        pushed_up, pushed_down = pushed_up + up, pushed_down + down
    return _shared(output, pushed_up, pushed_down, ledger)


def _pushes(function: Bilinear, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of a product's positive terms and of its negative ones."""
    up, down = torch.relu(left), -torch.relu(-left)
    high, low = torch.relu(right), -torch.relu(-right)
    return function(up, high) + function(down, low), function(up, low) + function(down, high)


def shared_sum(first: Tensor, second: Tensor, output: Tensor, ledger: Ledger, *, constant: str | None) -> Tensor:
    """Two summands share the relevance of their sum; what falls to the second, where it is constant, is booked."""
    pushed_up = torch.relu(first) + torch.relu(second)
    pushed_down = -torch.relu(-first) - torch.relu(-second)
    kept = None
    if constant is not None:
        kept = (constant, torch.where(pushed_up > 0, torch.relu(second), -torch.relu(-second)).detach())
    return _shared(output, pushed_up, pushed_down, ledger, kept=kept)


def shared_softmax(scores: Tensor, weights: Tensor, dim: int, ledger: Ledger) -> Tensor:
    """First-order impacts of scores on weights, s_j(δ_ij − s_i)·x_i, share the weights' relevance."""
    part = weights.detach()
    scores = torch.where(part > 0, scores.to(part.dtype), torch.zeros_like(part))  # masked scores have no part
    high, low = torch.relu(scores), torch.relu(-scores)

    def others(values: Tensor) -> Tensor:
        return (part * values).sum(dim=dim, keepdim=True) - part * values

    pushed_up = part * ((1 - part) * high + torch.relu(others(low)))
    pushed_down = -part * ((1 - part) * low + torch.relu(others(high)))
    return _shared(weights, pushed_up, pushed_down, ledger)


def shared_norm(given: Tensor, output: Tensor, weight: Tensor | None, eps: float, width: int, ledger: Ledger) -> Tensor:
    """First-order impacts of a layer normalisation's inputs share its outputs' relevance."""
    scale = torch.ones(width, dtype=given.dtype, device=given.device) if weight is None else weight.detach().flatten()
    total: Any = _NormImpacts.apply(given.reshape(-1, width), scale.to(given.dtype), eps)
    total = total.reshape(output.shape)
    return _shared(output, total, total, ledger)


def _shared(
    output: Tensor,
    pushed_up: Tensor,
    pushed_down: Tensor,
    ledger: Ledger,
    *,
    kept: tuple[str, Tensor] | None = None,
) -> Tensor:
    """The output with the gradient of what pushed it up (or down), scaled to its relevance."""
    total = torch.where(pushed_up > 0, pushed_up, pushed_down)
    value, divisor = output.detach(), total.detach()

    def back(slope: Tensor) -> Tensor:
        relevance = times(slope, value)
        passed = torch.where((divisor == 0) | (slope == 0), torch.zeros_like(relevance), relevance / divisor)
        ledger.keep(UNSHARED, torch.where(divisor == 0, relevance, torch.zeros_like(relevance)))
        if kept is not None:
            ledger.keep(kept[0], times(passed, kept[1]))
        return passed.to(slope.dtype)

    total.register_hook(back)  # pyright: ignore[reportUnknownMemberType]
    return exactly(output, gradient_of=total.to(output.dtype))


class _NormImpacts(torch.autograd.Function):
    """Sums over i of the positive w_j·r·(δ_ij − 1/n − x̂_i·x̂_j/n)·x_i (or of the negative, where none is positive).

    Rows [N, n] in and out; the impacts [rows, j, i] are made for some rows at a time, in both directions.
    """

    @staticmethod
    def forward(ctx: Any, given: Tensor, scale: Tensor, eps: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(given, scale)
        ctx.eps = eps
        return torch.cat([torch.where(up, high, low) for _, _, up, high, low in _impacts(given, scale, eps)])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        given, scale = ctx.saved_tensors
        found: list[Tensor] = []
        done = 0
        for slopes, values, up, _, _ in _impacts(given, scale, ctx.eps):
            impacts = slopes * values[:, None, :]
            chosen = torch.where(up[..., None], impacts > 0, impacts < 0)
            rows = slope[done : done + len(values)]
            found.append((rows[..., None] * slopes * chosen).sum(dim=1))
            done += len(values)
        return torch.cat(found), None, None


def _impacts(given: Tensor, scale: Tensor, eps: float):
    """For some rows at a time: derivatives [c, j, i], inputs [c, i], and [c, j] each: is there a positive impact, sums
    of the positive and of the negative ones."""
    width = given.shape[1]
    for rows in given.split(max(1, _CHUNK // width**2)):
        centred = rows - rows.mean(dim=1, keepdim=True)
        factor = torch.rsqrt(centred.square().mean(dim=1, keepdim=True) + eps)
        unit = centred * factor
        slopes = torch.eye(width, dtype=rows.dtype, device=rows.device) - 1 / width
        slopes = (slopes - unit[:, :, None] * unit[:, None, :] / width) * (scale * factor)[:, :, None]
        impacts = slopes * rows[:, None, :]
        high, low = impacts.clamp(min=0).sum(dim=2), impacts.clamp(max=0).sum(dim=2)
        yield slopes, rows, high > 0, high, low
