"""Evaluation of a ranking: what its first neurons are worth beside its last and beside random ones of the same
number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.collect.progress import Progress
from pellucid.errors import listing
from pellucid.heads.weighing.measuring import measured
from pellucid.neurons.arrays import of_arrays
from pellucid.neurons.concepts import Concept
from pellucid.neurons.judging.ablating import check_replacement, replaced, site_means
from pellucid.neurons.judging.ablation import named_sites, provenance
from pellucid.neurons.judging.apart import (
    warn_of_other_classes,
    warn_of_other_model,
    warn_of_same_corpus,
    warn_of_same_text,
)
from pellucid.neurons.judging.group_means import over_kept_groups
from pellucid.neurons.judging.smallest import smallest_sets
from pellucid.neurons.probing.controls import majority
from pellucid.neurons.probing.intervals import accuracies, in_range
from pellucid.neurons.probing.material import Material, Reading, opened
from pellucid.neurons.probing.probes import check_seeds, control_tasks, penalties, real_tasks, tested, tested_counts
from pellucid.neurons.probing.rows import MEMORY, Rows
from pellucid.neurons.probing.training import Fitted, Settings, Task, fit
from pellucid.neurons.ranking import Ranking
from pellucid.neurons.sources import Sites
from pellucid.results import Array, Result, ResultError, Table
from pellucid.uncertainty import Interval

if TYPE_CHECKING:
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model

ENDS = {
    "top": "the neurons that the ranking puts first",
    "bottom": "those that it puts last",
    "random": "as many drawn at random, mean over draws",
}
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
CONTROLS = ("majority", "random model", "control task", "selectivity")
"""What stands beside the accuracy of every probe: the most frequent class, as many neurons of the randomly initialised
model, random labels of word types, and accuracy less that. Arrays have no model, and so no random one."""


@dataclass(frozen=True, eq=False)
class RankingCurves(Result):
    """A score with the first, last and random neurons of a ranking, [measure, neurons], by their number.

    What was done with the neurons, and what the score is, stand in `done` and `score`. The table `whole` has the score
    of all neurons; `draws` that of each draw of random ones; `controls` (of probes) majority, random model, control
    task and selectivity of the first neurons; `smallest` (of probes trained anew) the smallest sets that suffice.
    """

    kind: ClassVar[str] = "neurons.evaluation"
    title: ClassVar[str] = "What the neurons of a ranking are worth"
    phrases: ClassVar[Mapping[str, str]] = ENDS
    chance: ClassVar[str] = "as many neurons drawn at random"

    @property
    def done(self) -> str:
        """What was done with the neurons."""
        return str(self.provenance.arguments["done"])

    @property
    def score(self) -> str:
        """What the score is."""
        return str(self.provenance.arguments["score"])


def ablated_in_model(
    model: Model,
    corpus: Corpus,
    ranking: Ranking,
    task: str | None = None,
    *,
    cls: str | None = None,
    counts: Sequence[int] | None = None,
    replacement: str = "zero",
    draws: int = 3,
    label: str | None = None,
    batch: int = 32,
    length: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> RankingCurves:
    """The loss of the model's own task, in nats per goal, without the first, last and random neurons of a ranking.

    `counts` are by default 1% to 50% of the neurons. The table `whole` has loss and main score of the model as it is,
    `scores` the main score of each curve, `beyond random` what the first and last neurons cost more than random ones in
    the same documents. Judge on other documents than the ranking was made of; one of the same text is warned of, as is
    one of another model.
    """
    check_replacement(replacement)
    warn_of_same_corpus(ranking, corpus)
    warn_of_other_model(ranking, model.name, model.fingerprint)
    found = measured(model, corpus, task, label=label, batch=batch, length=length, seed=seed)
    sizes, names = numbers(counts, len(ranking.neurons)), ranking.order(cls, seed=seed)
    means = site_means(found, list(named_sites(model, names))) if replacement == "mean" else None
    groups = found.group_count
    out_of = np.zeros(groups)

    def sums(without: Sequence[str]) -> Array:
        """Losses and points by document group, [2, groups], without some neurons."""
        chosen = named_sites(model, without) if without else {}
        edits = [edit for site, units in chosen.items() for edit in replaced(site, units, replacement, means, model)]
        total = np.zeros((2, groups))
        out_of[:] = 0
        for step in range(found.steps()):
            rows, place = found.rows(found.batch(step), edits), found.groups[found.owners(step).numpy()]
            for part, target in ((rows.losses, total[0]), (rows.hits, total[1]), (rows.goals, out_of)):
                np.add.at(target, place, part.cpu().numpy())
        return total

    sets = _sets(names, sizes, draws, seed)
    with Progress(progress) as shown:
        shown.begin("ablating neurons in the model", len(sizes) * (2 + draws), unit="passes")
        plain = sums(())
        parts, drawn = _each(sets, sums, shown.advance)  # [3, counts, 2, groups], [draws, counts, 2, groups]
    curves, interval = _means(parts, out_of)
    per_goal, every = plain.sum(axis=1) / out_of.sum(), drawn.sum(axis=-1) / out_of.sum()
    told = {**_told(ranking, cls), "done": f"replaced in the model ({replacement})",
            "score": "loss in nats per goal", "draws": draws}  # fmt: skip
    tables = {
        "whole": Table({"measure": ("loss", "accuracy")}, {"value": per_goal}),
        "scores": Table({"measure": tuple(ENDS), "neurons": sizes}, {"accuracy": curves[..., 1]}),
        "beyond random": _beyond(parts[:, :, 0], out_of, sizes),
        "draws": _draws(sizes, loss=every[..., 0], accuracy=every[..., 1]),
    }
    ends = [None if end is None else np.maximum(end[..., 0], 0.0) for end in (interval.low, interval.high)]
    return RankingCurves(
        {"measure": tuple(ENDS), "neurons": sizes}, curves[..., 0], np.tile(curves[2, :, 0], (3, 1)), ends[0], ends[1],
        interval.resampled, provenance(found, "neurons.evaluation", told), tables,
    )  # fmt: skip


def ablated_in_probe(
    source: Store | Model,
    ranking: Ranking,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    cls: str | None = None,
    sites: Sites = None,
    random: Store | None = None,
    counts: Sequence[int] | None = None,
    keep: bool = False,
    penalty: str = "elastic",
    draws: int = 3,
    seeds: int = 3,
    epochs: int = 60,
    test: float = 0.2,
    fewest: int = 20,
    seed: int = 0,
    memory: int = MEMORY,
    pooling: str | None = None,
    device: str = "cpu",
) -> RankingCurves:
    """The accuracy of a trained probe when neurons are set to their mean: the first, last and random of a ranking.

    With `keep` all others are, so that the probe reads these alone. The numbers are means over `seeds` probes, each of
    which leaves out another tenth of the documents, and has a control task of its own. A store holds the model's random
    twin too, or `random` is a store of it: the same is done there with as many neurons drawn at random.
    """
    check_seeds(seeds)
    settings = Settings(*penalties(penalty, 1e-3, 1e-3), epochs=epochs, seed=seed, device=device)
    reading = Reading(sites, fewest, test, seed, memory, pooling)
    with opened(source, corpus, concept, reading, random=random, controlled=not of_arrays(source)) as found:
        names, sizes = _known(ranking, found, cls, seed), numbers(counts, len(found.rows.names))
        tasks, classes = [*real_tasks(found, seeds), *control_tasks(found, seeds, seed)], len(found.data.classes)
        sets, every = _sets(names, sizes, draws, seed), names if keep else ()

        def hits(rows: Rows, fitted: Fitted, own: list[Task], chosen: Sequence[str]) -> Array:
            """Hits of the probes and, where they are trained, of control tasks, mean over seeds: [kinds, groups,
            classes]."""
            mine = _columns(found, chosen)
            right = tested(rows, fitted.without(~mine if keep else mine), own, found)
            return right.reshape(-1, seeds, *right.shape[1:]).mean(axis=1)

        read = partial(hits, found.rows, fit(found.rows, tasks, classes, settings), tasks)
        parts, drawn = _each(sets, read)  # [3, counts, 2, groups, classes], [draws, counts, …]
        twin = None
        if found.twin is not None:
            other = partial(hits, found.twin, fit(found.twin, tasks[:seeds], classes, settings), tasks[:seeds])
            twin = np.concatenate([other(every), *(other(size[0]) for size in sets[2])])
        done = "kept in the probe, all others at their mean" if keep else "set to their mean in the probe"
        told = {**_told(ranking, cls), "done": done, "penalty": penalty, "draws": draws, "seeds": seeds}
        beside = np.stack([read(every), *parts[0]])
        right = _Right(parts[:, :, 0], drawn[:, :, 0], beside[:, 0], beside[:, 1], twin)
        return _of_probe(found, sizes, right, told, seed)


def trained_anew(
    source: Store | Model,
    ranking: Ranking,
    corpus: Corpus | None = None,
    *,
    concept: str | Concept,
    cls: str | None = None,
    sites: Sites = None,
    random: Store | None = None,
    counts: Sequence[int] | None = None,
    within: float | None = 0.01,
    penalty: str = "l2",
    draws: int = 3,
    seeds: int = 3,
    epochs: int = 60,
    test: float = 0.2,
    fewest: int = 20,
    seed: int = 0,
    memory: int = MEMORY,
    pooling: str | None = None,
    device: str = "cpu",
) -> RankingCurves:
    """The accuracy of probes trained on the first, last and random neurons of a ranking alone, all in one training.

    The numbers are means over `seeds` probes, each of which leaves out another tenth of the documents. The table
    `smallest` has the smallest number of first neurons whose probe is within `within` (and 2, 5 times that) of the
    accuracy of all neurons: chosen on documents to learn from, with its accuracy on those for testing; None searches
    for none. A store holds the model's random twin too, or `random` is a store of it: probes are trained there on as
    many neurons drawn at random.
    """
    check_seeds(seeds)
    settings = Settings(*penalties(penalty, 1e-3, 1e-3), epochs=epochs, seed=seed, device=device)
    reading = Reading(sites, fewest, test, seed, memory, pooling)
    with opened(source, corpus, concept, reading, random=random, controlled=not of_arrays(source)) as found:
        names, sizes = _known(ranking, found, cls, seed), numbers(counts, len(found.rows.names))
        sets = _sets(names, sizes, draws, seed)
        lists: list[Sequence[str]] = [names, *(one for end in sets for size in end for one in size)]
        firsts, drawn = ([names, *(size[0] for size in end)] for end in (sets[0], sets[2]))

        def trained(rows: Rows, *kinds: tuple[Sequence[Sequence[str]], Callable[..., list[Task]]]) -> Array:
            """Hits of probes of some sets of neurons, mean over seeds, [sets, groups, classes]."""
            tasks = [task for many, made in kinds for chosen in many
                     for task in made(found, seeds, columns=_columns(found, chosen))]  # fmt: skip
            right = tested(rows, fit(rows, tasks, len(found.data.classes), settings), tasks, found)
            return right.reshape(-1, seeds, *right.shape[1:]).mean(axis=1)

        right = trained(found.rows, (lists, real_tasks), (firsts, partial(control_tasks, seed=seed)))
        twin = None if found.twin is None else trained(found.twin, (drawn, real_tasks))
        hits = iter(right[1 : len(lists)])
        parts, each = _each(sets, lambda _: next(hits))
        told = {**_told(ranking, cls), "done": "read alone by a probe trained anew", "penalty": penalty,
                "draws": draws, "seeds": seeds}  # fmt: skip
        beside = _Right(parts, each, np.stack([right[0], *parts[0]]), right[len(lists) :], twin)
        made = _of_probe(found, sizes, beside, told, seed)
        if within is None:
            return made
        shares = tuple(within * times for times in (1, 2, 5))
        smallest = smallest_sets(found, names, sizes, shares, settings)
    return replace(made, tables={**made.tables, "smallest": smallest})


def numbers(counts: Sequence[int] | None, total: int) -> tuple[int, ...]:
    """The numbers of neurons of a curve: those given, or some shares of all."""
    chosen = sorted({max(1, round(share * total)) for share in SHARES}) if counts is None else sorted(set(counts))
    wrong = [count for count in chosen if not 1 <= count <= total]
    if wrong or not chosen:
        raise ResultError(f"There are {total} neurons, so a curve cannot have {listing(wrong)}; use 1 to {total}.")
    return tuple(chosen)


Sets = Sequence[Sequence[Sequence[Sequence[str]]]]
"""Names of neurons by end (top, bottom, random), by number, and by draw."""


def _sets(order: Sequence[str], sizes: Sequence[int], draws: int, seed: int) -> Sets:
    if draws < 1:
        raise ResultError(f"draws={draws} leaves nothing to compare with; use 1 or more.")
    dice = np.random.default_rng([seed, 5])
    shuffled: list[list[str]] = [[order[int(at)] for at in dice.permutation(len(order))] for _ in range(draws)]
    top = [[list(order[:size])] for size in sizes]
    bottom = [[list(order[len(order) - size :])] for size in sizes]
    random = [[each[:size] for each in shuffled] for size in sizes]
    return [top, bottom, random]


def _each(
    sets: Sets, of: Callable[[Sequence[str]], Array], advance: Callable[[int], None] | None = None
) -> tuple[Array, Array]:
    """What a function gives for every set: mean over draws, [3, numbers, …], and each random draw, [draws, numbers,
    …]."""
    found: list[list[Array]] = []
    for end in sets:
        found.append([])
        for size in end:
            found[-1].append(np.stack([of(chosen) for chosen in size]))
            if advance is not None:
                advance(len(size))
    return np.array([[size.mean(axis=0) for size in end] for end in found]), np.stack(found[-1], axis=1)


def _draws(sizes: tuple[int, ...], **scores: Array) -> Table:
    """The scores [draws, numbers] of every draw of random neurons."""
    count = len(next(iter(scores.values())))
    return Table({"draw": tuple(range(1, count + 1)), "neurons": sizes}, scores)


def _means(parts: Array, out_of: Array) -> tuple[Array, Interval]:
    """Sums [3, numbers, 2, groups] per goal, [3, numbers, 2], with their interval over document groups."""

    def share(kept: Array) -> Array:
        return parts[..., kept].sum(axis=-1) / out_of[kept].sum()

    return over_kept_groups(share, out_of)


def _beyond(losses: Array, out_of: Array, sizes: tuple[int, ...]) -> Table:
    """What first and last neurons cost more than random ones, in nats per goal, with the interval of the difference.

    `losses` [3, numbers, groups] are sums; both are measured in the same documents.
    """

    def more(kept: Array) -> Array:
        each = losses[..., kept].sum(axis=-1) / out_of[kept].sum()
        return each[:2] - each[2]

    value, interval = over_kept_groups(more, out_of)
    ends = {name: end for name, end in (("low", interval.low), ("high", interval.high)) if end is not None}
    return Table({"measure": tuple(ENDS)[:2], "neurons": sizes}, {"value": value, **ends})


def _known(ranking: Ranking, found: Material, cls: str | None, seed: int) -> list[str]:
    """The order of a ranking whose neurons are those that are read."""
    missing = set(found.rows.names) ^ set(ranking.neurons)
    if missing:
        raise ResultError(
            f"The ranking has {len(ranking.neurons):,} neurons and {len(found.rows.names):,} are read; they differ in "
            f"{listing(sorted(missing), most=3)}: rank the same sites, or choose them with sites=."
        )
    warn_of_same_text(ranking, found)
    warn_of_other_classes(ranking, found.data, cls)
    if not of_arrays(found.store):
        warn_of_other_model(ranking, found.store.models[0].name, found.store.models[0].fingerprint)
    return ranking.order(cls, seed=seed)


def _told(ranking: Ranking, cls: str | None) -> dict[str, Any]:
    origin = ranking.provenance
    return {"method": ranking.method, "ranked for": ranking.concept, "class": cls, "ranked by": origin.function}


def _columns(found: Material, chosen: Sequence[str]) -> Array:
    """Which neurons of the rows are among some, [neurons]."""
    some = set(chosen)
    return np.array([name in some for name in found.rows.names])


@dataclass(frozen=True, eq=False)
class _Right:
    """Hits of probes: with the first, last and random neurons, `parts` [3, numbers, groups, classes], and with each
    draw, `drawn` [draws, numbers, groups, classes]; then [1 + numbers, groups, classes] with all neurons and with the
    first ones, of the probe, of its control task, and of the random twin with as many at random."""

    parts: Array
    drawn: Array
    probe: Array
    control: Array
    twin: Array | None


def _of_probe(found: Material, sizes: tuple[int, ...], right: _Right, told: dict[str, Any], seed: int) -> RankingCurves:
    """Curves of accuracies, and what stands beside them."""
    unit, counts = found.data.unit.removesuffix("s"), tested_counts(found)
    values, interval = accuracies(right.parts, counts, lambda share: share[..., 0], unit=unit)
    interval = in_range(interval, ("accuracy",) * len(ENDS))
    whole, _ = accuracies(right.probe[0], counts)
    guess = majority(found.data.goals, found.split.training, len(found.data.classes))
    sure = np.zeros((len(right.probe), *counts.shape))
    sure[:, :, guess] = counts[:, guess]
    held = [sure, *([] if right.twin is None else [right.twin]), right.control, right.probe]
    control, ends = accuracies(np.stack(held), counts, _controls, unit=unit)
    names = tuple(name for name in CONTROLS if right.twin is not None or name != "random model")
    ends = in_range(ends, names)
    columns = {"value": control[:, 1:]}
    columns |= {name: end[:, 1:] for name, end in (("low", ends.low), ("high", ends.high)) if end is not None}
    return RankingCurves(
        {"measure": tuple(ENDS), "neurons": sizes}, values, np.tile(values[2], (3, 1)), interval.low, interval.high,
        interval.resampled, found.provenance("neurons.evaluation", {**told, "score": "accuracy"}, seed),
        {
            "whole": Table({"measure": ("accuracy", *names)}, {"value": np.r_[whole[:1], control[:, 0]]}),
            "controls": Table({"measure": names, "neurons": sizes}, columns),
            "draws": _draws(sizes, accuracy=right.drawn.sum(axis=(-2, -1)) / counts.sum()),
        },
    )  # fmt: skip


def _controls(accuracy: Array) -> Array:
    """The controls of the accuracies [kinds, numbers, 1 + classes]: the last, of the probe, becomes its selectivity."""
    *beside, control, real = accuracy[..., 0]
    return np.stack([*beside, control, real - control])
