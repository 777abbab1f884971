"""Scores drawn again within their intervals: what is made of a ranking's order has the ranking's own uncertainty."""

from __future__ import annotations

import re

import numpy as np

from pellucid.neurons.ranking import Ranking
from pellucid.results import Array, ResultError
from pellucid.uncertainty import t_quantile

BOUNDS = "scores drawn within their bounds over"
"""How results that were made of such draws begin to tell what was resampled."""
NORMAL = 1.96
"""Standard deviations in half an interval of 95% of a normal law."""


def quantile_of(resampled: str, *, level: float = 0.95) -> float:
    """How many standard deviations half an interval is wide, from what says what was resampled.

    Of groups, each left out in turn, it is t's, with one degree of freedom less than there are groups; of scores that
    were drawn within bounds, as in a vote, the normal law's 1.96. Any other interval is refused: it has no known width.
    """
    if resampled.startswith(BOUNDS):
        return NORMAL
    told = re.match(r"(\d+) (?:of \d+ )?\w+ groups\b", resampled)
    if told is None or int(told[1]) < 2:
        raise ResultError(
            f"The interval of a ranking comes from {resampled!r}, which does not say how wide it is in standard "
            f"deviations; write as many groups as were left out, as in '10 document groups', or {BOUNDS!r} and what "
            f"for ± {NORMAL} sd."
        )
    return t_quantile((1 + level) / 2, int(told[1]) - 1)


def deviations(ranking: Ranking, cls: str | None) -> Array | None:
    """The standard deviation of every neuron's score, [neuron], from its interval; None where there is none.

    Intervals end where the score itself does, at 0 or at 1: the side that was not cut tells how wide they are.
    """
    if cls is None:
        columns = ranking.overall.columns
        score, ends = columns["score"], (columns["low"], columns["high"]) if "low" in columns else None
    else:
        place, low, high = ranking.place("class", cls), ranking.low, ranking.high
        score, ends = ranking.values[place], None if low is None or high is None else (low[place], high[place])
    return None if ends is None else np.maximum(score - ends[0], ends[1] - score) / quantile_of(ranking.resampled)


def redrawn(scores: Array, deviation: Array, dice: np.random.Generator, *, by: str = "absolute") -> Array:
    """Scores, each drawn from a normal law about it: their size, or `signed` as they are."""
    drawn = scores + deviation * dice.normal(size=scores.shape)
    return np.abs(drawn) if by == "absolute" else drawn


def mirrored(drawn: Array, whole: Array) -> tuple[Array, Array]:
    """Both ends, 95%, of shares drawn again [draws, …] and of their mirror images about the shares themselves, [0, 1].

    Scores have noise, and a draw adds it once more. What noise does to a share, such as mixing the sites of the first
    neurons, it has done to the share itself already, and does again in draws: what they gained, the share may have
    gained before. Where most first neurons are there by noise alone, the ends still lie too close.
    """
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return np.clip(np.minimum(low, 2 * whole - high), 0, 1), np.clip(np.maximum(high, 2 * whole - low), 0, 1)
