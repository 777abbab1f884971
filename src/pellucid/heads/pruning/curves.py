"""Curves of pruning: the score of a model with ever fewer heads, by learned gates, by an order, and at random."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.errors import TrainError
from pellucid.heads.naming import all_heads, head_name
from pellucid.heads.pruning.gate_training import Point
from pellucid.heads.pruning.gates import HeadGates
from pellucid.heads.weighing.measuring import Measured
from pellucid.heads.weighing.scoring import Sums, leaving_out
from pellucid.model.edits import Edit
from pellucid.model.sites import Site
from pellucid.results import Array, Table

METHODS = ("gates", "importance", "random")
ROUNDING = 1e-9
"""By how much a share that is kept may fall short of the one that is wanted."""


@dataclass(frozen=True, eq=False)
class Curves:
    """Scores [method, heads], chance and interval in the same shape, and every head's gate [heads, head].

    `gates` are as they were learned, `used` as they were measured. `counts` are the numbers of heads left, from all
    down; `path` is the table of the training, and `last` the heads left at its end.
    """

    score: str
    counts: tuple[int, ...]
    values: Array
    null: Array
    low: Array | None
    high: Array | None
    resampled: str
    gates: Array
    used: Array
    names: tuple[str, ...]
    path: Table
    last: int
    methods: tuple[str, ...] = METHODS

    def gates_at(self, heads: int) -> dict[str, float]:
        """Every head's gate, as it was measured, where so many heads are left."""
        return dict(zip(self.names, self.used[self.counts.index(heads)].tolist(), strict=True))

    def chosen(self, *, keep: float, most: int | None) -> int:
        """The number of heads at the chosen point: see `prune`."""
        if most is not None:
            fit = [count for count in self.counts if count <= most]
            if not fit:
                raise TrainError(
                    f"The gates left no fewer than {min(self.counts)} of {max(self.counts)} heads, and {most} were "
                    "asked for; raise the strength or train for longer."
                )
            return max(fit)
        return min(count for count, share in zip(self.counts, self.shares(), strict=True) if share >= keep - ROUNDING)

    def shares(self) -> list[float]:
        """What is left, at every point of the gates, of what the model is better than chance: 1 at first."""
        scores, chance = self.values[0], self.null[0]
        if self.score == "perplexity":
            scores, chance = -np.log(scores), -np.log(chance)
        gained = scores[0] - chance[0]
        if gained <= 0:
            return [1.0 if at == 0 else 0.0 for at in range(len(scores))]  # nothing to lose: keep it whole
        return ((scores - chance) / gained).tolist()


def score_name(found: Measured) -> str:
    """What quality is: accuracy where the goals are classes, perplexity elsewhere."""
    return "accuracy" if found.task.best == "accuracy" else "perplexity"


def sums_under(found: Measured, settings: Sequence[Iterable[Edit]]) -> Sums:
    """Losses and hits [settings, groups] of a model under several sets of edits, from one pass over the batches."""
    groups = int(found.groups.max()) + 1
    losses, hits, goals = np.zeros((len(settings), groups)), np.zeros((len(settings), groups)), np.zeros(groups)
    chosen = [list(edits) for edits in settings]
    for step in range(found.steps()):
        batch, owners = found.batch(step), found.groups[found.owners(step).numpy()]
        for place, edits in enumerate(chosen):
            rows = found.rows(batch, edits)
            np.add.at(losses[place], owners, rows.losses.cpu().numpy())
            np.add.at(hits[place], owners, rows.hits.cpu().numpy())
            if place == 0:
                np.add.at(goals, owners, rows.goals.cpu().numpy())
    return Sums(losses, goals, hits, goals)


def seen_at(found: Measured, gates: HeadGates) -> dict[str, Any]:
    """The losses, hits and goals of every document group with the gates as they are, as plain lists."""
    sums = sums_under(found, [gates.edits()])
    return {"losses": sums.losses[0].tolist(), "hits": sums.points[0].tolist(), "goals": sums.goals.tolist()}


def removing(found: Measured, names: Iterable[str]) -> list[Edit]:
    """Edits that close the gates of some heads."""
    gone: dict[Site, list[int]] = {}
    wanted = set(names)
    for site, head in all_heads(found.model):
        if head_name(site, head) in wanted:
            gone.setdefault(site, []).append(head)
    return [Edit.zero(site, heads=heads) for site, heads in gone.items()]


def curves(
    found: Measured,
    points: Sequence[tuple[Point, Mapping[str, Any]]],
    ranking: Sequence[str],
    *,
    draws: int,
    seed: int,
    whole: bool,
) -> Curves:
    """The curves of a training of gates, at every number of heads that it went through; of equal ones the last counts.

    With `whole`, heads whose gate is open count in full: gates only choose them. Otherwise they count as they were seen
    at the point. All heads stand for the model as it is, before any gate has moved. By importance the heads at the end
    of the ranking go first; at random a new order is drawn `draws` times.
    """
    latest = {point.open: (point, seen) for point, seen in (*points[1:], points[0])}
    counts = tuple(sorted(latest, reverse=True))
    names = [head_name(*head) for head in all_heads(found.model)]
    gates = np.array([[latest[count][0].gates[head] for head in names] for count in counts])
    closed = [[name for name, gate in zip(names, row, strict=True) if gate == 0] for row in gates.tolist()]
    orders = [list(ranking), *random_orders(names, draws, seed)]
    gone = [*closed, *(order[count:] for order in orders for count in counts)]
    sums = sums_under(found, [removing(found, heads) for heads in gone])
    shape = (2 + draws, len(counts), len(sums.goals))
    losses, hits = sums.losses.reshape(shape), sums.points.reshape(shape)
    if not whole:
        losses[0], hits[0] = (np.array([latest[count][1][part] for count in counts]) for part in ("losses", "hits"))
    used = (gates > 0).astype(np.float64) if whole else gates
    return _curves(found, counts, Sums(losses, sums.goals, hits, sums.goals), (gates, used), names, points)


def random_orders(names: Sequence[str], draws: int, seed: int) -> list[list[str]]:
    """Names in so many random orders; of more draws, the first are the same."""
    dice = np.random.default_rng(seed)
    return [[names[int(at)] for at in dice.permutation(len(names))] for _ in range(draws)]


def _curves(
    found: Measured,
    counts: tuple[int, ...],
    sums: Sums,
    gates: tuple[Array, Array],
    names: Sequence[str],
    points: Sequence[tuple[Point, Mapping[str, Any]]],
) -> Curves:
    """Scores and intervals from the sums [gates, importance, draws…; heads; groups]."""
    name = score_name(found)
    scores = sums.score(name)
    values = np.stack([scores[0], scores[1], scores[2:].mean(axis=0)])
    interval = leaving_out(sums.goals, lambda without: sums.score(name, without)[:2])
    low, high, told = interval.low, interval.high, interval.resampled
    if low is not None and high is not None:
        drawn = scores[2:]
        low, high = np.concatenate([low, drawn.min(axis=0)[None]]), np.concatenate([high, drawn.max(axis=0)[None]])
        told += f"; at random: lowest and highest of {len(drawn)} draws"
    chance = found.chance()
    level = chance[name] if name in chance else math.exp(chance["loss"])
    return Curves(
        name,
        counts,
        values,
        np.full_like(values, level),
        low,
        high,
        told,
        *gates,
        tuple(names),
        path_of(points, name),
        points[-1][0].open,
    )


def path_of(points: Sequence[tuple[Point, Mapping[str, Any]]], name: str) -> Table:
    """The training: steps, λ and heads open at every point, with loss and score on the text to validate with."""
    goals = np.array(points[0][1]["goals"])
    losses, hits = (np.array([seen[part] for _, seen in points]) for part in ("losses", "hits"))
    sums = Sums(losses, goals, hits, goals)
    return Table.of_rows(
        {
            "step": [point.step for point, _ in points],
            "strength": [float(point.strength) for point, _ in points],
            "open": [point.open for point, _ in points],
            "loss": sums.loss(),
            name: sums.score(name),
        }
    )
