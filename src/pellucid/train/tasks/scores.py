"""Scores of predictions, and what guessing gives: perplexity, accuracy, F1 of classes and of answers, BLEU."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.train.tasks.base import evaluating, moved, output
from pellucid.train.tasks.rows import IGNORED

if TYPE_CHECKING:
    from pellucid.train.tasks.base import Examples

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Tally:
    """Losses and hits summed over batches, on the device, so that no batch waits for the one before it.

    With `classes`, `confusion` [C, C] counts the goals (rows) by the class that they were taken for (columns).
    """

    def __init__(self, device: Any, *, classes: int = 0) -> None:
        self._losses: list[Tensor] = []
        self._goals: list[Tensor] = []
        self._hits: list[Tensor] = []
        self._classes = classes
        self._cells = torch.zeros(classes * classes, dtype=torch.long, device=device)

    def add(self, logits: Tensor, goals: Tensor) -> None:
        """Count the predictions of logits [..., C] for goals [...]."""
        flat, goals = logits.flatten(0, -2).float(), goals.flatten()
        losses = torch.nn.functional.cross_entropy(flat, goals, ignore_index=IGNORED, reduction="sum")
        taken, counts = flat.argmax(dim=-1), goals != IGNORED
        self._losses.append(losses)
        self._goals.append(counts.sum())
        self._hits.append(((taken == goals) & counts).sum())
        if self._classes:
            cells = torch.where(counts, goals * self._classes + taken, 0)
            self._cells.index_add_(0, cells, counts.long())

    def loss(self) -> float:
        """The mean loss per goal, in nats."""
        return float(torch.stack(self._losses).double().cpu().sum()) / self.count()

    def accuracy(self) -> float:
        """The share of goals that were found."""
        return int(torch.stack(self._hits).sum()) / self.count()

    def count(self) -> int:
        """Goals that were counted."""
        return int(torch.stack(self._goals).sum())

    def confusion(self) -> Tensor:
        """How often each class [C] was taken for each other [C]."""
        return self._cells.view(self._classes, self._classes).cpu()


def tallied(network: Any, examples: Examples, device: Any, *, classes: int = 0) -> Tally:
    """The tally of a network over all examples."""
    tally = Tally(device, classes=classes)
    with evaluating(network):
        for step in range(examples.steps()):
            batch = moved(examples.batch(0, step), device)
            tally.add(output(network, batch).logits, batch["goals"])
    return tally


def perplexity(loss: float) -> float:
    """exp of a loss in nats."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def macro_f1(confusion: Tensor) -> float:
    """The mean F1 of the classes that occur, among the goals or the predictions of a confusion matrix [C, C].

    F1 = 2 hits / (goals + predictions); a class that is never hit has 0.
    """
    hits, both = confusion.diagonal().double(), (confusion.sum(0) + confusion.sum(1)).double()
    return float((2 * hits[both > 0] / both[both > 0]).mean())


def counted(examples: Examples) -> Tensor:
    """How often each goal [C] occurs."""
    goals = examples.goals.flatten()
    return torch.bincount(goals[goals != IGNORED].long(), minlength=examples.classes)


def guessing_loss(counts: Tensor, known: Tensor) -> float:
    """The loss per goal of one who knows the frequencies [C] in training (one added to each) and nothing else."""
    chances = ((known + 1).double() / (known + 1).sum()).log()
    return float(-(counts * chances).sum() / counts.sum())


def guessing_classes(counts: Tensor, known: Tensor) -> dict[str, float]:
    """Loss, accuracy and F1 of taking everything for the class that is most frequent in training."""
    confusion = torch.zeros(len(counts), len(counts), dtype=torch.long)
    most = int(known.argmax())
    confusion[:, most] = counts
    return {
        "loss": guessing_loss(counts, known),
        "accuracy": float(counts[most] / counts.sum()),
        "f1": macro_f1(confusion),
    }


def plain_words(answer: str) -> list[str]:
    """The words of an answer, lower-cased, without punctuation and articles (Rajpurkar et al. 2016, section 6.1)."""
    return _ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split()


def exact_match(found: str, right: str) -> float:
    """1 where two answers have the same plain words in the same order, else 0."""
    return float(plain_words(found) == plain_words(right))


def words_f1(found: str, right: str) -> float:
    """F1 of the plain words that two answers share; two answers without words are equal."""
    one, other = plain_words(found), plain_words(right)
    if not one or not other:
        return float(one == other)
    return 2 * (Counter(one) & Counter(other)).total() / (len(one) + len(other))


def bleu(found: Sequence[str], right: Sequence[str]) -> float | None:
    """BLEU (0 to 100) of translations beside one reference each; None where the package sacrebleu is not installed."""
    try:
        import sacrebleu  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    measured: Any = sacrebleu.corpus_bleu(list(found), [list(right)])
    return float(measured.score)
