"""Heads: which attention heads of a model look at the same words, and which have outputs that are alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.divergence import HeadDivergence
from pellucid.collect.head_moments import HeadMoments, head_key
from pellucid.reading import control, layers, view_with
from pellucid.results import Array, Coordinate, Result, Table
from pellucid.similarity.metrics import Metric, chosen, phrases
from pellucid.similarity.pair import LEAST, Pair, Side, SimilarityError
from pellucid.uncertainty import Interval, jackknife, over_groups

if TYPE_CHECKING:
    from pellucid.collect.divergence import HeadDivergenceView
    from pellucid.collect.found import Found
    from pellucid.collect.moment_sums import MomentsView

PATTERN = "pattern"
_ABOUT = {PATTERN: "1 − JS/ln 2 for the Jensen–Shannon divergence JS of two heads' attention, mean over query words"}


@dataclass(frozen=True, eq=False)
class HeadSimilarity(Result):
    """How alike every two heads of a model are, [measure, left, right]; `3.5` is head 5 of layer 3.

    Of `head_patterns`, the table `uniform` holds how alike every head is to uniform attention. `random model` holds
    the same scores within the randomly initialised model, where the sweep has one.
    """

    kind: ClassVar[str] = "similarity.heads"
    title: ClassVar[str] = "Heads that are alike"
    chance: ClassVar[str] = "unrelated heads: the weights of a query, or the words of outputs, dealt out at random"

    @property
    def measures(self) -> Mapping[str, str]:
        names = [str(name) for name in self.axes["measure"]]
        return {name: _ABOUT[name] if name in _ABOUT else phrases([name])[name] for name in names}


def head_patterns(found: Found) -> HeadSimilarity:
    """Likeness of the attention of every two heads of the first model, from `HeadDivergence()`.

    1 where two heads look alike at every word, 0 where they never look at the same (Clark et al. 2019, who give JS
    itself: (1 − value)·ln 2). Chance is what heads as sharp as these give when the weights of one are dealt out at
    random among what the query may see. Untrained heads are near uniform and so all alike: the random model's own
    likeness is a table beside it, and not chance.
    """
    view, mine = _divergences(found)
    axes = _axes(PATTERN, mine, view.heads)
    interval = over_groups(view, partial(_alike, model=0), lambda part: part.n(0))
    tables = {"uniform": Table({"left": axes["left"]}, {"value": _likeness(view.uniform(0))})}
    twin = control(found.models)
    if twin is not None and len(layers(found.models, view.keys, "pattern", model=twin)) == len(mine):
        tables["random model"] = Table(axes, {"value": _alike(view, twin)})
    return HeadSimilarity(
        axes=axes,
        values=_alike(view, 0),
        null=_likeness(view.chance(0))[None],
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("similarity.heads", {"score": PATTERN}),
        tables=tables,
    )


def head_outputs(found: Found, *, score: str = "cka", interval: bool | None = None) -> HeadSimilarity:
    """A score of the outputs of every two heads of the first model, from `HeadMoments()`.

    Any score of moments will do; the table `chance` holds the null's `sd` and `z` = (value − null)/sd. The interval
    leaves out each document group, which `HeadMoments(groups=True)` keeps; it comes along by itself for the CKA family,
    and for other scores when `interval` is true.
    """
    metric, *more = chosen(score)
    if more:
        raise SimilarityError(f"score={score!r} names {len(more) + 1} scores, and one is worked out at a time.")
    if metric.needs != "moments":
        raise SimilarityError(f"{score!r} reads single words, and heads have moments alone; use 'cka' or 'svcca'.")
    gathered = _Outputs.of(found)
    view, keys = gathered.view, gathered.keys(0)
    axes = _axes(metric.name, gathered.layers(0), gathered.heads)

    def score_of(pair: Pair) -> tuple[float, ...]:
        return (metric.score(pair),)

    def null_of(pair: Pair) -> tuple[float, ...]:
        null = metric.null(pair)
        return null.mean, null.sd

    values = gathered.table(view, keys, metric, score_of)
    null, sd = gathered.table(view, keys, metric, null_of)
    ends = _NOT_ASKED
    if metric.cheap if interval is None else interval:
        ends = _interval(view, partial(gathered.table, keys=keys, metric=metric, of=score_of), values)
    z = np.divide(values[0] - null, sd, out=np.zeros_like(null), where=sd > 0)
    tables = {"chance": Table(axes, {"sd": sd[None], "z": z[None]})}
    twin = control(found.models)
    if twin is not None and len(gathered.keys(twin)) == len(keys):
        tables["random model"] = Table(axes, {"value": gathered.table(view, gathered.keys(twin), metric, score_of)})
    return HeadSimilarity(
        axes=axes,
        values=values,
        null=null[None],
        low=ends.low,
        high=ends.high,
        resampled=ends.resampled,
        provenance=found.provenance("similarity.heads", {"score": metric.name}),
        tables=tables,
    )


_Reading = Callable[[Pair], tuple[float, ...]]
_NOT_ASKED = Interval(None, None, "no interval: this score has one on request (interval=True)")


class HeadPairs:
    """Pairs of heads from the moments of all pairs; what belongs to all of them is worked out at once.

    With e the mean about the shift, x and a = ‖x‖² about the shift, k = ‖x − e‖²: Σk·l comes from Σa·b, Σa·(e·y),
    Σ(e·x)(f·y) and the lengths of the means, each a matrix [heads, heads].
    """

    def __init__(self, view: MomentsView, precision: str) -> None:
        if view.n < LEAST:
            raise SimilarityError(f"The sweep has {view.n} words, and a similarity of heads needs at least {LEAST}.")
        self.n, self.keys, self._precision = view.n, view.keys, precision
        self._sums, self._slices = view.sums, view.columns.slices
        self._mean = view.sums["sum"] / view.n
        starts = np.array([place.start for place in self._slices])
        lengths = np.add.reduceat(self._mean**2, starts)  # ‖e‖², [heads]
        third = np.add.reduceat(view.sums["third"] * self._mean, starts, axis=1)  # Σa_l·(e_m·x_m)
        cross = np.zeros((len(starts), len(starts)))  # Σ(e_l·x_l)(e_m·x_m)
        for head, own in enumerate(self._slices):
            along = (self._mean[own] @ view.sums[f"product.{head}"]) * self._mean[own.start :]
            cross[head, head:] = np.add.reduceat(along, starts[head:] - own.start)
        cross += np.triu(cross, 1).T
        norms = view.sums["norms"] - 2 * self.n * lengths  # Σ(a − 2e·x)
        self._norm_sums = norms + self.n * lengths
        self._norm_products = (
            view.sums["fourth"] - 2 * (third + third.T) + 4 * cross + self.n * np.outer(lengths, lengths)
        ) + (np.outer(norms, lengths) + np.outer(lengths, norms))
        self._sides: dict[int, Side] = {}

    def pair(self, left: str, right: str) -> Pair:
        """Two heads."""
        one, other = self.keys.index(left), self.keys.index(right)
        products = float(self._norm_products[one, other])
        return Pair(self._side(one), self._side(other), self._scatter(one, other), products)

    def _side(self, head: int) -> Side:
        if head not in self._sides:
            sums = float(self._norm_sums[head]), float(self._norm_products[head, head])
            self._sides[head] = Side(self.keys[head], self.n, self._scatter(head, head), *sums, self._precision)
        return self._sides[head]

    def _scatter(self, one: int, other: int) -> Array:
        if one > other:
            return self._scatter(other, one).T
        rows, columns = self._slices[one], self._slices[other]
        block = self._sums[f"product.{one}"][:, columns.start - rows.start : columns.stop - rows.start]
        return block - self.n * np.outer(self._mean[rows], self._mean[columns])


@dataclass(frozen=True, eq=False)
class _Outputs:
    """The moments of heads that a sweep gathered; `heads` are the heads of every site that was read."""

    found: Found
    view: MomentsView
    heads: Mapping[str, int]
    precision: str

    @staticmethod
    def of(found: Found) -> _Outputs:
        names = [name for name, each in found.collectors.items() if isinstance(each, HeadMoments)]
        for name in names:
            collector, setting = found.collectors[name], found.setting(name)
            assert isinstance(collector, HeadMoments)
            heads = {key: setting.heads(key) for key in setting.keys(collector.sites)}
            if layers(found.models, heads, "heads"):
                return _Outputs(found, found[name], heads, collector.precision)
        lacking = "has none of the first model" if names else "this sweep did not collect"
        raise SimilarityError(f"Outputs of heads read HeadMoments(), which {lacking}; sweep with it too.")

    def layers(self, model: int) -> dict[Coordinate, str]:
        """The sites of a model by layer."""
        return layers(self.found.models, self.heads, "heads", model=model)

    def keys(self, model: int) -> list[str]:
        """The keys of all heads of a model."""
        return [head_key(key, head) for key in self.layers(model).values() for head in range(self.heads[key])]

    def table(self, view: MomentsView, keys: Sequence[str], metric: Metric, of: _Reading) -> Array:
        """What `of` reads of every pair of heads, [numbers, head, head]; symmetric scores are worked out once."""
        pairs = HeadPairs(view, self.precision)
        rows: list[list[tuple[float, ...]]] = []
        for i, one in enumerate(keys):
            known = [rows[j][i] for j in range(i)] if metric.symmetric else []
            rows.append(known + [of(pairs.pair(one, other)) for other in keys[len(known) :]])
        return np.array(rows).transpose(2, 0, 1)


def _interval(view: MomentsView, scored: Callable[[MomentsView], Array], values: Array) -> Interval:
    """Each document group left out in turn."""
    if len(view.groups) < 2:
        kept = "all of the text lies in one document group" if view.groups else "sweep with HeadMoments(groups=True)"
        return Interval(None, None, f"no interval: {kept}")
    sizes = [view.group(group).n for group in view.groups]
    if view.n - max(sizes) < LEAST:
        return Interval(None, None, "no interval: without one of its document groups the text has too few words")
    return jackknife(values, [scored(view.without(group)) for group in view.groups], sizes)


def _divergences(found: Found) -> tuple[HeadDivergenceView, dict[Coordinate, str]]:
    return view_with(found, HeadDivergence, "pattern", ask="HeadDivergence()")


def _alike(view: HeadDivergenceView, model: int) -> Array:
    return _likeness(view.divergence(model))[None]


def _likeness(divergence: Array) -> Array:
    return np.clip(1 - divergence / np.log(2), 0.0, 1.0)


def _axes(measure: str, mine: Mapping[Coordinate, str], heads: Mapping[str, int]) -> dict[str, tuple[Coordinate, ...]]:
    names = tuple(f"{layer}.{head}" for layer, key in mine.items() for head in range(heads[key]))
    return {"measure": (measure,), "left": names, "right": names}
