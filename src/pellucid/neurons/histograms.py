"""Class histograms for rankings: read from a sweep, put together into classes, each document group left out in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.collect.side_by_side import side_by_side
from pellucid.neurons.caution import warn_of_sentence_labels
from pellucid.neurons.concepts import Concept, scored
from pellucid.neurons.ranking import Ranking, neuron_names
from pellucid.neurons.scores import Again, Scores, class_table, ranking_of
from pellucid.neurons.sources import Sites, site_of, twin_keys, view_of
from pellucid.results import Array, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pellucid.collect.class_histograms import ClassHistogramsView
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found


@dataclass(frozen=True, eq=False)
class Binned:
    """Histograms of the neurons of one site: `hist` [class, neuron, bin] and the `edges` between bins [neuron, bin−1].

    `classes` are those of `hist`, `other` included; `moves` [neuron] is False for constant neurons.
    """

    classes: tuple[str, ...]
    hist: Array
    edges: Array
    moves: Array

    @property
    def counts(self) -> Array:
        """Words of every class, [class]."""
        return self.hist[:, 0].sum(1)

    @cached_property
    def total(self) -> Array:
        """Words of all classes, [neuron, bin]."""
        return self.hist.sum(0)

    @property
    def places(self) -> list[int]:
        """Where the classes stand that get scores."""
        return [self.classes.index(name) for name in scored(dict.fromkeys(self.classes))]


ENDS = ("both", "upper")
"""At which ends of a neuron's values a class is looked for."""
GROUP_BINS = 64
"""Bins of the histograms of single document groups, where there are many classes."""
Statistic = Callable[[Binned, Array | None], Scores]
"""Scores of a site's neurons, at the ends whose signs [class, neuron] are given or else at the better ones."""
Doubt = Callable[[Binned, Scores], Array]
"""How far each of a site's scores may be off because only bins are known, [class, neuron]."""
Chance = Callable[[Binned, int], tuple[Array, Array]]
"""What a site's scores [class, neuron] and overall scores [neuron] are by chance, drawn with a seed."""


def histogram_collectors(sites: tuple[str, ...], label: str) -> Sequence[Collector]:
    """What rankings from class histograms need.

    Document groups are kept apart, for intervals: with all bins where a label's name tells that it has two classes
    (`upos=NOUN`), and with fewer for many classes, which would take too much room.
    """
    from pellucid.collect.by_value import usual_values
    from pellucid.collect.class_histograms import ClassHistograms

    few = usual_values(label) <= 2
    return [ClassHistograms(sites, label=label, groups=True, group_bins=None if few else GROUP_BINS)]


def ranking_from_histograms(
    found: Found,
    concept: Concept,
    statistic: Statistic,
    doubt: Doubt,
    chance: Chance,
    *,
    method: str,
    sites: Sites,
    arguments: Mapping[str, Any],
    seed: int,
) -> Ranking:
    """The ranking of a statistic of class histograms, with what the bins hide as the table `error`.

    The interval is of the score at the end that counts for the whole text.
    """
    from pellucid.collect.class_histograms import ClassHistograms

    view, keys = view_of(found, ClassHistograms, concept, sites)
    warn_of_sentence_labels(found.about, concept, stacklevel=3)
    grouping = concept.grouped(view.label, view.values)
    neurons = tuple(name for key in keys for name in neuron_names(site_of(key), len(view.edges(key))))
    nulls: list[tuple[Array, Array]] = []
    errors: list[Array] = []

    def beside_scores(data: Binned, scores: Scores) -> None:
        nulls.append(chance(data, seed))
        errors.append(doubt(data, scores))

    scores = _all(view, keys, grouping, statistic, beside_scores)
    null, overall_null = (np.concatenate([each[at] for each in nulls], axis=-1) for at in (0, 1))
    again = _without_each(view, keys, grouping, statistic, scores) if len(view.groups) > 1 else []
    classes = scored(grouping)
    beside = twin_keys(found, view, keys)
    counts = np.array([view.counts[list(places)].sum() for places in grouping.values()])
    return ranking_of(
        replace(scores, null=null, overall_null=overall_null),
        again,
        classes=classes,
        neurons=neurons,
        provenance=found.provenance(
            "neurons.ranking",
            {"method": method, "concept": concept.name, "rule": concept.rule, **dict(arguments)},
            seed=seed,
        ),
        random_model=_all(view, beside, grouping, statistic).signed if beside else None,
        shares=True,
        tables={
            "classes": class_table(tuple(grouping), counts),
            "error": Table({"class": classes, "neuron": neurons}, {"value": np.concatenate(errors, axis=1)}),
        },
    )


def _all(
    view: ClassHistogramsView,
    keys: Sequence[str],
    grouping: Mapping[str, Sequence[int]],
    statistic: Statistic,
    see: Callable[[Binned, Scores], None] = lambda data, scores: None,
) -> Scores:
    """The scores of all sites side by side, each at its better end; `see` is shown histograms and scores of each."""
    made: list[Scores] = []
    for key in keys:
        data = binned(view, key, grouping)
        made.append(statistic(data, None))
        see(data, made[-1])
    return joined(made)


def _without_each(
    view: ClassHistogramsView,
    keys: Sequence[str],
    grouping: Mapping[str, Sequence[int]],
    statistic: Statistic,
    whole: Scores,
) -> list[Again]:
    """The scores without each document group in turn, at the ends that count for all text, site by site.

    Where groups have fewer bins, what leaving one out changes on these is added to `whole`.
    """
    groups = {number: view.group(number) for number in view.groups}
    places = [place for own in grouping.values() for place in own]
    sizes = {number: float(group.counts[places].sum()) for number, group in groups.items()}
    kept = [number for number, size in sizes.items() if size]
    without: dict[int, dict[str, Scores]] = {number: {} for number in kept}
    ends = np.cumsum([len(view.edges(key)) for key in keys]).tolist()

    def leave_out(part: tuple[str, int]) -> None:
        key, end = part
        apart = {number: binned(groups[number], key, grouping) for number in kept}
        first = apart[kept[0]]
        total = sum((each.hist for each in apart.values()), np.zeros_like(first.hist))
        place = slice(end - total.shape[1], end)
        own = Scores(whole.signed[:, place], whole.overall[place])
        every = statistic(replace(first, hist=total), own.signed)
        same = np.array_equal(every.signed, own.signed)
        for number, each in apart.items():
            rest = statistic(replace(first, hist=total - each.hist), own.signed)
            without[number][key] = rest if same else _moved(own, rest, every)

    side_by_side(leave_out, list(zip(keys, ends, strict=True)))
    return [Again(joined([parts[key] for key in keys]), sizes[number]) for number, parts in without.items()]


def _moved(own: Scores, rest: Scores, every: Scores) -> Scores:
    """Scores moved by what `rest` has more than `every`."""
    return Scores(own.signed + rest.signed - every.signed, own.overall + rest.overall - every.overall)


def binned(view: ClassHistogramsView, key: str, grouping: Mapping[str, Sequence[int]]) -> Binned:
    """The histograms of one site, their values put together into classes."""
    whole = view.histograms(key)
    own = [whole[places[0]] if len(places) == 1 else whole[list(places)].sum(0, dtype=np.int64)
           for places in grouping.values()]  # fmt: skip
    return Binned(tuple(grouping), np.stack(own), view.edges(key), view.state.arrays["moves"][view.place(key)])


def joined(parts: Sequence[Scores]) -> Scores:
    """The scores of several sites side by side."""

    def side(name: str) -> Array | None:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays, axis=-1)

    signed, overall = side("signed"), side("overall")
    assert signed is not None
    assert overall is not None
    return Scores(signed, overall, side("null"), side("overall_null"))


def best_side(upper: Array, lower: Array | None, side: Array | None = None) -> Scores:
    """Scores [class, neuron] at the better end of a neuron's values: positive at the upper one, negative at the lower.

    With `side` [class, neuron], at the end that its sign names. Overall is the best class's.
    """
    signed = upper if lower is None else np.where(upper >= lower if side is None else side >= 0, upper, -lower)
    return Scores(signed, np.abs(signed).max(axis=0))
