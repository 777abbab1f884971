"""Ablation of neurons: what the model's own answers lose without each neuron, one at a time or one after another."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.collect.progress import Progress
from pellucid.errors import SiteError, listing
from pellucid.heads.weighing.ablating import TOKENS
from pellucid.heads.weighing.measuring import Measured, measured
from pellucid.model.sites import Site, expand
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.concepts import Concept, as_concept
from pellucid.neurons.judging.ablating import (
    EVERY,
    Losses,
    check_replacement,
    goal_classes,
    site_means,
    site_width,
    sweep_neurons,
)
from pellucid.neurons.judging.goal_words import Aim, GoalWords, aim, told_of
from pellucid.neurons.judging.group_means import over_kept_groups
from pellucid.neurons.ranking import Ranking, by_site, neuron_names, overall_table
from pellucid.neurons.sources import Sites, patterns
from pellucid.results import Array, Provenance, ResultError, Table
from pellucid.uncertainty import Interval

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model

STEPS, FIRST = 10, 30
"""Neurons that go one after another, and the first ones by single ablation that they are chosen from."""


@dataclass(frozen=True, eq=False)
class Step:
    """A neuron that went, and what answers have lost up to there: `drops` of so many `goals`, each [groups]."""

    neuron: str
    drops: Array
    goals: Array


Steps = Sequence[Step]
"""Neurons in the order in which they went."""


def ablation(
    model: Model,
    corpus: Corpus,
    task: str | None = None,
    *,
    sites: Sites = None,
    neurons: Sequence[str] | None = None,
    replacement: str = "zero",
    label: str | None = None,
    batch: int = 32,
    length: int | None = None,
    seed: int = 0,
    tokens: int = TOKENS,
    progress: bool | None = None,
) -> Ranking:
    """Every neuron of the sites (default: MLP units), or those named, replaced in turn by zero or by its mean.

    A neuron scores the mean of (p − p')/p, where p is the probability of the answer that the model gives and p' that
    without the neuron: for goals of each class of a classifier or tagger, else for all answers together. The table
    `changes` has the change of the loss per goal, in nats, and the share of answers that become others.
    """
    found = measured(model, corpus, task, label=label, batch=batch, length=length, seed=seed)
    names, lost = _swept(found, _chosen(model, sites, neurons), replacement, tokens, progress)
    return _ranking(found, names, lost, _answered(lost), {"replacement": replacement, "concept": told_of(found)})


def greedy_ablation(
    model: Model,
    corpus: Corpus,
    task: str | None = None,
    *,
    count: int = STEPS,
    sites: Sites = None,
    neurons: Sequence[str] | None = None,
    replacement: str = "zero",
    label: str | None = None,
    batch: int = 32,
    length: int | None = None,
    seed: int = 0,
    tokens: int = TOKENS,
    progress: bool | None = None,
) -> Ranking:
    """Neurons removed one after another: each time the one without which, with those before it gone, answers lose most.

    A neuron scores 1 over the step at which it went (0: it stayed). The table `steps` has their names, and what answers
    have lost up to there, with an interval over document groups in which the same neurons go: it does not tell how sure
    the order is. Every step tries every neuron that is left, so name `neurons` (say, the first of another ranking) or a
    site.
    """
    found = measured(model, corpus, task, label=label, batch=batch, length=length, seed=seed)
    chosen = _chosen(model, sites, neurons)
    with Progress(progress) as shown:
        shown.begin("removing neurons", count, unit="neurons")
        steps = _removed(found, chosen, count, replacement, tokens, shown.advance)
    told = {"method": "ablation-greedy", "replacement": replacement, "concept": told_of(found), "count": count}
    names = [name for site, units in chosen.items() for name in _names(model, site, units)]
    return _in_steps(found, names, {EVERY: steps}, steps, told)


def _removed(
    found: Measured,
    chosen: dict[Site, list[int]],
    count: int,
    replacement: str,
    tokens: int,
    advance: Callable[[int], None],
    classes: Sequence[str] = (),
    words: GoalWords | None = None,
) -> Steps:
    """The neurons that go, one after another, each with what answers have lost up to there.

    With `classes`, answers whose goal is of these count alone.
    """
    total = sum(map(len, chosen.values()))
    if not 1 <= count <= total:
        raise ResultError(f"There are {total} neurons to remove, so {count} cannot go one after another.")
    means = site_means(found, list(chosen)) if replacement == "mean" else None
    gone: dict[Site, list[int]] = {}
    known = goal_classes(found, words)
    mine = [known.index(name) for name in classes or known]
    steps: list[Step] = []
    for _ in range(count):
        tried: list[tuple[float, Site, int, Step]] = []
        for site, units in chosen.items():
            left = [unit for unit in units if unit not in gone.get(site, ())]
            if left:
                lost = sweep_neurons(found, site, left, replacement, gone=gone, means=means, words=words, tokens=tokens)
                drops = lost.drops[:, mine].sum(axis=1)  # [units, groups]
                goals = lost.counts[mine].sum(axis=0)  # [groups]
                average = drops.sum(axis=1) / goals.sum()
                best = int(average.argmax())
                step = Step(f"{site}:{left[best]}", drops[best], goals)
                tried.append((float(average[best]), site, left[best], step))
        _, site, unit, step = max(tried, key=lambda each: each[0])  # the first of equals
        gone.setdefault(site, []).append(unit)
        steps.append(step)
        advance(1)
    return steps


def by_ablation(
    source: Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    seed: int = 0,
    replacement: str = "zero",
) -> Ranking:
    """Neurons by what answers lose without them, each replaced by zero or by its mean.

    Answers are told apart by the model's own labels, which the concept must name, or, of language models, by the class
    of the word that is asked for. Where classes are named (`upos=NOUN,VERB`), answers whose goal is of these count
    alone. All answers of other models count together, with a warning.
    """
    asked = _aimed(source, corpus, concept, replacement, seed)
    return _single(asked, sites, replacement)


def by_greedy_ablation(
    source: Store | Model,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    sites: Sites = None,
    seed: int = 0,
    replacement: str = "zero",
    within: int | None = None,
    count: int | None = None,
) -> Ranking:
    """The first `count` (10) neurons that go one after another, out of the first `within` (30) of single ablation.

    Where classes are named (`upos=NOUN,VERB`), neurons go by what answers lose whose goal is of these, and for each
    class by its own; else by all answers together. Answers are told apart as by `ablation`.
    """
    if count is not None and within is not None and count > within:
        raise ResultError(
            f"Not {count} neurons can go out of the first {within}; give a larger within or a smaller count."
        )
    within = max(FIRST, count or 0) if within is None else within
    asked = _aimed(source, corpus, concept, replacement, seed)
    single = _single(asked, sites, replacement)
    few = min(within, len(single.neurons))
    steps = min(STEPS, few) if count is None else count

    def removed(classes: Sequence[str]) -> Steps:
        first = single.top(few, classes[0] if len(classes) == 1 else None, by="signed")
        chosen = named_sites(asked.found.model, first)
        return _removed(asked.found, chosen, steps, replacement, TOKENS, lambda _: None, classes, asked.words)

    named: tuple[str, ...] = asked.classes if asked.concept.classes or len(asked.classes) == 1 else ()
    each = {name: removed([name]) for name in named}
    together = next(iter(each.values())) if len(each) == 1 else removed(named)
    told = {"method": "ablation-greedy", "replacement": replacement, "concept": asked.name, "within": within,
            "count": steps, "classes": list(asked.concept.classes)}  # fmt: skip
    return _in_steps(asked.found, single.neurons, each or {EVERY: together}, together, told)


def _aimed(source: Store | Model, corpus: Corpus | None, concept: str | Concept, replacement: str, seed: int) -> Aim:
    """What a concept asks of a model's own task; warns where it asks for all answers."""
    from pellucid.model import Model

    if not isinstance(source, Model) or corpus is None:
        raise ResultError("Ablation runs the model itself: give a model and a corpus, not a store or a sweep.")
    check_replacement(replacement)
    asked = as_concept(concept)
    found = measured(source, corpus, label=asked.base, seed=seed)
    made = aim(found, asked)
    if made.classes == (EVERY,):
        warnings.warn(
            f"The answers of {source.name!r} ({found.task.name}) cannot be told apart by {asked.name!r}, so ablation "
            "ranks neurons by what all of them lose.",
            NeuronWarning,
            stacklevel=3,
        )
    return made


def _single(aim: Aim, sites: Sites, replacement: str) -> Ranking:
    """The ranking by single ablation, for the classes that the concept asks for."""
    chosen = _chosen(aim.found.model, sites, None)
    names, lost = _swept(aim.found, chosen, replacement, TOKENS, False, aim.words)
    return _ranking(aim.found, names, lost, aim.classes, {"replacement": replacement, "concept": aim.name})


def chosen_sites(model: Model, sites: Sites) -> list[Site]:
    """The sites that patterns select in a model; MLP units where none are given."""
    parts = [part.strip() for each in patterns(sites) or ("neurons.*",) for part in each.split(",")]
    return list(dict.fromkeys(site for part in parts for site in expand(part, model.sites)))


def _chosen(model: Model, sites: Sites, neurons: Sequence[str] | None) -> dict[Site, list[int]]:
    """The neurons to replace, by site: all of some sites, or those that are named."""
    if neurons is None:
        return {site: list(range(site_width(model, site))) for site in chosen_sites(model, sites)}
    if sites is not None:
        raise SiteError("Give sites= or neurons=, not both.")
    return named_sites(model, neurons)


def named_sites(model: Model, neurons: Sequence[str]) -> dict[Site, list[int]]:
    """Named neurons by their site in a model; one that does not exist raises."""
    known = {str(site): site for site in model.sites}
    found: dict[Site, list[int]] = {}
    for name, units in by_site(neurons).items():
        if name not in known:
            raise SiteError(f"{model.name!r} has no site {name!r}; it has {listing(known, most=40)}.")
        width = site_width(model, known[name])
        wrong = [unit for unit in units if unit >= width]
        if wrong:
            raise SiteError(f"{name} has neurons 0 to {width - 1}; there is no neuron {wrong[0]}.")
        found[known[name]] = list(dict.fromkeys(units))
    if not found:
        raise SiteError("No neuron was named; give at least one, such as 'neurons.3:17'.")
    return found


def _names(model: Model, site: Site, units: Sequence[int]) -> list[str]:
    every = neuron_names(str(site), site_width(model, site))
    return [every[unit] for unit in units]


def _swept(
    found: Measured,
    chosen: dict[Site, list[int]],
    replacement: str,
    tokens: int,
    progress: bool | None,
    words: GoalWords | None = None,
) -> tuple[list[str], Losses]:
    """The names of neurons, and what answers lose without each."""
    with Progress(progress) as shown:
        shown.begin("ablating every neuron", found.steps() * len(chosen), unit="batches")
        parts = [
            sweep_neurons(found, site, units, replacement, words=words, tokens=tokens, advance=shown.advance)
            for site, units in chosen.items()
        ]
    drops, losses, flips = (np.concatenate([getattr(part, name) for part in parts]) for name in
                            ("drops", "losses", "flips"))  # fmt: skip
    names = [name for site, units in chosen.items() for name in _names(found.model, site, units)]
    return names, Losses(drops, losses, flips, parts[0].counts, parts[0].classes)


def _answered(lost: Losses) -> tuple[str, ...]:
    """The classes of which there is any goal."""
    goals = lost.counts.sum(axis=1)
    return tuple(name for name, count in zip(lost.classes, goals, strict=True) if count > 0)


def _shares(sums: Array, counts: Array, kept: Array) -> Array:
    """Means [neurons, 1 + classes] over the kept groups, all classes first; one without goals there has 0."""
    some, out_of = sums[:, :, kept].sum(axis=2), counts[:, kept].sum(axis=1)
    every = some.sum(axis=1, keepdims=True) / out_of.sum()
    return np.concatenate([every, some / np.maximum(1, out_of)], axis=1)


def _bounded(sums: Array, counts: Array) -> tuple[Array, Interval]:
    return over_kept_groups(lambda kept: _shares(sums, counts, kept), counts.sum(axis=0))


def _ranking(
    found: Measured, names: Sequence[str], lost: Losses, classes: Sequence[str], told: dict[str, Any]
) -> Ranking:
    """The ranking for some classes, and over all goals of these."""
    places = [lost.classes.index(name) for name in classes]
    counts = lost.counts[places]
    values, interval = _bounded(lost.drops[:, places], counts)
    ends = [None if end is None else end.T for end in (interval.low, interval.high)]
    low, high = (None if end is None else end[1:] for end in ends)
    outer = [None if end is None else end[0] for end in ends]
    overall = overall_table(names, values[:, 0], null=np.zeros(len(names)), low=outer[0], high=outer[1])
    changes = {name: _shares(part[:, places], counts, np.arange(counts.shape[1]))[:, 0] for name, part in
               (("loss", lost.losses), ("flipped", lost.flips))}  # fmt: skip
    return Ranking(
        axes={"class": tuple(classes), "neuron": tuple(names)},
        values=values.T[1:],
        null=np.zeros((len(classes), len(names))),
        low=low,
        high=high,
        resampled=interval.resampled,
        provenance=provenance(found, "neurons.ablation", {"method": "ablation", **told}),
        tables={"overall": overall, "changes": Table({"neuron": tuple(names)}, changes)},
    )


def _in_steps(
    found: Measured, names: Sequence[str], each: Mapping[str, Steps], together: Steps, told: dict[str, Any]
) -> Ranking:
    """The ranking of the steps at which neurons went, for each class, and for all together."""

    def scores(steps: Steps) -> Array:
        score = np.zeros(len(names))
        score[[list(names).index(step.neuron) for step in steps]] = 1 / np.arange(1, len(steps) + 1)
        return score

    values, overall = np.stack([scores(steps) for steps in each.values()]), scores(together)
    drops, goals = np.stack([step.drops for step in together]), together[0].goals  # [steps, groups], [groups]
    lost, interval = over_kept_groups(lambda kept: drops[:, kept].sum(axis=1) / goals[kept].sum(), goals)
    columns = {"neuron": np.array([step.neuron for step in together]), "lost": lost}
    ends = {name: end for name, end in (("low", interval.low), ("high", interval.high)) if end is not None}
    beside = f"; what they lose (table 'steps') has one over {interval.resampled}" if ends else ""
    return Ranking(
        axes={"class": tuple(each), "neuron": tuple(names)},
        values=values,
        null=np.repeat(values.mean(axis=1, keepdims=True), len(names), axis=1),
        low=None,
        high=None,
        resampled=f"no interval: neurons are removed once, one after another{beside}",
        provenance=provenance(found, "neurons.greedy_ablation", told),
        tables={
            "overall": overall_table(names, overall, null=np.full(len(names), overall.mean())),
            "steps": Table({"step": tuple(range(1, len(together) + 1))}, {**columns, **ends}),
        },
    )


def provenance(found: Measured, function: str, arguments: dict[str, Any]) -> Provenance:
    """Where numbers measured on a model's task come from."""
    model, corpus, settings = found.model, found.corpus, found.settings
    sizes = [len(sentence.words) for sentence in corpus]
    told = {"task": found.task.name, "label": settings.label, "length": settings.length, **arguments}
    return Provenance(
        function,
        told,
        ({"name": model.name, "fingerprint": model.fingerprint},),
        {
            "name": corpus.name,
            "fingerprint": corpus.fingerprint or "none",
            "sentences": len(sizes),
            "words": sum(sizes),
        },
        settings.seed,
    )
