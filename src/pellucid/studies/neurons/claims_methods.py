"""Claims of the tutorial on neurons about rankings: which can be believed, whether they agree, and how stable they
are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pellucid.studies.claims import CaseClaim, told
from pellucid.studies.neurons.measuring import CLASSES, FIRST
from pellucid.studies.neurons.tables import METHODS, STREAMED, UNORDERED, Case
from pellucid.studies.neurons.verdicts import (
    beyond_draws,
    by_groups,
    draws_in,
    of_means,
    random_draws,
    several,
    slide,
    told_draws,
)
from pellucid.studies.rules import Number

LITTLE = 0.01
"""A drop of the accuracy, as a share of it, that counts as none."""
HALF = 0.5


def method_claims(cases: Sequence[Case]) -> list[CaseClaim]:
    """Every claim on every model, claim by claim."""
    makers: list[Callable[[Case], CaseClaim | None]] = [
        *(lambda case, method=method: _kept(case, method) for method in METHODS),
        *(lambda case, method=method: _lost(case, method) for method in METHODS),
        _fallback,
        _differ,
        _documents,
    ]
    return [claim for make in makers for case in cases if (claim := make(case)) is not None]


def faithful_in_probe(case: Case, method: str) -> tuple[Number, Number]:
    """Accuracy of a probe with the first neurons of a ranking alone, beside random ones; and with its last."""
    grid = case.grids[f"in probe {method}"]
    count = grid.columns[-1]
    chance = float(random_draws(case, "in probe")[:, -1].mean())  # of the means of each ranking's draws
    return grid.at("top", count, chance=chance), grid.at("bottom", count, chance=chance)


def faithful_in_model(case: Case, method: str) -> tuple[Number, Number] | None:
    """How much more the model loses without the first neurons than without random ones, and without the last.

    Of a tagger it is the share of words told rightly, else the loss in nats per goal, group by group of documents;
    None where the model has no task.
    """
    what, sign = _scored(case)
    grid = case.grids.get(f"{what} {method}")
    if grid is None:
        return None
    random = random_draws(case, what).mean(axis=0)
    return by_groups(sign * (grid.row("top") - random)), by_groups(sign * (grid.row("bottom") - random))


def _scored(case: Case) -> tuple[str, int]:
    """The score of a model's own task, and on which side of it a loss lies."""
    return ("accuracy", -1) if case.facts["task"] == "tagger" else ("loss", 1)


def _kept(case: Case, method: str) -> CaseClaim | None:
    if method not in case.methods:
        return None
    first, last = faithful_in_probe(case, method)
    count, draws = case.grids[f"in probe {method}"].columns[-1], draws_in(case, "draws in probe")
    behind = "" if method in UNORDERED else f"last {last.value:.0%}; "
    return CaseClaim(
        f"The ranking is faithful to a probe: {METHODS[method]}.",
        f"Accuracy of a trained probe with the first {FIRST:.0%} of the neurons alone, all others at their mean: the "
        "interval lies above the mean of as many neurons at random, and the accuracy above that of every draw.",
        f"{count} neurons: first {told(first, per_cent=True, against='random')}, {told_draws(draws)}; "
        f"{behind}all "
        f"{case.numbers['whole in probe'].value:.0%}",
        beyond_draws(first, first.value, draws),
        case.name,
        slide("Ablation"),
        "top neurons should matter more than bottom and random ones",
        first,
    )


def _lost(case: Case, method: str) -> CaseClaim | None:
    found = faithful_in_model(case, method)
    if found is None:
        return None
    what, sign = _scored(case)
    tagger, grid = what == "accuracy", case.grids[f"{what} {method}"]
    first, last = found
    whole = float(grid.row("whole").mean())
    as_it_is = f"accuracy as it is {whole:.1%}" if tagger else f"perplexity as it is {np.exp(whole):.0f}"
    behind = "" if method in UNORDERED else f"last less random {told(last, per_cent=tagger)}; "
    return CaseClaim(
        f"The ranking is faithful to the model: {METHODS[method]}.",
        f"The model's own task with the first {FIRST:.0%} of the neurons at their mean, beside as many at random: loss "
        "in nats per goal (log perplexity) of a language model, errors of a tagger. The interval of the difference "
        "from the mean of all draws, over document groups, lies above 0, and the score is worse than with any draw.",
        f"{'errors' if tagger else 'loss'}, first less random {told(first, per_cent=tagger)}; {behind}{as_it_is}",
        beyond_draws(first, sign * float(grid.row("top").mean()), sign * random_draws(case, what).mean(axis=1)),
        case.name,
        slide("Ablation"),
        "the drop without the top neurons should be greater than without bottom and random ones (perplexity)",
        first,
    )


def _fallback(case: Case) -> CaseClaim | None:
    grids = {cls: grid for cls in CLASSES if (grid := case.grids.get(f"accuracy class {cls}")) is not None}
    if not grids:
        return None
    random = np.mean([grid.row("random") for grid in grids.values()], axis=0)
    drops: dict[str, Number] = {}
    beside: dict[str, Number] = {}
    for cls, grid in grids.items():
        whole, first = grid.row("whole"), grid.row("top")
        drops[cls] = of_means(lambda every, few: _of(every, every - few), whole, first, chance=LITTLE)
        beside[cls] = of_means(lambda every, few, other: _of(every, other - few), whole, first, random)
    verdicts = {_spared(drops[cls], beside[cls]) for cls in grids}
    return CaseClaim(
        "Removing the neurons of one class leaves the model as accurate as it was.",
        "Drop of the accuracy of the model's own task with the first 1% of a class's neurons (by d′) at their mean, as "
        f"a share of the accuracy as it is: for {' and '.join(CLASSES)}, its interval over document groups lies below "
        f"{LITTLE:.0%}, and so does that of its difference from the drop with as many neurons at random, group by "
        f"group; it does not stand if the drop of one class lies above {LITTLE:.0%} and the difference above 0.",
        f"{several(list(drops.items()), per_cent=True, against='limit')}; less random "
        f"{several(list(beside.items()), per_cent=True, against='even')}",
        True if verdicts == {True} else False if False in verdicts else None,
        case.name,
        slide("Redundancy Analysis"),
        "removing concept-specific neurons does not lower the overall accuracy (LSTM for names)",
        max(drops.values(), key=lambda number: number.value),
    )


def _of(whole: float, part: float) -> float:
    return part / whole if whole else math.nan


def _spared(drop: Number, beside: Number) -> bool | None:
    """Whether a drop is too small to count, also beside random neurons; False where it is neither."""
    if drop.below():
        return True if replace(beside, chance=drop.chance).below() else None
    return False if drop.above() and beside.above() else None


def _stability(case: Case) -> Number:
    """Mean over rankings of the agreement with themselves on other documents; ends are means of their ends."""
    found = [grid.at("value", grid.columns[0]) for grid in (case.grids[f"stability {name}"] for name in STREAMED)]
    low, high = (float(np.mean([getattr(each, end) for each in found])) for end in ("low", "high"))
    value, chance = (float(np.mean([getattr(each, part) for each in found])) for part in ("value", "chance"))
    return Number(value, chance, low, high)


def _between(case: Case) -> float:
    """Mean agreement of every two of the streamed rankings."""
    grid = case.grids["agreement"]
    places = [grid.rows.index(name) for name in STREAMED]
    part = grid.values[np.ix_(places, places)]
    return float(part[np.triu_indices(len(places), 1)].mean())


def _differ(case: Case) -> CaseClaim:
    own, grid = _stability(case), case.grids["agreement"]
    number = Number(own.value, _between(case), own.low, own.high)
    every = float(grid.values[np.triu_indices(len(grid.rows), 1)].mean())
    assert grid.null is not None
    return CaseClaim(
        "Different methods give very different rankings.",
        f"Agreement (Jaccard of the first {FIRST:.0%}) of Probeless, d′, IoU and average precision with themselves on "
        "other documents: the interval lies above the mean agreement of two of them on the same documents.",
        f"with themselves {told(number, against='two methods')}; all {len(grid.rows)} methods {every:.2f}; two random "
        f"orders {grid.null[0, 1]:.2f}",
        number.above(),
        case.name,
        slide("Limitations"),
        "because of redundancy, two methods may bring very different rankings (but both are correct)",
        number,
    )


def _documents(case: Case) -> CaseClaim:
    own = _stability(case)
    number = Number(own.value, HALF, own.low, own.high)
    parts = [(METHODS[name], case.grids[f"stability {name}"].values[0, 0]) for name in STREAMED]
    return CaseClaim(
        "The neurons found depend on the documents.",
        f"Agreement (Jaccard of the first {FIRST:.0%}) of rankings made of disjoint parts of the documents, mean of "
        f"four methods: the interval lies below {HALF}.",
        f"{told(number, against='limit')}; two random orders {own.chance:.2f}; "
        + ", ".join(f"{name} {value:.2f}" for name, value in parts),
        number.below(),
        case.name,
        slide("Limitations"),
        "neurons' behaviour may reflect an artifact of the dataset",
        number,
    )
