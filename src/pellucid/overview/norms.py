"""Norms: how long the vectors of the residual stream are, layer by layer, and which dimensions stand out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.reading import control, layers, view_with
from pellucid.results import Array, Coordinate, Result, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.moment_sums import MomentsView

MEASURES = {
    "mean norm": "mean over words of the vector's length",
    "RMS norm": "square root of the mean squared length",
    "largest share": "share of the variance that lies in the one dimension with most of it",
}
_ROBUST = 1.4826  # makes the median absolute deviation of a normal sample its standard deviation


@dataclass(frozen=True, eq=False)
class Norms(Result):
    """Norms of the residual stream, [measure, layer], and its outlier dimensions."""

    kind: ClassVar[str] = "overview.norms"
    title: ClassVar[str] = "Norms of the residual stream by layer"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "a randomly initialised model of the same architecture"

    @property
    def outliers(self) -> Table:
        """Dimensions whose mean or sd lies far from that of the layer's others, one row each."""
        return self.table("outliers")


def norms(found: Found, *, threshold: float = 6.0) -> Norms:
    """Norms per layer from `Moments("resid.*", pairs="units", groups=True)`.

    A dimension is an outlier where its mean lies more than `threshold` robust standard deviations (1.4826 × median
    absolute deviation over the layer's dimensions) from their median, or its sd that far above theirs.
    """
    from pellucid.collect.moments import Moments

    chosen, mine = view_with(found, Moments, "resid", ask='Moments("resid.*", pairs="units", groups=True)')
    view: MomentsView = chosen
    keys = list(mine.values())
    twin = control(found.models)
    other = {} if twin is None else layers(found.models, view.keys, "resid", model=twin)
    interval = over_groups(view, partial(_measured, keys=keys), lambda part: part.n)
    rows = _outlier_rows(view, mine, found.models[0].name, threshold)
    if twin is not None:
        rows += _outlier_rows(view, other, found.models[twin].name, threshold)
    return Norms(
        axes={"measure": tuple(MEASURES), "layer": tuple(mine)},
        values=_measured(view, keys),
        null=_measured(view, list(other.values())) if other.keys() == mine.keys() else None,
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("overview.norms", {"threshold": threshold}),
        tables={"outliers": _as_table(rows)},
    )


def _measured(view: MomentsView, keys: list[str]) -> Array:
    """All measures of several keys, [measure, key]."""
    rows: list[tuple[float, float, float]] = []
    for key in keys:
        mean, variance = view.mean_length(key), view.variance(key)
        whole = float(variance.sum())
        share = float(variance.max()) / whole if whole else 0.0
        rows.append((mean, float(np.sqrt(mean**2 + view.length_variance(key))), share))
    return np.array(rows).T


def outlier_dimensions(mean: Array, sd: Array, *, threshold: float = 6.0) -> tuple[Array, Array, Array]:
    """Dimensions [k] that stand out by their mean or sd, [d], and both distances [k] in robust standard deviations."""
    by_mean, by_sd = np.abs(_distance(mean)), _distance(sd)
    chosen = np.flatnonzero((by_mean > threshold) | (by_sd > threshold))
    order = chosen[np.argsort(-np.maximum(by_mean, by_sd)[chosen], kind="stable")]
    return order, by_mean[order], by_sd[order]


def _distance(values: Array) -> Array:
    """How far each value lies from the median, in robust standard deviations; in plain ones where most values agree."""
    away = values - np.median(values)
    scale = _ROBUST * float(np.median(np.abs(away))) or float(values.std())
    return away / scale if scale else np.zeros_like(values)


def _outlier_rows(
    view: MomentsView, keys: Mapping[Coordinate, str], model: str, threshold: float
) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for layer, key in keys.items():
        mean, sd = view.mean(key), np.sqrt(view.variance(key))
        for unit, by_mean, by_sd in zip(*outlier_dimensions(mean, sd, threshold=threshold), strict=True):
            rows.append(
                (model, str(layer), int(unit), float(mean[unit]), float(sd[unit]), float(by_mean), float(by_sd))
            )
    return rows


def _as_table(rows: list[tuple[Any, ...]]) -> Table:
    names = ("model", "layer", "dimension", "mean", "sd", "mean, robust sds away", "sd, robust sds away")
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return Table.of_rows(dict(zip(names, columns, strict=True)))
