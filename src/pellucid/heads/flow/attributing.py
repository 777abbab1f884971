"""Self-attention attribution: what the weights of a layer did for a prediction (Hao et al. 2021).

All heads' weights A of one layer are scaled together from zero: Attr = A ⊙ ∫₀¹ ∂F(αA)/∂A dα, with F the target. Its
entries add up to F(A) − F(0), but for the error of the steps, which is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pellucid.attribution.passes import Held, not_finite, passes
from pellucid.attribution.targets import Target, asked
from pellucid.errors import AttributionError, listing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from pellucid.attribution.targets import Resolved
    from pellucid.heads.flow.reading import Reading
    from pellucid.model import Model, Run
    from pellucid.model.sites import Site

Array = np.ndarray[Any, Any]

STEPS = 20
RULE = "gauss"
RULES = (RULE, "midpoint", "right")
"""Where gradients are taken: at Gauss–Legendre nodes, in the middle of equal steps, or at their ends, as published."""
_CANCELLING = 0.1
"""Where weights cancel, so that the target hardly changes, errors are judged by this share of their total size."""


@dataclass(frozen=True, eq=False)
class Attributed:
    """The attribution [heads, token, source] of one layer, and the target with its weights at zero and as they are."""

    site: Site
    values: Array
    start: float
    end: float

    @property
    def error(self) -> float:
        """How far the entries' sum is from the target's change, relative to that (or to entries that cancel)."""
        change = self.end - self.start
        least = 1e-9 * max(abs(self.start), abs(self.end), 1e-3)  # below it, a change is rounding
        scale = max(abs(change), _CANCELLING * float(np.abs(self.values).sum()), least)
        return abs(float(self.values.sum()) - change) / scale


def check_rule(rule: str, steps: int) -> None:
    """Raises where a path cannot be divided so."""
    if rule not in RULES:
        raise AttributionError(f"There is no rule {rule!r} for the steps from zero; the rules are {listing(RULES)}.")
    if steps < 1:
        raise AttributionError(f"Weights were to be scaled from zero in {steps} steps; give at least 1.")


def the_target(reading: Reading, target: str | Target | None) -> Resolved:
    """The one number that is explained."""
    found, *more = asked(reading.model, target)
    if more:
        kinds = listing(each.kind for each in (found, *more))
        raise AttributionError(
            f"Attention is attributed for one target at a time, and this model predicts {1 + len(more)} ({kinds}); "
            "name one (--target)."
        )
    run = reading.model.run(reading.batch) if found.predicted else None
    return found.resolve(reading.model, reading.batch, run)


def attributed(
    reading: Reading, target: Resolved, *, steps: int = STEPS, rule: str = RULE, memory_limit: int | None = None
) -> Iterator[Attributed]:
    """Every layer's attribution in turn; the reading's model must have eager attention (see `reading.eager`)."""
    check_rule(rule, steps)
    model, batch = reading.model, reading.batch
    streams = [stream for site in reading.sites if (stream := site.beside("resid")) in model.sites]
    run = model.run(batch, [*reading.sites, *streams])
    points, weights = _nodes(rule, steps)
    for site in reading.sites:
        pattern = run[site]
        scaled = points.to(pattern)

        def at(where: slice, site: Site = site, pattern: Tensor = pattern, scaled: Tensor = scaled):
            return {site: scaled[where].reshape(-1, 1, 1, 1, 1) * pattern}

        total = torch.zeros(pattern.shape[1:], dtype=torch.float64, device=pattern.device)
        scores: list[Tensor] = []
        for found in passes(
            model,
            batch,
            at=at,
            count=len(points),
            sites=(site,),
            targets=(target,),
            memory_limit=memory_limit,
            held=_held(model, run, site, target),
        ):
            slopes = found.gradients[0][site][:, 0].double()
            total += torch.tensordot(weights[found.where].to(slopes), slopes, dims=1)
            scores.append(found.scores[0][:, 0].double().cpu())
        values = pattern[0].double() * total
        if not bool(values.isfinite().all()):
            raise not_finite(f"The attribution at {site}", "gradients overflow on the way from zero", batch)
        along = torch.cat(scores)
        yield Attributed(site, values.cpu().numpy(), float(along[0]), float(along[-1]))


def _nodes(rule: str, steps: int) -> tuple[Tensor, Tensor]:
    """Points of the way up from zero and their weights; the ends weigh nothing, and tell the target's change."""
    if rule == "gauss":
        nodes, sizes = np.polynomial.legendre.leggauss(steps)
        inner, weights = (nodes + 1) / 2, sizes / 2
    else:
        inner = (np.arange(1, steps + 1) - (0.5 if rule == "midpoint" else 0.0)) / steps
        weights = np.full(steps, 1 / steps)
    whole = np.concatenate([[0.0], inner, [1.0]]), np.concatenate([[0.0], weights, [0.0]])
    return torch.from_numpy(whole[0]), torch.from_numpy(whole[1])


def _held(model: Model, run: Run, site: Site, target: Resolved) -> Held:
    """Passes that start with the layer's stream, where the model allows it and the target is not read below it."""
    stream = site.beside("resid")
    below = [place for place in target.sites if isinstance(place.layer, int) and place.layer < int(site.layer or 0)]
    if site.stack is not None or stream not in model.sites or below or model.cannot_start([stream]):
        return Held()
    return Held({stream: run[stream]}, late=True)
