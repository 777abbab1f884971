"""Findings from rankings: where the neurons of a concept stand, how many it takes, and which serve several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pellucid.errors import listing
from pellucid.neurons.judging.equals import chance_of_first
from pellucid.neurons.judging.redrawn import BOUNDS, deviations, mirrored, redrawn
from pellucid.neurons.methods import RANKINGS
from pellucid.neurons.ranking import TOGETHER, Ranking, by_site, split_name
from pellucid.results import Array, Result, ResultError, Table

_DRAWS = 400
_SERVED = 100
"""Draws for the interval of polysemy, which looks at all classes in each."""


@dataclass(frozen=True, eq=False)
class Distribution(Result):
    """The share of a ranking's first neurons that stand at each site, [site], beside the site's share of all."""

    kind: ClassVar[str] = "neurons.distribution"
    title: ClassVar[str] = "Where the first neurons of a ranking stand"
    chance: ClassVar[str] = "the site's share of all neurons"


def distribution(ranking: Ranking, k: int = 50, *, cls: str | None = None, seed: int = 0) -> Distribution:
    """The share of the first `k` neurons at each site (a layer of the stream, the MLP, heads).

    Equals come in any order: where the cut goes through them, each counts by its chance to be among the first. Where
    the ranking has an interval, that of the shares comes from drawing every score within its own, 95%, as if normal,
    and from the mirror images of these shares; else there is none.
    """
    sites = by_site(ranking.neurons)
    scores, spread = ranking.scores(cls), deviations(ranking, cls)
    place = {site: at for at, site in enumerate(sites)}
    owner = np.array([place[split_name(name)[0]] for name in ranking.neurons])
    if not 1 <= k <= len(scores):
        raise ResultError(f"There are {len(scores)} neurons, so there is no first {k}; use 1 to {len(scores)}.")

    def share(given: Array) -> Array:
        return np.bincount(owner, weights=chance_of_first(given, k), minlength=len(sites)) / k

    whole = share(scores)
    low = high = None
    if spread is not None:
        dice = np.random.default_rng(seed)
        drawn = np.stack([share(redrawn(scores, spread, dice)) for _ in range(_DRAWS)])
        low, high = mirrored(drawn, whole)
    return Distribution(
        axes={"site": tuple(sites)},
        values=whole,
        null=np.array([len(units) for units in sites.values()]) / len(scores),
        low=low,
        high=high,
        resampled=ranking.resampled if spread is None else f"{BOUNDS} {ranking.resampled}",
        provenance=_origin(ranking, "neurons.distribution", {"k": k, "class": cls}, seed),
    )


@dataclass(frozen=True, eq=False)
class Spread(Result):
    """How many neurons each class takes, [measure, class]; few is localised, many distributed."""

    kind: ClassVar[str] = "neurons.spread"
    title: ClassVar[str] = "How many neurons a class takes"
    phrases: ClassVar[Mapping[str, str]] = {
        "effective": "exp of the entropy of |score| shares: as many equal neurons would spread as far",
        "half": "neurons, from the first on, that hold half of Σ|score|",
    }
    chance: ClassVar[str] = "scores as large as chance makes them, the same for every neuron of a normal law"


def spread(ranking: Ranking, *, seed: int = 0) -> Spread:
    """Whether each class is localised in a few neurons or distributed over many.

    Chance is that of |score| drawn from a half-normal law, the same for all neurons: exp(H) = .75·n, and half of the
    sum in the first .24·n. There is no interval: noise in scores that are 0 in truth makes a class look more
    distributed than it is, by as much as all of the text allows, and no draw of scores undoes it. Compare classes of
    one ranking, which have the same text.
    """
    measures = np.stack([_taken(np.abs(row)) for row in ranking.values], axis=1)
    total, dice = ranking.values.shape[1], np.random.default_rng(seed)
    normal = np.mean([_taken(np.abs(dice.normal(size=total))) for _ in range(20)], axis=0)
    return Spread(
        axes={"measure": tuple(Spread.phrases), "class": ranking.axes["class"]},
        values=measures,
        null=np.repeat(normal[:, None], len(ranking.classes), axis=1),
        low=None,
        high=None,
        resampled="no interval: noise in small scores makes every class look more distributed than it is",
        provenance=_origin(ranking, "neurons.spread", {}, seed),
    )


def _taken(size: Array) -> Array:
    """Effective number of neurons, and how many hold half of the sum; 0 where all scores are 0."""
    total = size.sum()
    if total <= 0:
        return np.zeros(2)
    share = np.sort(size)[::-1] / total
    there = share[share > 0]
    return np.array([np.exp(-(there * np.log(there)).sum()), np.searchsorted(np.cumsum(share), 0.5 - 1e-12) + 1])


@dataclass(frozen=True, eq=False)
class Polysemy(Result):
    """The share of neurons that are among the first of so many classes, [classes]; 0 classes are most of them.

    Table `neurons` has, for each that is among the first of any class, these classes; of equals at the cut, none.
    """

    kind: ClassVar[str] = "neurons.polysemy"
    title: ClassVar[str] = "How many classes a neuron serves"
    chance: ClassVar[str] = "first neurons drawn at random for every class"


def polysemy(ranking: Ranking, k: int = 20, *, by: str = "absolute", seed: int = 0) -> Polysemy:
    """Whether neurons are exclusive to one class or serve several: those among the first `k` of each class.

    Equals come in any order, each class's its own: where the cut of a class goes through them, each counts by its
    chance to be among the first. With n neurons and C classes, chance is binomial with C draws of k/n. Ends of the
    interval come from drawing scores within their own, where there is one, and from the mirror images of these shares.
    """
    classes, names = ranking.classes, ranking.neurons
    if ranking.method in TOGETHER and len(classes) > 1:
        raise ResultError(
            f"{ranking.method!r} gives a neuron one size for all classes, so whether it serves several cannot be told; "
            "use a method that scores each class, such as probeless or a probe."
        )
    if not 1 <= k <= len(names):
        raise ResultError(f"There are {len(names)} neurons, so there is no first {k}; use 1 to {len(names)}.")
    whole = np.stack([chance_of_first(ranking.scores(cls, by=by), k) for cls in classes])  # [classes, neurons]
    values, low, high = classes_served(whole), None, None
    spread = [deviations(ranking, cls) for cls in classes]
    bounded = [each for each in spread if each is not None]
    if len(bounded) == len(classes):
        dice, sds = np.random.default_rng([seed, 17]), np.stack(bounded)
        drawn = [
            classes_served(np.stack([chance_of_first(row, k) for row in redrawn(ranking.values, sds, dice, by=by)]))
            for _ in range(_SERVED)
        ]
        low, high = mirrored(np.stack(drawn), values)
    served = {name: [cls for cls, sure in zip(classes, column, strict=True) if sure == 1]
              for name, column in zip(names, whole.T, strict=True)}  # fmt: skip
    shown = [(name, len(each), ", ".join(each)) for name, each in served.items() if each]
    shown.sort(key=lambda row: -row[1])
    columns = {title: [row[at] for row in shown] for at, title in enumerate(("neuron", "classes", "which"))}
    return Polysemy(
        axes={"classes": tuple(range(len(classes) + 1))},
        values=values,
        null=classes_served(np.full((len(classes), 1), k / len(names))),
        low=low,
        high=high,
        resampled=ranking.resampled if low is None else f"{BOUNDS} {ranking.resampled}",
        provenance=_origin(ranking, "neurons.polysemy", {"k": k, "by": by}, seed),
        tables={"neurons": Table.of_rows(columns)},
    )


def classes_served(chances: Array) -> Array:
    """The mean share of neurons that are among the first of 0, 1, … classes, from their chances [classes, neurons].

    Classes are independent, so a neuron's number of them follows the law of Poisson's binomial.
    """
    law = np.zeros((len(chances) + 1, chances.shape[1]))
    law[0] = 1
    for row in chances:
        law[1:] = law[1:] * (1 - row) + law[:-1] * row
        law[0] *= 1 - row
    return law.mean(axis=1)


@dataclass(frozen=True, eq=False)
class ExpertShare(Result):
    """The share of neurons whose score reaches each bar, [model, class]: experts of a class, model by model."""

    kind: ClassVar[str] = "neurons.expert_share"
    title: ClassVar[str] = "The share of neurons that are experts"
    chance: ClassVar[str] = "the same share in the randomly initialised model"


def expert_share(rankings: Mapping[str, Ranking], *, bar: float = 0.9) -> ExpertShare:
    """χ of each model and class: the share of neurons with |score| ≥ `bar` (Suau, Zappella & Apostoloff 2020).

    Scores must be average precision, or IoU. Classes are those that all rankings have. Chance is the share in each
    model's random twin, where all rankings have read one. The ends of the interval are the shares with every score at
    the lower, or at the upper, end of its own: as if all moved together.
    """
    if not rankings:
        raise ResultError("No ranking was given; give one for each model.")
    first = next(iter(rankings.values()))
    classes = [name for name in first.classes if all(name in each.classes for each in rankings.values())]
    if not classes:
        raise ResultError("The rankings have no class in common; rank the same concept for every model.")
    lacking = [model for model, each in rankings.items() if any(name not in each.classes_apart for name in classes)]
    if lacking:
        raise ResultError(f"The ranking of {listing(lacking)} gives all classes the same sizes; use another method.")
    other = {name: each.method for name, each in rankings.items() if each.method in {*RANKINGS} - {"precision", "iou"}}
    if other:
        raise ResultError(
            f"Experts have a high average precision (or IoU), from 0 to 1, and {listing(other)} is ranked by "
            f"{listing(dict.fromkeys(other.values()))}: rank by 'precision'."
        )
    chosen = {model: [each.place("class", name) for name in classes] for model, each in rankings.items()}

    def share(parts: Sequence[Array]) -> Array:
        return np.stack([(part >= bar).mean(axis=1) for part in parts])

    sizes = [np.abs(each.values[chosen[model]]) for model, each in rankings.items()]
    twins = [np.abs(each.table("random model").columns["value"][chosen[model]]) for model, each in rankings.items()
             if "random model" in each.tables]  # fmt: skip
    ends = [(found, chosen[model]) for model, each in rankings.items() if (found := each.size_ends()) is not None]
    bounded = len(ends) == len(rankings)
    models = tuple(model for each in rankings.values() for model in each.provenance.models[:1])
    told = {"bar": bar, "concept": first.concept, "method": first.method}
    return ExpertShare(
        axes={"model": tuple(rankings), "class": tuple(classes)},
        values=share(sizes),
        null=share(twins) if len(twins) == len(rankings) else None,
        low=share([low[places] for (low, _), places in ends]) if bounded else None,
        high=share([high[places] for (_, high), places in ends]) if bounded else None,
        resampled=f"all scores at the ends of their bounds over {first.resampled}" if bounded
        else "no interval: a ranking has none",
        provenance=replace(first.provenance, function="neurons.expert_share", arguments=told, models=models),
    )  # fmt: skip


def _origin(ranking: Ranking, function: str, arguments: dict[str, Any], seed: int | None) -> Any:
    told = {"method": ranking.method, "concept": ranking.concept, "ranked by": ranking.provenance.function, **arguments}
    return replace(ranking.provenance, function=function, arguments=told, seed=seed)
