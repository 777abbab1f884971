"""Importance of heads, by five methods side by side: how each ranks them, and how far they agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.collect.progress import Progress
from pellucid.errors import ModelError, listing
from pellucid.heads.naming import head_name
from pellucid.heads.weighing.ablating import TOKENS, Ablated, attention_heads, sweep_heads
from pellucid.heads.weighing.ablation import changes, provenance, task_table
from pellucid.heads.weighing.agreement import kendall, ranks, spearman
from pellucid.heads.weighing.bleu import translations_of, written
from pellucid.heads.weighing.confidence import confidence_sums
from pellucid.heads.weighing.gradients import gradient_sums, normalised
from pellucid.heads.weighing.measuring import Measured, measured
from pellucid.heads.weighing.scoring import Sums, leaving_out
from pellucid.model.twin import twin_of
from pellucid.results import Result, ResultError, Table
from pellucid.uncertainty import Interval

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.model.sites import Site

Array = np.ndarray[Any, Any]
Estimate = Callable[[int | None], Array]
"""The importance [heads], of all document groups or without one."""
METHODS = {
    "confidence": "largest weight on a word, mean over query words",
    "gradient": "|slope of the loss · output| summed over tokens, over the L2 norm of the layer",
    "lrp": "relevance for what is predicted, as a share of the layer's heads",
    "zero": "rise of the loss per goal, in nats, when the head's output is zero",
    "mean": "rise of the loss per goal, in nats, when its output is its mean over the corpus",
    "bleu": "fall of BLEU when the head's output is zero, of translations that are written anew",
}
DEFAULT = ("confidence", "gradient", "zero", "mean")
"""The methods that are used unless others are asked for; lrp has a notice, see `attribution.lrp`, and bleu is slow and
of translators alone."""
LRP_SENTENCES = 50
"""Sentences that lrp looks at unless told otherwise: its rules take some hundred times as long as a pass."""
BLEU_SENTENCES = 50
"""Sentences that are translated anew without each head unless told otherwise."""
_ABLATIONS = ("zero", "mean")


@dataclass(frozen=True, eq=False)
class HeadImportance(Result):
    """The importance of every head by several methods, [measure, head].

    Table `ranks` has 1 for the most important head; `agreement` Spearman's ρ and Kendall's τ of every two methods, with
    intervals (chance gives 0); `changes` loss and score without each head; `task` those of the model as it is;
    `random model` the same methods on a randomly initialised model.
    """

    kind: ClassVar[str] = "heads.importance"
    title: ClassVar[str] = "Which heads matter"
    phrases: ClassVar[Mapping[str, str]] = METHODS
    chance: ClassVar[str] = (
        "confidence: uniform attention; gradient and lrp: the mean of the layer in a randomly initialised model (or, "
        "without one, heads that are all alike); zero, mean and bleu: 0, nothing changes"
    )

    @property
    def measures(self) -> Mapping[str, str]:
        """One phrase for each method that was used."""
        return {str(name): METHODS[str(name)] for name in self.axes["measure"]}

    def ranking(self, measure: str) -> tuple[str, ...]:
        """The names of all heads, the most important first."""
        order = np.argsort(-self.measure(measure), kind="stable")
        return tuple(str(self.axes["head"][place]) for place in order)

    def beyond(self, measure: str) -> tuple[int, int]:
        """How many heads have an interval wholly above chance, and how many wholly below it; 0 where there is none."""
        if self.low is None or self.high is None or self.null is None:
            return 0, 0
        place = self.place("measure", measure)
        above, below = self.low[place] > self.null[place], self.high[place] < self.null[place]
        return int(above.sum()), int(below.sum())

    @property
    def agreement(self) -> Table:
        """ρ and τ of every two methods, with both ends of their intervals; chance gives 0."""
        if "agreement" not in self.tables:
            raise ResultError("Agreement needs two methods or more; this result has one.")
        return self.table("agreement")


@dataclass(frozen=True, eq=False)
class _Method:
    """One method's estimate, what chance gives [heads], and the values of a random model where it was asked."""

    estimate: Estimate
    null: Array
    random: Array | None = None
    left_out: int = 0  # texts without a number


def importance(
    model: Model,
    corpus: Corpus,
    task: str | None = None,
    *,
    methods: Sequence[str] = DEFAULT,
    random: bool = True,
    lrp_sentences: int = LRP_SENTENCES,
    bleu_sentences: int = BLEU_SENTENCES,
    batch: int = 32,
    length: int | None = None,
    label: str | None = None,
    rows: str = "sentences",
    seed: int = 0,
    tokens: int = TOKENS,
    progress: bool | None = None,
) -> HeadImportance:
    """How important every head of every layer is, by several methods on one corpus, with ranks and their agreement.

    `confidence` needs no task; `gradient` is Σ_tokens |⟨∂L/∂z, z⟩| per layer (Michel et al. 2019); `lrp` Voita et al.'s
    relevance; `zero` and `mean` the rise of the loss under ablation; `bleu` the fall of BLEU of `bleu_sentences` that
    are translated anew without each head. With `random`, a randomly initialised model gives the chance level of
    gradient and lrp, which looks at `lrp_sentences` spread over the corpus. Intervals are over groups of documents.
    With grouped queries a head is a query head.
    """
    chosen = checked_methods(methods)
    found = measured(model, corpus, task, batch=batch, length=length, label=label, rows=rows, seed=seed)
    if "bleu" in chosen:
        _check_bleu(found, bleu_sentences)
    sites = attention_heads(model)
    heads = [(site, head) for site in sites for head in range(model.size(site)[0])]
    with Progress(progress) as shown:
        twin = _twin(model, sites, seed) if random else None
        made = _made(found, chosen, sites, twin, shown, lrp_sentences)
        done = _ablated(found, chosen, shown, tokens)
        if "bleu" in chosen:
            made["bleu"] = _translated(found, bleu_sentences, len(heads), shown)
    for place, name in enumerate(done.replacements if done is not None else ()):
        assert done is not None
        made[name] = _Method(_rise(done.plain, done.ablated, place), np.zeros(len(heads)))
    estimates = {name: made[name].estimate for name in chosen}
    sizes = _sizes(found, done)

    def together(without: int | None) -> Array:
        return np.stack([estimate(without) for estimate in estimates.values()])

    values, interval = together(None), leaving_out(sizes, together)
    axes = {"measure": chosen, "head": tuple(head_name(*head) for head in heads)}
    tables = {"ranks": Table(axes, {"rank": np.stack([ranks(row) for row in values])})}
    if len(chosen) > 1:
        tables["agreement"] = _agreement(chosen, together, sizes)
    if done is not None:
        tables |= {"changes": _changes(found, done), "task": task_table(found, done)}
    tables |= _random_table({name: made[name].random for name in chosen}, axes["head"])
    told: dict[str, Any] = {"methods": list(chosen), "random": "random model" in tables}
    if "lrp" in chosen:
        told.update(_told_of_lrp(model, min(lrp_sentences, len(found.groups)), made["lrp"].left_out))
    if "bleu" in chosen:
        told["bleu sentences"] = min(bleu_sentences, len(found.groups))
    return HeadImportance(
        axes=axes,
        values=values,
        null=np.stack([made[name].null for name in chosen]),
        low=interval.low,
        high=interval.high,
        resampled=interval.resampled,
        provenance=provenance(found, "heads.importance", told, done),
        tables=tables,
    )


def _random_table(drawn: Mapping[str, Array | None], heads: tuple[str, ...]) -> dict[str, Table]:
    """The values of a randomly initialised model, of methods that were tried on one."""
    known = {name: values for name, values in drawn.items() if values is not None}
    if not known:
        return {}
    return {"random model": Table({"measure": tuple(known), "head": heads}, {"value": np.stack(list(known.values()))})}


def _told_of_lrp(model: Model, sentences: int, left_out: int) -> dict[str, Any]:
    """What a result says of its relevance."""
    from pellucid.heads.weighing.lrp_relevance import NOTICE

    told = {"lrp sentences": sentences, "notice": NOTICE}
    if left_out:
        half = str(model.hf.dtype).removeprefix("torch.") == "float16"
        remedy = "; float16 ends at 65,504: open the model in float32 (dtype, --dtype)" if half else ""
        told["lrp note"] = f"lrp leaves out {left_out} texts, whose relevance is no finite number{remedy}"
    return told


def checked_methods(methods: Sequence[str]) -> tuple[str, ...]:
    """The methods asked for, each once; an unknown one raises and lists those there are."""
    asked = (methods,) if isinstance(methods, str) else tuple(dict.fromkeys(methods))
    unknown = [name for name in asked if name not in METHODS]
    if unknown or not asked:
        what = f"no method {unknown[0]!r}" if unknown else "no method asked for"
        raise ModelError(f"There is {what} of weighing heads; there are {listing(METHODS)}.")
    return asked


def _made(
    found: Measured, chosen: Sequence[str], sites: Sequence[Site], twin: Model | None, shown: Progress, few: int
) -> dict[str, _Method]:
    """The numbers of every method that is no ablation."""
    made: dict[str, _Method] = {}
    layers = [place for place, site in enumerate(sites) for _ in range(found.model.size(site)[0])]
    other = None if twin is None else replace(found, model=twin)
    if "confidence" in chosen:
        shown.begin("counting where heads look", None)
        sums = confidence_sums(found, sites)
        made["confidence"] = _Method(sums.mean, sums.uniform())
    if "gradient" in chosen:
        shown.begin("gradients", None)
        made["gradient"] = _relative(gradient_sums, found, other, sites, layers, power=2)
    if "lrp" in chosen:
        from pellucid.heads.weighing.lrp_relevance import lrp_sums

        shown.begin("relevance", None)
        part = found.sampled(few)
        other = None if twin is None else replace(part, model=twin)
        lost: list[int] = []
        sums_of = partial(lrp_sums, lost=lost)
        made["lrp"] = replace(_relative(sums_of, part, other, sites, layers, power=1), left_out=lost[0])
    return made


def _ablated(found: Measured, chosen: Sequence[str], shown: Progress, tokens: int) -> Ablated | None:
    """The ablations, where any were asked for."""
    wanted = [name for name in _ABLATIONS if name in chosen]
    if not wanted:
        return None
    shown.begin("ablating every head", found.steps())
    return sweep_heads(found, wanted, tokens=tokens, advance=shown.advance)


def _check_bleu(found: Measured, sentences: int) -> None:
    """Raises where BLEU cannot be had, before anything is computed."""
    translations_of(found)
    if sentences < 2:
        raise ModelError(f"bleu_sentences={sentences} is too few for an interval; give at least 2.")


def _translated(found: Measured, sentences: int, heads: int, shown: Progress) -> _Method:
    """The fall of BLEU without each head."""
    shown.begin("translating without every head", heads)
    texts = written(found, ("zero",), sentences, advance=shown.advance)
    return _Method(lambda without: -texts.change(without), np.zeros(heads))


def _relative(
    sums_of: Callable[[Measured, Sequence[Site]], Array],
    found: Measured,
    other: Measured | None,
    sites: Sequence[Site],
    layers: Sequence[int],
    *,
    power: int,
) -> _Method:
    """A method whose sums [heads, groups] are normalised layer by layer, beside the random model's."""
    sums = sums_of(found, sites)

    def estimate(without: int | None) -> Array:
        kept = [group for group in range(sums.shape[1]) if group != without]
        return normalised(sums[:, kept].sum(axis=1), layers, power=power)

    count = np.bincount(layers)[list(layers)]
    if other is None:
        return _Method(estimate, 1 / count ** (1 / power))  # what heads that are all alike would have
    drawn = normalised(sums_of(other, sites).sum(axis=1), layers, power=power)
    means = np.bincount(layers, drawn)[list(layers)] / count
    return _Method(estimate, means, drawn)


def _rise(plain: Sums, ablated: Sums, place: int) -> Estimate:
    return lambda without: ablated.loss(without)[place] - plain.loss(without)


def _sizes(found: Measured, done: Ablated | None) -> Array:
    """How much text each document group has: its goals, or its sentences where none were counted."""
    return done.plain.goals if done is not None else np.bincount(found.groups).astype(np.float64)


def _twin(model: Model, sites: Sequence[Site], seed: int) -> Model | None:
    """A randomly initialised model with the same heads; None where it cannot be built."""
    twin = twin_of(model, seed)
    same = twin is not None and all(site in twin.sites and twin.size(site) == model.size(site) for site in sites)
    return twin if same else None


def _agreement(chosen: Sequence[str], together: Estimate, sizes: Array) -> Table:
    """ρ and τ of every two methods, with intervals kept within −1 and 1."""
    pairs = list(combinations(range(len(chosen)), 2))

    def estimate(without: int | None) -> Array:
        rows = together(without)
        return np.array([[measure(rows[i], rows[j]) for i, j in pairs] for measure in (spearman, kendall)])

    values = estimate(None)
    interval: Interval = leaving_out(sizes, estimate)
    columns: dict[str, Any] = {
        "first": np.array([chosen[i] for i, _ in pairs]),
        "second": np.array([chosen[j] for _, j in pairs]),
    }
    for place, name in enumerate(("spearman", "kendall")):
        columns[name] = values[place]
        if interval.low is not None and interval.high is not None:
            columns[f"{name} low"] = np.clip(interval.low[place], -1, 1)
            columns[f"{name} high"] = np.clip(interval.high[place], -1, 1)
    return Table.of_rows(columns)


def _changes(found: Measured, done: Ablated) -> Table:
    columns: dict[str, Array] = {}
    for name, (values, low, high) in changes(found, done).items():
        columns[name] = values
        if low is not None and high is not None:
            columns[f"{name} low"], columns[f"{name} high"] = low, high
    return Table({"replacement": done.replacements, "head": done.heads}, columns)
