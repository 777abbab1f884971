"""Optimisers of the lab and how their learning rate changes on the way."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from pellucid.train.settings import Settings


def optimiser(parameters: Iterable[nn.Parameter], settings: Settings, *, fused: bool) -> torch.optim.Optimizer:
    """AdamW that decays matrices alone, not biases and norms; or plain SGD."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    matrices = [parameter for parameter in trained if parameter.ndim > 1]
    vectors = [parameter for parameter in trained if parameter.ndim <= 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if settings.optimiser == "sgd":
        return torch.optim.SGD(groups, lr=settings.learning_rate, foreach=True)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=fused)


def learning_rate(settings: Settings, epoch: int, step: int, steps: int) -> float:
    """The learning rate of a step, counted from 1 over all epochs, of `steps` in all; epochs count from 1 too.

    A linear rise over the share `warmup`, then `decay` times as much every `decay_every` epochs (`step`), half a cosine
    down to zero (`cosine`), or the same throughout (`constant`).
    """
    warm = round(settings.warmup * steps)
    full = settings.learning_rate
    if step <= warm:
        return full * step / warm
    if settings.schedule == "step":
        return full * settings.decay ** ((epoch - 1) // settings.decay_every)
    if settings.schedule == "cosine":
        return full * 0.5 * (1 + math.cos(math.pi * (step - 1 - warm) / max(1, steps - warm)))
    return full
