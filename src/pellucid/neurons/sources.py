"""Sources of a ranking: a finished sweep, a store on disk, or a model and a corpus that is swept now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pellucid.errors import listing
from pellucid.neurons.concepts import Concept
from pellucid.reading import control as control_of
from pellucid.results import ResultError

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector
    from pellucid.collect.found import Found
    from pellucid.collect.store import Store
    from pellucid.corpus import Corpus
    from pellucid.model import Model
    from pellucid.model.sites import Site

Sites = str | Sequence[str] | None
"""Patterns of sites, such as `"resid.*"`; None takes all that there are (residual stream and MLP units of a model)."""
Gather = Callable[[tuple[str, ...], str], Sequence["Collector"]]
"""The collectors that a ranking needs, from patterns of sites and the label's name."""


def patterns(sites: Sites) -> tuple[str, ...]:
    """Patterns as a tuple; empty for None."""
    return () if sites is None else (sites,) if isinstance(sites, str) else tuple(sites)


def usual_sites(sites: Sequence[Site], side: str = "source") -> tuple[str, ...]:
    """The residual stream and the MLP units of the stack that reads the text, or that writes the `target`."""
    found: list[str] = []
    for kind in ("resid", "neurons"):
        stacks = {site.stack for site in sites if site.kind == kind}
        if stacks:
            stack = "decoder" if side == "target" else "encoder"
            found.append(f"{kind}.*" if None in stacks else f"{stack}.{kind}.*")
    if not found:
        raise ResultError("This model shows neither a residual stream nor MLP units; name the sites to rank.")
    return tuple(found)


def found_in(
    source: Found | Store | Model,
    corpus: Corpus | None,
    concept: Concept,
    gather: Gather,
    *,
    sites: Sites = None,
    control: bool = True,
    seed: int = 0,
    pooling: str | None = None,
    **options: Any,
) -> Found:
    """What a ranking is made from.

    A model reads the corpus beside its randomly initialised twin (`control`), by default with the pooling `mean` (with
    `pooling="sentence-mean"` and the like, rows are whole sentences); `options` are others of `sweep`. Without
    `control`, the twin of a store or sweep is left out.
    """
    from pellucid.collect.found import Found
    from pellucid.collect.labelled_store import labelled_store
    from pellucid.collect.replay import replay
    from pellucid.collect.store import Store
    from pellucid.collect.sweep import sweep
    from pellucid.neurons.store_rows import store_keys

    if isinstance(source, (Found, Store)):
        check_read(source, corpus, options)
        check_pooling(source, pooling)
    if isinstance(source, Found):
        return source if control else without_control(source)
    if isinstance(source, Store):
        chosen = (patterns(sites) or source.keys) if control else store_keys(source, sites)
        return replay(labelled_store(source, concept), gather(chosen, concept.name), progress=False)
    if corpus is None:
        raise ResultError("A model needs a corpus to read: rank(model, corpus, concept=…).")
    models = [source, type(source).random_like(source, seed)] if control else [source]
    chosen = patterns(sites) or usual_sites(source.sites, options.get("side", "source"))
    return sweep(models, corpus.labelled(concept), gather(chosen, concept.name), pooling=pooling or "mean", **options)


def check_read(source: object, corpus: Corpus | None, options: Mapping[str, Any]) -> None:
    """Raises where a corpus or options of reading it are given with a sweep or store, which was read already."""
    name = type(source).__name__
    if corpus is not None:
        raise ResultError(f"A {name} has its text already; give a corpus with a model only.")
    if options:
        raise ResultError(f"A {name} was read already and has no use for {listing(options)}; give these with a model.")


def without_control(found: Found) -> Found:
    """The same sweep, whose randomly initialised twin is left out of rankings and surveys."""
    return replace(found, about={**found.about, "control": False})


def check_pooling(source: object, pooling: str | None) -> None:
    """Raises where another pooling is asked for than a sweep or store was read with."""
    from pellucid.collect.found import Found
    from pellucid.collect.store import Store

    if not isinstance(source, (Found, Store)):
        return
    own = source.about["reading"]["pooling"]
    if pooling not in (None, own):
        raise ResultError(
            f"The text of this {'sweep' if isinstance(source, Found) else 'store'} was read with pooling={own!r}, not "
            f"with {pooling!r}; leave pooling out, or read the text again."
        )


def view_of(
    found: Found, kind: type[Collector], concept: Concept, sites: Sites, **settings: str
) -> tuple[Any, list[str]]:
    """The view of a collector that tells the concept apart, and its keys of the first model.

    Of several, the one with most sites counts; among those, one that has variances, then one that kept document groups
    apart. `settings` are those that it must have, such as `covariance="full"`.
    """
    from pellucid.collect.collector import keys, split_key

    asked = patterns(sites)
    wanted = None if not asked else set(keys(found.models, tuple(_first(each) for each in asked)))
    having: list[tuple[int, bool, bool, Any, list[str]]] = []
    labels: list[str] = []
    for name, each in found.collectors.items():
        if not isinstance(each, kind) or any(getattr(each, name) != value for name, value in settings.items()):
            continue
        label = str(getattr(each, "label", ""))
        labels.append(label)
        if label not in (concept.name, concept.base):
            continue
        _check_rule(found, label, concept)
        view = found[name]
        own = [key for key in view.keys if split_key(key)[0] == 0 and (wanted is None or key in wanted)]
        if own:
            spread = getattr(each, "covariance", "none") != "none"
            having.append((len(own), spread, bool(view.groups), view, own))
    if not having:
        told = f"of the labels {listing(labels)}" if labels else "none"
        needed = "".join(f", {name}={value!r}" for name, value in settings.items())
        raise ResultError(
            f"Ranking neurons for {concept.name!r} needs {kind.__name__}(sites, label={concept.name!r}{needed}); those "
            f"of this sweep are {told}, or not of the sites {listing(asked) if asked else 'of the model'}."
        )
    *_, view, own = max(having, key=lambda each: each[:3])
    return view, own


def _check_rule(found: Found, label: str, concept: Concept) -> None:
    """Raises where a label has the concept's name and not its rule; sweeps of older versions do not tell rules."""
    if label != concept.base and "rules" in found.about and found.about["rules"].get(label) != concept.rule:
        raise ResultError(
            f"The label {label!r} of this sweep does not come from the concept of that name that was asked for; sweep "
            "Corpus.labelled(concept), under another name if both are needed."
        )


def _first(pattern: str) -> str:
    number, colon, _ = pattern.partition(":")
    return pattern if colon and number.isdigit() else f"0:{pattern}"


def site_of(key: str) -> str:
    """A key's site, without the number of its model."""
    number, colon, name = key.partition(":")
    return name if colon and number.isdigit() else key


def twin_keys(found: Found, view: Any, own: Sequence[str]) -> list[str]:
    """The keys of the randomly initialised twin that stand beside those of the model; empty where there is no twin."""
    twin = control_of(found.models) if found.about.get("control", True) else None
    if twin is None:
        return []
    beside = [f"{twin}:{site_of(key)}" for key in own]
    return beside if all(key in view.keys for key in beside) else []
