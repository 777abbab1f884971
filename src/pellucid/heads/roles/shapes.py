"""Head shapes: whether a head's patterns are vertical, diagonal, both, blocks, or none of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.effective_weights import RAW
from pellucid.heads.roles.layers import NO_HEAD, stacked
from pellucid.heads.roles.sweeping import phrases_of, swept, targets
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.head_targets import HeadTargetsView
    from pellucid.corpus import Corpus
    from pellucid.model import Model

MEASURES = {
    "vertical": "share of the attention on the most attended place of each text, mean over query words",
    "diagonal": "share on the word itself and on its two neighbours",
    "own sentence": "share on the query's own sentence of a pair, of the attention on words of both",
}
CLASSES = ("vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous")


@dataclass(frozen=True, eq=False)
class HeadShapes(Result):
    """How vertical, diagonal and block-like the patterns of every head are, [measure, layer, head].

    The table `classes` holds each head's class: one of vertical, diagonal, vertical + diagonal, block, heterogeneous;
    `skipped` names classes that the text cannot show, and why.
    Where a layer has fewer heads than others, the values of those it has not are NaN.
    """

    kind: ClassVar[str] = "heads.shapes"
    gaps: ClassVar[bool] = True
    title: ClassVar[str] = "Shapes of attention"
    chance: ClassVar[str] = "uniform attention over all that a query may see"

    @property
    def measures(self) -> Mapping[str, str]:
        return phrases_of(self, {name: MEASURES[name] for name in MEASURES if name in self.axes["measure"]})

    @property
    def classes(self) -> Array:
        """The class of every head, [layer, head]."""
        return self.table("classes").columns["class"]


def shapes(
    source: Found | Model,
    corpus: Corpus | None = None,
    *,
    least: float = 0.5,
    times: float = 2.0,
    own: float = 0.9,
    weights: str = RAW,
) -> HeadShapes:
    """The shape of every head's patterns, in the classes of Kovaleva et al. (2019), told by a rule instead of by eye.

    With v and d the vertical and diagonal shares above uniform attention, (share − even)/(1 − even): where v + d is
    under `least`, a head is heterogeneous (or block, if the corpus has pairs of sentences and `own` of its attention on
    words stays in the query's own); else it is vertical if v ≥ `times`·d, diagonal if d ≥ `times`·v, otherwise both.
    `weights` are raw or effective.
    """
    if not (0 < least <= 1 and times >= 1 and 0 < own <= 1):
        raise ResultError(f"least={least} and own={own} are shares, and times={times} must be at least 1.")
    found = swept(source, corpus, weights=weights)
    view, mine = targets(found, weights)
    keys = list(mine.values())
    names = [name for name in MEASURES if name != "own sentence" or _pairs(view, keys)]
    skipped = {} if "own sentence" in names else {"block": "the text has no pairs of sentences that are read together"}
    values, even = _measured(view, keys, names)
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": tuple(names),
        "layer": tuple(mine),
        "head": tuple(range(values.shape[2])),
    }
    interval = over_groups(view, lambda part: _measured(part, keys, names)[0], lambda part: part.n(keys[0]))
    told = classes_of(dict(zip(names, values, strict=True)), dict(zip(names, even, strict=True)), least, times, own)
    return HeadShapes(
        axes=axes,
        values=values,
        null=np.broadcast_to(even, values.shape),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("heads.shapes", {"least": least, "times": times, "own": own, "weights": weights}),
        tables={
            "classes": Table({"layer": axes["layer"], "head": axes["head"]}, {"class": told}),
            "skipped": Table.of_rows({"class": list(skipped), "why": list(skipped.values())}),
        },
    )


def classes_of(values: Mapping[str, Array], even: Mapping[str, Array], least: float, times: float, own: float) -> Array:
    """The class of every head from its shares and those of uniform attention, all [layer, head]; see `shapes`."""
    above = {name: np.maximum(0.0, (values[name] - even[name]) / np.maximum(1 - even[name], 1e-9)) for name in values}
    vertical, diagonal = above["vertical"], above["diagonal"]
    told = np.full(vertical.shape, "vertical + diagonal", dtype=object)
    told[vertical >= times * diagonal] = "vertical"
    told[diagonal >= times * vertical] = "diagonal"
    weak = vertical + diagonal < least
    told[weak] = "heterogeneous"
    if "own sentence" in values:
        told[weak & (values["own sentence"] >= own)] = "block"
    told[np.isnan(values["vertical"])] = NO_HEAD
    return told


def _pairs(view: HeadTargetsView, keys: Sequence[str]) -> bool:
    return all(view.rows("other", key)[1] > 0 for key in keys)


def _measured(view: HeadTargetsView, keys: Sequence[str], names: Sequence[str]) -> tuple[Array, Array]:
    """Every measure, [measure, layer, head], and that of uniform attention, [measure, layer, 1]."""
    found: list[Array] = []
    even: list[list[list[float]]] = []
    for name in names:
        pairs = [_share(view, name, key) for key in keys]
        found.append(stacked([mine for mine, _ in pairs]))
        even.append([[chance] for _, chance in pairs])
    return np.stack(found), np.array(even)


def _share(view: HeadTargetsView, name: str, key: str) -> tuple[Array, float]:
    if name != "own sentence":
        mass, even = view.rows("near" if name == "diagonal" else name, key)
        n = max(1, view.n(key))
        return mass / n, even / n
    (own, own_even), (other, other_even) = view.rows("own", key), view.rows("other", key)
    total = np.maximum(own + other, 1e-12)
    return own / total, own_even / max(own_even + other_even, 1e-12)
