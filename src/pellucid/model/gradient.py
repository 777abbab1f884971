"""Gradients through a model: its exact values where another tensor is differentiated, and heads over a vocabulary."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


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


class _Head(torch.autograd.Function):
    """A linear layer with fixed weights, whose gradient is computed only for rows and scores that have any."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(weight)
        return nn.functional.linear(states, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (weight,) = ctx.saved_tensors
        flat = grad.flatten(0, -2)
        rows = flat.any(dim=1).nonzero()[:, 0]
        used = flat[rows]
        scores = used.any(dim=0).nonzero()[:, 0]
        few = 4 * len(scores) < len(weight)  # a logit, not a log-probability, which all scores enter
        product = used[:, scores] @ weight[scores] if few else used @ weight
        states = flat.new_zeros(flat.shape[0], weight.shape[1]).index_copy(0, rows, product)
        return states.unflatten(0, grad.shape[:-1]), None, None


@contextmanager
def sparse_head(network: nn.Module) -> Generator[None]:
    """For a while, gradients pass a language model's head only where scores were used: mostly at one token of a text.

    The head's weights must take no gradients themselves.
    """
    find: Any = getattr(network, "get_output_embeddings", None)
    head: Any = find() if find is not None else None
    if type(head) is not nn.Linear or "forward" in vars(head):
        yield
        return

    def forward(states: Tensor) -> Tensor:
        if states.requires_grad and not head.weight.requires_grad:
            return _Head.apply(states, head.weight, head.bias)  # pyright: ignore[reportReturnType]
        return nn.functional.linear(states, head.weight, head.bias)

    module: Any = head
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
