"""Head functions: which heads look at fixed offsets, syntactic neighbours, rare words, sinks or repeated words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pellucid.heads.roles import function_scores as scores
from pellucid.heads.roles.function_scores import (
    DUPLICATE,
    INDUCTION,
    LINKS,
    POSITIONAL,
    RARE_WORDS,
    SINK,
    SYNTACTIC,
    Scored,
)
from pellucid.heads.roles.layers import NO_HEAD, stacked
from pellucid.heads.roles.sweeping import swept, targets
from pellucid.results import Array, Coordinate, Result, ResultError, Table
from pellucid.uncertainty import over_groups

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.head_targets import HeadTargetsView
    from pellucid.corpus import Corpus
    from pellucid.model import Model

PHRASES = {
    POSITIONAL: "share of words whose largest weight stands at the head's own offset, where there is a word",
    SYNTACTIC: "share of words whose largest weight finds the head's own dependency relation, where there is one",
    RARE_WORDS: "share of sentences most of whose words have their largest weight on the least frequent word in sight",
    SINK: "share of the attention on special tokens and on the first position",
    INDUCTION: "share of repeated words whose largest weight is on the word that followed before",
    DUPLICATE: "share of repeated words whose largest weight is on the same word elsewhere",
}
NONE = "none"
"""The label of a head without a function."""


@dataclass(frozen=True)
class Rules:
    """From where on a head has a function; see `functions`."""

    positional: float
    syntactic: float
    rare: float
    rare_times: float
    sink: float
    induction: float
    duplicate: float
    level: float
    least: int
    without: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class HeadFunctions(Result):
    """How well every head does every function, [measure, layer, head]; a head may have several, of which one is main.

    Tables: `labels`, `tests` (p, corrected, n), `relations` and `offsets` (all of them, for every head), `baselines`
    (the best fixed offset of each relation), and `skipped` (functions that the corpus cannot tell about, and why).
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
        return {name: phrase for name, phrase in PHRASES.items() if name in self.axes["measure"]}

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
    positional: float = 0.9,
    syntactic: float = 0.1,
    rare: float = 0.5,
    rare_times: float = 3.0,
    sink: float = 0.5,
    induction: float = 0.5,
    duplicate: float = 0.5,
    level: float = 0.05,
    least: int = 20,
    without: Sequence[str] = ("punct",),
) -> HeadFunctions:
    """The functions of every head, from `HeadTargets()` of a sweep, or from a model and a corpus that is swept now.

    A head is positional if `positional` of its largest weights stand at one offset; syntactic if it finds a relation
    `syntactic` more often than the best fixed offset; it looks for rare words if in `rare` of the sentences most words
    find the rarest, and `rare_times` as often as by chance (Voita et al. 2019); a sink if `sink` of its attention is on
    special tokens and the first position; and so on for `induction` and `duplicate`. Each must also beat shuffled
    positions with p < `level`, Holm's correction made over all heads (and offsets or relations). Relations with fewer
    than `least` cases, and those `without`, are not tested.
    """
    rules = Rules(positional, syntactic, rare, rare_times, sink, induction, duplicate, level, least, tuple(without))
    _check(rules)
    found = swept(source, corpus)
    view, mine = targets(found)
    keys = list(mine.values())
    scored, skipped = _all_scores(view, keys, rules)
    if not scored:
        raise ResultError(
            "No query sees two words, so no head can show what it looks for; give a corpus with longer sentences."
        )
    heads = next(iter(scored.values())).share.shape[2]
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": tuple(scored),
        "layer": tuple(mine),
        "head": tuple(range(heads)),
    }
    interval = over_groups(view, lambda part: _again(part, keys, scored), lambda part: part.n(keys[0]))
    return HeadFunctions(
        axes=axes,
        values=np.stack([each.at_best(each.share) for each in scored.values()]),
        null=np.stack([each.at_best(each.chance) for each in scored.values()]),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=found.provenance("heads.functions", asdict(rules)),
        tables=_tables(view, keys, scored, skipped, rules, axes),
    )


def _check(rules: Rules) -> None:
    for name in ("positional", "rare", "sink", "induction", "duplicate", "level"):
        value = getattr(rules, name)
        if not 0 < value <= 1:
            raise ResultError(f"{name}={value} is a share; give a number over 0, up to 1.")
    if not -1 < rules.syntactic <= 1 or rules.least < 1 or rules.rare_times < 0:
        raise ResultError(
            f"syntactic={rules.syntactic} must be between −1 and 1, least={rules.least} at least 1 and "
            f"rare_times={rules.rare_times} not below 0."
        )


def _all_scores(view: HeadTargetsView, keys: Sequence[str], rules: Rules) -> tuple[dict[str, Scored], dict[str, str]]:
    """The scores of every function that the corpus can tell about, and why not of the others."""
    scored: dict[str, Scored] = {}
    skipped: dict[str, str] = {}
    found = _score(view, keys, POSITIONAL)
    if found.n.sum():
        scored[POSITIONAL] = found
    else:
        skipped[POSITIONAL] = "no query sees two words"
    relations = scores.relations_of(view, keys, least=rules.least, without=rules.without)
    if relations:
        scored[SYNTACTIC] = _score(view, keys, SYNTACTIC, relations)
    else:
        some = scores.relations_of(view, keys, least=1, without=())
        few = f"no relation has {rules.least} cases" if some else "the corpus has no dependency arcs"
        skipped[SYNTACTIC] = few
    for function in LINKS:
        single = _score(view, keys, function)
        if single.n.max() >= rules.least:
            scored[function] = single
        elif function == RARE_WORDS and not view.facts["counted"]:
            skipped[function] = "the words of the corpus were not counted before the sweep"
        elif function == RARE_WORDS:
            skipped[function] = f"fewer than {rules.least} sentences have words that see another"
        else:
            skipped[function] = f"fewer than {rules.least} words have such a word in sight"
    if scored:
        scored[SINK] = _score(view, keys, SINK)
    return {name: scored[name] for name in PHRASES if name in scored}, skipped


def _again(view: HeadTargetsView, keys: Sequence[str], scored: Mapping[str, Scored]) -> Array:
    """The scores of part of the text, with every head's own offset and relation kept, [measure, layer, head]."""
    return np.stack(
        [whole.at_best(_score(view, keys, function, whole.names).share) for function, whole in scored.items()]
    )


def _score(view: HeadTargetsView, keys: Sequence[str], function: str, relations: Sequence[str] = ()) -> Scored:
    """One function's scores."""
    if function == SYNTACTIC:
        return scores.syntactic(view, keys, relations)
    if function in (INDUCTION, DUPLICATE):
        return scores.linked(view, keys, LINKS[function])
    return {POSITIONAL: scores.positional, RARE_WORDS: scores.rare, SINK: scores.sink}[function](view, keys)


def _holds(function: str, found: Scored, rules: Rules) -> Array:
    """Which heads have a function, [layers, heads]."""
    share, chance = found.at_best(found.share), found.at_best(found.chance)
    if function == SYNTACTIC:
        assert found.baseline is not None
        large = share >= found.at_best(found.baseline) + rules.syntactic
    elif function == RARE_WORDS:
        large = (share >= rules.rare) & (share >= rules.rare_times * chance)
    else:
        large = share >= getattr(rules, function)
    return large & (found.at_best(found.corrected) < rules.level)


def _tables(
    view: HeadTargetsView,
    keys: Sequence[str],
    scored: Mapping[str, Scored],
    skipped: Mapping[str, str],
    rules: Rules,
    axes: Mapping[str, tuple[Coordinate, ...]],
) -> dict[str, Table]:
    grid = {"layer": axes["layer"], "head": axes["head"]}
    holds = np.stack([_holds(name, found, rules) for name, found in scored.items()])
    present = np.isfinite(next(iter(scored.values())).share[0])
    tests = {
        "p": np.nan_to_num(np.stack([each.at_best(each.p) for each in scored.values()]), nan=1.0),
        "corrected": np.nan_to_num(np.stack([each.at_best(each.corrected) for each in scored.values()]), nan=1.0),
        "n": np.stack([each.at_best(each.n) for each in scored.values()]) * present,
        "holds": holds,
    }
    tables = {
        "labels": Table(grid, _labels(scored, holds, present)),
        "tests": Table(axes, tests),
        "skipped": Table.of_rows({"function": list(skipped), "why": list(skipped.values())}),
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


def _labels(scored: Mapping[str, Scored], holds: Array, present: Array) -> dict[str, Array]:
    """Main and all functions of every head, and its own offset and relation where these are of its functions."""
    names = np.array(list(scored))
    shares = np.stack([each.at_best(each.share) for each in scored.values()])
    chances = np.stack([each.at_best(each.chance) for each in scored.values()])
    above = np.where(holds, (shares - chances) / np.maximum(1 - chances, 1e-9), -np.inf)
    order = np.argsort(-above, axis=0, kind="stable")
    shape = holds.shape[1:]
    main, every = (np.where(present, NONE, NO_HEAD).astype(object) for _ in range(2))
    own: dict[str, Array] = {name: np.full(shape, "", dtype=object) for name in ("offset", "relation")}
    for place in np.ndindex(*shape):
        mine = [str(names[at]) for at in order[(slice(None), *place)] if holds[(at, *place)]]
        if mine:
            main[place], every[place] = mine[0], "; ".join(mine)
        for column, function in (("offset", POSITIONAL), ("relation", SYNTACTIC)):
            if function in mine:
                own[column][place] = scored[function].names[int(scored[function].best[place])]
    return {"main": main, "all": every, **own}
