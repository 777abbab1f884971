"""The grid: every score of every pair of sites, from one sweep, with chance, interval and a random model beside it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.collect.collector import split_key
from pellucid.collect.side_by_side import side_by_side
from pellucid.errors import listing
from pellucid.results import Array, Coordinate, Result, Table
from pellucid.similarity.caution import SimilarityWarning
from pellucid.similarity.metrics import Metric, chosen, phrases
from pellucid.similarity.nulls import debiased
from pellucid.similarity.pair import SimilarityError
from pellucid.similarity.planning import TOLERANCE, float32_error, lost
from pellucid.similarity.sampled import Samples, linear_cka
from pellucid.similarity.sources import (
    FEW_WORDS,
    Gathered,
    MomentPairs,
    SamplePairs,
    Sides,
    Source,
    sample_moments,
    too_few,
)
from pellucid.uncertainty import Interval, jackknife

if TYPE_CHECKING:
    from pellucid.collect.found import Found


@dataclass(frozen=True, eq=False)
class SimilarityGrid(Result):
    """Scores of every site of the left model with every site of the right one, [measure, left, right].

    The table `chance` holds the null's `sd` and `z` = (value − null)/sd; `random left` and `random right` hold the same
    scores with a randomly initialised model in place of the left or the right one.
    """

    kind: ClassVar[str] = "similarity.grid"
    title: ClassVar[str] = "How alike the representations are"
    chance: ClassVar[str] = "words dealt out at random: a scale, not a test, for the words of a text hang together"

    @property
    def measures(self) -> Mapping[str, str]:
        return phrases(self.axes["measure"])


def grid(
    found: Found,
    scores: str | Iterable[str] = "cka",
    *,
    left: str | None = None,
    right: str | None = None,
    interval: bool | None = None,
    method: str = "moments",
) -> SimilarityGrid:
    """Scores of every pair of sites, with what chance gives, an interval over documents, and random models beside it.

    `left` and `right` choose sites, as `"resid.*"` or, with several models, `"0:resid.*"`; by default all sites of the
    first model against all of the second trained one (of the first itself where there is no other). Scores that need
    moments read `Moments`, those that need the words themselves `TokenSample`. The interval comes along by itself where
    all scores are of the CKA family; for others it takes ten times as long, and is made when `interval` is true. With
    the `method` gram or minibatch, CKA comes from the sampled words.
    """
    wanted = [by_method(metric, method) for metric in chosen(scores)]
    gathered = Gathered(found)
    sides = gathered.sides(wanted, left, right)
    sources = gathered.sources(wanted, sides)
    values = _table(wanted, sources, sides, lambda metric: metric.score)
    nulls = _table(wanted, sources, sides, lambda metric: lambda data: _both(metric.null(data)), width=2)
    null, sd = nulls[..., 0], nulls[..., 1]
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": tuple(metric.name for metric in wanted),
        "left": tuple(split_key(key)[1] for key in sides[0]),
        "right": tuple(split_key(key)[1] for key in sides[1]),
    }
    _warn_of_flat(sources, sides)
    _warn_of_few(wanted, sources, sides, null)
    _warn_of_rounding(wanted, sources, sides)
    _warn_of_one_direction(wanted, sources, sides)
    z = np.divide(values - null, sd, out=np.zeros_like(values), where=sd > 0)
    tables = {"chance": Table(axes, {"sd": sd, "z": z})}
    for name, others in gathered.random_sides(sides).items():
        if gathered.has(wanted, others):
            other = _table(wanted, gathered.sources(wanted, others), others, lambda metric: metric.score)
            tables[name] = Table(axes, {"value": other})
    told = {"scores": list(axes["measure"]), "sides": list(sides), "method": method}
    asked = all(metric.cheap for metric in wanted) if interval is None else interval
    ends = _interval(gathered, wanted, sides, values) if asked else _NOT_ASKED
    return SimilarityGrid(
        axes=axes,
        values=values,
        null=null,
        low=ends.low,
        high=ends.high,
        resampled=ends.resampled,
        provenance=found.provenance("similarity.grid", told),
        tables=tables,
    )


def by_method(metric: Metric, method: str) -> Metric:
    """CKA from moments, from all pairs of sampled words, or from shuffled minibatches of them; other scores as is."""
    if metric.name != "cka" or method in ("moments", "auto"):
        return metric
    if method not in _METHODS:
        raise SimilarityError(f"There is no method {method!r}; the methods are {listing(('moments', *_METHODS))}.")
    return replace(metric, needs="sample", score=_METHODS[method], null=lambda samples: debiased(samples.n))


def _by_minibatch(samples: Samples) -> float:
    from pellucid.similarity.minibatch import minibatch_cka

    rows = samples.sample.rows
    return minibatch_cka(rows[samples.left], rows[samples.right])


_METHODS: dict[str, Callable[[Samples], float]] = {"gram": linear_cka, "minibatch": _by_minibatch}


def _warn_of_flat(sources: Mapping[str, Source], sides: Sides) -> None:
    """Warns of sites that are the same for every word: there is nothing to compare."""
    keys = dict.fromkeys(key for side in sides for key in side)
    flat = [key for key in keys if any(source.flat(key) for source in sources.values())]
    if flat:
        warnings.warn(
            f"Every word has the same values at {listing(flat, most=4)}: there is nothing to compare, and the scores "
            "there (0, or for neighbours and ranks whatever ties give) mean nothing.",
            SimilarityWarning,
            stacklevel=3,
        )


def _warn_of_few(wanted: Sequence[Metric], sources: Mapping[str, Source], sides: Sides, null: Array) -> None:
    """Warns where so few words are compared in so many features that chance alone gives a high score."""
    if "moments" not in sources:
        return
    source = sources["moments"]
    width = max(source.pair(key, key).left.width for side in sides for key in side)
    for number, metric in enumerate(wanted):
        if metric.needs == "moments" and null[number].mean() > 0 and source.n < 2 * width:
            warnings.warn(
                f"{source.n:,} words for {width:,} features: chance alone gives a {metric.name} of about "
                f"{null[number].mean():.2f}; use more text (5 to 10 words per feature), or read scores against that.",
                SimilarityWarning,
                stacklevel=3,
            )


def _warn_of_rounding(wanted: Sequence[Metric], sources: Mapping[str, Source], sides: Sides) -> None:
    """Warns where scores that use every direction come from float32 products that blur the weakest of them."""
    names = [metric.name for metric in wanted if metric.whole]
    source = sources.get("moments")
    if not names or not isinstance(source, MomentPairs):
        return
    found = {key: source.side(key) for keys in sides for key in keys}
    error = float32_error(found.values()) if source.precision == "float32" else 0.0
    if error <= TOLERANCE:
        return
    key = max(found, key=lambda key: (lost(found[key]), found[key].condition))
    what = f"can be off by up to {error:.0e}"
    if lost(found[key]):
        what = f"cannot see {lost(found[key]):,} of {found[key].width:,} directions of {key!r}, lost in rounding"
    warnings.warn(
        f"With float32 products {listing(names)} {what}; sweep with Moments(…, precision='float64').",
        SimilarityWarning,
        stacklevel=3,
    )


FEW_DIRECTIONS = 3
"""So few directions are found again in almost any other layer: their correlations say little."""


def _warn_of_one_direction(wanted: Sequence[Metric], sources: Mapping[str, Source], sides: Sides) -> None:
    """Warns where a few directions hold nearly all of the variance, and a score that keeps a share reads no more."""
    source = sources.get("moments")
    if not isinstance(source, MomentPairs):
        return
    for metric in wanted:
        if metric.keeps is None:
            continue
        counts = {key: metric.keeps(source.side(key)) for key in dict.fromkeys((*sides[0], *sides[1]))}
        few = [key for key, count in counts.items() if 0 < count <= FEW_DIRECTIONS < source.side(key).rank]
        if few:
            most, width = max(counts[key] for key in few), source.side(few[0]).width
            warnings.warn(
                f"{metric.name} reads at most {most} of {width:,} directions of {listing(few, most=4)}: a few words or "
                "features with huge values hold nearly all of the variance there, and such directions are found again "
                "almost anywhere, also in random models; ask for mutual-knn or svcca:20 too.",
                SimilarityWarning,
                stacklevel=3,
            )


_NOT_ASKED = Interval(None, None, "no interval: for these scores it is made when asked for")


def _both(null: Any) -> Array:
    return np.array([null.mean, null.sd])


def _table(
    wanted: Sequence[Metric],
    sources: Mapping[str, Source],
    sides: Sides,
    of: Callable[[Metric], Callable[[Any], Any]],
    *,
    width: int = 1,
) -> Array:
    """What a function of each score gives for every pair, [measure, left, right] or with one more axis of `width`.

    Where both sides are the same sites, symmetric scores are worked out once for both orders.
    """
    left, right = sides
    values = np.zeros((len(wanted), len(left), len(right), width))
    same = left == right
    once = {number for number, metric in enumerate(wanted) if same and metric.symmetric}
    ordered = sorted(enumerate(wanted), key=lambda each: not each[1].whole)  # others read a corner of the whole

    def fill(i: int, j: int) -> None:
        pairs: dict[str, Any] = {}
        for number, metric in ordered:
            if number not in once or i <= j:
                if metric.needs not in pairs:
                    pairs[metric.needs] = sources[metric.needs].pair(left[i], right[j])
                values[number, i, j] = of(metric)(pairs[metric.needs])

    places = [(i, j) for i in range(len(left)) for j in range(len(right)) if i <= j or len(once) < len(wanted)]
    # By diagonals: neighbours share no site, and no thread waits for another's work on a site that both need.
    order = sorted(places, key=lambda place: (place[1] - place[0]) % len(right))
    side_by_side(lambda place: fill(*place), order)
    for number in once:
        below = np.tri(len(left), k=-1, dtype=bool)[..., None]
        values[number] = np.where(below, values[number].swapaxes(0, 1), values[number])
    return values[..., 0] if width == 1 else values


def _interval(gathered: Gathered, wanted: Sequence[Metric], sides: Sides, values: Array) -> Interval:
    """Each document group left out in turn, over all words where their groups were kept apart, else over the sample."""
    parts = [_part(gathered, [metric], sides, values[number : number + 1]) for number, metric in enumerate(wanted)]
    if any(part.low is None for part in parts):
        return next(part for part in parts if part.low is None)
    low, high = (np.concatenate([getattr(part, end) for part in parts]) for end in ("low", "high"))
    return Interval(low, high, "; ".join(dict.fromkeys(part.resampled for part in parts)))


def _part(gathered: Gathered, wanted: list[Metric], sides: Sides, values: Array) -> Interval:
    """The interval of one score."""

    def scored(source: Source) -> Array:
        return _table(wanted, {wanted[0].needs: source}, sides, lambda metric: metric.score)

    view = gathered.sample_view(sides)
    if wanted[0].needs == "moments":
        source = gathered.moment_pairs(sides)
        groups = source.view.groups
        if len(groups) > 1:
            sizes = [source.view.group(group).n for group in groups]
            if too_few(source.n, sizes):
                return FEW_WORDS
            without = [scored(MomentPairs(source.view.without(group), source.precision)) for group in groups]
            where = "read from disk" if source.view.on_disk else "in memory"
            return _over(f"all words (moments {where})", jackknife(values, without, sizes))
        if view is None and groups:
            return jackknife(values, [values], [source.n])  # one group, which says why there is no interval
        if view is None:
            return Interval(None, None, "no interval: sweep with Moments(…, groups=True), or a TokenSample too")
        if too_few(view.n, [int((view.group == group).sum()) for group in np.unique(view.group)]):
            return FEW_WORDS
        return _around(values, _sampled_moments(wanted[0], sides, view), view.n)
    assert view is not None, "the sample was read before"
    groups = np.unique(view.group)
    sizes = [int((view.group == group).sum()) for group in groups]
    keys = [key for side in sides for key in side]
    if len(groups) < 2:
        return jackknife(values, [], [])
    if too_few(view.n, sizes):
        return FEW_WORDS
    without = [scored(SamplePairs(view, keys, np.flatnonzero(view.group != group))) for group in groups]
    which = "all words" if gathered.whole(view) else f"a sample of {view.n:,} words"
    return _over(which, jackknife(values, without, sizes))


def _sampled_moments(metric: Metric, sides: Sides, view: Any) -> Interval:
    """The interval of a score of moments over the sampled words."""
    left, right = sides
    groups = np.unique(view.group)
    estimate = np.zeros((1, len(left), len(right)))
    without = np.zeros((len(groups), *estimate.shape))
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            if left == right and metric.symmetric and j < i:
                estimate[0, i, j], without[:, 0, i, j] = estimate[0, j, i], without[:, 0, j, i]
                continue
            moments = sample_moments(view, one, other)
            estimate[0, i, j] = metric.score(MomentPairs(moments, "float64").pair(one, other))
            for number, group in enumerate(groups):
                part = MomentPairs(moments.without(int(group)), "float64")
                without[number, 0, i, j] = metric.score(part.pair(one, other))
    several = list(without) if len(groups) > 1 else []
    return jackknife(estimate, several, [int((view.group == group).sum()) for group in groups][: len(several)])


def _around(values: Array, found: Interval, words: int) -> Interval:
    """An interval of the sample's estimate, brought to the estimate from all words."""
    if found.low is None or found.high is None:
        return found
    reach = (found.high - found.low) / 2
    return _over(f"a sample of {words:,} words", Interval(values - reach, values + reach, found.resampled))


def _over(words: str, found: Interval) -> Interval:
    """The same interval, with the words that it was worked out from."""
    return found if found.low is None else Interval(found.low, found.high, f"{found.resampled}, on {words}")
