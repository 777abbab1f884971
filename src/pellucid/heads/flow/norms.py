"""Norm-based attention: how long the vector is that each token adds to another one (Kobayashi et al. 2020, 2021).

Through head h, token j adds α_hij·f_h(x_j) to token i, with f_h(x) = (x·W_V + b_V)·W_O. A weight may be high on a
vector of no length. Vectors of all heads are added before the length is taken. With the residual stream a token adds
itself too, and a norm is applied to the sum term by term, its statistics fixed. All terms [T, T, d] are never held:
lengths come from the products of the heads' vectors of each token, [T, H, H].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class NormSplit:
    """A norm at fixed statistics: y_i = scale·((x_i − mean)·gain/deviation_i + shift); `centred` where it takes a mean.

    Without shift it is linear: what it makes of a sum is the sum of what it makes of the terms.
    """

    gain: Tensor  # [d]
    shift: Tensor  # [d]
    deviation: Tensor  # [T]
    centred: bool
    scale: float = 1.0

    def turned(self, terms: Tensor) -> Tensor:
        """The part that does not depend on the token which receives: terms [..., d], centred and times the gain."""
        return (terms - terms.mean(-1, keepdim=True) if self.centred else terms) * self.gain * self.scale

    def whole(self, states: Tensor) -> Tensor:
        """The norm of states [T, d]."""
        return self.turned(states) / self.deviation[:, None] + self.scale * self.shift


@dataclass(frozen=True, eq=False)
class Mixing:
    """What attention of a layer does, in float64: weights [H, T, T], vectors f_h(x_j) [H, T, d], the stream [T, d].

    `out` is a norm (or None) that the heads' sum passes before it is added to the stream, `scale` a number; `norm` is
    the one that follows the sum of both.
    """

    weights: Tensor
    vectors: Tensor
    stream: Tensor
    scale: float = 1.0
    out: NormSplit | None = None
    norm: NormSplit | None = None

    def added(self) -> tuple[Tensor, Tensor]:
        """Vectors as they reach the stream, up to a factor of the token that receives them, and that factor [T]."""
        if self.out is None:
            return self.vectors * self.scale, torch.ones_like(self.stream[:, 0])
        return self.out.turned(self.vectors), 1 / self.out.deviation


@dataclass(frozen=True, eq=False)
class Lengths:
    """Lengths [token, source] of what tokens add: through attention, with the residual stream, after the norm.

    `heads` [H, token, source] are those of each head alone, through attention.
    """

    heads: Tensor
    attention: Tensor
    residual: Tensor
    layernorm: Tensor


def lengths(mixing: Mixing) -> Lengths:
    """All lengths of one layer; without a norm after the sum, the last two are the same."""
    vectors, factor = mixing.added()
    attention = _lengths(mixing.weights, vectors) * factor[:, None]
    heads = mixing.weights * vectors.norm(dim=-1)[:, None, :] * factor[:, None]
    own = _own(mixing.weights, vectors) * factor[:, None] + mixing.stream  # [T, d]
    residual = _with_own(attention, own.norm(dim=-1))
    if mixing.norm is None:
        return Lengths(heads, attention, residual, residual)
    deviation = mixing.norm.deviation
    turned = _lengths(mixing.weights, mixing.norm.turned(vectors)) * (factor / deviation)[:, None]
    layernorm = _with_own(turned, mixing.norm.turned(own).norm(dim=-1) / deviation)
    return Lengths(heads, attention, residual, layernorm)


def _lengths(weights: Tensor, vectors: Tensor) -> Tensor:
    """‖Σ_h α_hij·v_hj‖ for weights [H, T, T] and vectors [H, T, d], as √(αᵀ·G_j·α) with G_j = v_j·v_jᵀ, [T, T]."""
    products = torch.einsum("hjd,gjd->jhg", vectors, vectors)
    return torch.einsum("hij,jhg,gij->ij", weights, products, weights).clamp(min=0).sqrt()


def _own(weights: Tensor, vectors: Tensor) -> Tensor:
    """What every token adds to itself through attention, [T, d]."""
    return torch.einsum("hi,hid->id", weights.diagonal(dim1=1, dim2=2), vectors)


def _with_own(found: Tensor, own: Tensor) -> Tensor:
    """Lengths [T, T] with others on the diagonal."""
    return found - found.diagonal().diag() + own.diag()
