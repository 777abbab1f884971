"""Warnings as sentences, instead of Python's own lines."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager

from pellucid.cli._print import console


def _print(line: str) -> None:
    console(stderr=True).print(line, markup=False)


@contextmanager
def careful(say: Callable[[str], None] = _print) -> Generator[None]:
    """Tells Pellucid's own warnings about scores and neurons, each once, when the work is done."""
    from pellucid.neurons.caution import NeuronWarning
    from pellucid.similarity.caution import SimilarityWarning

    ours = (NeuronWarning, SimilarityWarning)
    with warnings.catch_warnings(record=True) as caught:
        for each in ours:
            warnings.simplefilter("always", each)
        yield
    for text in dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, ours)):
        say(f"Careful: {text}")


@contextmanager
def without(beginning: str) -> Generator[None]:
    """Leaves out warnings of neurons that begin so, of which something was said already."""
    from pellucid.neurons.caution import NeuronWarning

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", re.escape(beginning), NeuronWarning)
        yield
