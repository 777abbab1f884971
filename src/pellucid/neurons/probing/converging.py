"""Converged probes: full passes that bring trained weights to the optimum of their penalised loss.

Early stopping gives the weights that predict held-out words best; converged ones are what the penalties alone decide,
and can be compared with any other solver's.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.probing.rows import Array, Rows
from pellucid.neurons.probing.training import Fitted, Settings, Task, standardised

_POWER = 20
_ROWS = 2048


def converge(
    rows: Rows, tasks: Sequence[Task], fitted: Fitted, settings: Settings, *, passes: int = 500, change: float = 1e-6
) -> Fitted:
    """The fitted tasks after up to `passes` accelerated proximal gradient steps, each over all rows, in float64.

    It ends when no weight moves by more than `change`, and warns where that is not reached. The step is 1/(λ/2 + l2),
    with λ the largest eigenvalue of the second moments, which bounds the curvature of the softmax (Böhning 1992);
    momentum starts again where it points uphill (FISTA; Beck & Teboulle 2009, O'Donoghue & Candès 2015).
    """
    state = _Descent(rows, tasks, fitted, settings)
    bound = state.largest() / 2 + settings.l2
    now, ahead = state.start.clone(), state.start.clone()
    momentum, moved = torch.ones(len(tasks), dtype=torch.float64, device=now.device), 0.0
    for _ in range(passes):
        slope = state.slope(ahead)
        after = state.shrunk(ahead - slope / bound, settings.l1 / bound)
        uphill = ((ahead - after) * (after - now)).sum((0, 2)) > 0
        momentum = torch.where(uphill, 1.0, momentum)
        later = (1 + torch.sqrt(1 + 4 * momentum**2)) / 2
        ahead = after + ((momentum - 1) / later)[None, :, None] * (after - now)
        moved = float((after - now).abs().max())
        now, momentum = after, later
        if moved <= change:
            break
    else:
        warnings.warn(
            f"After {passes} passes weights still move by {moved:.1e} a pass, so the optimum is near and not reached; "
            "use larger penalties, or fewer neurons.",
            NeuronWarning,
            stacklevel=3,
        )
    weights, biases = now[:-1].permute(1, 2, 0).contiguous().cpu().numpy(), now[-1].cpu().numpy()
    return replace(fitted, weights=weights.astype(np.float32), biases=biases.astype(np.float32))


class _Descent:
    """Gradients of all tasks at weights [neurons + 1, tasks, classes]; the last row is the biases."""

    def __init__(self, rows: Rows, tasks: Sequence[Task], fitted: Fitted, settings: Settings) -> None:
        self.rows, self.l2, self.device = rows, settings.l2, torch.device(settings.device)
        self.mean, self.deviation = self._given(fitted.mean), self._given(fitted.deviation)
        self.learned: Array = np.stack([task.learned & (task.goals >= 0) for task in tasks], axis=1)
        self.goals: Array = np.stack([task.goals for task in tasks], axis=1)
        self.any: Array = np.asarray(self.learned.any(axis=1))
        self.counts = self._given(self.learned.sum(axis=0)).double()
        weights, biases = self._given(fitted.weights), self._given(fitted.biases)
        self.start = torch.cat([weights.permute(2, 0, 1), biases[None]]).double()
        alive = fitted.deviation > 0
        reads = [alive if task.columns is None else alive & task.columns for task in tasks]
        self.reads = self._given(np.concatenate([np.stack(reads, 1), np.ones((1, len(tasks)), bool)]))[:, :, None]

    def _given(self, array: Array) -> Tensor:
        """An array where the probes train."""
        return torch.from_numpy(array).to(self.device)

    def _parts(self) -> Iterator[tuple[Array, Tensor]]:
        """All rows, standardised, with a column of ones, a part at a time."""
        for numbers, part in self.rows.batches(self.any, _ROWS, None):
            scaled = standardised(part.to(self.device).double(), self.mean, self.deviation)
            yield numbers, torch.cat([scaled, scaled.new_ones(len(scaled), 1)], dim=1)

    def largest(self) -> float:
        """The largest eigenvalue of the second moments of any task's rows, and a little more, by power iteration."""
        width, count, _ = self.start.shape
        vectors = torch.ones(width, count, dtype=torch.float64, device=self.device) / width**0.5
        sizes = torch.ones(count, dtype=torch.float64, device=self.device)
        for _ in range(_POWER):
            product = torch.zeros_like(vectors)
            for numbers, part in self._parts():
                product += part.T @ (self._given(self.learned[numbers]) * (part @ vectors))
            product /= self.counts
            sizes = product.norm(dim=0)
            vectors = product / sizes
        return 1.05 * max(1.0, float(sizes.max()))

    def slope(self, weights: Tensor) -> Tensor:
        """The gradient of the mean loss and of l2, in the shape of the weights."""
        total = torch.zeros_like(weights)
        width, count, classes = weights.shape
        for numbers, part in self._parts():
            probable = torch.softmax((part @ weights.reshape(width, -1)).view(-1, count, classes), dim=2)
            answers = self._given(self.goals[numbers]).clamp(min=0)[:, :, None]
            probable.scatter_add_(2, answers, -torch.ones_like(answers, dtype=probable.dtype))
            probable *= (self._given(self.learned[numbers]).double() / self.counts)[:, :, None]
            total += (part.T @ probable.flatten(1)).view_as(weights)
        total[:-1] += self.l2 * weights[:-1]
        return total * self.reads

    def shrunk(self, weights: Tensor, by: float) -> Tensor:
        """Weights nearer to 0 by so much; biases stay as they are."""
        if not by:
            return weights
        shrunk = weights.sign() * (weights.abs() - by).clamp(min=0)
        shrunk[-1] = weights[-1]
        return shrunk
