"""What the heads of a model look at, for the study of heads: functions, findings by layer, and links of pronouns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.collect.counts import HeadCounts
from pellucid.collect.head_targets import HeadTargets
from pellucid.collect.sweep import sweep
from pellucid.corpus import Corpus
from pellucid.heads import HeadFunctions, functions, head_collectors
from pellucid.reading import view_with
from pellucid.studies.heads.tables import LINKS, SPECIALISED, Drawn, Links, Profile, slim

if TYPE_CHECKING:
    from pellucid.collect.found import Found
    from pellucid.collect.head_targets import HeadTargetsView
    from pellucid.model import Model

Array = np.ndarray[Any, Any]
TABLES = ("labels", "tests", "baselines", "skipped")
"""Tables of functions that are kept: the others tell every relation and offset of every head."""
_WAYS = (" to head", " to dependent")


def read_text(model: Model, corpus: Corpus) -> Found:
    """One pass over a text with all that the study reads; sentences that are too long lose their end."""
    return sweep(model, corpus, head_collectors(model), long="truncate", progress=False)


@dataclass(frozen=True, eq=False)
class Read:
    """Functions of every head on every text, those of a random network, and the sweeps of both."""

    functions: dict[str, HeadFunctions]
    random: dict[str, Drawn]
    sweeps: dict[str, tuple[Found, Found]]


def all_functions(model: Model, randoms: Sequence[Model], texts: Mapping[str, Corpus]) -> Read:
    """Every text read by a model and by two random networks.

    What a head of the first random network does too takes no learning: the second one is judged by the same rule as the
    model, and shows what is left by chance.
    """
    made = Read({}, {}, {})
    for name, corpus in texts.items():
        own, first, second = (read_text(each, corpus) for each in (model, *randoms))
        made.sweeps[name] = own, first
        best = functions(first).best
        made.functions[name] = slim(functions(own).against(best), TABLES)
        other = functions(second).against(best).labels.values()
        counts = dict(Counter(label for labels in other for label in labels))
        made.random[name] = Drawn(counts, best, sum(bool(set(labels) & set(SPECIALISED)) for labels in other))
    return made


def profiles(found: Found, random: Found) -> dict[str, Profile]:
    """Distance, attention on syntactic neighbours and attention by part of speech, of every layer.

    Values are means over the heads of a layer; beside them stand uniform attention and the random network.
    """
    drawn = _profiles(random)
    return {name: replace(made, random=drawn[name].values) for name, made in _profiles(found).items()}


def _profiles(found: Found) -> dict[str, Profile]:
    counts, by_layer = view_with(found, HeadCounts, "pattern", ask="HeadCounts()")
    targets, _ = view_with(found, HeadTargets, "pattern", ask="HeadTargets()")
    layers, keys = tuple(str(layer) for layer in by_layer), list(by_layer.values())
    made = {"distance": _profile(counts, keys, layers, _distance, ("distance",))}
    if _relations(targets):
        made["neighbours"] = _profile(targets, keys, layers, _neighbours, ("neighbours",))
    if targets.tags:
        made["tags"] = _profile(targets, keys, layers, _tags, targets.tags)
    return made


def tag_heads(found: Found, random: Found) -> dict[str, Any]:
    """Attention on every tag by every head [tags][heads], in the order of layers, of the model and of a random network,
    and of uniform attention [tags]."""
    own, other = _tag_shares(found), _tag_shares(random)
    return {"tags": own[0], "shares": own[1], "random": other[1], "uniform": own[2]}


def _tag_shares(found: Found) -> tuple[list[str], list[list[float]], list[float]]:
    targets, by_layer = view_with(found, HeadTargets, "pattern", ask="HeadTargets()")
    shares: list[Array] = []
    even: list[Array] = []
    for key in by_layer.values():
        mass, chance = targets.on_tags(key)
        words, words_even = targets.rows("words", key)
        shares.append(mass / np.maximum(words, 1e-12))
        even.append(chance / max(words_even, 1e-12))
    return list(targets.tags), np.concatenate(shares, axis=1).tolist(), np.mean(even, axis=0).tolist()


def pronoun_links(model: Model, count: int, seed: int) -> dict[str, Links]:
    """Where every head looks from a pronoun, by what tells whom it means."""
    corpus = Corpus.pronouns(count, seed=seed)
    forms = sorted({sentence.facts["form"] for sentence in corpus})
    found: dict[str, Links] = {}
    for form in forms:
        part = corpus.filter(lambda sentence, form=form: sentence.facts["form"] == form, name=form)
        targets, by_layer = view_with(read_text(model, part), HeadTargets, "pattern", ask="HeadTargets()")
        kinds = [targets.kinds.index(f"{name} to head") for name in LINKS]
        groups = [targets.group(number) for number in targets.groups]
        first = next(iter(by_layer.values()))
        hits = [np.stack([group.links(key)[kinds, 0] for key in by_layer.values()], axis=1) for group in groups]
        cases = np.stack([group.cases(first)[kinds] for group in groups])
        found[form] = Links(tuple(map(str, by_layer)), np.stack(hits), cases[:, :, 1], cases[:, 0, 0])
    return found


Reading = Callable[[Any, str], tuple[Array, Array]]
"""Values and chance [rows] of a layer."""


def _profile(view: Any, keys: list[str], layers: tuple[str, ...], read: Reading, rows: tuple[str, ...]) -> Profile:
    def values(part: Any) -> Array:
        return np.stack([read(part, key)[0] for key in keys], axis=1)

    sizes = {number: view.group(number).n(keys[0]) for number in view.groups}
    kept = [number for number, size in sizes.items() if size > 0]
    without = np.array([values(view.without(number)) for number in kept]) if len(kept) > 1 else np.empty((0,))
    chance = np.stack([read(view, key)[1] for key in keys], axis=1)
    weights = np.array([sizes[number] for number in kept], dtype=float) if len(kept) > 1 else np.empty((0,))
    whole = values(view)
    return Profile(rows, layers, whole, chance, whole, without, weights)


def _distance(view: Any, key: str) -> tuple[Array, Array]:
    return np.array([view.mean("distance", key).mean()]), np.array([view.chance("distance", key)])


def _relations(view: HeadTargetsView) -> list[int]:
    """Places of the dependency relations, both ways, without punctuation."""
    return [
        place
        for place, name in enumerate(view.kinds)
        if name.endswith(_WAYS) and not name.startswith("punct ") and view.cases(view.keys[0])[place, 0] > 0
    ]


def _neighbours(view: HeadTargetsView, key: str) -> tuple[Array, Array]:
    places = _relations(view)
    cases = view.cases(key)[places]
    n = max(float(cases[:, 0].sum()), 1.0)
    return np.array([view.links(key)[places, 1].sum(axis=0).mean() / n]), np.array([cases[:, 3].sum() / n])


def _tags(view: HeadTargetsView, key: str) -> tuple[Array, Array]:
    mass, chance = view.on_tags(key)
    words, even = view.rows("words", key)
    return (mass / np.maximum(words, 1e-12)).mean(axis=1), chance / max(even, 1e-12)
