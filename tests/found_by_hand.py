"""What a sweep returns, put together by hand from collectors and a few batches: analyses are tested without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pellucid.collect.collector import Collector, ModelFacts, Setting
from pellucid.collect.found import Found
from pellucid.collect.plan import Counts
from pellucid.collect.state import State
from pellucid.collect.words import WordBatch
from pellucid.corpus import Sentence
from pellucid.model.sites import Site
from pellucid.results import versions


def facts(sizes: Mapping[Site, tuple[int, ...]], *, name: str = "tiny", causal: bool = True) -> ModelFacts:
    """A model that has only these sites."""
    by_name = {str(site): size for site, size in sizes.items()}
    return ModelFacts(name, f"print of {name}", tuple(sizes), by_name, causal, "eager", "float32")


def with_twin(model: ModelFacts) -> tuple[ModelFacts, ModelFacts]:
    """A model and its randomly initialised twin."""
    sizes = {site: model.sizes[str(site)] for site in model.sites}
    return model, facts(sizes, name=f"{model.name} (random, seed 0)", causal=model.causal)


def setting(models: Sequence[ModelFacts]) -> Setting:
    return Setting(tuple(models), "mean", torch.device("cpu"))


def found_of(
    models: Sequence[ModelFacts],
    states: Mapping[Collector, State],
    *,
    words: int = 100,
    frequent: Mapping[str, int] | None = None,
    sentences: Sequence[Sentence] = (),
) -> Found:
    """The states of some collectors as a finished sweep."""
    about = {
        "reading": {"pooling": "mean"},
        "corpus": {"name": "by hand", "fingerprint": "c0ffee", "unit": "document"},
        "versions": versions(),
        "groups": 10,
    }
    names = {collector: f"{number}-{collector.kind}" for number, collector in enumerate(states)}
    return Found(
        about,
        tuple(models),
        {name: collector for collector, name in names.items()},
        {name: states[collector] for collector, name in names.items()},
        {},
        Counts(sentences=len(sentences), documents=len(sentences), words=words, tokens=(words,)),
        dict(frequent or {}),
        dict(enumerate(sentences)),
    )


def word_batch(rows: Mapping[str, Any], *, group: int = 0, start: int = 0, sentence: int = 0) -> WordBatch:
    """Rows of several keys for the words of one sentence."""
    tensors = {key: torch.as_tensor(np.asarray(value), dtype=torch.float32) for key, value in rows.items()}
    count = len(next(iter(tensors.values())))
    places = np.arange(count)
    return WordBatch(tensors, np.full(count, sentence), places, places + start, group, {})


def gathered(collector: Collector, models: Sequence[ModelFacts], batches: Sequence[WordBatch]) -> State:
    """A collector's state over a few batches of rows."""
    accumulator = collector.open(setting(models))
    for batch in batches:
        accumulator.add(batch)
    return accumulator.state()
