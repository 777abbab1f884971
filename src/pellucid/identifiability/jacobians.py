"""Hidden token attribution: how strongly every hidden state reacts to every input token, at all layers at once.

How the state e_j of token j at a layer reacts to the input x_i of token i is ‖∂e_j/∂x_i‖_F (Brunner et al. 2020).
Derivatives are carried forwards: a pass with the direction r at token i gives ∂e_j/∂x_i·r for every token and layer,
and many directions share one pass of the values themselves. With r each unit vector in turn, their squares add up to
the norm; with random normal r their mean estimates it. Fused attention cannot carry derivatives: PyTorch's plain one
("math") is taken for it, and where that fails the model's own eager attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.func import jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from pellucid.errors import ModelError
from pellucid.heads.flow.reading import eager
from pellucid.model import Batch, Edit
from pellucid.model.memory import ran_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pellucid.model import Model
    from pellucid.model.sites import Site

BUDGET = 2048
"""Tokens of a pass: as many directions are carried along as fit."""
EXACT: Literal["exact"] = "exact"
Probes = int | Literal["exact"] | None
"""Random directions per token, `exact` for all unit vectors, or None for what `probes_for` chooses."""
QUICK = 2e11
"""Operations up to which norms are exact unless probes are asked for: a few seconds of a laptop."""
PROBES = 16
"""Random directions per token where norms are estimated."""


@dataclass(frozen=True, eq=False)
class Reactions:
    """Norms [layers + 1, tokens, input tokens] of how states react to inputs; layer 0 is the input itself.

    `error` is the standard error of an estimate, as a share of the norm, [layers + 1, tokens, input tokens]; 0 where
    the norms are exact. `halves` [2, …] are the norms by every other direction, from which one can tell what noise does
    to a number; where the norms are exact, both are the norms themselves.
    """

    norms: Tensor
    error: Tensor
    halves: Tensor

    @property
    def shares(self) -> Tensor:
        """What each input token contributes to each state: norms over their sum, in the same shape."""
        return shares_of(self.norms)


def shares_of(norms: Tensor) -> Tensor:
    """Norms over their sum over input tokens."""
    return norms / norms.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)


def reactions(model: Model, batch: Batch, *, probes: Probes = EXACT, seed: int = 0, budget: int = BUDGET) -> Reactions:
    """How the states of one text react to its input tokens; the input is what enters the first block.

    Exact with width × tokens directions; with a number of `probes`, an estimate from as many random directions per
    token, whose norms are off by about 1/√(2·probes) at most; with None, exact where that is quick.
    """
    if batch.size != 1:
        raise ModelError(f"Reactions are those of one text, and {batch.size} were given; give them one by one.")
    check_probes(probes)
    sites = stream(model)
    start = model.run(batch, sites=sites[:1])[sites[0]].detach()
    length, width = start.shape[1:]
    count = probes_for(model, length, probes)
    squares = torch.zeros(2, len(sites), length, length, dtype=torch.float64)  # of even and odd directions
    fourths = torch.zeros_like(squares[0])
    carrier = Carrier(model, batch, sites, start)
    for tokens, numbers, directions in _directions(length, width, count, seed, max(1, budget // length)):
        moved = carrier.carried(tokens, directions.to(start))
        size = moved.double().square().sum(-1).cpu().transpose(1, 2)  # [sites, tokens, directions]
        for half in (0, 1):
            own = numbers % 2 == half
            squares[half].index_add_(2, tokens[own], size[..., own])
        fourths.index_add_(2, tokens, size.square())
    whole = squares.sum(0)
    _check_finite(model, sites, whole)
    if count is None:
        norms = whole.sqrt()
        return Reactions(norms, torch.zeros_like(norms), torch.stack([norms, norms]))
    mean = whole / count
    spread = (fourths / count - mean.square()).clamp(min=0) / (count - 1)
    tiny = torch.finfo(torch.float64).tiny
    held = torch.tensor([count - count // 2, count // 2], dtype=torch.float64).reshape(2, 1, 1, 1)
    return Reactions(mean.sqrt(), spread.sqrt() / (2 * mean).clamp(min=tiny), (squares / held).sqrt())


def check_probes(probes: Probes) -> None:
    """Raises where norms cannot be had so."""
    if isinstance(probes, str) and probes != EXACT:
        raise ModelError(f"probes={probes!r} is no number of directions; give 2 or more, or 'exact' for exact norms.")
    if isinstance(probes, int) and probes < 2:
        raise ModelError(f"probes={probes} cannot tell its own error; give 2 or more, or 'exact' for exact norms.")


def probes_for(model: Model, length: int, probes: Probes) -> int | None:
    """Random directions per token of a text, None for exact norms: as asked for, or exact where that is quick."""
    if probes is None:
        return None if operations(model, length) <= QUICK else PROBES
    return None if probes == EXACT else probes


def operations(model: Model, length: int) -> float:
    """About what exact norms of a text take: tokens² · width passes through blocks of 12·width² weights."""
    sites = stream(model)
    width = model.size(sites[0])[-1]
    return float(length**2 * width * 24 * width**2 * (len(sites) - 1))


def _check_finite(model: Model, sites: Sequence[Site], found: Tensor) -> None:
    """Raises where states or their derivatives are no numbers, and names the first such layer."""
    bad = [str(site) for site, own in zip(sites, found, strict=True) if not bool(own.isfinite().all())]
    if bad:
        raise ModelError(
            f"Derivatives at {bad[0]} of {model.name!r} are not numbers on this text (NaN or infinity), so nothing can "
            "be told of that layer and those above it; try another dtype or text."
        )


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


def _directions(
    length: int, width: int, probes: int | None, seed: int, most: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Input tokens, the number of a direction and the directions in which they move, some at a time: [m], [m] and
    [m, width]."""
    count = width if probes is None else probes
    dice = torch.Generator().manual_seed(seed)
    for part in torch.arange(length * count).split(most):
        tokens = part // count
        if probes is None:
            yield tokens, part % count, torch.nn.functional.one_hot(part % count, width).float()
        else:
            yield tokens, part % count, torch.randn(len(part), width, generator=dice)


class Carrier:
    """Carries directions at the input of one text forwards through a model."""

    def __init__(self, model: Model, batch: Batch, sites: list[Site], start: Tensor) -> None:
        self._model, self._batch, self._sites, self._start = model, batch, sites, start

    def carried(self, tokens: Tensor, directions: Tensor) -> Tensor:
        """How every state moves when a token of the input moves, [sites, directions, tokens, width].

        Where plain attention fails, eager attention is tried, and kept for what follows.
        """
        count = len(tokens)
        tangent = torch.zeros(count, *self._start.shape, dtype=self._start.dtype, device=self._start.device)
        tangent[torch.arange(count), 0, tokens] = directions
        try:
            return self._through(self._model, tangent)
        except (RuntimeError, NotImplementedError) as error:
            if ran_out(error):
                raise
            first = error
        try:
            slow = eager(self._model)
            found = self._through(slow, tangent)
        except (RuntimeError, NotImplementedError, ValueError, ModelError) as error:
            if ran_out(error):
                raise
            reason = str(first).strip().splitlines()[0].partition(". ")[0].rstrip(".")
            raise ModelError(
                f"Derivatives cannot be carried forwards through {self._model.name!r}, neither with its own attention "
                f"({self._model.attention}) nor with eager attention: {reason}."
            ) from first
        self._model = slow
        return found

    def _through(self, model: Model, tangent: Tensor) -> Tensor:
        """The tangents [directions, 1, tokens, width] of the input at every site."""

        def states(given: Tensor) -> tuple[Tensor, ...]:
            told: dict[Site, Tensor] = {}

            def keep(site: Site, value: Tensor) -> Tensor:
                told[site] = value
                return value[:, :0]

            edits = [Edit.patch(self._sites[0], given)]
            model.run(self._batch, sites=self._sites, edits=edits, reduce=keep, logits=False)
            return tuple(told[site] for site in self._sites)

        def moved(direction: Tensor) -> tuple[Tensor, ...]:
            found: tuple[Tensor, ...] = jvp(states, (self._start,), (direction,))[1]
            return found

        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            return torch.stack([each[:, 0] for each in vmap(moved, randomness="same")(tangent)])
