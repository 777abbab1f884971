"""Measuring a model by its task: loss and score on a corpus, with every pass a `Model.run` under the edits given.

Everything is measured with the edits of the call and nothing else: without dropout, label smoothing or sampling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from pellucid.corpus import Corpus
from pellucid.errors import CorpusError, ModelError, listing
from pellucid.heads.weighing.passing import Passing
from pellucid.train.settings import Settings, settings_for
from pellucid.train.tasks import IGNORED, TASKS, Examples, Task
from pellucid.train.tasks.base import cross_entropy, moved
from pellucid.uncertainty import GROUPS

if TYPE_CHECKING:
    from pellucid.corpus import Sentence
    from pellucid.model import Edit, Model
    from pellucid.model.starting import Start

LENGTH = 512
"""The most tokens of a row, where the model itself would take more."""
LABELLED = ("classify", "nli", "tagger")
"""Tasks whose goals are classes that the model names."""


@dataclass(frozen=True)
class Score:
    """The main score of a task: its name, what the model reaches, in which direction it is better, and what guessing
    reaches."""

    name: str
    value: float
    larger_is_better: bool
    chance: float


@dataclass(frozen=True, eq=False)
class Rows:
    """What each row [B] of a batch gave: its loss in nats summed over its goals, its goals, and how many were found."""

    losses: Tensor
    goals: Tensor
    hits: Tensor


@dataclass(frozen=True, eq=False)
class Measured:
    """A model, its task and a corpus as examples of it: batches, a loss that can be differentiated, and scores.

    `groups` [sentences] are runs of whole documents of about equal size, for intervals.
    """

    model: Model
    task: Task
    settings: Settings
    examples: Examples
    labels: tuple[str, ...] | None
    corpus: Corpus
    groups: np.ndarray[Any, Any]
    group_count: int

    @property
    def best(self) -> str:
        """The name of the main score: BLEU of translations where it can be had, and else the task's own choice."""
        return "bleu" if self.task.name == "translate" and _has_bleu() else self.task.best

    @property
    def larger_is_better(self) -> bool:
        """Whether a better model has the larger main score."""
        return self.best == "bleu" or self.task.larger_is_better

    def sampled(self, sentences: int) -> Measured:
        """The same with at most so many sentences of the corpus, spread evenly; document groups keep their numbers."""
        total = len(self.groups)
        if sentences >= total:
            return self
        chosen = np.arange(sentences) * total // sentences
        part = Corpus(
            f"{self.corpus.name} ({sentences} sentences)", self.corpus.unit, partial(_picked, self.corpus, chosen)
        )
        examples = self.task.examples(part, self.model.tokenizer, self.settings, self.labels, shuffled=False)
        return replace(self, examples=examples, corpus=part, groups=self.groups[chosen])

    def steps(self) -> int:
        """Batches of the corpus."""
        return self.examples.steps()

    def batch(self, step: int, epoch: int = 0) -> dict[str, Tensor]:
        """One batch on the model's device: what the network reads, and `goals` (IGNORED where there is none)."""
        return moved(self.examples.batch(epoch, step), self.model.device)

    def owners(self, step: int, epoch: int = 0) -> Tensor:
        """The sentence [B] of the corpus that each row of a batch comes from."""
        return self.examples.owners(epoch, step)

    def passing(
        self,
        edits: Edit | Iterable[Edit] = (),
        *,
        gradients: bool = False,
        sites: Sequence[Any] = (),
        start: Start | None = None,
    ) -> Passing:
        """The model as a network that tasks can call; every call is a `Model.run` with these edits and sites."""
        return Passing(self.model, edits, gradients=gradients, sites=sites, start=start)

    def loss(self, batch: Mapping[str, Tensor], edits: Edit | Iterable[Edit] = (), *, gradients: bool = True) -> Tensor:
        """The mean loss [] of a batch's goals, in nats; gradients reach gates in the edits."""
        logits = self.task.logits(self.passing(edits, gradients=gradients), batch)
        return cross_entropy(logits, batch["goals"])

    def rows(
        self,
        batch: Mapping[str, Tensor],
        edits: Edit | Iterable[Edit] = (),
        *,
        gradients: bool = False,
        start: Start | None = None,
    ) -> Rows:
        """The loss, goals and hits of each row of a batch."""
        logits = self.task.logits(self.passing(edits, gradients=gradients, start=start), batch)
        return rows_of(logits, batch["goals"])

    def scores(self, edits: Edit | Iterable[Edit] = ()) -> dict[str, float]:
        """All scores of the task under some edits; translations are generated for BLEU, where it can be had."""
        return self.task.evaluate(self.passing(edits), self.examples, self.model.device, self.settings)

    def score(self, edits: Edit | Iterable[Edit] = ()) -> Score:
        """The task's main score under some edits."""
        return Score(self.best, self.scores(edits)[self.best], self.larger_is_better, self.chance()[self.best])

    def chance(self) -> dict[str, float]:
        """What guessing gives for the same scores, by one who knows how often each goal occurs in this corpus."""
        return self.task.chance(self.examples, self.examples, self.settings)


def measured(
    model: Model,
    corpus: Corpus,
    task: str | None = None,
    *,
    batch: int = 32,
    length: int | None = None,
    label: str | None = None,
    rows: str = "sentences",
    shuffled: bool = False,
    seed: int = 0,
) -> Measured:
    """A model measured on a corpus by a task of `train.tasks`; without a name, the one that the model's head is for.

    A row is a sentence of at most `length` tokens (or, with rows='stream', a piece of the running text). `label` names
    the corpus's label to predict; without it, the one that has the model's classes is taken. `seed` decides which
    tokens mlm hides, and the order where `shuffled`, to learn from.
    """
    chosen = _task(model, corpus, task)
    longest = min(LENGTH, model.limit or LENGTH) if length is None else length
    labels: tuple[str, ...] | None = None
    if chosen.name in LABELLED:
        label, labels = _labels(model, chosen, corpus, label)
    settings = settings_for(
        chosen.name, batch=batch, length=longest, label=label, rows=rows, seed=seed, label_smoothing=0.0
    )
    if model.tokenizer is None:
        raise ModelError(
            f"{model.name!r} has no tokenizer to read a corpus with; pass one: Model.load(…, tokenizer=…)."
        )
    if chosen.name in ("lm", "mlm") and rows == "sentences":
        _refuse_single_tokens(model, corpus)
    examples = chosen.examples(corpus, model.tokenizer, settings, labels, shuffled=shuffled)
    documents = [sentence.document for sentence in corpus]
    groups = document_groups(documents)
    return Measured(model, chosen, settings, examples, labels, corpus, groups, int(groups.max()) + 1)


def rows_of(logits: Tensor, goals: Tensor) -> Rows:
    """Logits [B, …, C] beside goals [B, …], by row: the summed loss in float64, the goals, and those found."""
    flat, answers = logits.flatten(0, -2).float(), goals.flatten()
    losses = F.cross_entropy(flat, answers, ignore_index=IGNORED, reduction="none")
    counts = answers != IGNORED
    found = (flat.argmax(dim=-1) == answers) & counts
    by_row = [part.view(len(goals), -1) for part in (losses, counts, found)]
    return Rows(by_row[0].double().sum(1), by_row[1].sum(1), by_row[2].sum(1))


def document_groups(documents: Sequence[str], count: int = GROUPS) -> np.ndarray[Any, Any]:
    """The group [sentences] of each sentence: at most `count` runs of whole documents of about equal size."""
    found, group, share = np.zeros(len(documents), dtype=np.int64), -1, -1
    for place, document in enumerate(documents):
        if (place == 0 or document != documents[place - 1]) and count * place // len(documents) != share:
            group, share = group + 1, count * place // len(documents)
        found[place] = group
    return found


def head_tasks(model: Model, corpus: Corpus | None = None) -> str | None:
    """The name of the task that a model's head is for; None where it has no head that is known.

    Whether a classifier is asked about single texts (classify) or pairs (nli), a corpus says.
    """
    name, kinds = type(model.hf).__name__, {site.kind for site in model.sites}
    if "QuestionAnswering" in name:
        return "qa"
    if "TokenClassification" in name:
        return "tagger"
    if "SequenceClassification" in name:
        first = None if corpus is None else next(iter(corpus), None)
        return "nli" if first is not None and first.second is not None and first.joint else "classify"
    other = ("MultipleChoice", "NextSentence", "PreTraining")
    if "logits" not in kinds or not hasattr(model.hf, "config") or any(part in name for part in other):
        return None
    if getattr(model.hf.config, "is_encoder_decoder", False):
        return "translate"
    return "lm" if model.causal else "mlm"


def _task(model: Model, corpus: Corpus, asked: str | None) -> Task:
    if asked is not None and asked not in TASKS:
        raise ModelError(f"There is no task {asked!r}; the tasks are {listing(TASKS)}.")
    own = head_tasks(model, corpus)
    if own is None:
        kind = type(model.hf).__name__
        raise ModelError(
            f"{model.name!r} ({kind}) has no head with a loss to measure: fine-tune it on a task first (pellucid train "
            f"TASK --from {model.name}), or open one that has a head for {listing(TASKS)}."
        )
    alike = {"classify", "nli"} if own in ("classify", "nli") else {own}
    if asked is not None and asked not in alike:
        raise ModelError(
            f"{model.name!r} has a head for {own}, which cannot be measured by {asked!r}; leave the task out, or open "
            "another model."
        )
    return TASKS[asked or own]


def _labels(model: Model, task: Task, corpus: Corpus, asked: str | None) -> tuple[str, tuple[str, ...]]:
    """The corpus's label that holds the model's classes, and what it calls them, in the order of the model's outputs.

    They stand there by their names or by their numbers. Of several labels, the one with most of them is taken.
    """
    config: Any = model.hf.config
    mine = tuple(str(config.id2label[place]) for place in range(config.num_labels))
    words = task.name == "tagger"
    of = f"The {'words' if words else 'sentences'} of {corpus.name}"
    names = corpus.labels() if words else corpus.facts()
    if not names:
        raise CorpusError(
            f"{of} have no labels, and {model.name!r} is measured by {task.name}: give a corpus with {listing(mine)}."
        )
    if asked is not None and asked not in names:
        raise CorpusError(f"{of} have no label {asked!r}; they have {listing(names, most=40)}.")
    values: dict[str, set[str]] = {name: set() for name in (names if asked is None else [asked])}
    for sentence in corpus:
        for name, held in values.items():
            given = sentence.labels.get(name, ()) if words else (sentence.facts.get(name),)
            held.update(value for value in given if value is not None)
    numbers = tuple(str(place) for place in range(len(mine)))
    for classes in (mine, numbers):
        fitting = [name for name, held in values.items() if held and held <= set(classes)]
        most = max((len(values[name]) for name in fitting), default=0)
        fitting = [name for name in fitting if len(values[name]) == most]
        if len(fitting) == 1:
            return fitting[0], classes
        if fitting:
            raise CorpusError(f"{of} have several labels with the model's classes; choose one of {listing(fitting)}.")
    told = "; ".join(f"{name}: {listing(sorted(held), most=6)}" for name, held in values.items())
    raise CorpusError(
        f"{of} have no label with the classes that {model.name!r} tells apart ({listing(mine)}, by name or by number "
        f"from 0); they have {told}. Choose another corpus, or rename its values."
    )


def _refuse_single_tokens(model: Model, corpus: Corpus) -> None:
    """Refuses a corpus none of whose texts has two tokens: nothing could be predicted from anything."""
    for sentence in corpus:
        if len(model.tokenizer(sentence.text)["input_ids"]) > 1:
            return
    raise CorpusError(
        f"Every text of {corpus.name} has one token for {model.name!r}, so nothing can be predicted from what stands "
        "around it: give longer texts."
    )


def _picked(corpus: Corpus, chosen: np.ndarray[Any, Any]) -> Iterator[Sentence]:
    wanted = set(chosen.tolist())
    return (sentence for number, sentence in enumerate(corpus) if number in wanted)


def _has_bleu() -> bool:
    from pellucid.train.tasks.scores import bleu

    return bleu(["a"], ["a"]) is not None
