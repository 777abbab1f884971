"""A plain PyTorch training loop, as one writes it by hand: the floor under the benchmark `learning`."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from pellucid.train.preparing import Prepared, prepare

if TYPE_CHECKING:
    from benchmarks.learning_inputs import Inputs
    from pellucid.train import Settings


class PlainLoop:
    """The same network, batches, precision and kind of optimiser as a training of ours, and nothing else."""

    def __init__(self, inputs: Inputs, device: str) -> None:
        self.settings = inputs.settings
        torch.manual_seed(self.settings.seed)
        self.prepared: Prepared = prepare(inputs.training, inputs.valid, None, self.settings)
        self.network: Any = self.prepared.network.to(device)
        self.network.config.use_cache = False
        self.device, self.half = device, device == "cuda"
        self.optimiser = _optimiser(self.network, self.settings)

    def take(self, epoch: int, first: int, count: int) -> float:
        """Takes `count` steps of an epoch; their mean loss, for which the device is waited for."""
        total = torch.zeros((), device=self.device)
        self.network.train()
        for step in range(first, first + count):
            batch = {name: tensor.to(self.device) for name, tensor in self.prepared.training.batch(epoch, step).items()}
            self.optimiser.zero_grad()
            loss = self._loss(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
            self.optimiser.step()
            total += loss.detach()
        return total.item() / count

    def epoch(self, number: int) -> float:
        """Seconds that the steps of one epoch take."""
        start = time.perf_counter()
        self.take(number, 0, self.prepared.training.steps())
        return time.perf_counter() - start

    def validation(self) -> float:
        """Seconds that the validation text takes."""
        examples, total = self.prepared.valid, torch.zeros((), device=self.device)
        self.network.eval()
        start = time.perf_counter()
        with torch.no_grad():
            for step in range(examples.steps()):
                batch = {name: tensor.to(self.device) for name, tensor in examples.batch(0, step).items()}
                total += self._loss(batch)
        assert total.item() > 0
        return time.perf_counter() - start

    def _loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        goals = batch.pop("goals")
        with torch.autocast(self.device, torch.bfloat16) if self.half else nullcontext():
            logits = self.network(**batch).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), goals.flatten(), ignore_index=-100)


def _optimiser(network: Any, settings: Settings) -> torch.optim.Optimizer:
    trained = [weight for weight in network.parameters() if weight.requires_grad]
    if settings.optimiser == "sgd":
        return torch.optim.SGD(trained, lr=settings.learning_rate)
    return torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=settings.weight_decay)
