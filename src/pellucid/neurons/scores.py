"""Scores of neurons as a ranking: with chance, the jackknife over document groups, and what a random model gives."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.results import Array, ResultError, Table
from pellucid.uncertainty import jackknife

if TYPE_CHECKING:
    from pellucid.results import Provenance


FEW = 10
"""Words of a class below which a ranking warns."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Signed scores [class, neuron] and overall ones [neuron], with what chance gives, or None."""

    signed: Array
    overall: Array
    null: Array | None = None
    overall_null: Array | None = None

    @property
    def both(self) -> Array:
        """Class scores and overall ones in one array, [class + 1, neuron]."""
        return np.concatenate([self.signed, self.overall[None]])


@dataclass(frozen=True, eq=False)
class Again:
    """The same scores without one document group, which has `size` words."""

    scores: Scores
    size: float


def ranking_of(
    scores: Scores,
    again: Sequence[Again],
    *,
    classes: Sequence[str],
    neurons: Sequence[str],
    provenance: Provenance,
    random_model: Array | None = None,
    tables: Mapping[str, Table] | None = None,
    shares: bool = False,
) -> Ranking:
    """A ranking from scores, from the scores `again` without each document group, and from a random model's.

    Overall scores are sizes, so their intervals end at 0; where scores are `shares` with the sign of an end of the
    values, so do all others, and at 1.
    """
    bad = np.argwhere(~np.isfinite(scores.both))
    if len(bad):
        raise ResultError(f"The score of {neurons[int(bad[0, 1])]} is not a number; leave its site out.")
    if tables is not None and "classes" in tables:
        _warn_of_few(tables["classes"], len(neurons))
    interval = jackknife(scores.both, [each.scores.both for each in again], [each.size for each in again])
    interval = interval.within(*_reach(scores, shares=shares))
    low, high = interval.low, interval.high
    axes = {"class": tuple(classes), "neuron": tuple(neurons)}
    overall = overall_table(
        neurons,
        scores.overall,
        null=scores.overall_null,
        low=None if low is None else low[-1],
        high=None if high is None else high[-1],
    )
    beside = {} if random_model is None else {"random model": Table(axes, {"value": random_model})}
    return Ranking(
        axes=axes,
        values=scores.signed,
        null=scores.null,
        low=None if low is None else low[:-1],
        high=None if high is None else high[:-1],
        resampled=interval.resampled,
        provenance=provenance,
        tables={"overall": overall, **beside, **dict(tables or {})},
    )


def _reach(scores: Scores, *, shares: bool) -> tuple[Array, Array]:
    """The least and the most that scores can be, [class and overall, neuron] each."""
    least, most = np.full_like(scores.both, -np.inf), np.full_like(scores.both, np.inf)
    least[-1] = 0.0
    if shares:
        least, most = np.where(scores.both < 0, -1.0, 0.0), np.where(scores.both < 0, 0.0, 1.0)
    return least, most


def _warn_of_few(table: Table, neurons: int) -> None:
    """Warns, once for all classes, where a class has so few words that the best of many neurons is one by chance."""
    words = dict(zip(table.axes["class"], table.columns["words"].tolist(), strict=True))
    few = {name: count for name, count in words.items() if count < FEW}
    if few:
        least = min(few, key=lambda name: few[name])
        warnings.warn(
            f"{len(few)} of {len(words)} classes have fewer than {FEW} words ({str(least)!r} has {few[least]}), from "
            f"which {neurons:,} neurons are scored: compare with chance, give more text, or name other classes.",
            NeuronWarning,
            stacklevel=5,
        )


def class_table(classes: Sequence[str], counts: Array) -> Table:
    """How many words every class has, `other` included."""
    return Table({"class": tuple(classes)}, {"words": np.asarray(counts).astype(np.int64)})
