"""One training step: forward, loss, backward, clipping and update; on a GPU as a recorded graph where shapes allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.train.optimisers import optimiser
from pellucid.train.settings import Settings

Batch = Mapping[str, Tensor]
Loss = Callable[[Any, Batch], Tensor]
WARM_UPS = 3
"""Passes before a graph is recorded, so that libraries have chosen their kernels."""


class Steps:
    """Takes training steps of one network, in place.

    `recorded` records forward and backward pass as a CUDA graph at the first step: all batches must then have the same
    shapes. A small network is bound by the launching of its many kernels, which a graph does at once.
    """

    def __init__(
        self, network: nn.Module, loss: Loss, settings: Settings, device: torch.device, *, half: bool, recorded: bool
    ) -> None:
        self.network, self.settings, self.device = network, settings, device
        self._loss, self._half, self._recorded = loss, half, recorded
        self._graph: torch.cuda.CUDAGraph | None = None
        self._held: dict[str, Tensor] = {}
        self._found: Tensor | None = None
        self.optimiser = optimiser(network.parameters(), settings, fused=device.type == "cuda")

    def begin_again(self) -> None:
        """After parameters were frozen: they leave the optimiser, their gradients go, and a graph is recorded anew."""
        before = self.optimiser.state
        self.optimiser = optimiser(self.network.parameters(), self.settings, fused=self.device.type == "cuda")
        for group in self.optimiser.param_groups:
            for parameter in group["params"]:
                if parameter in before:
                    self.optimiser.state[parameter] = before[parameter]
        for parameter in self.network.parameters():
            if not parameter.requires_grad:
                parameter.grad = None
        self._graph = self._found = None
        self._held = {}

    def take(self, batch: Batch, rate: float) -> Tensor:
        """One step at a learning rate; the loss before it, on the device (reading it would wait for it)."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        moved = {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}
        if not self._recorded:
            found = self._backward(moved)
        else:
            if self._graph is None:
                self._record(moved)
            for name, tensor in moved.items():
                self._held[name].copy_(tensor, non_blocking=True)
            assert self._graph is not None and self._found is not None
            self._graph.replay()
            found = self._found
        self.optimiser.step()
        return found

    def _backward(self, batch: Batch) -> Tensor:
        """Gradients of one batch, clipped to the wanted norm; the loss."""
        self.optimiser.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self._loss(self.network, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self._trained(), self.settings.clip)
        return loss.detach()

    def _record(self, batch: Batch) -> None:
        """Records a step without taking it: the random state is afterwards as it was before."""
        self._held = {name: tensor.clone() for name, tensor in batch.items()}
        state = torch.cuda.get_rng_state(self.device)
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self._backward(self._held)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self.optimiser.zero_grad(set_to_none=True)
        torch.cuda.set_rng_state(state, self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._found = self._backward(self._held)
        self._graph = graph

    def _autocast(self) -> AbstractContextManager[Any]:
        if not self._half:
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=not self._recorded)

    def _trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.network.parameters() if parameter.requires_grad]
