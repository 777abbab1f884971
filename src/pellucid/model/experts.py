"""Neurons of mixture-of-experts layers: the hidden units of every expert a token was routed to.

An experts module stores its weights as three-dimensional parameters and computes them by one of several fused kernels,
so its hidden units are computed beside the pass. Only an edit or a gradient replaces the module's output, and then by
exactly what the model computed plus the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


def is_experts(module: nn.Module) -> bool:
    """Whether a module holds the weights of many experts as three-dimensional parameters."""
    down = getattr(module, "down_proj", None)
    return isinstance(down, nn.Parameter) and down.dim() == 3 and hasattr(module, "_apply_gate")


@dataclass(frozen=True)
class Routed:
    """What reached an experts module: tokens [N, d], the experts chosen for each [N, K] and their weights [N, K]."""

    module: nn.Module
    states: Tensor
    chosen: Tensor
    weights: Tensor

    @classmethod
    def of(cls, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Routed:
        states, chosen, weights = [*args, *kwargs.values()][:3]
        return cls(module, states.reshape(-1, states.shape[-1]), chosen.reshape(-1, chosen.shape[-1]), weights.reshape(chosen.shape[0], -1))

    @property
    def count(self) -> int:
        """Number of experts."""
        return self.module.down_proj.shape[0]  # type: ignore[union-attr,index]

    @property
    def width(self) -> int:
        """Hidden units of one expert."""
        axis = 1 if self._transposed else 2
        return self.module.down_proj.shape[axis]  # type: ignore[union-attr,index]

    @property
    def _transposed(self) -> bool:
        return bool(getattr(self.module, "is_transposed", False))

    def routing(self) -> Tensor:
        """Weight of every expert for every token, [N, E]; zero where it was not chosen."""
        weights = torch.zeros(self.states.shape[0], self.count, dtype=self.weights.dtype, device=self.weights.device)
        return weights.scatter(1, self.chosen, self.weights)

    def neurons(self) -> Tensor:
        """Hidden units of every expert, [N, E·n]; zero where the token was not routed to it."""
        out = self.states.new_zeros(self.states.shape[0], self.count, self.width)
        for expert in self.chosen.unique().tolist():
            tokens = (self.chosen == expert).any(dim=1).nonzero()[:, 0]
            inner = self._linear(self.states[tokens], "gate_up_proj", expert)
            out[tokens, expert] = self.module._apply_gate(inner)  # type: ignore[operator]
        return out.flatten(1)

    def output(self, neurons: Tensor, routing: Tensor) -> Tensor:
        """What the experts add to the stream, [N, d], given their hidden units and weights."""
        units = neurons.unflatten(1, (self.count, self.width))
        out = torch.zeros_like(self.states)
        for expert in self.chosen.unique().tolist():
            tokens = (self.chosen == expert).any(dim=1).nonzero()[:, 0]
            inner = self._linear(units[tokens, expert], "down_proj", expert)
            out = out.index_add(0, tokens, (inner * routing[tokens, expert, None]).to(out.dtype))
        return out

    def _linear(self, states: Tensor, name: str, expert: int) -> Tensor:
        weight = getattr(self.module, name)[expert]
        bias = getattr(self.module, f"{name}_bias", None)
        product = states @ (weight if self._transposed else weight.T)
        return product if bias is None else product + bias[expert]
