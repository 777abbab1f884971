"""Intervals of a network's scores: how far they would move with other documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.errors import TrainError
from pellucid.train.tasks.rows import IGNORED
from pellucid.train.tasks.scores import perplexity
from pellucid.uncertainty import document_groups, jackknife

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.corpus.sentence import Sentence
    from pellucid.train.settings import Settings
    from pellucid.train.tasks.base import Examples, Task


def in_groups(
    task: Task, corpus: Corpus, tokenizer: Any, settings: Settings, labels: tuple[str, ...] | None
) -> tuple[Examples, ...]:
    """The examples of each group of a corpus's documents; none where a group is too small to be examples."""
    documents = [sentence.document for sentence in corpus]
    group = dict(zip(documents, document_groups(documents).tolist(), strict=True))
    found: list[Examples] = []
    for number in sorted(set(group.values())):

        def own(sentence: Sentence, number: int = number) -> bool:
            return group[sentence.document] == number

        try:
            found.append(
                task.examples(corpus.filter(own, name=f"group {number}"), tokenizer, settings, labels, shuffled=False)
            )
        except TrainError:
            return ()
    return tuple(found)


def intervals(
    task: Task, network: Any, groups: Sequence[Examples], scores: Mapping[str, float], device: Any, settings: Settings
) -> tuple[dict[str, tuple[float, float]], str]:
    """Both ends of the interval of every score, and what was resampled or why there is none.

    A score's deviation is that of the weighted mean of the groups' own scores, by a jackknife; perplexity is exp of the
    loss, and so are its ends.
    """
    if len(groups) < 2:
        return {}, "no interval: the text is too short to be cut into groups of documents"
    sizes = np.array([int((each.goals != IGNORED).sum()) for each in groups], dtype=np.float64)
    told = [task.evaluate(network, each, device, settings) for each in groups]
    found: dict[str, tuple[float, float]] = {}
    resampled = ""
    for name, score in scores.items():
        if name == "perplexity":
            continue
        own = np.array([each[name] for each in told])
        mean, total = (own * sizes).sum() / sizes.sum(), sizes.sum()
        without = [
            np.array((mean * total - value * size) / (total - size)) for value, size in zip(own, sizes, strict=True)
        ]
        made = jackknife(np.array(mean), without, sizes.tolist())
        assert made.low is not None and made.high is not None
        found[name] = score + float(made.low - mean), score + float(made.high - mean)
        resampled = made.resampled
    if "perplexity" in scores:
        low, high = found["loss"]
        found["perplexity"] = perplexity(low), perplexity(high)
    return {name: found[name] for name in scores if all(math.isfinite(end) for end in found[name])}, resampled
