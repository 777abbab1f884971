"""Trying attributions on one batch of texts: their sums, what removing tokens does, and how steady they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pellucid.attribution.baselines import baseline, embedded
from pellucid.attribution.completeness import Sum
from pellucid.attribution.computing import Settings, compute_between
from pellucid.attribution.sweep import Asked, ends
from pellucid.attribution.trials.measures import (
    Array,
    area,
    counts,
    descending,
    first,
    infidelity,
    rank_correlation,
    sensitivity_max,
    unexplained,
)
from pellucid.attribution.trials.removal import Removal
from pellucid.attribution.trials.texts import removable
from pellucid.errors import AttributionError

if TYPE_CHECKING:
    from pellucid.attribution.methods import Method
    from pellucid.attribution.targets import Resolved
    from pellucid.attribution.trials.tally import Tally
    from pellucid.model import Batch, Model

Explain = Callable[[Asked], "Tensor | Array"]
"""A method of one's own: attributions [targets, B, T] of what is asked."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What is tried, and how."""

    methods: tuple[Method, ...]
    own: Mapping[str, Explain]
    measures: tuple[str, ...]
    settings: Settings
    special: bool
    points: int
    draws: int
    perturbations: int
    radius: float

    @property
    def names(self) -> tuple[str, ...]:
        """Every method."""
        return (*(method.name for method in self.methods), *self.own)


@dataclass(frozen=True, eq=False)
class Explained:
    """Attributions by method, [targets, B, T], and the targets' scores [targets, B] at both ends."""

    tokens: dict[str, Array]
    start: Tensor
    end: Tensor


@dataclass(frozen=True, eq=False)
class Trial:
    """One batch of texts, numbered as in the corpus, with its targets settled and its attributions."""

    batch: Batch
    numbers: tuple[int, ...]
    targets: tuple[Resolved, ...]
    asked: Asked
    explained: Explained
    places: list[Array] = field(default_factory=list[Array])
    """Of every text: the places of the tokens that can be removed."""

    @property
    def asked_tokens(self) -> int:
        """Tokens of a padded text, all inputs together."""
        return sum(end.shape[1] for end in self.asked.end.values())


def prepared(model: Model, batch: Batch, numbers: Sequence[int], targets: tuple[Resolved, ...], plan: Plan) -> Trial:
    """A batch with the attributions of all methods."""
    asked = asked_of(model, batch, targets, plan)
    may = torch.cat(list(removable(model, batch, special=plan.special).values()), dim=1).numpy()
    places = [np.flatnonzero(row) for row in may]
    return Trial(batch, tuple(numbers), targets, asked, explained(asked, plan), places)


def asked_of(model: Model, batch: Batch, targets: tuple[Resolved, ...], plan: Plan) -> Asked:
    """What attributions of a batch to its tokens are asked for in a model."""
    end = embedded(model, batch)
    start = baseline(model, batch, plan.settings.baseline, end)
    return Asked(model, batch, targets, tuple(end), start, end, plan.settings.memory_limit)


def explained(asked: Asked, plan: Plan) -> Explained:
    """The attributions of every method to the tokens of a batch; those of padding are 0."""
    tokens: dict[str, Array] = {}
    there = torch.cat(real(asked), dim=1).numpy()
    numbers = range(len(asked.targets))
    start, end = None, None
    if plan.methods:
        swept = compute_between(asked, plan.methods, plan.settings)
        start, end = swept.start, swept.end
        for method in plan.methods:
            parts = [
                torch.cat([swept.parts[method.name, number, site].flatten(2).sum(2) for site in asked.end], dim=1)
                for number in numbers
            ]
            tokens[method.name] = torch.stack(parts).numpy() * there
    for name, explain in plan.own.items():
        given = torch.as_tensor(explain(asked)).detach().cpu().double()
        wanted = (len(asked.targets), asked.batch.size, sum(end.shape[1] for end in asked.end.values()))
        if tuple(given.shape) != wanted:
            raise AttributionError(
                f"The method {name!r} must give attributions [targets, texts, tokens] = {list(wanted)}; it gave "
                f"{list(given.shape)}."
            )
        tokens[name] = given.numpy() * there
    if start is None or end is None:
        start, end = ends(asked)
    return Explained(tokens, start, end)


def measure(trial: Trial, plan: Plan, tally: Tally, seed: int) -> None:
    """Everything that the model itself says about the attributions of a batch."""
    if "completeness" in plan.measures:
        _sums(trial, plan, tally, seed)
    if {"infidelity", "unexplained", "insertion", "deletion"} & set(plan.measures):
        _removals(trial, plan, tally, seed)
    if "sensitivity" in plan.measures:
        _steadiness(trial, plan, tally, seed)


def compare(trial: Trial, twin: Explained, plan: Plan, tally: Tally, name: str, seed: int) -> None:
    """The rank correlation of the sizes of a batch's attributions with those of a model whose weights are random.

    Signs are left aside: a random head may as well turn all of them round.
    """
    both = (trial.explained, twin)
    for text, places in enumerate(trial.places):
        rng = _random(seed, trial.numbers[text], "correlation")
        chance = [rank_correlation(*rng.standard_normal((2, len(places)))) for _ in range(plan.draws)]
        for target in range(len(trial.targets)):
            found = [
                rank_correlation(*(np.abs(each.tokens[method][target, text, places]) for each in both))
                for method in plan.names
            ]
            random = np.repeat(np.array(chance)[:, None], len(found), axis=1)
            tally.add(name, _item(trial, text, target), np.array(found), random=random)


# -- sums ------------------------------------------------------------------------------------------------------------


def _sums(trial: Trial, plan: Plan, tally: Tally, seed: int) -> None:
    """Completeness: how far the sum over all tokens misses the target's change; by chance, with random signs."""
    found = trial.explained
    wanted = found.end - found.start
    for text in range(trial.batch.size):
        rng = _random(seed, trial.numbers[text], "sums")
        signs = rng.choice([-1.0, 1.0], size=(plan.draws, trial.asked_tokens))
        for target in range(len(trial.targets)):
            mine = np.stack([found.tokens[name][target, text] for name in plan.names])  # [methods, T]
            errors = _errors(mine.sum(axis=1), mine, float(wanted[target, text]))
            random = _errors(signs @ mine.T, mine, float(wanted[target, text]))
            tally.add("completeness", _item(trial, text, target), errors, random=random)


def _errors(totals: Array, tokens: Array, wanted: float) -> Array:
    """The errors of sums [… methods] of tokens [methods, T], relative as `completeness` has them."""
    size, change = torch.from_numpy(np.abs(tokens).sum(axis=1)), torch.tensor(wanted, dtype=torch.float64)
    return Sum("", "", torch.from_numpy(totals), change, size).error.numpy()


# -- removing tokens -------------------------------------------------------------------------------------------------


def _removals(trial: Trial, plan: Plan, tally: Tally, seed: int) -> None:
    """Insertion and deletion in the order of each method and in random orders, and what the latter say of sums."""
    removal = Removal(trial.asked)
    size, numbers = removal.size, range(len(trial.targets))
    orders: list[list[Array]] = []  # of every text: random ones first
    for text, places in enumerate(trial.places):
        rng = _random(seed, trial.numbers[text], "orders")
        drawn = [rng.permutation(places) for _ in range(plan.draws)]
        mine = [
            descending(trial.explained.tokens[name][target, text], places) for target in numbers for name in plan.names
        ]
        orders.append([*drawn, *mine])
    added = [
        [_added(order, places, plan.points, size) for order in each]
        for each, places in zip(orders, trial.places, strict=True)
    ]
    taken = [
        [_taken(order, places, plan.points, size) for order in each[plan.draws :]]
        for each, places in zip(orders, trial.places, strict=True)
    ]
    removal.run([[mask for sets in [*one, *other] for mask in sets] for one, other in zip(added, taken, strict=True)])
    for text in range(trial.batch.size):
        shares = counts(len(trial.places[text]), plan.points) / len(trial.places[text])
        for target in numbers:
            begin = plan.draws + target * len(plan.names)
            item = _item(trial, text, target)
            random = np.stack([removal.of(text, sets)[target] for sets in added[text][: plan.draws]])
            upward = added[text][begin : begin + len(plan.names)]
            downward = taken[text][begin - plan.draws : begin - plan.draws + len(plan.names)]
            _curve(tally, "insertion", item, shares, [removal.of(text, sets)[target] for sets in upward], random)
            _curve(tally, "deletion", item, shares, [removal.of(text, sets)[target] for sets in downward], random)
            _fidelity(tally, trial, plan, text, target, added[text][: plan.draws], random, seed)


def _added(order: Array, places: Array, points: int, size: int) -> list[Array]:
    """The sets of an insertion: what cannot be removed, and more and more of the order's first tokens."""
    always = ~first(places, len(places), size)
    return [always | first(order, count, size) for count in counts(len(places), points)]


def _taken(order: Array, places: Array, points: int, size: int) -> list[Array]:
    """The sets of a deletion: everything but more and more of the order's first tokens."""
    return [~first(order, count, size) for count in counts(len(places), points)]


GRID = np.linspace(0.0, 1.0, 11)
"""Shares of the tokens at which curves of texts of different lengths are put together."""


def _curve(tally: Tally, name: str, item: int, shares: Array, scores: Sequence[Array], random: Array) -> None:
    """One curve of every method over the score of the baseline, its area, and the same of random orders.

    A random deletion is a random insertion read backwards, so the same passes tell of both.
    """
    none, full = float(random[0, 0]), float(random[0, -1])
    chance = random if name == "insertion" else random[:, ::-1]
    apart = shares if name == "insertion" else 1 - shares[::-1]
    curves = np.stack([np.interp(GRID, shares, each) for each in scores]) - none
    drawn = np.stack([np.interp(GRID, apart, each) for each in chance]) - none
    areas = np.array([area(shares, each) for each in scores]) - none
    by_chance = np.array([area(apart, each) for each in chance]) - none
    weight = abs(full - none)
    tally.add(name, item, areas, random=np.repeat(by_chance[:, None], len(areas), axis=1), weight=weight)
    tally.add(f"{name} curve", item, curves, random=drawn, weight=weight)


def _fidelity(
    tally: Tally, trial: Trial, plan: Plan, text: int, target: int, sets: list[list[Array]], scores: Array, seed: int
) -> None:
    """How far the sets of the random orders are foretold: what was removed, and what its attributions add up to."""
    places = trial.places[text]
    removed = np.concatenate([np.stack(each[1:-1]) for each in sets])[:, places] ^ True  # [K, n]
    changes = np.repeat((scores[:, -1:] - scores[:, 1:-1]).reshape(-1, 1), len(plan.names), axis=1)  # [K, methods]
    mine = np.stack([trial.explained.tokens[name][target, text, places] for name in plan.names], axis=1)
    rng = _random(seed, trial.numbers[text], "infidelity")
    drawn = np.stack([mine[rng.permutation(len(mine))] for _ in range(plan.draws)])  # [draws, n, methods]
    for name, missed in (("infidelity", infidelity), ("unexplained", unexplained)):
        random = np.stack([missed(removed @ each, changes) for each in drawn])
        tally.add(name, _item(trial, text, target), missed(removed @ mine, changes), random=random)


# -- small changes of the input --------------------------------------------------------------------------------------


def _steadiness(trial: Trial, plan: Plan, tally: Tally, seed: int) -> None:
    """Sensitivity: the largest change of the attributions when every embedding moves a little."""
    asked = trial.asked
    others: list[Explained] = []
    for number in range(plan.perturbations):
        end = {site: value.clone() for site, value in asked.end.items()}
        for (site, value), there in zip(end.items(), real(asked), strict=True):
            for text in range(len(value)):
                rng = _random(seed, trial.numbers[text], "perturbation", number, list(end).index(site))
                mine = value[text, there[text]]
                moved = torch.from_numpy(rng.uniform(-1.0, 1.0, size=tuple(mine.shape))).to(mine)
                value[text, there[text]] = mine + plan.radius * mine.std() * moved
        others.append(explained(replace(asked, end=end), plan))
    for text, places in enumerate(trial.places):
        rng = _random(seed, trial.numbers[text], "steadiness")
        for target in range(len(trial.targets)):
            mine = np.stack([trial.explained.tokens[name][target, text, places] for name in plan.names])
            moved = np.stack(
                [np.stack([other.tokens[name][target, text, places] for name in plan.names]) for other in others]
            )
            dealt = [np.stack([mine[:, rng.permutation(len(places))] for _ in others]) for _ in range(plan.draws)]
            random = np.stack([sensitivity_max(mine, each) for each in dealt])
            tally.add("sensitivity", _item(trial, text, target), sensitivity_max(mine, moved), random=random)


def _item(trial: Trial, text: int, target: int) -> int:
    return trial.numbers[text] * len(trial.targets) + target


def real(asked: Asked) -> list[Tensor]:
    """Which tokens [B, T] of each input are no padding."""
    batch = asked.batch
    masks = [
        batch.target_mask if site.stack == "decoder" and batch.target_mask is not None else batch.mask
        for site in asked.end
    ]
    return [mask.bool().cpu() for mask in masks]


_PURPOSES = ("sums", "orders", "infidelity", "perturbation", "steadiness", "correlation")


def _random(seed: int, text: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Numbers of a text's own, so that batches change nothing."""
    return np.random.default_rng([seed, text, _PURPOSES.index(purpose), *numbers])
