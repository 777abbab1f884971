"""BLEU without each head: translations written anew under every ablation, scored with each document group left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import ModelError
from pellucid.heads.weighing.ablating import heads_replaced
from pellucid.train.tasks.scores import bleu
from pellucid.train.tasks.translation import Translations, spread, translated

if TYPE_CHECKING:
    from pellucid.heads.weighing.measuring import Measured

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Written:
    """Translations of some sentences by the model as it is and without each head, in the order of the ablations.

    `groups` are the document groups of the sentences, `right` their own translations.
    """

    plain: tuple[str, ...]
    without_head: tuple[tuple[str, ...], ...]
    right: tuple[str, ...]
    groups: Array

    def change(self, without: int | None = None) -> Array:
        """BLEU without each head less that of the model as it is [ablations]; `without` leaves a group out."""
        kept = [place for place, group in enumerate(self.groups) if group != without]
        plain = _bleu(self.plain, self.right, kept)
        return np.array([_bleu(texts, self.right, kept) - plain for texts in self.without_head])

    def score(self) -> float:
        """BLEU of the model as it is."""
        return _bleu(self.plain, self.right, range(len(self.right)))


def translations_of(found: Measured) -> Translations:
    """The translations that a model is measured by; refused where it is no translator, or BLEU cannot be had."""
    if not isinstance(found.examples, Translations):
        raise ModelError(f"BLEU is a score of translations, and {found.model.name!r} is measured by {found.task.name}.")
    if bleu(["a"], ["a"]) is None:
        raise ModelError("BLEU needs the package sacrebleu, which is not installed; install it, or leave bleu out.")
    return found.examples


def written(
    found: Measured, replacements: Sequence[str], sentences: int, *, advance: Callable[[int], None] | None = None
) -> Written:
    """Translates some sentences, spread evenly over the corpus, once as the model is and once without each head."""
    examples = translations_of(found)
    chosen = spread(examples.sentences, sentences)

    def texts(edits: Any) -> tuple[str, ...]:
        network = found.passing(edits)
        return tuple(translated(network, examples, chosen, found.model.device, found.settings))

    held: dict[int, tuple[str, ...]] = {}
    for job, edit in heads_replaced(found, replacements):
        held[job.number] = texts(edit)
        if advance is not None:
            advance(1)
    right = tuple(examples.texts[row][1] for row in chosen.tolist())
    return Written(texts(()), tuple(held[number] for number in sorted(held)), right, found.groups[chosen.numpy()])


def _bleu(found: Sequence[str], right: Sequence[str], kept: Sequence[int]) -> float:
    measured = bleu([found[place] for place in kept], [right[place] for place in kept])
    assert measured is not None
    return measured
