"""What a concept asks of a model's own task: its labels, or of a language model the words that it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from pellucid.corpus.align import word_index
from pellucid.errors import listing
from pellucid.heads.weighing.measuring import LABELLED
from pellucid.neurons.concepts import Concept, scored
from pellucid.neurons.judging.ablating import EVERY, goal_classes
from pellucid.neurons.word_properties import PROPERTIES
from pellucid.results import Array, ResultError
from pellucid.train.tasks.encode import alone, cut, encoded, frame, own
from pellucid.train.tasks.rows import IGNORED, Around, Padded, Ragged

if TYPE_CHECKING:
    from pellucid.heads.weighing.measuring import Measured

_NONE = -1


@dataclass(frozen=True, eq=False)
class GoalWords:
    """The class of the word that each goal is a part of: `classes` by number, and −1 for goals without one."""

    classes: tuple[str, ...]
    rows: Ragged
    held: Padded

    def codes(self, step: int) -> Tensor:
        """The number of the class [B, T] of every goal of a batch, laid out as its goals are."""
        return self.rows.padded(self.held.order.rows(0, step), _NONE)[0]


@dataclass(frozen=True, eq=False)
class Aim:
    """The goals of a model whose answers count for a concept: `classes` of those that `name` tells apart.

    `words` are there where these tell the goals apart; the only class is `EVERY` where nothing does.
    """

    found: Measured
    concept: Concept
    words: GoalWords | None
    name: str
    classes: tuple[str, ...]


def aim(found: Measured, concept: Concept) -> Aim:
    """What a concept asks of a model's task; one that is about something else than what the model predicts raises."""
    words = goal_words(found, concept)
    every = goal_classes(found, words)
    if every == (EVERY,):
        return Aim(found, concept, None, told_of(found), every)
    counts = _counts(found, words, len(every))
    there = tuple(name for name, count in zip(every, counts, strict=True) if count)
    name, usual = (told_of(found), there if concept.base else ()) if words is None else (concept.name, scored(there))
    wanted = concept.classes or usual
    if not wanted or not set(wanted) <= set(there):
        raise ResultError(_refusal(found, concept, words is not None, listing(there, most=40)))
    return Aim(found, concept, words, name, wanted)


def _refusal(found: Measured, concept: Concept, of_words: bool, there: str) -> str:
    """Why a concept asks for none of a model's answers, and what to do."""
    if of_words:
        return (
            f"{found.model.name!r} is asked for no word of {concept.name!r} in {found.corpus.name}, so there is no "
            f"answer to look at{f'; it is asked for {there}' if there else ''}. Give more text, or another concept."
        )
    return (
        f"Ablation ranks neurons by what {found.model.name!r} itself predicts, {told_of(found)} ({there}), and "
        f"{concept.name!r} is not among it: name one of these, or rank by another method."
    )


def told_of(found: Measured) -> str:
    """What a model's answers are about: the label that it predicts, or its task."""
    return str(found.settings.label) if found.task.name in LABELLED else found.task.name


def _counts(found: Measured, words: GoalWords | None, classes: int) -> Array:
    """The goals [classes] of each class."""
    total = np.zeros(classes, np.int64)
    for step in range(found.steps()):
        goals = found.examples.batch(0, step)["goals"]
        codes = (goals if words is None else words.codes(step))[goals != IGNORED]
        total += np.bincount(codes[codes >= 0].numpy(), minlength=classes)
    return total


def goal_words(found: Measured, concept: Concept) -> GoalWords | None:
    """The classes that a concept gives to the words a model is asked for; None where its goals are no words of the
    text."""
    held = found.examples.held if isinstance(found.examples, Around) else found.examples
    if found.task.name not in ("lm", "mlm") or not isinstance(held, Padded):
        return None
    ready = concept.prepared(found.corpus)
    rows: list[list[str | None]] = []
    for sentence, encoding in encoded(own(found.model.tokenizer), found.corpus, alone):
        index, values = word_index(encoding.offsets, sentence.spans), ready.of(sentence)
        told = [values[word] if word >= 0 else None for word in index]
        rows += [[told[place] for place in part] for part in _goals(found, encoding, index, sentence.id)]
    there = {value for row in rows for value in row if value is not None}
    order = PROPERTIES.get(concept.about, ())
    rank = {name: place for place, name in enumerate(order)}
    classes = tuple(sorted(there, key=lambda name: (concept.late(name), rank.get(name, len(order)), name)))
    number = {name: place for place, name in enumerate(classes)}
    codes = [[_NONE if value is None else number[value] for value in row] for row in rows]
    return GoalWords(classes, Ragged.of(codes), held)


def _goals(found: Measured, encoding: Any, index: Sequence[int], name: str) -> list[list[int]]:
    """The tokens of a sentence that stand where goals are, row by row, as the task lays them out."""
    length, total = found.settings.length, len(encoding.ids)
    if found.task.name == "lm":
        starts = range(0, total - 1, length)
        return [list(range(first + 1, min(first + length, total - 1) + 1)) for first in starts]
    opening, closing = frame(encoding.special_tokens_mask)
    return cut(index, opening, closing, length=length, name=name)
