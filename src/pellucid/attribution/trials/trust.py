"""Trust: whether attributions say what a model really uses, tried on many texts, every measure beside chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.attribution.baselines import AUTOMATIC, automatic, embedded
from pellucid.attribution.computing import Settings
from pellucid.attribution.methods import METHODS, chosen
from pellucid.attribution.precision import precision
from pellucid.attribution.targets import Target, asked
from pellucid.attribution.trials.randomised import ALL, randomised, stages
from pellucid.attribution.trials.tally import Tally
from pellucid.attribution.trials.texts import Texts, tokenized, usable
from pellucid.attribution.trials.trial import (
    GRID,
    Explain,
    Plan,
    Trial,
    asked_of,
    compare,
    explained,
    measure,
    prepared,
)
from pellucid.collect.progress import Progress
from pellucid.errors import AttributionError, PellucidError, listing
from pellucid.results import Array, Provenance, Result, Table

if TYPE_CHECKING:
    from pellucid.attribution.baselines import Given
    from pellucid.attribution.methods import Method
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.uncertainty import Interval

MEASURES: Mapping[str, str] = {
    "completeness": "how far the attributions' sum misses the target's change from the baseline, as a share of it "
    "(lower is better, 0 is exact)",
    "infidelity": "mean square of what removing random sets of tokens does to the target less what the attributions "
    "of those tokens add up to, in the target's unit squared (lower is better)",
    "unexplained": "share of what removing random sets of tokens does to the target that the attributions of those "
    "tokens leave unexplained, at their best scale (0 to 1, lower is better)",
    "sensitivity": "largest relative change of the attributions when the input moves a little (lower is better)",
    "insertion": "mean score while tokens are put into the empty text, the highest attribution first, as a share of "
    "the whole text's change (higher is better)",
    "deletion": "mean score while tokens are removed from the text, the highest attribution first, as a share of the "
    "whole text's change (lower is better)",
    "randomisation": "rank correlation of the attributions' sizes with those in the same network with random weights "
    "(near 0 is better; near 1, the method does not look at what was learned)",
}
BOUNDS: Mapping[str, tuple[float, float]] = {
    "completeness": (0.0, np.inf),
    "infidelity": (0.0, np.inf),
    "unexplained": (0.0, 1.0),
    "sensitivity": (0.0, np.inf),
    "randomisation": (-1.0, 1.0),
}
"""Where a measure cannot leave a range, nor can its interval."""
LIMIT = 1 << 30
"""Bytes that passes may take where no limit is given."""


@dataclass(frozen=True, eq=False)
class Trust(Result):
    """How far each method can be believed, [measure, method]; chance deals out its numbers at random.

    Tables: `chance` (the range of 95% of the random draws), `curves` and `random curves` (scores by the share of tokens
    inserted or deleted), `cascade` (rank correlation while weights become random from the top), `methods`, `texts`,
    `skipped`.
    """

    kind: ClassVar[str] = "attribution.trust"
    title: ClassVar[str] = "Whether to believe the attributions"
    phrases: ClassVar[Mapping[str, str]] = MEASURES
    chance: ClassVar[str] = "a method's own numbers dealt out to the tokens at random (completeness: random signs)"

    @property
    def measures(self) -> Mapping[str, str]:
        """One phrase for each measure, with the direction that is better."""
        return {str(name): MEASURES[str(name)] for name in self.axes["measure"]}


def trust(
    model: Model,
    corpus: Corpus | Sequence[str],
    methods: str | Sequence[str] | None = None,
    targets: str | Target | Sequence[str | Target] | None = None,
    *,
    measures: Sequence[str] | None = None,
    sentences: int | None = 50,
    own: Mapping[str, Explain] | None = None,
    baseline: Given = AUTOMATIC,
    special: bool = False,
    steps: int | None = 25,
    samples: int = 10,
    noise: float = 0.1,
    points: int = 10,
    draws: int = 20,
    perturbations: int = 4,
    radius: float = 0.02,
    cascade: int = 3,
    seed: int = 0,
    memory_limit: int | None = None,
    progress: bool | None = False,
) -> Trust:
    """Tries attribution methods on the first `sentences` of a corpus; every number stands beside chance.

    `methods` are names, or `all` that work with this model (default: the quick ones of these); `own` adds functions of
    `Asked` that give attributions [targets, texts, tokens]. Removed tokens stand at the `baseline`, special ones only
    where `special`. Curves have `points` steps; chance comes from `draws` random attributions or orders; the input is
    moved `perturbations` times by at most `radius` standard deviations of its embeddings; weights become random in
    `cascade` steps from the top. `steps`, `samples` and `noise` are those of `attribute`.
    """
    from pellucid.corpus import Corpus

    read = corpus if isinstance(corpus, Corpus) else Corpus.of(corpus)
    _check(points=points, draws=draws, perturbations=perturbations, cascade=cascade, sentences=sentences)
    wanted, several = asked(model, targets), methods is None or methods == "all"
    limit = LIMIT if memory_limit is None else memory_limit
    known = _known(methods)
    texts = usable(model, read, sentences, special=special)
    baseline = _settled(model, texts, baseline)
    settings = Settings(baseline, "gauss", steps, samples=samples, noise=noise, seed=seed, memory_limit=limit)
    plan = Plan(known, own or {}, _measures(measures), settings, special, points, draws, perturbations, radius)
    if not plan.names:
        raise AttributionError(f"No method was given; the methods are {listing(METHODS, most=30)}.")
    tally = Tally(len(texts.sentences) * len(wanted))
    rounds = _rounds(plan, model, cascade)
    with Progress(progress) as bar:
        bar.begin("trying attributions", sum(texts.tokens) * rounds)
        plan, trials, left_out = _tried(model, texts, wanted, plan, tally, bar, seed=seed, forgiving=several)
        names = _cascaded(model, texts, trials, plan, tally, bar, cascade=cascade, seed=seed)
    told: dict[str, Any] = {
        "baseline": _told(baseline),
        "special": special,
        "steps": steps,
        "samples": samples,
        "noise": noise,
    }
    told |= {"points": points, "draws": draws, "perturbations": perturbations, "radius": radius, "cascade": cascade}
    arguments: dict[str, Any] = {"methods": list(plan.names), "targets": [_named(target) for target in wanted], **told}
    if left_out:
        arguments["left out"] = left_out
    return _gathered(texts, trials, plan, tally, names, _provenance(model, read, texts, arguments, seed))


def _provenance(model: Model, read: Corpus, texts: Texts, arguments: Mapping[str, Any], seed: int) -> Provenance:
    corpus = {"name": read.name, "fingerprint": read.fingerprint}
    corpus |= {"sentences": len(texts.sentences), "tokens": sum(texts.tokens)}
    model_told = {"name": model.name, "fingerprint": model.fingerprint}
    return Provenance("attribution.trust", {**arguments, "precision": precision(model)}, (model_told,), corpus, seed)


def _known(methods: str | Sequence[str] | None) -> tuple[Method, ...]:
    """Methods by name; all of them, or the quick ones, which draw nothing at random and need no rules per layer."""
    if methods is None or methods == "all":
        quick = [each for each in METHODS.values() if not each.random and each.passes != "lrp"]
        return tuple(METHODS.values() if methods == "all" else quick)
    return chosen(methods) if methods else ()


def _check(**numbers: int | None) -> None:
    fewest = {"points": 2, "draws": 2}
    for name, value in numbers.items():
        if value is not None and value < fewest.get(name, 1):
            raise AttributionError(f"{name}={value} is too few; use at least {fewest.get(name, 1)}.")


def _measures(names: Sequence[str] | None) -> tuple[str, ...]:
    for name in names or ():
        if name not in MEASURES:
            raise AttributionError(f"There is no measure of trust {name!r}; the measures are {listing(MEASURES)}.")
    return tuple(name for name in MEASURES if names is None or name in names)


def _rounds(plan: Plan, model: Model, cascade: int) -> int:
    """How many times every text is explained."""
    steady = plan.perturbations if "sensitivity" in plan.measures else 0
    random = len(stages(model, cascade)) if "randomisation" in plan.measures else 0
    return 1 + steady + random


# -- the two passes over the texts -----------------------------------------------------------------------------------


def _tried(
    model: Model,
    texts: Texts,
    targets: Sequence[Target],
    plan: Plan,
    tally: Tally,
    bar: Progress,
    *,
    seed: int,
    forgiving: bool,
) -> tuple[Plan, list[Trial], dict[str, str]]:
    """Everything that the trained model says; where `forgiving`, methods that do not fit the model are left out."""
    trials: list[Trial] = []
    left_out: dict[str, str] = {}
    for numbers in texts.batches():
        batch = tokenized(model, [texts.sentences[number] for number in numbers])
        plain = model.run(batch) if any(target.predicted for target in targets) else None
        resolved = tuple(target.resolve(model, batch, plain) for target in targets)
        if forgiving and not trials:
            left_out = _unfit(asked_of(model, batch, resolved, plan), plan)
            plan = replace(plan, methods=tuple(each for each in plan.methods if each.name not in left_out))
        trial = prepared(model, batch, numbers, resolved, plan)
        trials.append(trial)
        measure(trial, plan, tally, seed)
        rounds = 1 + (plan.perturbations if "sensitivity" in plan.measures else 0)
        bar.advance(rounds * sum(texts.tokens[number] for number in numbers))
    if "insertion" in tally.weights and not tally.weights["insertion"].any():
        raise AttributionError(
            "The target is the same with and without the text, so there is nothing to explain; name another target."
        )
    return plan, trials, left_out


def _unfit(question: Any, plan: Plan) -> dict[str, str]:
    """The methods that do not work with a model, and what they say."""
    try:
        explained(question, plan)
    except PellucidError:
        found: dict[str, str] = {}
        for method in plan.methods:
            try:
                explained(question, replace(plan, methods=(method,), own={}))
            except PellucidError as error:
                found[method.name] = str(error)
        if len(found) == len(plan.methods):
            raise
        return found
    return {}


def _cascaded(
    model: Model,
    texts: Texts,
    trials: Sequence[Trial],
    plan: Plan,
    tally: Tally,
    bar: Progress,
    *,
    cascade: int,
    seed: int,
) -> list[str]:
    """The names of the stages at which weights became random, the top first; their correlations go to the tally."""
    if "randomisation" not in plan.measures:
        return []
    for name, twin in randomised(model, cascade, seed):
        for trial in trials:
            other = explained(asked_of(twin, trial.batch, trial.targets, plan), plan)
            compare(trial, other, plan, tally, f"random: {name}", seed)
            bar.advance(sum(texts.tokens[number] for number in trial.numbers))
    return [name for name, _ in stages(model, cascade)]


# -- the result ------------------------------------------------------------------------------------------------------


def _gathered(
    texts: Texts, trials: Sequence[Trial], plan: Plan, tally: Tally, names: Sequence[str], provenance: Provenance
) -> Trust:
    count = len(trials[0].targets)
    documents = [document for document in texts.documents for _ in range(count)]
    keys = [f"random: {ALL}" if name == "randomisation" else name for name in plan.measures]
    intervals = [tally.interval(key, documents) for key in keys]
    middle, low, high = (np.stack(part) for part in zip(*(tally.chance(key) for key in keys), strict=True))
    axes = {"measure": plan.measures, "method": plan.names}
    tables = {"chance": Table(axes, {"low": low, "high": high})}
    if names:
        tables["cascade"] = _stages(tally, names, plan, documents)
    curves = [name for name in ("insertion", "deletion") if name in plan.measures]
    if curves:
        tables |= _curves(tally, curves, plan, documents)
    tables["methods"] = _methods(plan)
    tables["texts"] = _texts(texts, trials)
    tables["skipped"] = Table.of_rows({"why": list(texts.skipped), "sentences": list(texts.skipped.values())})
    found = [
        _clipped(one, *BOUNDS.get(name, (-np.inf, np.inf))) for name, one in zip(plan.measures, intervals, strict=True)
    ]
    ends = [each for each in found if each is not None]
    return Trust(
        axes=axes,
        values=np.stack([tally.mean(key) for key in keys]),
        null=middle,
        low=np.stack([low for low, _ in ends]) if ends else None,
        high=np.stack([high for _, high in ends]) if ends else None,
        resampled=intervals[0].resampled,
        provenance=provenance,
        tables=tables,
    )


def _clipped(interval: Interval, least: float, most: float) -> tuple[Array, Array] | None:
    """The ends of an interval, where there is one, within what is possible."""
    if interval.low is None or interval.high is None:
        return None
    return np.maximum(interval.low, least), np.minimum(interval.high, most)


def _stages(tally: Tally, names: Sequence[str], plan: Plan, documents: Sequence[str]) -> Table:
    values = np.stack([tally.mean(f"random: {name}") for name in names])
    ends = [tally.interval(f"random: {name}", documents) for name in names]
    return Table({"stage": tuple(names), "method": plan.names}, _with_ends("correlation", values, ends, -1.0, 1.0))


def _curves(tally: Tally, curves: Sequence[str], plan: Plan, documents: Sequence[str]) -> dict[str, Table]:
    values = np.stack([tally.mean(f"{name} curve") for name in curves])
    ends = [tally.interval(f"{name} curve", documents) for name in curves]
    shares = tuple(round(float(share), 2) for share in GRID)
    middle, low, high = (
        np.stack(part) for part in zip(*(tally.chance(f"{name} curve") for name in curves), strict=True)
    )
    axes = {"curve": tuple(curves), "method": plan.names, "share": shares}
    return {
        "curves": Table(axes, _with_ends("score", values, ends)),
        "random curves": Table({"curve": tuple(curves), "share": shares}, {"score": middle, "low": low, "high": high}),
    }


def _with_ends(
    name: str, values: Array, intervals: Sequence[Interval], least: float = -np.inf, most: float = np.inf
) -> dict[str, Array]:
    """A column with the ends of its interval, where it has one."""
    ends = [found for one in intervals if (found := _clipped(one, least, most)) is not None]
    if not ends:
        return {name: values}
    return {name: values, "low": np.stack([low for low, _ in ends]), "high": np.stack([high for _, high in ends])}


def _methods(plan: Plan) -> Table:
    rows = [
        (each.name, "yes" if each.complete else "no", "yes" if each.signed else "no", each.phrase)
        for each in plan.methods
    ]
    rows += [(name, "not known", "not known", "a method of one's own") for name in plan.own]
    columns = ("method", "adds up by design", "signed", "what it is")
    return Table.of_rows(dict(zip(columns, zip(*rows, strict=True), strict=True)))


def _texts(texts: Texts, trials: Sequence[Trial]) -> Table:
    """Every text and target, with the target's score at the text and at the baseline."""
    count = len(trials[0].targets)
    scores = np.zeros((2, len(texts.sentences), count))
    for trial in trials:
        for place, number in enumerate(trial.numbers):
            scores[:, number] = trial.explained.end[:, place].numpy(), trial.explained.start[:, place].numpy()
    rows = [
        (sentence.id, sentence.document, target, texts.tokens[number], *scores[:, number, target])
        for number, sentence in enumerate(texts.sentences)
        for target in range(count)
    ]
    columns = ("sentence", "document", "target", "tokens", "score", "baseline")
    return Table.of_rows(dict(zip(columns, zip(*rows, strict=True), strict=True)))


def _named(target: Target) -> str:
    parts = [str(choice) for choice in target.choices if choice is not None]
    place = "" if target.position is None else f"@{target.position}"
    return (target.called or target.kind) + ("" if not parts else ":" + "|".join(parts)) + place


def _settled(model: Model, texts: Texts, given: Given) -> Given:
    """The baseline, where it is `auto` the one that fits the model."""
    if not isinstance(given, str) or given != AUTOMATIC:
        return given
    first = tokenized(model, texts.sentences[:1])
    return automatic(model, first, embedded(model, first))[0]


def _told(baseline: Given) -> str:
    return baseline if isinstance(baseline, str) else "given as numbers"
