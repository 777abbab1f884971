"""Sweeping for heads: analyses of heads read a finished sweep, or make one from a model and a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.collect.counts import HeadCounts
from pellucid.collect.found import Found
from pellucid.collect.head_targets import HeadTargets
from pellucid.reading import view_with
from pellucid.results import Coordinate, ResultError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pellucid.collect.collector import Collector
    from pellucid.collect.head_targets import HeadTargetsView
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.model.sites import Site


def reading_stack(sites: Iterable[Site]) -> str | None:
    """The stack whose self-attention reads the text, as it stands in names of sites: "" or "encoder."; None without."""
    stacks = {site.stack for site in sites if site.kind == "pattern"}
    if None in stacks:
        return ""
    return "encoder." if "encoder" in stacks else None


def patterns_of(model: Model, *, side: str = "source") -> str:
    """The sites of a model's self-attention weights over the text, or over a decoder's own where `side` is `target`.

    A model without any is refused.
    """
    stack = reading_stack(model.sites)
    if side == "target":
        if not any(site.kind == "pattern" and site.stack == "decoder" for site in model.sites):
            raise ResultError(f"{model.name!r} shows no weights of a decoder that reads a text of its own.")
        return "decoder.pattern.*"
    if stack is None:
        missing = [f"{name}: {reason}" for name, reason in model.missing.items() if "pattern" in name]
        raise ResultError(
            f"{model.name!r} shows no self-attention weights ({'; '.join(missing) or 'it has none'}), so there are no "
            "heads to tell about."
        )
    return f"{stack}pattern.*"


def head_collectors(model: Model, *, label: str = "upos", side: str = "source") -> tuple[Collector, ...]:
    """All that the analyses of heads read in one pass; give the sweep the same `side`."""
    sites = patterns_of(model, side=side)
    return HeadCounts(sites), HeadTargets(sites, label=label)


def swept(source: Found | Model, corpus: Corpus | None, *collectors: Collector) -> Found:
    """The given sweep, or a new one of a model over a corpus."""
    if isinstance(source, Found):
        if corpus is not None:
            raise ResultError("A finished sweep has its corpus already; give a sweep, or a model and a corpus.")
        return source
    if corpus is None:
        raise ResultError(f"The model {source.name!r} alone shows nothing; give a corpus to read, or a finished sweep.")
    from pellucid.collect.sweep import sweep

    return sweep(source, corpus, collectors or head_collectors(source), progress=False)


def targets(found: Found) -> tuple[HeadTargetsView, dict[Coordinate, str]]:
    """What the heads of the first model look for, and its keys by layer."""
    view, mine = view_with(found, HeadTargets, "pattern", ask="HeadTargets()")
    empty = [key for key in mine.values() if not view.n(key)]
    if empty:
        raise ResultError(f"No query word was counted at {empty[0]!r}; give the sweep a corpus with words.")
    return view, mine
