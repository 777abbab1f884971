"""Neurons of several models: which unit of another model does the same, and how nearly (Bau et al. 2018)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.collector import keys as keys_of
from pellucid.collect.collector import split_key
from pellucid.errors import listing
from pellucid.reading import is_random, random_twin
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.similarity.caution import SimilarityWarning
from pellucid.similarity.pair import LEAST, ROUNDING, Pair, Side, SimilarityError, pair_of, side_of
from pellucid.similarity.sources import Gathered, Sides
from pellucid.similarity.units import (
    chance_correlation,
    chance_explained,
    chance_matching,
    correlations,
    explained,
    matched,
    variances,
)
from pellucid.uncertainty import Interval, jackknife

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.moment_sums import MomentsView

SCORES = {
    "maxcorr": "largest |correlation| of a unit with any unit of the other models",
    "mincorr": "the same with the units of each other model alone, and of these the smallest",
    "linreg": "share of a unit's variance that a linear map of all units of another site explains, at the best site",
    "matching": "|correlation| of a unit with its partner, each having one, so that their sum is largest",
}
_CONSTANT = 64
"""A unit is constant where its variance is within so many roundings of the squares that it was worked out from."""


@dataclass(frozen=True, eq=False)
class NeuronMatches(Result):
    """How nearly every unit is found in other models, [measure, site, unit]; constant units have 0.

    The table `matches` names the unit behind each score, with its correlation: `other model`, `other site`, `other
    unit` (−1 for none); of `linreg`, the most correlated unit of the site that explains most. `random model` holds the
    same scores with randomly initialised models in place of the others, where the sweep has them.
    """

    kind: ClassVar[str] = "similarity.neurons"
    title: ClassVar[str] = "Units that other models have too"
    chance: ClassVar[str] = "unrelated units: a scale, not a test, for the words of a text hang together"

    @property
    def measures(self) -> Mapping[str, str]:
        return {str(name): SCORES.get(str(name), "a score of units") for name in self.axes["measure"]}

    def top(self, k: int = 10) -> Table:
        """The k units with the highest scores, each with its match; equal ones in the order of sites and units."""
        if k < 1:
            raise ResultError(f"top({k}) shows no unit; ask for 1 or more.")
        flat = self.values[0].ravel()
        order = np.argsort(-flat, kind="stable")[:k]
        site, unit = np.unravel_index(order, self.values[0].shape)
        columns: dict[str, Array] = {
            "site": np.array([self.axes["site"][place] for place in site]),
            "unit": np.array([self.axes["unit"][place] for place in unit]),
            "value": flat[order],
        }
        if self.null is not None:
            columns["null"] = self.null[0].ravel()[order]
        columns |= {name: cells[0].ravel()[order] for name, cells in self.table("matches").columns.items()}
        return Table.of_rows(columns)


def neuron_matches(
    found: Found,
    *,
    score: str = "maxcorr",
    site: str | None = None,
    left: str | None = None,
    right: str | None = None,
    interval: bool = True,
    seed: int = 0,
) -> NeuronMatches:
    """Scores every unit of one model by its likes in others, from `Moments` of all of them in one sweep.

    `left` chooses the sites whose units are scored (by default all of the first model), `right` the sites in which
    likes are looked for, as `"1:neurons.3,2:neurons.3"` (by default all of the other trained models); `site`, as
    `"neurons.3"`, leaves only such sites on both sides. `matching` pairs two sites one to one. The interval leaves out
    each document group, and needs `Moments(…, groups=True)`; of `matching` it is that of the pairs found in all words.
    """
    if score not in SCORES:
        raise SimilarityError(f"There is no score of units {score!r}; there are {listing(SCORES)}.")
    sides = sides_of(found, site, left, right)
    pairs = Gathered(found).moment_pairs(sides)
    _check(pairs.view, sides, score)
    units = _Units(pairs.view, pairs.precision, sides, score)
    best = units.best(pairs.view)
    ends = _interval(units, best) if interval else Interval(None, None, "no interval: it was not asked for")
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": (score,),
        "site": tuple(split_key(key)[1] for key in sides[0]),
        "unit": tuple(range(best.value.shape[1])),
    }
    tables = {"matches": Table(axes, {name: column[None] for name, column in _columns(found, sides, best).items()})}
    twins = twins_of(found, pairs.view, sides)
    if twins is not None:
        others = _Units(pairs.view, pairs.precision, twins, score)
        tables["random model"] = Table(axes, {"value": others.best(pairs.view).value[None]})
    return NeuronMatches(
        axes=axes,
        values=best.value[None],
        null=units.chance(pairs.view, best, seed)[None],
        low=None if ends.low is None else ends.low[None],
        high=None if ends.high is None else ends.high[None],
        resampled=ends.resampled,
        provenance=found.provenance("similarity.neurons", {"score": score, "sides": list(sides)}, seed=seed),
        tables=tables,
    )


@dataclass(frozen=True, eq=False)
class _Best:
    """Score of every unit, [site, unit], and the right key (its number), unit and correlation behind it."""

    value: Array
    key: Array
    unit: Array
    correlation: Array


class _Units:
    """Scores of the units of some sites from moments of all words, or of all but one group of documents."""

    def __init__(self, view: MomentsView, precision: str, sides: Sides, score: str) -> None:
        self.whole, self.precision, self.score = view, precision, score
        self.left, self.right = sides
        self.models = [split_key(key)[0] for key in self.right]
        self._kept: list[Side] = []
        self._constant = {key: self._floor(key) for side in sides for key in side}

    def best(self, view: MomentsView, like: _Best | None = None) -> _Best:
        """The scores over the words of a view; with `like`, of the pairs matched there."""
        right = self._right(view)
        partners = [None] * len(self.left) if like is None else like.unit
        rows = [
            self._site(view, self._side(view, key), right, partner)
            for key, partner in zip(self.left, partners, strict=True)
        ]
        return _Best(*(np.stack([row[part] for row in rows]) for part in range(4)))

    def _site(
        self, view: MomentsView, left: Side, right: list[Side], partner: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        """Value, right key, unit and correlation of every unit of one site, [unit] each."""
        by_key: list[tuple[Array, Array, Array]] = []
        for side in right:
            pair = self._pair(view, left, side)
            r = correlations(pair)
            strength = np.abs(r)
            if self.score == "matching":
                unit = matched(strength) if partner is None else partner
            else:
                unit = np.where(strength.max(1) > 0, strength.argmax(1), -1)
            mine = np.where(unit >= 0, r[np.arange(len(r)), unit], 0.0)
            by_key.append((explained(pair) if self.score == "linreg" else np.abs(mine), unit, mine))
        value, unit, mine = (np.stack([part[place] for part in by_key]) for place in range(3))  # [keys, unit]
        key = self._deciding(value)
        at = key, np.arange(value.shape[1])
        return value[at], key, unit[at], mine[at]

    def _deciding(self, value: Array) -> Array:
        """The right key whose score counts, [unit]: the best one or, for mincorr, the worst model's best."""
        if self.score != "mincorr":
            return value.argmax(0)
        models = sorted(set(self.models))
        places = [np.flatnonzero(np.array(self.models) == model) for model in models]
        best = np.stack([own[value[own].argmax(0)] for own in places])  # [models, unit]
        worst = np.take_along_axis(value, best, 0).argmin(0)
        return best[worst, np.arange(value.shape[1])]

    def chance(self, view: MomentsView, best: _Best, seed: int) -> Array:
        """What unrelated units give for every score, [site, unit]; 0 for constant ones."""
        right = self._right(view)
        alive = [int((variances(side) > 0).sum()) for side in right]
        found = np.zeros(best.value.shape)
        for at, key in enumerate(self.left):
            mine = variances(self._side(view, key)) > 0
            if self.score == "linreg":
                value = chance_explained(view.n, tuple(side.rank for side in right))
            elif self.score == "matching":
                value = chance_matching(view.n, int(mine.sum()), alive[0], seed=seed)
            else:
                by_model = dict.fromkeys(self.models, 0)
                for model, count in zip(self.models, alive, strict=True):
                    by_model[model] += count
                value = chance_correlation(view.n, tuple(by_model.values()), least=self.score == "mincorr")
            found[at] = np.where(mine, value, 0.0)
        return found

    def _right(self, view: MomentsView) -> list[Side]:
        """The right keys; those of all words are kept, for their spectra are asked for again."""
        if view is not self.whole:
            return [self._side(view, key) for key in self.right]
        if not self._kept:
            self._kept = [self._side(view, key) for key in self.right]
        return self._kept

    def _side(self, view: MomentsView, key: str) -> Side:
        """One key, whose constant units are zero to the last bit."""
        side = side_of(view, key, precision=self.precision)
        alive = np.diagonal(side.scatter) > self._constant[key]
        scatter = side.scatter * np.outer(alive, alive)
        return Side(key, side.n, scatter, side.norm_sum, side.norm_squares, side.precision)

    def _pair(self, view: MomentsView, left: Side, right: Side) -> Pair:
        pair = pair_of(view, left, right)
        alive = [variances(side) > 0 for side in (left, right)]
        return Pair(left, right, pair.cross * np.outer(*alive), pair.norm_products)

    def _floor(self, key: str) -> Array:
        """The scatter of each unit below which it is rounding alone, [unit], from its squares about the shift."""
        view = self.whole
        place = view.columns.slices[view.keys.index(key)]
        squares = view.n * (view.variance(key) + (view.mean(key) - view.shift[place]) ** 2)
        return _CONSTANT * ROUNDING[self.precision] * squares


def _interval(units: _Units, best: _Best) -> Interval:
    """Each document group left out in turn; matched pairs stay those of all words."""
    view = units.whole
    if len(view.groups) < 2:
        kept = "all of the text lies in one document group" if view.groups else "sweep with Moments(…, groups=True)"
        return Interval(None, None, f"no interval: {kept}")
    like = best if units.score == "matching" else None
    without = [units.best(view.without(group), like).value for group in view.groups]
    return jackknife(best.value, without, [view.group(group).n for group in view.groups]).within(0.0, 1.0)


def sides_of(found: Found, site: str | None, left: str | None, right: str | None) -> Sides:
    """The keys whose units are scored, and those in which likes are looked for."""
    gathered = Gathered(found)
    if not gathered.moments:
        raise SimilarityError("Scores of units read Moments, which this sweep did not collect; sweep with Moments(…).")
    there = list(dict.fromkeys(key for _, view in gathered.moments for key in view.keys))
    if site is not None:
        wanted = keys_of(found.models, site)
        there, had = [key for key in there if key in wanted], there
        if not there:
            raise SimilarityError(f"The sweep has no moments of {site!r}; it has those of {listing(had, most=40)}.")
    mine, others = gathered.chosen_sides(there, left, right)
    own = {split_key(key)[0] for key in mine}
    if not own:
        raise SimilarityError(
            f"The sweep has no moments of the first model to score; it has {listing(there, most=40)}; name its sites "
            "with left=."
        )
    if len(own) > 1:
        raise SimilarityError(
            f"left={left!r} means sites of {len(own)} models; units of one model are scored at a time."
        )
    if right is None:
        models = found.models
        trained = [key for key in there if not is_random(models, split_key(key)[0])]
        others = tuple(key for key in trained if split_key(key)[0] not in own)
    if not others:
        raise SimilarityError(
            f"The units of {found.models[next(iter(own))].name!r} have no other trained model to be found in; sweep "
            "two or more models at once, or name sites with right='1:…'."
        )
    both = sorted(set(mine) & set(others))
    if both:
        raise SimilarityError(f"{both[0]!r} is on both sides, where every unit finds itself; choose other sites.")
    return mine, others


def _check(view: MomentsView, sides: Sides, score: str) -> None:
    """Refuses what cannot be scored, and warns where chance explains nearly all."""
    widths = {key: view.columns.widths[view.keys.index(key)] for side in sides for key in side}
    own = {widths[key] for key in sides[0]}
    if len(own) > 1:
        raise SimilarityError(
            f"The sites have {sorted(own)} units; score those with the same number at a time (left=)."
        )
    if score == "matching" and (len(sides[0]) > 1 or len(sides[1]) > 1):
        raise SimilarityError(
            f"A matching pairs two sites one to one, and {len(sides[0])} and {len(sides[1])} were chosen; name one on "
            "each side, as left='0:neurons.3', right='1:neurons.3'."
        )
    if view.n < LEAST:
        raise SimilarityError(f"The sweep has {view.n} words, and correlations of units need at least {LEAST}.")
    widest = max(widths[key] for key in sides[1])
    if score == "linreg" and view.n < 2 * widest:
        warnings.warn(
            f"{view.n:,} words are few for a linear map of {widest:,} units: chance alone explains "
            f"{min(1.0, widest / (view.n - 1)):.0%} of a unit; read more text.",
            SimilarityWarning,
            stacklevel=3,
        )


def twins_of(found: Found, view: MomentsView, sides: Sides) -> Sides | None:
    """The same sides with random models in place of the others, where the sweep has them with all their products."""
    numbers = {number: random_twin(found.models, number) for number in {split_key(key)[0] for key in sides[1]}}
    if any(twin is None for twin in numbers.values()):
        return None
    others = tuple(f"{numbers[split_key(key)[0]]}:{split_key(key)[1]}" for key in sides[1])
    there = all(view.has(one, other) for one in sides[0] for other in others)
    return (sides[0], others) if there else None


def _columns(found: Found, sides: Sides, best: _Best) -> dict[str, Array]:
    """What the table of matches shows, [site, unit] each."""
    names = np.array([found.models[split_key(key)[0]].name for key in sides[1]])
    sites = np.array([split_key(key)[1] for key in sides[1]])
    return {
        "other model": names[best.key],
        "other site": sites[best.key],
        "other unit": best.unit,
        "correlation": best.correlation,
    }
