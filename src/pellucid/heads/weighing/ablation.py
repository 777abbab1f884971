"""Ablation of heads: how loss and score change on a corpus when a head is replaced, every head in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pellucid.collect.progress import Progress
from pellucid.heads.weighing.ablating import REPLACEMENTS, TOKENS, Ablated, sweep_heads
from pellucid.heads.weighing.bleu import Written, written
from pellucid.heads.weighing.measuring import Measured, measured
from pellucid.heads.weighing.scoring import leaving_out
from pellucid.results import Provenance, Result, Table

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.model import Model

Array = np.ndarray[Any, Any]
CHANGES = {
    "loss": "change of the loss per goal, in nats",
    "perplexity": "change of the perplexity, exp of the loss per goal",
    "accuracy": "change of the share of goals that are found",
    "f1": "change of the mean F1 of answers",
    "bleu": "change of BLEU, of translations that are written anew",
}


@dataclass(frozen=True, eq=False)
class HeadAblation(Result):
    """Changes of loss and score when a head is replaced, [measure, replacement, head].

    Table `task` says what was measured: loss and scores of the model as it is, and of guessing.
    """

    kind: ClassVar[str] = "heads.ablation"
    title: ClassVar[str] = "What changes without a head"
    phrases: ClassVar[Mapping[str, str]] = CHANGES
    chance: ClassVar[str] = "0: the head changes nothing"

    @property
    def measures(self) -> Mapping[str, str]:
        """One phrase for each change that was measured."""
        return {str(name): CHANGES[str(name)] for name in self.axes["measure"]}


def ablation(
    model: Model,
    corpus: Corpus,
    task: str | None = None,
    *,
    replacements: Sequence[str] = REPLACEMENTS,
    bleu: int = 0,
    batch: int = 32,
    length: int | None = None,
    label: str | None = None,
    rows: str = "sentences",
    seed: int = 0,
    tokens: int = TOKENS,
    progress: bool | None = None,
) -> HeadAblation:
    """Loss and score without each head of each layer (encoder, decoder and cross attention), beside those with it.

    A head's output is replaced by `zero`, or by its `mean` over all real tokens of this corpus, taken in a pass before.
    With `bleu`, so many sentences are translated anew without each head. With grouped queries a head is a query head.
    """
    found = measured(model, corpus, task, batch=batch, length=length, label=label, rows=rows, seed=seed)
    with Progress(progress) as shown:
        shown.begin("ablating every head", found.steps())
        done = sweep_heads(found, replacements, tokens=tokens, advance=shown.advance)
        texts = None
        if bleu:
            shown.begin("translating without every head", len(done.heads) * len(done.replacements))
            texts = written(found, replacements, bleu, advance=shown.advance)
    parts = changes(found, done, texts)
    low, high = (_stacked([each[place] for each in parts.values()]) for place in (1, 2))
    return HeadAblation(
        axes={"measure": tuple(parts), "replacement": done.replacements, "head": done.heads},
        values=np.stack([values for values, _, _ in parts.values()]),
        null=np.zeros((len(parts), len(done.replacements), len(done.heads))),
        low=low,
        high=high,
        resampled=leaving_out(done.plain.goals, lambda without: np.zeros(1)).resampled,
        provenance=provenance(found, "heads.ablation", {"replacements": list(done.replacements), "bleu": bleu}, done),
        tables={"task": task_table(found, done, texts)},
    )


Bounded = tuple[Array, Array | None, Array | None]


def changes(found: Measured, done: Ablated, texts: Written | None = None) -> dict[str, Bounded]:
    """The change of loss and of every score [replacement, head], with both ends of its interval."""
    sizes = done.plain.goals

    def loss(without: int | None) -> Array:
        return done.ablated.loss(without) - done.plain.loss(without)

    def score(without: int | None, name: str) -> Array:
        return done.ablated.score(name, without) - done.plain.score(name, without)

    name = "perplexity" if found.task.name == "translate" else found.best
    intervals = {"loss": leaving_out(sizes, loss), name: leaving_out(sizes, partial(score, name=name))}
    values = {"loss": loss(None), name: score(None, name)}
    if texts is not None:
        shape = values["loss"].shape
        counts = np.bincount(texts.groups, minlength=len(sizes)).astype(np.float64)
        values["bleu"] = texts.change().reshape(shape)
        intervals["bleu"] = leaving_out(counts, lambda without: texts.change(without).reshape(shape))
    return {each: (values[each], intervals[each].low, intervals[each].high) for each in values}


def task_table(found: Measured, done: Ablated, texts: Written | None = None) -> Table:
    """Loss and scores of the model as it is, and of guessing by how often each goal occurs in the corpus."""
    name = "perplexity" if found.task.name == "translate" else found.best
    plain = {"loss": float(done.plain.loss()), name: float(done.plain.score(name))}
    if texts is not None:
        plain["bleu"] = texts.score()
    guessed = found.chance()
    return Table(
        {"measure": tuple(plain)},
        {
            "task": np.array([found.task.name] * len(plain)),
            "value": np.array(list(plain.values())),
            "chance": np.array([guessed[each] for each in plain]),
        },
    )


def provenance(found: Measured, function: str, arguments: Mapping[str, Any], done: Ablated | None = None) -> Provenance:
    """Where the numbers come from: model, corpus, task and settings, and whether passes started at layers."""
    model, corpus, settings = found.model, found.corpus, found.settings
    notes = list(done.notes) if done is not None else []
    sizes = [len(sentence.words) for sentence in corpus]
    return Provenance(
        function,
        {
            "task": found.task.name,
            "label": settings.label,
            "length": settings.length,
            "batch": settings.batch,
            "rows": settings.rows,
            **arguments,
            **({"note": "; ".join(notes)} if notes else {}),
        },
        ({"name": model.name, "fingerprint": model.fingerprint},),
        {
            "name": corpus.name,
            "fingerprint": corpus.fingerprint or "none",
            "sentences": len(sizes),
            "words": sum(sizes),
        },
        settings.seed,
    )


def _stacked(ends: Sequence[Array | None]) -> Array | None:
    """The ends of all intervals as one array; None where one of them has none."""
    there = [end for end in ends if end is not None]
    return np.stack(there) if len(there) == len(ends) else None
