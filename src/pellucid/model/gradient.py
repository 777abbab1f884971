"""Keeping a model's exact values while gradients pass through a tensor that equals them only up to rounding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Swap(torch.autograd.Function):
    """Gives `value`, bit for bit and in its memory layout, with the derivatives of `path`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, path: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        return None

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, grad

    @staticmethod
    def jvp(ctx: Any, value: Any, path: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return path


def exactly(value: Tensor, *, gradient_of: Tensor) -> Tensor:
    """The tensor `value`, differentiated as if it were `gradient_of`."""
    swapped: Any = _Swap.apply(value.detach(), gradient_of)
    return swapped
