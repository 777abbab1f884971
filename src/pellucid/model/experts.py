"""Neurons of mixture-of-experts layers: the hidden units of every expert a token was routed to.

An experts module stores its weights as three-dimensional parameters and computes them by one of several fused
kernels, so its hidden units are computed beside the pass. Only an edit or a gradient replaces the module's output,
and then by exactly what the model computed plus the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pellucid.errors import EditError
from pellucid.model.sites import Site
from pellucid.model.taps import Tap, get_slot, put_slot

if TYPE_CHECKING:
    from pellucid.model.hooks import Recorder


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
        return cls(
            module,
            states.reshape(-1, states.shape[-1]),
            chosen.reshape(-1, chosen.shape[-1]),
            weights.reshape(-1, chosen.shape[-1]),
        )

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


class ExpertsRecorder:
    """Takes one layer's experts through a recorder: `neurons` (routed experts, then shared ones) and `routing`."""

    def __init__(self, recorder: Recorder, site: Site, call: int, shared: Tap | None) -> None:
        self._recorder, self._call, self._shared = recorder, call, shared
        self._units, self._weights = site.beside("neurons"), site.beside("routing")

    def install(self, stack: ExitStack, parts: Mapping[str, nn.Module], name: str) -> None:
        """Hooks the experts module, and the shared experts' down projection where there is one."""
        stack.callback(parts[name].register_forward_hook(self._experts, with_kwargs=True).remove)
        if self._shared is not None:
            down = parts[self._shared.module]
            self._shared_width: int = down.weight.shape[1]  # type: ignore[union-attr,index,assignment]
            stack.callback(down.register_forward_pre_hook(self._shared_input, with_kwargs=True).remove)
            stack.callback(down.register_forward_hook(self._shared_output).remove)

    def _tokens(self, flat: Tensor) -> Tensor:
        return flat.unflatten(0, (self._recorder.frame.size, -1))

    def _mine(self, part: str) -> bool:
        """Whether the call now running is the one this recorder is for (a shared module is called several times)."""
        return self._recorder.next_call(f"experts:{part}:{self._units}") == self._call

    def _experts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> Tensor | None:
        if not self._mine("routed"):
            return None
        recorder, routed = self._recorder, Routed.of(module, args, kwargs)
        needed = self._units in recorder.touched or self._weights in recorder.rewritten
        plain = self._tokens(routed.neurons() if needed else routed.states[:, :0])
        routing = self._tokens(routed.routing())
        self._routed, self._plain = routed, plain
        new_routing = recorder.through(self._weights, routing)
        if self._weights in recorder.edits and bool(((new_routing != 0) & (routing == 0)).any()):
            raise EditError(
                f"The edit of {self._weights} gives weight to experts that were not chosen for a token, which the "
                "model never runs; scale or zero the weights of chosen experts instead."
            )
        if self._shared is None:
            neurons = recorder.through(self._units, plain)
        else:
            room = plain.new_zeros(*plain.shape[:-1], self._shared_width)  # edits count the shared units too
            neurons = recorder.edited(self._units, torch.cat([plain, room], dim=-1))[..., : plain.shape[-1]]
        self._neurons, self._routing = neurons, new_routing
        if not (self._units in recorder.rewritten or self._weights in recorder.rewritten):
            return None
        change = self._output(neurons, new_routing) - self._output(plain, routing).detach()
        if self._shared is not None and self._units in recorder.rewritten:
            change = change.detach()  # the gradient passes through the kept tensor instead: see `_shared_output`
        return (output.detach() if recorder.gradients else output) + change.reshape(output.shape)

    def _output(self, neurons: Tensor, routing: Tensor) -> Tensor:
        return self._routed.output(neurons.flatten(0, 1), routing.flatten(0, 1))

    def _shared_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._shared is not None and self._shared.slot is not None
        if not self._mine("shared"):
            return None
        recorder = self._recorder
        arguments = {"args": args, "kwargs": kwargs}
        native = get_slot(arguments, self._shared.slot)
        shared = self._shared.layout.read(native, recorder.frame.size, None)
        routed_width = self._plain.shape[-1]
        edited = recorder.edited(self._units, torch.cat([self._plain, shared], dim=-1))
        both = recorder.keep(self._units, torch.cat([self._neurons, edited[..., routed_width:]], dim=-1))
        self._both = both
        if self._units not in recorder.rewritten:
            return None
        new = self._shared.layout.write(both[..., routed_width:], native, recorder.frame.size)
        arguments = put_slot(arguments, self._shared.slot, new)
        return arguments["args"], arguments["kwargs"]

    def _shared_output(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        """Under gradients, lets the routed units' gradient reach the kept tensor without changing any value."""
        if not self._recorder.gradients or self._units not in self._recorder.rewritten:
            return None
        routed = self._output(self._both[..., : self._plain.shape[-1]], self._routing).reshape(output.shape)
        return output + (routed - routed.detach())
