"""Sweeping for heads: analyses of heads read a finished sweep, or make one from a model and a corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.collect.counts import HeadCounts
from pellucid.collect.effective_weights import EFFECTIVE, RAW, WEIGHTS
from pellucid.collect.found import Found
from pellucid.collect.head_targets import HeadTargets
from pellucid.errors import listing
from pellucid.reading import view_with
from pellucid.results import Coordinate, ResultError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pellucid.collect.collector import Collector
    from pellucid.collect.head_targets import HeadTargetsView
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.model.sites import Site
    from pellucid.results import Result

SPREAD = "of absolute effective attention, each row of tokens summing to one"
"""What sums over effective attention are sums of."""
SIGNED = "of effective attention, by its signed numbers"
"""What the largest effective weight is the largest of."""


def weights_of(result: Result) -> str:
    """Which weights a result of heads was made from: raw or effective."""
    return str(result.provenance.arguments.get("weights", RAW))


def told_weights(result: Result) -> str:
    """The weights that a result was made from, in a sentence."""
    if weights_of(result) == RAW:
        return "Weights: the attention of the model."
    return (
        "Weights: effective attention, which gives the same output without the part that has no effect. It has signs, "
        "and its rows do not sum to one: the largest weight is told by the signed numbers, and everything else by the "
        "absolute values, each row of tokens summing to one before sub-words are joined to words."
    )


def phrases_of(result: Result, phrases: Mapping[str, str], *, signed: Iterable[str] = ()) -> dict[str, str]:
    """Phrases of measures, which say where they are of effective attention; those called `signed` are of argmaxes."""
    if weights_of(result) == RAW:
        return dict(phrases)
    ranked = set(signed)
    return {name: f"{phrase} ({SIGNED if name in ranked else SPREAD})" for name, phrase in phrases.items()}


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


def head_collectors(
    model: Model, *, label: str = "upos", side: str = "source", weights: str = RAW
) -> tuple[Collector, ...]:
    """All that the analyses of heads read in one pass; give the sweep the same `side`."""
    sites = patterns_of(model, side=side)
    check_readable(model, sites, weights)
    return HeadCounts(sites, weights=weights), HeadTargets(sites, label=label, weights=weights)


def check_readable(model: Model, sites: str, weights: str) -> None:
    """Raises for weights that there are none of, and for effective ones of a model that does not show its values."""
    if weights not in WEIGHTS:
        raise ResultError(f"There are no {weights!r} weights of heads; there are {listing(WEIGHTS)}.")
    stack = None if sites == "pattern.*" else sites.partition(".")[0]
    patterns = [site for site in model.sites if site.kind == "pattern" and site.stack == stack]
    absent = [site for site in patterns if site.beside("value") not in model.sites]
    if weights == EFFECTIVE and absent:
        why = [f"{name}: {reason}" for name, reason in model.missing.items() if "value" in name]
        raise ResultError(
            f"Effective attention needs the values of {absent[0]}, and {model.name!r} does not show them"
            f"{f' ({why[0]})' if why else ''}; use its raw weights."
        )


def swept(
    source: Found | Model, corpus: Corpus | None, *collectors: Collector, weights: str = RAW, random: bool = False
) -> Found:
    """The given sweep, or a new one of a model over a corpus; `random`: with a random model of its shape beside it."""
    if weights not in WEIGHTS:
        raise ResultError(f"There are no {weights!r} weights of heads; there are {listing(WEIGHTS)}.")
    if isinstance(source, Found):
        if corpus is not None:
            raise ResultError("A finished sweep has its corpus already; give a sweep, or a model and a corpus.")
        return source
    if corpus is None:
        raise ResultError(f"The model {source.name!r} alone shows nothing; give a corpus to read, or a finished sweep.")
    from pellucid.collect.sweep import sweep
    from pellucid.model.twin import twin_of

    twin = twin_of(source) if random else None
    models = [source] if twin is None else [source, twin]
    return sweep(models, corpus, collectors or head_collectors(source, weights=weights), progress=False)


def targets(found: Found, weights: str = RAW) -> tuple[HeadTargetsView, dict[Coordinate, str]]:
    """What the heads of the first model look for, and its keys by layer."""
    view, mine = view_with(found, HeadTargets, "pattern", ask="HeadTargets()", weights=weights)
    empty = [key for key in mine.values() if not view.n(key)]
    if empty:
        raise ResultError(f"No query word was counted at {empty[0]!r}; give the sweep a corpus with words.")
    return view, mine
