"""The points of a straight path at which gradients are taken, and what each of them weighs in an integral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.errors import AttributionError, listing

Array = np.ndarray[Any, Any]

RULES = ("gauss", "captum")
FEWEST = 2


@dataclass(frozen=True, eq=False)
class Nodes:
    """Points 0 ≤ α ≤ 1 in ascending order, with their weights [K] in ∫₀¹ g(α) dα ≈ Σ w_k·g(α_k).

    `trapezoid` tells how products of gradients and differences are summed over the points: ½(g_k + g_{k+1}) where it
    is set, g_k alone otherwise.
    """

    points: Array
    weights: Array
    trapezoid: bool

    @property
    def ends(self) -> bool:
        """Whether the path's own ends are among the points."""
        return bool(self.points[0] == 0 and self.points[-1] == 1)


END = Nodes(np.ones(1), np.ones(1), True)
"""The end of the path alone: the text as it is."""


def gauss(steps: int) -> Nodes:
    """Both ends, and between them `steps` − 1 Gauss–Legendre nodes, which alone weigh in integrals.

    Products of gradients and differences are summed by the trapezoid rule over all points: it is of second order, and
    with both ends the differences add up to the whole.
    """
    _check(steps)
    points, weights = _legendre(steps - 1)
    return Nodes(np.concatenate([[0.0], points, [1.0]]), np.concatenate([[0.0], weights, [0.0]]), True)


def captum(steps: int) -> Nodes:
    """`steps` Gauss–Legendre nodes without the ends, and left sums, as captum takes them."""
    _check(steps)
    return Nodes(*_legendre(steps), False)


def check_rule(rule: str) -> None:
    """Raises where there is no rule of that name."""
    if rule not in RULES:
        raise AttributionError(f"There is no rule {rule!r} for the steps of a path; the rules are {listing(RULES)}.")


def _legendre(count: int) -> tuple[Array, Array]:
    """Gauss–Legendre nodes and weights on [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return (points + 1) / 2, weights / 2


def _check(steps: int) -> None:
    if steps < FEWEST:
        raise AttributionError(f"A path was given {steps} steps; it needs at least {FEWEST}.")
