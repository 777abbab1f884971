"""Function rules: from where on a head has a function, and which functions every head has under them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from pellucid.heads.roles.layers import NO_HEAD
from pellucid.results import Array, ResultError, Table

if TYPE_CHECKING:
    from pellucid.collect.head_targets import HeadTargetsView

PHRASES = {
    POSITIONAL: "share of words whose largest weight stands at the head's own offset, where there is a word",
    SYNTACTIC: "share of words whose largest weight finds the head's own dependency relation, where there is one",
    RARE_WORDS: "share of sentences most of whose words have their largest weight on the least frequent word in sight",
    SINK: "share of the attention on special tokens and on the first position",
    INDUCTION: "share of repeated words whose largest weight is on the word that followed before",
    DUPLICATE: "share of repeated words whose largest weight is on the same word elsewhere",
}
NO_WORDS = "no query sees two words"
"""Why nothing can be told of texts of single words."""
NONE = "none"
"""The label of a head without a function."""


@dataclass(frozen=True)
class Rules:
    """From where on a head has a function; see `functions`."""

    positional: float = 0.9
    syntactic: float = 0.1
    rare: float = 0.5
    rare_times: float = 3.0
    sink: float = 0.5
    induction: float = 0.5
    duplicate: float = 0.5
    level: float = 0.05
    least: int = 20
    without: tuple[str, ...] = ("punct",)
    beyond: float = 0.1


def check(rules: Rules) -> None:
    for name in ("positional", "rare", "sink", "induction", "duplicate", "level"):
        value = getattr(rules, name)
        if not 0 < value <= 1:
            raise ResultError(f"{name}={value} is a share; give a number over 0, up to 1.")
    if not -1 < rules.syntactic <= 1 or rules.least < 1 or rules.rare_times < 0 or not 0 <= rules.beyond <= 1:
        raise ResultError(
            f"syntactic={rules.syntactic} must be between −1 and 1, least={rules.least} at least 1, "
            f"rare_times={rules.rare_times} not below 0 and beyond={rules.beyond} from 0 to 1."
        )


def all_scores(view: HeadTargetsView, keys: Sequence[str], rules: Rules) -> tuple[dict[str, Scored], dict[str, str]]:
    """The scores of every function that the corpus can tell about, and why not of the others."""
    scored: dict[str, Scored] = {}
    skipped: dict[str, str] = {}
    offsets = scores.offsets_of(view, keys, least=rules.least)
    if offsets:
        scored[POSITIONAL] = _score(view, keys, POSITIONAL, offsets)
    else:
        some = scores.offsets_of(view, keys, least=1)
        skipped[POSITIONAL] = f"no offset has {rules.least} cases" if some else NO_WORDS
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


def scored_like(view: HeadTargetsView, keys: Sequence[str], scored: Mapping[str, Scored]) -> dict[str, Scored]:
    """The scores of other sums (part of the text, or other weights) for the same functions and relations."""
    return {function: _score(view, keys, function, whole.names) for function, whole in scored.items()}


def again(view: HeadTargetsView, keys: Sequence[str], scored: Mapping[str, Scored]) -> Array:
    """The scores of part of the text, with every head's own offset and relation kept, [measure, layer, head]."""
    parts = scored_like(view, keys, scored)
    return np.stack([whole.at_best(parts[function].share) for function, whole in scored.items()])


def _score(view: HeadTargetsView, keys: Sequence[str], function: str, names: Sequence[str] = ()) -> Scored:
    """One function's scores; of offsets and relations, those of some names."""
    if function in (POSITIONAL, SYNTACTIC):
        return (scores.positional if function == POSITIONAL else scores.syntactic)(view, keys, names)
    if function in (INDUCTION, DUPLICATE):
        return scores.linked(view, keys, LINKS[function])
    return {RARE_WORDS: scores.rare, SINK: scores.sink}[function](view, keys)


def holds_of(function: str, found: Scored, rules: Rules) -> Array:
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


def beyond_random(scored: Mapping[str, Scored], random: Mapping[str, Scored], rules: Rules) -> tuple[Array, Table]:
    """Which functions heads have, [function, layer, head], where heads of a random model are held against them.

    Where these pass a rule too, a head must do better than the best of them by `beyond`. The table has, for every
    function, how many of them pass (`heads` of `all`), and the `best` score of those, 0 where none does.
    """
    held: list[Array] = []
    rows: list[tuple[str, int, int, float]] = []
    for name, found in scored.items():
        holds = holds_of(name, found, rules)
        drawn, passed = random[name], holds_of(name, random[name], rules)
        best = float(drawn.at_best(drawn.share)[passed].max()) if passed.any() else None
        rows.append((name, int(passed.sum()), int(np.isfinite(drawn.share[0]).sum()), best or 0.0))
        held.append(holds & better(found.at_best(found.share), best, rules.beyond))
    columns = ("function", "heads", "all", "best")
    return np.stack(held), Table.of_rows(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))


def better(score: Array, best: float | None, beyond: float) -> Array:
    """Whether scores are better by `beyond` than the best that takes no learning; all are where there is no such."""
    return np.ones(score.shape, dtype=bool) if best is None else score >= best + beyond


def labels_of(scored: Mapping[str, Scored], holds: Array, present: Array) -> dict[str, Array]:
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
