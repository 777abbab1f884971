"""Head functions: which heads look at fixed offsets, syntactic neighbours, rare words, sinks or repeated words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.collect.effective_weights import RAW
from pellucid.heads.roles.function_rules import (
    NO_WORDS,
    NONE,
    PHRASES,
    Rules,
    again,
    all_scores,
    better,
    beyond_random,
    check,
    holds_of,
    labels_of,
    scored_like,
)
from pellucid.heads.roles.function_scores import POSITIONAL, SINK, SYNTACTIC, Scored
from pellucid.heads.roles.layers import NO_HEAD, stacked
from pellucid.heads.roles.sweeping import phrases_of, swept, targets
from pellucid.reading import control, layers
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.head_targets import HeadTargetsView
    from pellucid.corpus import Corpus
    from pellucid.model import Model


@dataclass(frozen=True, eq=False)
class HeadFunctions(Result):
    """How well every head does every function, [measure, layer, head]; a head may have several, of which one is main.

    Tables: `labels`, `tests` (p, corrected, n), `relations` and `offsets` (all of them, for every head), `baselines`
    (the best fixed offset of each relation), `skipped` (functions that the corpus cannot tell about, and why), and
    with a randomly initialised model in the sweep `random model` (how many of its heads pass each rule, and how well).
    Where a layer has fewer heads than others, the values of those it has not are NaN.
    """

    kind: ClassVar[str] = "heads.functions"
    gaps: ClassVar[bool] = True
    title: ClassVar[str] = "What attention heads do"
    chance: ClassVar[str] = (
        "the largest weight on a random word in sight (rare words: one for the whole sentence; sink: uniform attention)"
    )

    @property
    def measures(self) -> Mapping[str, str]:
        mine = {name: phrase for name, phrase in PHRASES.items() if name in self.axes["measure"]}
        return phrases_of(self, mine, signed=[name for name in mine if name != SINK])

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """The functions of every head that has any, the main one first, by the head's name `LAYER.HEAD`."""
        told = self.table("labels").columns["all"]
        return {
            f"{layer}.{head}": tuple(told[row, column].split("; "))
            for row, layer in enumerate(self.axes["layer"])
            for column, head in enumerate(self.axes["head"])
            if told[row, column] not in (NONE, NO_HEAD)
        }

    @property
    def present(self) -> Array:
        """Which heads there are, [layer, head]."""
        return self.table("labels").columns["main"] != NO_HEAD

    @property
    def beside_random(self) -> str:
        """What heads of a randomly initialised model do by the same rules, in a sentence, or that none was read."""
        if "random model" not in self.tables:
            return (
                "No randomly initialised model was read beside this one, so it is not known which of these rules heads "
                "pass without having learned anything."
            )
        columns = self.table("random model").columns
        passed = [
            f"{name} ({heads} of {every} heads, at best {best:.2f})"
            for name, heads, every, best in zip(
                *(columns[of].tolist() for of in ("function", "heads", "all", "best")), strict=True
            )
            if heads
        ]
        if not passed:
            return "No head of a randomly initialised model passes any of these rules."
        beyond = self.provenance.arguments["beyond"]
        return (
            f"Heads of a randomly initialised model pass these rules too: {', '.join(passed)}. There a head must do "
            f"{beyond:.2f} better than the best of them."
        )

    @property
    def best(self) -> dict[str, float]:
        """The best score of the heads that have each function, for functions that any has."""
        return {name: float(self.measure(name).max(where=holds, initial=-1)) for name, holds in self._held().items()}

    def against(self, best: Mapping[str, float], *, beyond: float = Rules.beyond) -> HeadFunctions:
        """The same once heads must do a function that has a `best` score by `beyond` better than that.

        It is what `functions` asks of heads beside a random model in the sweep, for one that was read apart.
        """
        held = {
            name: holds & better(self.measure(name), best.get(name), beyond) for name, holds in self._held().items()
        }
        told = {name: column.astype(object) for name, column in self.table("labels").columns.items()}
        for place in np.ndindex(*told["all"].shape):
            if told["all"][place] in (NONE, NO_HEAD):
                continue
            mine = [name for name in str(told["all"][place]).split("; ") if held[name][place]]
            told["main"][place], told["all"][place] = (mine[0], "; ".join(mine)) if mine else (NONE, NONE)
            for column, function in (("offset", POSITIONAL), ("relation", SYNTACTIC)):
                told[column][place] = told[column][place] if function in mine else ""
        tables = {**self.tables, "labels": Table(self.table("labels").axes, told)}
        if "tests" in tables:
            none = np.zeros(self.present.shape, dtype=bool)
            holds = np.stack([held.get(str(name), none) for name in self.axes["measure"]])
            tables["tests"] = Table(tables["tests"].axes, {**tables["tests"].columns, "holds": holds})
        return replace(self, tables=tables)

    def _held(self) -> dict[str, Array]:
        """Which heads have a function, [layer, head], for functions that any has."""
        told = self.table("labels").columns["all"]
        own = [set(str(each).split("; ")) for each in told.ravel()]
        held = {
            str(name): np.array([name in each for each in own]).reshape(told.shape) for name in self.axes["measure"]
        }
        return {name: holds for name, holds in held.items() if holds.any()}

    def heads(self, function: str) -> list[str]:
        """Names `LAYER.HEAD` of the heads with a function, such as `rare words`; the best first."""
        values = self.measure(function)
        own = [name for name, labels in self.labels.items() if function in labels]
        names = [f"{layer}.{head}" for layer in self.axes["layer"] for head in self.axes["head"]]
        score = dict(zip(names, values.ravel().tolist(), strict=True))
        return sorted(own, key=lambda name: -score[name])


def functions(
    source: Found | Model,
    corpus: Corpus | None = None,
    *,
    positional: float = Rules.positional,
    syntactic: float = Rules.syntactic,
    rare: float = Rules.rare,
    rare_times: float = Rules.rare_times,
    sink: float = Rules.sink,
    induction: float = Rules.induction,
    duplicate: float = Rules.duplicate,
    level: float = Rules.level,
    least: int = Rules.least,
    without: Sequence[str] = Rules.without,
    beyond: float = Rules.beyond,
    weights: str = RAW,
    random: bool = True,
) -> HeadFunctions:
    """The functions of every head, from `HeadTargets()` of a sweep, or from a model and a corpus that is swept now.

    A head is positional if `positional` of its largest weights stand at one offset; syntactic if it finds a relation
    `syntactic` more often than the best fixed offset; it looks for rare words if in `rare` of the sentences most words
    find the rarest, and `rare_times` as often as by chance (Voita et al. 2019); a sink if `sink` of its attention is on
    special tokens and the first position; and so on for `induction` and `duplicate`. Each must also beat shuffled
    positions with p < `level`, Holm's correction made over all heads (and offsets or relations). Offsets and relations
    with fewer than `least` cases, and relations `without`, are not tested. With a randomly initialised model in the
    sweep, a head must do it `beyond` better than the best of its heads that pass the rule; a sweep that is made now has
    one unless `random` is False (or none can be built). `weights` are raw or effective: of these, the largest is told
    by the signed numbers, and sinks by absolute values with rows that sum to one.
    """
    rules = Rules(
        positional, syntactic, rare, rare_times, sink, induction, duplicate, level, least, tuple(without), beyond
    )
    check(rules)
    found = swept(source, corpus, weights=weights, random=random)
    view, mine = targets(found, weights)
    keys = list(mine.values())
    scored, skipped = all_scores(view, keys, rules)
    if not scored:
        told = (
            "No query sees two words, so no head can show what it looks for; give a corpus with longer sentences."
            if skipped[POSITIONAL] == NO_WORDS
            else f"The text has fewer than {least} cases of every function; give more of it, or a smaller least."
        )
        raise ResultError(told)
    heads = next(iter(scored.values())).share.shape[2]
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": tuple(scored),
        "layer": tuple(mine),
        "head": tuple(range(heads)),
    }
    interval = over_groups(view, lambda part: again(part, keys, scored), lambda part: part.n(keys[0]))
    return HeadFunctions(
        axes=axes,
        values=np.stack([each.at_best(each.share) for each in scored.values()]),
        null=np.stack([each.at_best(each.chance) for each in scored.values()]),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("heads.functions", {**asdict(rules), "weights": weights}),
        tables=_tables(view, keys, scored, skipped, rules, axes, _random_keys(found, view)),
    )


def _random_keys(found: Found, view: HeadTargetsView) -> list[str]:
    """The keys of the randomly initialised model; none where the sweep has no such model."""
    twin = control(found.models)
    return [] if twin is None else list(layers(found.models, view.keys, "pattern", model=twin).values())


def _tables(
    view: HeadTargetsView,
    keys: Sequence[str],
    scored: Mapping[str, Scored],
    skipped: Mapping[str, str],
    rules: Rules,
    axes: Mapping[str, tuple[Coordinate, ...]],
    random: Sequence[str],
) -> dict[str, Table]:
    grid = {"layer": axes["layer"], "head": axes["head"]}
    drawn: dict[str, Table] = {}
    if random:
        holds, drawn["random model"] = beyond_random(scored, scored_like(view, random, scored), rules)
    else:
        holds = np.stack([holds_of(name, found, rules) for name, found in scored.items()])
    present = np.isfinite(next(iter(scored.values())).share[0])
    tests = {
        "p": np.nan_to_num(np.stack([each.at_best(each.p) for each in scored.values()]), nan=1.0),
        "corrected": np.nan_to_num(np.stack([each.at_best(each.corrected) for each in scored.values()]), nan=1.0),
        "n": np.stack([each.at_best(each.n) for each in scored.values()]) * present,
        "holds": holds,
    }
    tables = {
        "labels": Table(grid, labels_of(scored, holds, present)),
        "tests": Table(axes, tests),
        "skipped": Table.of_rows({"function": list(skipped), "why": list(skipped.values())}),
        **drawn,
    }
    if POSITIONAL in scored:
        each = scored[POSITIONAL]
        tables["offsets"] = Table(
            {"offset": each.names, **grid},
            {
                "share": np.nan_to_num(each.share),
                "chance": each.chance,
                "corrected": np.nan_to_num(each.corrected, nan=1.0),
            },
        )
    if SYNTACTIC in scored:
        tables |= _relations(view, keys, scored[SYNTACTIC], grid)
    return tables


def _relations(
    view: HeadTargetsView, keys: Sequence[str], found: Scored, grid: Mapping[str, tuple[Coordinate, ...]]
) -> dict[str, Table]:
    """Every relation of every head, and the best fixed offset of each relation."""
    assert found.baseline is not None and found.offset is not None
    places = [view.kinds.index(name) for name in found.names]
    mass = stacked([view.links(key)[places, 1] for key in keys], axis=1)
    even = np.stack([view.cases(key)[places, 3] for key in keys], axis=1)[..., None]
    n = np.maximum(found.n, 1)
    columns = {
        "share": np.nan_to_num(found.share),
        "chance": found.chance,
        "above the best offset": np.nan_to_num(found.share - found.baseline),
        "attention": np.nan_to_num(mass / n),
        "attention by chance": np.broadcast_to(even / n, mass.shape),
        "corrected": np.nan_to_num(found.corrected, nan=1.0),
    }
    layer = found.n[:, :, 0].argmax(1)[:, None]  # layers of one stack see the same words
    at = {
        name: np.take_along_axis(array[..., 0], layer, axis=1)[:, 0]
        for name, array in (("n", found.n), ("offset", found.offset), ("share", found.baseline))
    }
    return {
        "relations": Table({"relation": found.names, **grid}, columns),
        "baselines": Table({"relation": found.names}, at),
    }
