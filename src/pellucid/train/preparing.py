"""What a training needs before its first step: text held out, a vocabulary, a network, and prepared examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pellucid.errors import TrainError
from pellucid.train.architectures import build, fine_tuned, ready
from pellucid.train.intervals import in_groups
from pellucid.train.settings import Settings
from pellucid.train.tasks import TASKS
from pellucid.train.vocabulary import vocabulary_for

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.corpus.sentence import Sentence
    from pellucid.train.tasks.base import Examples, Task

SHARE = 10
"""Every so manieth document is held out where no validation text is given."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The network, its vocabulary, the classes it tells apart and the examples of each split."""

    task: Task
    network: Any
    tokenizer: Any
    labels: tuple[str, ...] | None
    training: Examples
    valid: Examples
    test: Examples | None
    groups: tuple[Examples, ...] = ()  # the test text again, in groups of documents


def held_out(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """A corpus in two parts by documents: nine tenths to learn from, and the rest to validate with."""
    documents: dict[str, int] = {}
    for sentence in corpus:
        documents.setdefault(sentence.document, len(documents))
    if len(documents) < SHARE:
        raise TrainError(
            f"{corpus.name} has {len(documents)} documents, too few to hold some out; give a text to validate with."
        )

    def kept(sentence: Sentence) -> bool:
        return documents[sentence.document] % SHARE != SHARE - 1

    def other(sentence: Sentence) -> bool:
        return not kept(sentence)

    return (
        corpus.filter(kept, name=f"all but every {SHARE}th document"),
        corpus.filter(other, name=f"every {SHARE}th document"),
    )


def prepare(corpus: Corpus, valid: Corpus, test: Corpus | None, settings: Settings) -> Prepared:
    """Everything that training needs, in memory; what does not fit together is said before anything is written."""
    task = TASKS[settings.task]
    labels = task.labels(corpus, settings)
    if settings.source is None:
        tokenizer = vocabulary_for(task.texts(corpus, settings), settings)
        network = build(settings, tokenizer, labels)
    else:
        network, tokenizer = fine_tuned(settings.source, settings, labels)
    ready(network, settings)
    training = task.examples(corpus, tokenizer, settings, labels, shuffled=True)
    others = [
        None if each is None else task.examples(each, tokenizer, settings, labels, shuffled=False)
        for each in (valid, test)
    ]
    assert others[0] is not None
    groups = () if test is None else in_groups(task, test, tokenizer, settings, labels)
    return Prepared(task, network, tokenizer, labels, training, others[0], others[1], groups)
