"""Similarity while models learn: checkpoints against the last one, or two runs epoch by epoch, layer by layer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.collect.collector import keys as keys_of
from pellucid.collect.collector import split_key
from pellucid.collect.found import Found
from pellucid.errors import listing
from pellucid.reading import is_random, random_twin
from pellucid.results import Array, Coordinate, Provenance, Result, Table
from pellucid.similarity.caution import SimilarityWarning
from pellucid.similarity.metrics import Metric, chosen, phrases
from pellucid.similarity.pair import LEAST, SimilarityError
from pellucid.similarity.sources import FEW_WORDS, Gathered, MomentPairs, SamplePairs, Source, too_few
from pellucid.uncertainty import Interval, jackknife

if TYPE_CHECKING:
    from pellucid.collect.collector import ModelFacts

THRESHOLD = 0.95
RULE = (
    "A layer could be frozen from the first step from which on its score with the last checkpoint stays at or above "
    "its level, base + {threshold:g} × (score at the last step − base). The base is what a randomly initialised model "
    "scores, for that is how alike a layer is that has learned nothing; without such a model, what the first step "
    "scores. Each layer is judged by itself: earlier layers need not have settled before."
)


@dataclass(frozen=True, eq=False)
class Convergence(Result):
    """Scores of every layer of every checkpoint with the same layer of the last one, [measure, layer, step].

    The table `chance` holds the null's `sd` and `z`; `random model` the `value` of a randomly initialised model with
    the last checkpoint, where one was swept; `freezing` and `rule` what `freezable()` gives, and in words.
    """

    kind: ClassVar[str] = "similarity.convergence"
    title: ClassVar[str] = "How soon each layer is as it will be"
    chance: ClassVar[str] = "words dealt out at random: a scale, not a test, for the words of a text hang together"

    @property
    def measures(self) -> Mapping[str, str]:
        return phrases(self.axes["measure"])

    def freezable(self, threshold: float = THRESHOLD) -> Table:
        """From which step on each layer could be frozen: `base`, `level`, `step`, and the share of steps `spared`.

        It is the first step from which on the score with the last checkpoint stays at or above the layer's level =
        base + threshold·(score at the last step − base). The base is a randomly initialised model's score, since text
        alone makes untrained layers alike (else that of the first step: then a layer that hardly moves is judged by
        noise). A share of the way, not one score for all, because layers start at very different scores. Each layer is
        judged by itself; earlier ones need not have settled. The last step always passes, and spares nothing.
        """
        if not 0 < threshold <= 1:
            raise SimilarityError(f"threshold={threshold} is no share of the way; give more than 0 and at most 1.")
        random = self.tables.get("random model")
        base = self.values[..., 0] if random is None else random.columns["value"]
        return _freezing(self.axes, self.values, base, threshold)


@dataclass(frozen=True, eq=False)
class EpochByEpoch(Result):
    """Scores of every layer of one run with the same layer of another at the same step, [measure, layer, step].

    The table `chance` holds the null's `sd` and `z`.
    """

    kind: ClassVar[str] = "similarity.epoch_by_epoch"
    title: ClassVar[str] = "How alike two runs are at the same step"
    chance: ClassVar[str] = Convergence.chance

    @property
    def measures(self) -> Mapping[str, str]:
        return phrases(self.axes["measure"])


def convergence(
    found: Found | Iterable[Found],
    scores: str | Iterable[str] = "cka",
    *,
    sites: str | None = None,
    steps: Sequence[Coordinate] | None = None,
    interval: bool | None = None,
    random: Found | None = None,
) -> Convergence:
    """Scores of every layer of each checkpoint with the same layer of the last one, with chance and interval.

    `found` is one sweep over [checkpoint 1, …, checkpoint k], or sweeps over [checkpoint i, checkpoint k] for i below
    k, which may come one by one. The products of each layer with the last checkpoint's are read: `Moments(sites,
    pairs=(("0:resid.0", "k:resid.0"), …))`. A randomly initialised model in the one sweep, or `random`, a sweep over
    [random model, checkpoint k], becomes the table `random model`. `steps` names the checkpoints (1 to k). The interval
    comes along as in `grid`: scores of the CKA family, or when asked for.
    """
    wanted = chosen(scores)
    beside = None if random is None else _scored(random, wanted, (0, 1), sites, interval)
    made: list[_Scored] = []
    last: _Scored | None = None
    for each, left, right in _against_last(found):
        scored = _scored(each, wanted, (left, right), sites, interval)
        if isinstance(found, Found) and is_random(each.models, left):
            beside = scored
            continue
        made.append(scored)
        if last is None and not isinstance(found, Found):
            last = _scored(each, wanted, (right, right), sites, interval)
    made += [last] if last is not None else []
    whole = _together(made, steps)
    _warn_of_few(wanted, made[0])
    if any(step.models[1]["fingerprint"] != made[-1].models[1]["fingerprint"] for step in made):
        raise SimilarityError("The sweeps end in different models; sweep each checkpoint beside the same last one.")
    if beside is not None:
        _check_random(beside, made[-1])
        axes = {name: whole["axes"][name] for name in ("measure", "layer")}
        whole["tables"]["random model"] = Table(axes, {"value": beside.values})
    result = Convergence(**whole, provenance=_provenance("similarity.convergence", made, beside))
    tables = {"freezing": result.freezable(), "rule": Table.of_rows({"rule": [RULE.format(threshold=THRESHOLD)]})}
    return replace(result, tables={**result.tables, **tables})


def _check_random(beside: _Scored, last: _Scored) -> None:
    """Refuses a random model that was compared with something else than the checkpoints were."""
    if beside.models[1]["fingerprint"] != last.models[1]["fingerprint"] or beside.layers != last.layers:
        raise SimilarityError(
            f"The random model was compared with {listing(beside.layers)} of {beside.models[1]['name']!r}; sweep it "
            f"with {listing(last.layers)} beside the last checkpoint."
        )


def epoch_by_epoch(
    found: Found | Iterable[Found],
    scores: str | Iterable[str] = "cka",
    *,
    sites: str | None = None,
    steps: Sequence[Coordinate] | None = None,
    interval: bool | None = None,
) -> EpochByEpoch:
    """Scores of every layer of one run with the same layer of another, checkpoint by checkpoint.

    `found` is one sweep over [first run's checkpoints 1 … k, second run's 1 … k], or k sweeps over [first run's i,
    second run's i], which may come one by one. Everything else is as in `convergence`.
    """
    wanted = chosen(scores)
    made = [_scored(each, wanted, pair, sites, interval) for each, *pair in _side_by_side(found)]
    whole = _together(made, steps)
    _warn_of_few(wanted, made[0])
    return EpochByEpoch(**whole, provenance=_provenance("similarity.epoch_by_epoch", made, None))


def _against_last(found: Found | Iterable[Found]) -> Iterable[tuple[Found, int, int]]:
    """Sweeps with the numbers of a checkpoint and of the last one in them, step by step."""
    if isinstance(found, Found):
        trained = _trained(found, "convergence needs")
        twin = random_twin(found.models, trained[-1])
        return [(found, number, trained[-1]) for number in [*trained, *([] if twin is None else [twin])]]
    return ((each, 0, 1) for each in _of_two(found))


def _side_by_side(found: Found | Iterable[Found]) -> Iterable[tuple[Found, int, int]]:
    """Sweeps with the numbers of both runs' checkpoints in them, step by step."""
    if not isinstance(found, Found):
        return ((each, 0, 1) for each in _of_two(found))
    trained = _trained(found, "two runs need")
    if len(trained) % 2:
        raise SimilarityError(
            f"Two runs have the same number of checkpoints, and this sweep has {len(trained)} models; give those of "
            "the first run, then as many of the second."
        )
    half = len(trained) // 2
    return [(found, one, other) for one, other in zip(trained[:half], trained[half:], strict=True)]


def _trained(found: Found, who: str) -> list[int]:
    trained = [number for number in range(len(found.models)) if not is_random(found.models, number)]
    if len(trained) < 2:
        raise SimilarityError(f"The sweep has {len(trained)} trained model, and {who} at least 2; sweep over several.")
    return trained


def _of_two(founds: Iterable[Found]) -> Iterable[Found]:
    for found in founds:
        if len(found.models) != 2:
            raise SimilarityError(
                f"One of several sweeps has {len(found.models)} models, and each needs 2: a checkpoint, and what it is "
                "compared with."
            )
        yield found


@dataclass(frozen=True, eq=False)
class _Scored:
    """One step: values, null, sd and both ends of the interval, each [measure, layer], and where they come from."""

    names: tuple[str, ...]
    layers: tuple[str, ...]
    values: Array
    null: Array
    sd: Array
    ends: Interval
    models: tuple[Mapping[str, str], Mapping[str, str]]
    origin: Provenance
    words: int
    widths: tuple[int, ...]
    """Features of the widest layer for each measure; 0 where it reads no moments."""


def _scored(
    found: Found, wanted: Sequence[Metric], numbers: Sequence[int], sites: str | None, interval: bool | None
) -> _Scored:
    """The scores of every layer that two models of a sweep have."""
    gathered = Gathered(found)
    layers = _layers(gathered, wanted, numbers, sites)
    pairs = [tuple(f"{number}:{layer}" for number in numbers) for layer in layers]
    values, null, sd = (np.zeros((len(wanted), len(pairs))) for _ in range(3))
    asked = all(metric.cheap for metric in wanted) if interval is None else interval
    ends: list[Interval] = []
    widths: list[int] = []
    for place, metric in enumerate(wanted):
        source = _source(gathered, metric, pairs)
        if source.n < LEAST:
            raise SimilarityError(
                f"There are {source.n} words to compare, and a similarity needs at least {LEAST}; use more text."
            )
        values[place] = _values(metric, source, pairs)
        for at, pair in enumerate(pairs):
            chance = metric.null(source.pair(*pair))
            null[place, at], sd[place, at] = chance.mean, chance.sd
        sides = [source.side(key) for pair in pairs for key in pair] if isinstance(source, MomentPairs) else []
        widths.append(max((side.width for side in sides), default=0))
        ends.append(_ends(gathered, metric, source, pairs, values[place]) if asked else _NOT_ASKED)
    one, other = ({"name": m.name, "fingerprint": m.fingerprint} for m in (found.models[n] for n in numbers))
    names = tuple(metric.name for metric in wanted)
    origin = found.provenance("", {"scores": list(names), "sites": list(layers)})
    return _Scored(names, layers, values, null, sd, _stacked(ends), (one, other), origin, found.words, tuple(widths))


def _warn_of_few(wanted: Sequence[Metric], step: _Scored) -> None:
    """Warns where so few words are compared in so many features that chance alone gives a high score."""
    for place, (metric, width) in enumerate(zip(wanted, step.widths, strict=True)):
        if not metric.cheap and step.words < 2 * width:
            warnings.warn(
                f"{step.words:,} words for {width:,} features: chance alone gives a {metric.name} of about "
                f"{step.null[place].mean():.2f}; use more text (5 to 10 words per feature), or read scores against it.",
                SimilarityWarning,
                stacklevel=3,
            )


_NOT_ASKED = Interval(None, None, "no interval: these scores have one on request (interval=True)")


def _layers(gathered: Gathered, wanted: Sequence[Metric], numbers: Sequence[int], sites: str | None) -> tuple[str, ...]:
    """The sites of both models that were gathered, in order; a model that lacks one of the other's is refused."""
    models = gathered.found.models
    asked = None if sites is None else {split_key(key)[1] for key in keys_of(models, sites)}
    there = [split_key(key) for key in gathered.keys(wanted)]
    both = [[name for number, name in there if number == n and (asked is None or name in asked)] for n in numbers]
    lacking = [
        (n, name)
        for n, mine, other in zip(numbers, both, both[::-1], strict=True)
        for name in other
        if name not in mine
    ]
    if lacking:
        number, name = lacking[0]
        raise SimilarityError(
            f"The sweep has nothing of {name!r} of {_named(models[number])}, whose partner has it; sweep both, or "
            "choose sites= that both have."
        )
    if not both[0]:
        had = dict.fromkeys(name for _, name in there)
        raise SimilarityError(f"None of the sites asked for was gathered; there are {listing(had, most=40)}.")
    return tuple(both[0])


def _named(model: ModelFacts) -> str:
    return f"{model.name!r} ({model.fingerprint[:8]})"


def _source(gathered: Gathered, metric: Metric, pairs: Sequence[tuple[str, ...]]) -> Source:
    """What a score reads of all these pairs."""
    if metric.needs == "sample":
        left, right = (tuple(pair[side] for pair in pairs) for side in (0, 1))
        return gathered.sample_pairs((left, right))
    for collector, view in gathered.moments:
        if all(view.has(*pair) for pair in pairs):
            return MomentPairs(view, collector.precision)
    for one, other in pairs:
        gathered.moment_pairs(((one,), (other,)))  # raises for the first pair that was not gathered
    raise SimilarityError("No Moments of the sweep has all these layers; gather them in one.")


def _values(metric: Metric, source: Source, pairs: Sequence[tuple[str, ...]]) -> Array:
    return np.array([metric.score(source.pair(*pair)) for pair in pairs])


def _ends(
    gathered: Gathered, metric: Metric, source: Source, pairs: Sequence[tuple[str, ...]], values: Array
) -> Interval:
    """The interval of one score at all layers: each document group left out in turn."""
    if isinstance(source, MomentPairs):
        groups = source.view.groups
        if not groups:
            return Interval(None, None, "no interval: sweep with Moments(…, groups=True)")
        groups = groups if len(groups) > 1 else ()
        sizes = [source.view.group(group).n for group in groups]
        if too_few(source.n, sizes):
            return FEW_WORDS
        without = [
            _values(metric, MomentPairs(source.view.without(group), source.precision), pairs) for group in groups
        ]
        return jackknife(values, without, sizes)
    left, right = (tuple(pair[side] for pair in pairs) for side in (0, 1))
    view = gathered.sample_view((left, right))
    assert view is not None, "the sample was read before"
    groups = np.unique(view.group).tolist() if len(np.unique(view.group)) > 1 else []
    sizes = [int((view.group == group).sum()) for group in groups]
    if too_few(view.n, sizes):
        return FEW_WORDS
    without = [
        _values(metric, SamplePairs(view, (*left, *right), np.flatnonzero(view.group != group)), pairs)
        for group in groups
    ]
    return jackknife(values, without, sizes)


def _stacked(ends: Sequence[Interval]) -> Interval:
    """Intervals of several measures or steps as one, the new axis first; where one is missing, none."""
    for each in ends:
        if each.low is None or each.high is None:
            return each
    low, high = (np.stack([getattr(each, end) for each in ends]) for end in ("low", "high"))
    return Interval(low, high, "; ".join(dict.fromkeys(each.resampled for each in ends)))


def _together(made: Sequence[_Scored], steps: Sequence[Coordinate] | None) -> dict[str, Any]:
    """The fields that steps put together give a result."""
    if not made:
        raise SimilarityError("There is nothing to follow: no checkpoint was given beside the last one.")
    coordinates = tuple(range(1, len(made) + 1)) if steps is None else tuple(steps)
    if len(coordinates) != len(made) or len(set(coordinates)) != len(made):
        raise SimilarityError(
            f"steps= names {len(set(coordinates))} different steps, and there are {len(made)} checkpoints; give each "
            "its own."
        )
    other = next((step for step in made if step.layers != made[0].layers), None)
    if other is not None:
        raise SimilarityError(
            f"{other.models[0]['name']!r} has the layers {listing(other.layers)}, and the first checkpoint "
            f"{listing(made[0].layers)}; choose sites= that all have."
        )
    axes: dict[str, tuple[Coordinate, ...]] = {
        "measure": made[0].names,
        "layer": made[0].layers,
        "step": coordinates,
    }
    values, null, sd = (np.stack([getattr(step, name) for step in made], axis=2) for name in ("values", "null", "sd"))
    ends = _stacked([step.ends for step in made])
    z = np.divide(values - null, sd, out=np.zeros_like(values), where=sd > 0)
    return {
        "axes": axes,
        "values": values,
        "null": null,
        "low": None if ends.low is None else np.moveaxis(ends.low, 0, 2),
        "high": None if ends.high is None else np.moveaxis(ends.high, 0, 2),
        "resampled": ends.resampled,
        "tables": {"chance": Table(axes, {"sd": sd, "z": z})},
    }


def _provenance(function: str, made: Sequence[_Scored], random: _Scored | None) -> Provenance:
    """Where the numbers come from: every model once, the corpus, and the first sweep's settings."""
    everything = [*made, *([] if random is None else [random])]
    models = {model["fingerprint"]: dict(model) for step in everything for model in step.models}
    if len({step.origin.corpus["fingerprint"] for step in everything}) > 1:
        raise SimilarityError("The sweeps read different corpora, so their scores do not belong together; use one.")
    return replace(made[0].origin, function=function, models=tuple(models.values()))


def _freezing(axes: Mapping[str, tuple[Coordinate, ...]], values: Array, base: Array, threshold: float) -> Table:
    """The table of `freezable`; a hair of rounding is let pass, so that a layer that never moved passes everywhere."""
    level = base + threshold * (values[..., -1] - base)
    below = values < level[..., None] - 1e-9
    first = np.where(below.any(-1), below.shape[-1] - np.argmax(below[..., ::-1], axis=-1), 0)  # after the last below
    first = np.minimum(first, values.shape[-1] - 1)
    steps = np.asarray(axes["step"])
    spared = 1 - first / max(1, values.shape[-1] - 1)
    columns = {"base": base, "level": level, "step": steps[first], "spared": spared}
    return Table({name: axes[name] for name in ("measure", "layer")}, columns)
