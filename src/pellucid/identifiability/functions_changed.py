"""Functions changed: which heads do another job by their effective attention than by the weights as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.effective_weights import EFFECTIVE, RAW
from pellucid.collect.head_targets import HeadTargets, HeadTargetsView
from pellucid.heads.roles.function_rules import (
    NONE,
    Rules,
    all_scores,
    check,
    holds_of,
    labels_of,
    scored_like,
)
from pellucid.heads.roles.sweeping import check_readable, patterns_of, targets
from pellucid.identifiability.attention_freedom import swept
from pellucid.identifiability.notes import notes_table
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.uncertainty import Interval, over_groups

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.corpus import Corpus
    from pellucid.heads.roles.function_scores import Scored
    from pellucid.model import Model

MEASURES = {
    "changed": "1 where the main function of a head by effective attention is another than by raw attention (or none)",
    "lost": "1 where a head has a function by raw attention that it has not by effective attention",
    "gained": "1 where a head has a function by effective attention that it has not by raw attention",
}


@dataclass(frozen=True, eq=False)
class FunctionsChanged(Result):
    """Whether the functions of every head change under effective attention, [measure, layer, head].

    Tables: `shares` (of all heads, with interval and chance), `heads` (the main and all functions by both weights, and
    the scores of the function that tells: the raw main one, else the effective one), `scores` (of every function by
    both weights), `functions` (heads with each function). Where a layer has fewer heads than others, the values of
    those it has not are NaN.
    """

    kind: ClassVar[str] = "identifiability.functions_changed"
    gaps: ClassVar[bool] = True
    title: ClassVar[str] = "Functions by raw and by effective attention"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "how often it changes between two halves of the documents, both by raw attention"


@dataclass(frozen=True, eq=False)
class _Both:
    """What heads look for by both weights, from the same words."""

    raw: HeadTargetsView
    effective: HeadTargetsView

    @property
    def groups(self) -> tuple[int, ...]:
        return self.raw.groups

    def group(self, number: int) -> _Both:
        return _Both(self.raw.group(number), self.effective.group(number))

    def without(self, number: int) -> _Both:
        return _Both(self.raw.without(number), self.effective.without(number))


@dataclass(frozen=True, eq=False)
class _Judge:
    """The functions that heads have, under rules that are the same for all weights and parts of the text."""

    keys: Sequence[str]
    rules: Rules
    scored: Mapping[str, Scored]

    @property
    def present(self) -> Array:
        """Which heads there are, [layer, head]."""
        return np.isfinite(next(iter(self.scored.values())).share[0])

    def holds(self, view: HeadTargetsView) -> tuple[Array, Array]:
        """Which functions every head has, [function, layer, head], and its main one, [layer, head]."""
        scored = scored_like(view, self.keys, self.scored)
        holds = np.stack([holds_of(name, found, self.rules) for name, found in scored.items()])
        return holds, labels_of(scored, holds, self.present)["main"]

    def changes(self, before: HeadTargetsView, after: HeadTargetsView) -> Array:
        """`MEASURES` between two views, [measure, layer, head]; NaN where a layer has no such head."""
        (had, main), (has, now) = self.holds(before), self.holds(after)
        told = np.stack([main != now, (had & ~has).any(0), (has & ~had).any(0)])
        return np.where(self.present, told.astype(np.float64), np.nan)


def functions_changed(
    source: Found | Model,
    corpus: Corpus | None = None,
    *,
    rules: Rules | None = None,
    halvings: int = 10,
    long: str = "truncate",
    seed: int = 0,
) -> FunctionsChanged:
    """Which heads change their function when the part of attention without effect is taken away (Sun & Marasović 2021).

    Reads `HeadTargets()` and `HeadTargets(weights="effective")` of one sweep, or sweeps a model over a corpus.
    Functions are those of `heads.functions` under its `rules`. Chance is what changes between two halves of the
    document groups, both by raw attention, over `halvings` random cuts: a half has less text, so it is rather too high.
    `long` says what happens to texts over the model's limit, as in `sweep`; the notes tell how many there were.
    """
    rules = rules or Rules()
    check(rules)
    if halvings < 1:
        raise ResultError(f"halvings={halvings} gives no chance level; use 1 or more.")
    found = swept(source, corpus, _collectors, long=long)
    (raw, mine), (effective, _) = targets(found, RAW), targets(found, EFFECTIVE)
    keys = list(mine.values())
    scored, _ = all_scores(raw, keys, rules)
    if not scored:
        raise ResultError("No query sees two words, so no head has a function; give a corpus with longer sentences.")
    judge, both = _Judge(keys, rules, scored), _Both(raw, effective)
    values = judge.changes(raw, effective)
    interval = over_groups(both, lambda part: judge.changes(part.raw, part.effective), lambda part: part.raw.n(keys[0]))
    null = _by_halves(judge, raw, halvings, seed)
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": tuple(MEASURES),
        "layer": tuple(mine),
        "head": tuple(range(values.shape[2])),
    }
    return FunctionsChanged(
        axes=axes,
        values=values,
        null=null,
        low=_share(interval.low),
        high=_share(interval.high),
        resampled=interval.resampled,
        provenance=found.provenance(
            "identifiability.functions_changed", {**asdict(rules), "halvings": halvings}, seed=seed
        ),
        tables={**_tables(judge, both, values, null, axes), **notes_table(found.about.get("notes", []))},
    )


def _collectors(model: Model) -> tuple[HeadTargets, HeadTargets]:
    sites = patterns_of(model)
    check_readable(model, sites, EFFECTIVE)
    return HeadTargets(sites), HeadTargets(sites, weights=EFFECTIVE)


def _share(end: Array | None) -> Array | None:
    return None if end is None else np.clip(end, 0.0, 1.0)


def _by_halves(judge: _Judge, raw: HeadTargetsView, halvings: int, seed: int) -> Array | None:
    """How often every head changes between two halves of the document groups, [measure, layer, head]; None without."""
    groups = [number for number in raw.groups if raw.group(number).n(judge.keys[0])]
    if len(groups) < 2:
        return None
    dice = np.random.default_rng(seed)
    found: list[Array] = []
    for _ in range(halvings):
        mixed = dice.permutation(groups).tolist()
        one, other = raw.only(sorted(mixed[: len(mixed) // 2])), raw.only(sorted(mixed[len(mixed) // 2 :]))
        found += [judge.changes(one, other), judge.changes(other, one)]
    return np.mean(found, axis=0)


def _tables(
    judge: _Judge,
    both: _Both,
    values: Array,
    null: Array | None,
    axes: Mapping[str, tuple[Coordinate, ...]],
) -> dict[str, Table]:
    grid = {"layer": axes["layer"], "head": axes["head"]}
    told = {weights: scored_like(view, judge.keys, judge.scored) for weights, view in _weights(both).items()}
    holds = {weights: judge.holds(view)[0] for weights, view in _weights(both).items()}
    labels = {weights: labels_of(told[weights], holds[weights], judge.present) for weights in told}
    shares = {weights: np.stack([each.at_best(each.share) for each in told[weights].values()]) for weights in told}
    names = list(judge.scored)
    tells = np.where(labels[RAW]["main"] == NONE, labels[EFFECTIVE]["main"], labels[RAW]["main"])
    heads = {f"{weights} function": labels[weights]["main"] for weights in told}
    heads |= {weights: labels[weights]["all"] for weights in told} | {"scored": tells}
    for weights, share in shares.items():
        heads[f"{weights} score"] = np.sum(
            [np.where(tells == name, np.nan_to_num(share[at]), 0.0) for at, name in enumerate(names)], axis=0
        )
    chances = np.stack([each.at_best(each.chance) for each in told[RAW].values()])
    scores = {weights: np.nan_to_num(share) for weights, share in shares.items()} | {"chance": chances}
    counts = {weights: held.sum((1, 2)) for weights, held in holds.items()}
    counts["both"] = (holds[RAW] & holds[EFFECTIVE]).sum((1, 2))
    return {
        "shares": Table({"measure": axes["measure"]}, _overall(judge, both, values, null)),
        "heads": Table(grid, heads),
        "scores": Table({"function": tuple(names), **grid}, scores),
        "functions": Table({"function": tuple(names)}, counts),
    }


def _weights(both: _Both) -> dict[str, HeadTargetsView]:
    return {RAW: both.raw, EFFECTIVE: both.effective}


def _overall(judge: _Judge, both: _Both, values: Array, null: Array | None) -> dict[str, Array]:
    """The share of all heads, its interval over documents and chance, [measure] each; no ends where there are none."""

    def mean(cells: Array) -> Array:
        return np.nanmean(cells, axis=(1, 2))

    interval: Interval = over_groups(
        both, lambda part: mean(judge.changes(part.raw, part.effective)), lambda part: part.raw.n(judge.keys[0])
    )
    columns = {"share": mean(values)}
    if null is not None:
        columns["chance"] = mean(null)
    low, high = _share(interval.low), _share(interval.high)
    return columns if low is None or high is None else columns | {"low": low, "high": high}
