"""Gradient relevance of heads: how much of the loss goes through each, to first order (Michel et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pellucid.attribution.passes import frozen
from pellucid.errors import ModelError
from pellucid.heads.weighing.ablating import real_tokens
from pellucid.heads.weighing.measuring import rows_of

if TYPE_CHECKING:
    from pellucid.heads.weighing.measuring import Measured
    from pellucid.model.sites import Site

Array = np.ndarray[Any, Any]


def relevance(outputs: Tensor, slopes: Tensor, real: Tensor) -> Tensor:
    """Σ over real tokens of |⟨∂L/∂z, z⟩|, [B, heads], for head outputs z and slopes [B, heads, T, d], `real` [B, T].

    The absolute value is taken at each token, before the sum: tokens that a head helps and those that it hurts do not
    cancel.
    """
    products = (outputs.double() * slopes.double()).sum(dim=-1).abs()  # [B, heads, T]
    return torch.where(real[:, None], products, 0.0).sum(dim=-1)


def gradient_sums(found: Measured, sites: Sequence[Site]) -> Array:
    """The relevance of every head, summed over each document group, [heads, groups]; L is the loss of all goals."""
    parts: list[Array] = []
    with frozen(found.model):
        for step in range(found.steps()):
            batch = found.batch(step)
            through = found.passing(sites=sites, gradients=True)
            losses = rows_of(found.task.logits(through, batch), batch["goals"]).losses
            run = through.last
            assert run is not None and run.batch is not None
            tensors = [run[site] for site in sites]
            slopes: Any = torch.autograd.grad(losses.sum(), tensors, allow_unused=True)
            of_rows = [
                relevance(tensor.detach(), torch.zeros_like(tensor) if slope is None else slope, real)
                for tensor, slope, real in zip(
                    tensors,
                    slopes,
                    (real_tokens(run.batch, site).to(found.model.device) for site in sites),
                    strict=True,
                )
            ]
            parts.append(by_group(found, step, torch.cat(of_rows, dim=1).cpu().numpy()))
    return np.sum(parts, axis=0)


def by_group(found: Measured, step: int, rows: Array) -> Array:
    """Numbers of the rows of a batch [B, heads] summed by document group, [heads, groups]."""
    sums = np.zeros((found.group_count, rows.shape[1]))
    np.add.at(sums, found.groups[found.owners(step).numpy()], rows)
    return sums.T


def normalised(values: Array, layers: Sequence[int], *, power: int) -> Array:
    """Values [heads] over the norm of their layer, (Σ |v|^power)^(1/power); a layer of zeros stays 0.

    `layers` [heads] numbers the layer of each head. Gradient relevance is divided by the L2 norm (power 2).
    """
    if not np.isfinite(values).all():
        raise ModelError(
            "The relevance of some heads is not a number on this text (NaN or infinity); try another dtype."
        )
    found = np.zeros_like(values)
    for layer in set(layers):
        mine = np.asarray(layers) == layer
        norm = float((np.abs(values[mine]) ** power).sum() ** (1 / power))
        if norm > 0:
            found[mine] = values[mine] / norm
    return found
