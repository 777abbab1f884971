"""Pellucid opens any Hugging Face transformer and shows what it has learned, where it keeps it and what it uses.

Names are loaded when first used, so that importing the package loads neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid import attribution, heads, identifiability, neurons, overview, similarity, studies, train, views, zoo
    from pellucid.collect.build import build_store
    from pellucid.collect.class_histograms import ClassHistograms
    from pellucid.collect.classes import ClassMoments
    from pellucid.collect.counts import HeadCounts
    from pellucid.collect.divergence import HeadDivergence
    from pellucid.collect.documents import DocumentSample
    from pellucid.collect.found import Found
    from pellucid.collect.head_moments import HeadMoments
    from pellucid.collect.head_targets import HeadTargets
    from pellucid.collect.moments import Moments
    from pellucid.collect.quantiles import Quantiles
    from pellucid.collect.replay import replay
    from pellucid.collect.sample import TokenSample
    from pellucid.collect.store import Store
    from pellucid.collect.surprise import Surprise
    from pellucid.collect.sweep import sweep
    from pellucid.collect.topk import TopContexts
    from pellucid.collect.traces import Traces
    from pellucid.corpus import Corpus, Sentence
    from pellucid.errors import PellucidError
    from pellucid.model import Batch, Captured, Edit, Generation, Model, Run, Site
    from pellucid.results import Result

__version__ = "0.3.0"

_HOMES = {
    "Batch": "pellucid.model.batch",
    "Captured": "pellucid.model.run",
    "ClassHistograms": "pellucid.collect.class_histograms",
    "ClassMoments": "pellucid.collect.classes",
    "Corpus": "pellucid.corpus",
    "DocumentSample": "pellucid.collect.documents",
    "Edit": "pellucid.model.edits",
    "Found": "pellucid.collect.found",
    "Generation": "pellucid.model.run",
    "HeadCounts": "pellucid.collect.counts",
    "HeadDivergence": "pellucid.collect.divergence",
    "HeadMoments": "pellucid.collect.head_moments",
    "HeadTargets": "pellucid.collect.head_targets",
    "Model": "pellucid.model.model",
    "Moments": "pellucid.collect.moments",
    "PellucidError": "pellucid.errors",
    "Quantiles": "pellucid.collect.quantiles",
    "Result": "pellucid.results",
    "Run": "pellucid.model.run",
    "Sentence": "pellucid.corpus",
    "Site": "pellucid.model.sites",
    "Store": "pellucid.collect.store",
    "Surprise": "pellucid.collect.surprise",
    "TokenSample": "pellucid.collect.sample",
    "TopContexts": "pellucid.collect.topk",
    "Traces": "pellucid.collect.traces",
    "build_store": "pellucid.collect.build",
    "replay": "pellucid.collect.replay",
    "sweep": "pellucid.collect.sweep",
}
_PACKAGES = (
    "attribution",
    "heads",
    "identifiability",
    "neurons",
    "overview",
    "similarity",
    "studies",
    "train",
    "views",
    "zoo",
)
"""Topics that are reached through the package: `pellucid.heads.statistics(found)`."""

__all__ = [
    "Batch",
    "Captured",
    "ClassHistograms",
    "ClassMoments",
    "Corpus",
    "DocumentSample",
    "Edit",
    "Found",
    "Generation",
    "HeadCounts",
    "HeadDivergence",
    "HeadMoments",
    "HeadTargets",
    "Model",
    "Moments",
    "PellucidError",
    "Quantiles",
    "Result",
    "Run",
    "Sentence",
    "Site",
    "Store",
    "Surprise",
    "TokenSample",
    "TopContexts",
    "Traces",
    "__version__",
    "attribution",
    "build_store",
    "heads",
    "identifiability",
    "neurons",
    "overview",
    "replay",
    "similarity",
    "studies",
    "sweep",
    "train",
    "views",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"pellucid.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'pellucid' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
