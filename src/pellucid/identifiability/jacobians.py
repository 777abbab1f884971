"""Hidden token attribution: how strongly every hidden state reacts to every input token, at all layers at once.

How the state e_j of token j at a layer reacts to the input x_i of token i is ‖∂e_j/∂x_i‖_F (Brunner et al. 2020).
Derivatives are carried forwards: a pass with the direction r at token i gives ∂e_j/∂x_i·r for every token and layer,
and many directions share one pass of the values themselves. With r each unit vector in turn, their squares add up to
the norm; with random normal r their mean estimates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from pellucid.errors import ModelError
from pellucid.model import Batch, Edit
from pellucid.model.memory import ran_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pellucid.model import Model
    from pellucid.model.sites import Site

BUDGET = 2048
"""Tokens of a pass: as many directions are carried along as fit."""


@dataclass(frozen=True, eq=False)
class Reactions:
    """Norms [layers + 1, tokens, input tokens] of how states react to inputs; layer 0 is the input itself.

    `error` is the standard error of an estimate, as a share of the norm, [layers + 1, tokens, input tokens]; 0 where
    the norms are exact.
    """

    norms: Tensor
    error: Tensor

    @property
    def shares(self) -> Tensor:
        """What each input token contributes to each state: norms over their sum, in the same shape."""
        return self.norms / self.norms.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)


def reactions(
    model: Model, batch: Batch, *, probes: int | None = None, seed: int = 0, budget: int = BUDGET
) -> Reactions:
    """How the states of one text react to its input tokens; the input is what enters the first block.

    Exact with width × tokens directions; with `probes`, an estimate from as many random directions per token, whose
    norms are off by about 1/√(2·probes) at most.
    """
    if batch.size != 1:
        raise ModelError(f"Reactions are those of one text, and {batch.size} were given; give them one by one.")
    if probes is not None and probes < 2:
        raise ModelError(f"probes={probes} cannot tell its own error; give 2 or more, or None for exact norms.")
    sites = stream(model)
    start = model.run(batch, sites=sites[:1])[sites[0]].detach()
    length, width = start.shape[1:]
    squares = torch.zeros(len(sites), length, length, dtype=torch.float64)
    fourths = torch.zeros_like(squares)
    for tokens, directions in _directions(length, width, probes, seed, max(1, budget // length)):
        moved = _carried(model, batch, sites, start, tokens, directions.to(start))
        size = moved.double().square().sum(-1).cpu()  # [sites, directions, tokens]
        squares.index_add_(2, tokens, size.transpose(1, 2))
        fourths.index_add_(2, tokens, size.square().transpose(1, 2))
    if probes is None:
        return Reactions(squares.sqrt(), torch.zeros_like(squares))
    mean = squares / probes
    spread = (fourths / probes - mean.square()).clamp(min=0) / (probes - 1)
    tiny = torch.finfo(torch.float64).tiny
    return Reactions(mean.sqrt(), spread.sqrt() / (2 * mean).clamp(min=tiny))


def stream(model: Model) -> list[Site]:
    """The stream from the input to the last block of the stack that reads the text."""
    stacks = {site.stack for site in model.sites if site.kind == "resid"}
    stack = None if None in stacks else "encoder"
    found = [site for site in model.sites if site.kind == "resid" and site.stack == stack]
    if len(found) < 2:
        raise ModelError(
            f"{model.name!r} shows no stream from its input through its blocks, so nothing can be carried."
        )
    return found


def _directions(length: int, width: int, probes: int | None, seed: int, most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Input tokens and the directions in which they move, some at a time: [m] and [m, width]."""
    count = width if probes is None else probes
    dice = torch.Generator().manual_seed(seed)
    for part in torch.arange(length * count).split(most):
        tokens = part // count
        if probes is None:
            yield tokens, torch.nn.functional.one_hot(part % count, width).float()
        else:
            yield tokens, torch.randn(len(part), width, generator=dice)


def _carried(
    model: Model, batch: Batch, sites: list[Site], start: Tensor, tokens: Tensor, directions: Tensor
) -> Tensor:
    """How every state moves when a token of the input moves, [sites, directions, tokens, width]."""
    count = len(tokens)
    tangent = torch.zeros(count, *start.shape, dtype=start.dtype, device=start.device)
    tangent[torch.arange(count), 0, tokens] = directions

    def states(given: Tensor) -> tuple[Tensor, ...]:
        told: dict[Site, Tensor] = {}

        def keep(site: Site, value: Tensor) -> Tensor:
            told[site] = value
            return value[:, :0]

        model.run(batch, sites=sites, edits=[Edit.patch(sites[0], given)], reduce=keep, logits=False)
        return tuple(told[site] for site in sites)

    def moved(direction: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = jvp(states, (start,), (direction,))[1]
        return found

    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            return torch.stack([each[:, 0] for each in vmap(moved, randomness="same")(tangent)])
    except (RuntimeError, NotImplementedError) as error:
        if ran_out(error):
            raise
        reason = str(error).strip().splitlines()[0].partition(". ")[0].rstrip(".")
        raise ModelError(f"Derivatives cannot be carried forwards through {model.name!r}: {reason}.") from error
