"""What every task of the training lab gives: texts for a vocabulary, examples, a loss, scores and those of guessing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.train.tasks.rows import IGNORED, Batch

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.train.settings import Settings


class Examples(Protocol):
    """One split of a corpus, prepared: token ids on the CPU, dealt out in batches.

    A batch holds what `network.forward` takes, and `goals`: the right answers, IGNORED where there is none. Which
    examples a batch holds depends on the seed of the settings, the epoch and the step alone.
    """

    @property
    def sentences(self) -> int:
        """Sentences of the split."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens that an epoch reads, padding not counted."""
        ...

    @property
    def classes(self) -> int:
        """Goals there are to choose from: the vocabulary, the labels, or the tokens of a row."""
        ...

    @property
    def fixed(self) -> bool:
        """Whether every batch of a training has the same shapes, so that a step can be recorded once."""
        ...

    @property
    def goals(self) -> Tensor:
        """All goals of the split, IGNORED where there is none."""
        ...

    def steps(self) -> int:
        """Batches in one epoch."""
        ...

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of one step of one epoch."""
        ...

    def owners(self, epoch: int, step: int) -> Tensor:
        """For each row [B] of that batch, the number of the sentence that it begins in, counted through the corpus."""
        ...


class Task(ABC):
    """A task that a network can be trained in; without state of its own.

    `best` is the score that chooses the best epoch, and `larger_is_better` says in which direction.
    """

    name: str
    best: str
    larger_is_better: bool

    @abstractmethod
    def texts(self, corpus: Corpus, settings: Settings) -> Iterator[str]:
        """The texts that a vocabulary is learned from."""

    @abstractmethod
    def labels(self, corpus: Corpus, settings: Settings) -> tuple[str, ...] | None:
        """The classes of the training corpus, sorted; None for a task that has none."""

    @abstractmethod
    def examples(
        self, corpus: Corpus, tokenizer: Any, settings: Settings, labels: tuple[str, ...] | None, *, shuffled: bool
    ) -> Examples:
        """A corpus as examples: `shuffled` ones to learn from, others to be evaluated on, each counted once."""

    def logits(self, network: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """How likely each answer [..., C] is for each goal [...] of a batch."""
        return output(network, batch).logits

    def loss(self, network: Any, batch: Mapping[str, Tensor], settings: Settings) -> Tensor:
        """The mean loss of the goals of a batch, in nats; nothing waits for the device."""
        return cross_entropy(self.logits(network, batch), batch["goals"], smoothing=settings.label_smoothing)

    @abstractmethod
    def evaluate(self, network: Any, examples: Examples, device: Any, settings: Settings) -> dict[str, float]:
        """The scores of a network: its loss without label smoothing, and those that belong to the task."""

    @abstractmethod
    def chance(self, examples: Examples, training: Examples, settings: Settings) -> dict[str, float]:
        """What guessing gives for the same scores, by one who knows only how often each goal occurs in training."""


def output(network: Any, batch: Mapping[str, Tensor]) -> Any:
    """What a network makes of a batch; a network that would keep its keys and values does not keep them."""
    inputs: dict[str, Any] = {name: tensor for name, tensor in batch.items() if name != "goals"}
    if getattr(network.config, "use_cache", False):
        inputs["use_cache"] = False
    return network(**inputs)


def cross_entropy(logits: Tensor, goals: Tensor, *, smoothing: float = 0.0, total: bool = False) -> Tensor:
    """The cross-entropy [] in nats of logits [..., C] with goals [...]; the mean over goals that are not IGNORED."""
    return F.cross_entropy(
        logits.flatten(0, -2).float(),
        goals.flatten(),
        ignore_index=IGNORED,
        label_smoothing=smoothing,
        reduction="sum" if total else "mean",
    )


def moved(batch: Mapping[str, Tensor], device: Any) -> Batch:
    """The tensors of a batch on a device."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


@contextmanager
def evaluating(network: Any) -> Generator[None, None, None]:
    """A network without dropout and gradients; afterwards it is in the mode it was in."""
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        network.train(training)
