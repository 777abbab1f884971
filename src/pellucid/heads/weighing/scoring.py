"""Losses and scores summed by document group, so that each group can be left out: the mathematics, without a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.uncertainty import Interval, jackknife

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of each document group: losses [..., G] in nats over `goals` [G], points [..., G] out of `out_of` [G].

    Points are what the main score counts: goals that were found, or an answer's F1. Leading axes are free.
    """

    losses: Array
    goals: Array
    points: Array
    out_of: Array

    def loss(self, without: int | None = None) -> Array:
        """The mean loss per goal [...], of all groups or without one."""
        kept = _kept(len(self.goals), without)
        return self.losses[..., kept].sum(axis=-1) / self.goals[kept].sum()

    def score(self, name: str, without: int | None = None) -> Array:
        """The score [...] of a name: perplexity is exp of the loss, every other one the points that were reached."""
        if name == "perplexity":
            with np.errstate(over="ignore"):
                return np.minimum(np.exp(self.loss(without)), np.finfo(np.float64).max)
        kept = _kept(len(self.goals), without)
        return self.points[..., kept].sum(axis=-1) / self.out_of[kept].sum()


def leaving_out(sizes: Array, estimate: Callable[[int | None], Array]) -> Interval:
    """The jackknife interval of an estimate that can be made without one of the groups; empty groups are no groups."""
    there = [number for number, size in enumerate(sizes) if size > 0]
    without = [estimate(number) for number in there] if len(there) > 1 else [np.empty(0)] * len(there)
    return jackknife(estimate(None), without, [float(sizes[number]) for number in there])


def _kept(groups: int, without: int | None) -> Array:
    kept = np.ones(groups, dtype=bool)
    if without is not None:
        kept[without] = False
    return kept
