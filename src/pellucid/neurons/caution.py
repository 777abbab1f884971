"""Warnings of rankings that work but say less, or something else, than they seem to."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid.neurons.concepts import Concept


class NeuronWarning(UserWarning):
    """A result on neurons that was made, and what to know about it; Python's `warnings` can silence it."""


def warn_of_sentence_labels(about: Mapping[str, Any], concept: Concept, *, stacklevel: int) -> None:
    """Warns where rows of a sweep or store are words, and all words of a sentence have the same class."""
    from pellucid.collect.sentence_rows import is_whole

    if concept.of_sentences(about.get("facts", ())) and not is_whole(about["reading"]["pooling"]):
        warnings.warn(
            f"All words of a sentence have the same {concept.name!r}, and chance deals labels out among single words, "
            "so neurons without a link look better than chance; rank whole sentences: pooling='sentence-mean'.",
            NeuronWarning,
            stacklevel=stacklevel + 1,
        )
