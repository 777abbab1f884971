"""Gradients through a model: its exact values where another tensor is differentiated, and heads over a vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Layer = Callable[[Tensor], Tensor]


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


class _Linear(torch.autograd.Function):
    """What `layer` gives for rows, with fixed weights [out, in]; gradients are computed only for rows that have any.

    In a head over a vocabulary (`scores`) it is computed only for scores that have any, too.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, layer: Layer, scores: bool) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(weight)
        ctx.scores = scores
        return layer(states)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (weight,) = ctx.saved_tensors
        if not ctx.scores and bool(grad[:, 0].all()):  # most often all rows have a gradient, and one column tells
            return grad @ weight, None, None, None
        rows = grad.any(dim=1).nonzero()[:, 0]
        if not ctx.scores and 4 * len(rows) > 3 * len(grad):
            return grad @ weight, None, None, None
        used = grad[rows]
        if ctx.scores:
            scores = used.any(dim=0).nonzero()[:, 0]
            few = 4 * len(scores) < len(weight)  # a logit, not a log-probability, which all scores enter
            used, weight = (used[:, scores], weight[scores]) if few else (used, weight)
        return grad.new_zeros(len(grad), weight.shape[1]).index_copy(0, rows, used @ weight), None, None, None


@contextmanager
def sparse(network: nn.Module) -> Generator[None]:
    """For a while, gradients pass linear layers only at tokens that have any, and a head only where scores were used.

    A token of a text that only grows leaves later ones without a gradient, and the last block of an encoder is read at
    one token. Weights must take no gradients themselves. On accelerators, where looking costs a wait, the head alone.
    """
    find: Any = getattr(network, "get_output_embeddings", None)
    head: Any = find() if find is not None else None
    on_cpu = [module for module in network.modules() if module is not head and _device(module) == "cpu"]
    changed: list[Any] = []
    try:
        for module in (*on_cpu, *([head] if head is not None else [])):
            turned = type(module).__name__ == "Conv1D"  # GPT-2's layers keep their weights as [in, out]
            if (type(module) is nn.Linear or turned) and "forward" not in vars(module):
                changed.append(module)
                changed[-1].forward = _sparsely(module, turned, scores=module is head)
        yield
    finally:
        for module in changed:
            del module.forward


def _sparsely(module: Any, turned: bool, *, scores: bool) -> Layer:
    plain: Layer = module.forward

    def forward(states: Tensor) -> Tensor:
        if not states.requires_grad or module.weight.requires_grad:
            return plain(states)
        weight = module.weight.T if turned else module.weight
        rows: Any = _Linear.apply(states.flatten(0, -2), weight, plain, scores)
        return rows.unflatten(0, states.shape[:-1])  # outside of the function, so that models may change it in place

    return forward


def _device(module: nn.Module) -> str:
    weight: Any = getattr(module, "weight", None)
    return weight.device.type if isinstance(weight, Tensor) else ""
