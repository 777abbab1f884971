"""Reading a sweep: which keys belong to which model and layer, and which model is the random control."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pellucid.errors import listing
from pellucid.results import Coordinate, ResultError

if TYPE_CHECKING:
    from pellucid.collect.collector import Collector, ModelFacts
    from pellucid.collect.found import Found
    from pellucid.model.sites import Site

_RANDOM = re.compile(r" \(random, seed \d+\)")


def control(models: Sequence[ModelFacts]) -> int | None:
    """The number of the first model's randomly initialised twin, known by the name `random_like` gives; or None."""
    return random_twin(models, 0)


def random_twin(models: Sequence[ModelFacts], number: int) -> int | None:
    """The number of a model's randomly initialised twin, or None where there is none.

    Where several models have one name, the first twin belongs to the first of them, the second to the second.
    """
    name = models[number].name
    twins = [
        other
        for other, model in enumerate(models)
        if model.name.startswith(name) and _RANDOM.fullmatch(model.name.removeprefix(name))
    ]
    before = sum(model.name == name for model in models[:number])
    return twins[before] if before < len(twins) else None


def is_random(models: Sequence[ModelFacts], number: int) -> bool:
    """Whether a model is the randomly initialised twin of another one of the sweep."""
    return any(random_twin(models, other) == number for other in range(len(models)) if other != number)


def layers(models: Sequence[ModelFacts], keys: Iterable[str], kind: str, *, model: int = 0) -> dict[Coordinate, str]:
    """The keys of one kind of site in one model, by layer: its number, or `encoder.3` where stacks are several."""
    named = {(f"{model}:{site}" if len(models) > 1 else str(site)): site for site in models[model].sites}
    found = {key: named[key] for key in keys if key in named and named[key].kind == kind}
    stacks = {site.stack for site in found.values()}
    return {_coordinate(site, len(stacks) > 1): key for key, site in found.items()}


def view_with(
    found: Found, collector: type[Collector], kind: str, *, ask: str, weights: str = "raw"
) -> tuple[Any, dict[Coordinate, str]]:
    """The view of the collector that has the first model's sites of a kind, and their keys by layer.

    Of several collectors of one class, one that has the random control's sites too goes before others, and one that
    kept document groups apart before one that did not. Those of attention are asked for by their `weights` too. Where
    none has such sites, the error says what to `ask` for.
    """
    every = [name for name, each in found.collectors.items() if isinstance(each, collector)]
    names = [name for name in every if getattr(found.collectors[name], "weights", "raw") == weights]
    if every and not names:
        other = listing(dict.fromkeys(str(getattr(found.collectors[name], "weights", "raw")) for name in every))
        raise ResultError(
            f"The sweep's {collector.__name__} hold {other} weights of heads, and {weights!r} ones were asked for; ask "
            f"for those that it holds (weights=), or sweep with {collector.__name__}(weights={weights!r})."
        )
    views = [found[name] for name in names] or [found[collector]]  # which raises, and lists what was collected
    having = [(view, mine) for view in views if (mine := layers(found.models, view.keys, kind))]
    twin = control(found.models)

    def worth(view: Any) -> tuple[bool, bool]:
        controlled = twin is not None and bool(layers(found.models, view.keys, kind, model=twin))
        return controlled, bool(getattr(view, "groups", ()))

    if having:
        return max(having, key=lambda each: worth(each[0]))  # the first of equals
    collected = listing(key for view in views for key in view.keys)
    raise ResultError(
        f"The sweep's {collector.__name__} have {collected}, and no {kind!r} of the model; sweep with {ask}."
    )


def _coordinate(site: Site, several: bool) -> Coordinate:
    if several or not isinstance(site.layer, int):
        return ".".join(str(part) for part in (site.stack, site.layer) if part is not None)
    return site.layer
