"""What tasks that tell classes apart have in common, whether words have them or whole sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pellucid.errors import TrainError, listing
from pellucid.train.tasks.base import Examples, Task
from pellucid.train.tasks.scores import counted, guessing_classes, macro_f1, tallied

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.train.settings import Settings


class TellingApart(Task):
    """A task whose goals are classes that a corpus names."""

    best, larger_is_better = "accuracy", True

    def evaluate(self, network: Any, examples: Examples, device: Any, settings: Settings) -> dict[str, float]:
        """Loss, accuracy and macro F1."""
        tally = tallied(network, examples, device, classes=examples.classes)
        return {"loss": tally.loss(), "accuracy": tally.accuracy(), "f1": macro_f1(tally.confusion())}

    def chance(self, examples: Examples, training: Examples, settings: Settings) -> dict[str, float]:
        """Everything is taken for the class that is most frequent in training."""
        return guessing_classes(counted(examples), counted(training))


def chosen_name(names: Sequence[str], settings: Settings, *, of: str, kind: str, without: str) -> str:
    """Which of a corpus's labels or facts to learn: the one asked for, or the only one; `without` says there is none.

    `of` names who has them (the words, the sentences), and `kind` what they are called.
    """
    if settings.label is None and len(names) == 1:
        return names[0]
    if settings.label is not None and settings.label in names:
        return settings.label
    if not names:
        raise TrainError(without)
    wanted = f"several {kind}s" if settings.label is None else f"no {kind} {settings.label!r}"
    raise TrainError(f"{of} have {wanted}; choose one of {listing(names, most=60)} as label.")


def refuse_unknown(values: set[str], name: str, corpus: Corpus) -> None:
    """Refuses classes that were not in the training corpus: the network has no output for them."""
    if values:
        raise TrainError(
            f"{corpus.name} has values of {name!r} that the training corpus lacks: {listing(sorted(values))}. "
            "Leave such sentences out with Corpus.filter, or train on text that has them."
        )
