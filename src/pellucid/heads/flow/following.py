"""The methods that follow information through a text, each from as few passes as it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from pellucid.errors import listing
from pellucid.heads.flow.attributing import RULE, STEPS, attributed, check_rule, the_target
from pellucid.heads.flow.graph import RESIDUAL, attention_flow, rollout
from pellucid.heads.flow.mixings import mixing, sites_of
from pellucid.heads.flow.norms import lengths
from pellucid.heads.flow.reading import eager, mean_pattern
from pellucid.results import Array, ResultError

if TYPE_CHECKING:
    from pellucid.attribution.targets import Target
    from pellucid.heads.flow.reading import Reading
    from pellucid.model import Run

METHODS = {
    "attention": "mean attention of a layer's heads",
    "rollout": "attention followed down to the input: the product of ½(attention + identity)",
    "flow": "the largest flow down to the input that ½(attention + identity) has room for",
    "norms": "length of the vector that a token adds through attention",
    "norms_residual": "length of what a token adds through attention and the residual stream",
    "norms_layernorm": "length of what a token adds through attention and residual stream, after the norm that follows",
    "attribution": "what weights did for the target: weight times mean gradient on the way up from zero",
}
"""The methods, and what each of them says."""
SHOWN = ("attention", "rollout", "norms_layernorm")
"""The methods that follow one text by default."""
HIDDEN = "hidden"
"""The method that this package does not have: it stands in `identifiability`, above attention."""
_NORMS = {"norms": "attention", "norms_residual": "residual", "norms_layernorm": "layernorm"}
SHORT = 2000
"""Layers × tokens² up to which attention flow looks at every position."""


@dataclass(frozen=True)
class Settings:
    """How information is followed: the residual stream's share, and how weights are scaled for attribution.

    With `heads`, maps of single heads are kept too.
    """

    residual: float = RESIDUAL
    target: str | Target | None = None
    steps: int = STEPS
    rule: str = RULE
    heads: bool = False

    def __post_init__(self) -> None:
        check_rule(self.rule, self.steps)


@dataclass(frozen=True)
class Check:
    """A check of one method's numbers at a layer: a phrase that ends in the error, and the error, as a share."""

    measure: str
    layer: int
    what: str
    error: float


@dataclass(frozen=True, eq=False)
class Maps:
    """Maps [layer, position, source] by method, those of heads [layer, head, position, source], and checks.

    `target` is the name of what attribution explained.
    """

    maps: dict[str, Array] = field(default_factory=dict[str, Array])
    heads: dict[str, Array] = field(default_factory=dict[str, Array])
    checks: tuple[Check, ...] = ()
    target: str | None = None

    def joined(self, other: Maps) -> Maps:
        """This and other methods' maps."""
        return Maps(
            {**self.maps, **other.maps},
            {**self.heads, **other.heads},
            (*self.checks, *other.checks),
            self.target or other.target,
        )


def chosen(methods: str | Iterable[str]) -> list[str]:
    """Methods by name, each once; one that does not exist raises and says which do."""
    items = methods.split(",") if isinstance(methods, str) else list(methods)
    names = list(dict.fromkeys(name.strip() for name in items if name.strip()))
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        hint = " Hidden token attribution is identifiability.hidden_flow." if HIDDEN in unknown else ""
        named = f"There is no method {unknown[0]!r}" if unknown else "No method was named"
        raise ResultError(f"{named} to follow information by; there are {listing(METHODS)}.{hint}")
    return names


def default_positions(reading: Reading, methods: Sequence[str]) -> tuple[int, ...]:
    """The positions that are looked at where none are named."""
    if "flow" not in methods or len(reading.sites) * reading.length**2 <= SHORT:
        return reading.positions
    return (-1,) if reading.causal else (0,)


def followed(reading: Reading, methods: Sequence[str], settings: Settings) -> Maps:
    """The maps of all methods, in their order."""
    found = Maps()
    weights = [name for name in methods if name != "attribution"]
    if weights:
        norms = any(name in _NORMS for name in weights)
        sites = [each for site in reading.sites for each in (sites_of(reading.model, site) if norms else (site,))]
        run = reading.model.run(reading.batch, sites, logits=False)
        found = _from_weights(reading, run, weights, settings)
        found = found.joined(_from_vectors(reading, run, weights, settings)) if norms else found
    if "attribution" in methods:
        found = found.joined(_from_gradients(reading, settings))
    return replace(found, maps={name: found.maps[name] for name in methods})


def _from_weights(reading: Reading, run: Run, methods: Sequence[str], settings: Settings) -> Maps:
    """What attention weights alone tell."""
    at, checks = list(reading.positions), tuple[Check, ...]()
    patterns = np.stack([mean_pattern(site, run[site]) for site in reading.sites])
    maps: dict[str, Array] = {}
    heads: dict[str, Array] = {}
    if "attention" in methods:
        maps["attention"] = patterns[:, at]
        if settings.heads:
            heads["attention"] = _by_head([run[site][0][:, at].double().cpu().numpy() for site in reading.sites])
    if "rollout" in methods:
        maps["rollout"] = rollout(patterns, residual=settings.residual)[:, at]
    if "flow" in methods:
        maps["flow"], error = attention_flow(patterns, positions=at, residual=settings.residual)
        checks = tuple(
            Check("flow", layer, "rounding moves a flow by at most", error) for layer in range(len(patterns))
        )
    return Maps(maps, heads, checks)


def _from_vectors(reading: Reading, run: Run, methods: Sequence[str], settings: Settings) -> Maps:
    """What weights times vectors tell."""
    at, names = list(reading.positions), [name for name in methods if name in _NORMS]
    told = [mixing(reading.model, site, run) for site in reading.sites]
    parts = [lengths(each) for each, _ in told]
    maps = {name: np.stack([getattr(part, _NORMS[name])[at].cpu().numpy() for part in parts]) for name in names}
    keep = settings.heads and "norms" in names
    heads = {"norms": _by_head([part.heads[:, at].cpu().numpy() for part in parts])} if keep else {}
    checks = [
        Check(name, layer, "sums of terms are off by at most", error)
        for name in names
        for layer, (_, error) in enumerate(told)
    ]
    return Maps(maps, heads, tuple(checks))


def _from_gradients(reading: Reading, settings: Settings) -> Maps:
    """Self-attention attribution, by passes with eager attention."""
    at = list(reading.positions)
    changed = replace(reading, model=eager(reading.model))
    target = the_target(changed, settings.target)
    layers = list(attributed(changed, target, steps=settings.steps, rule=settings.rule))
    maps = {"attribution": np.stack([each.values.sum(0)[at] for each in layers])}
    heads = {"attribution": _by_head([each.values[:, at] for each in layers])} if settings.heads else {}
    checks = [
        Check("attribution", layer, "sums over weights are off by at most", each.error)
        for layer, each in enumerate(layers)
    ]
    return Maps(maps, heads, tuple(checks), target.name)


def _by_head(layers: Sequence[Array]) -> Array:
    """Layers of equally many heads as one array."""
    if len({len(layer) for layer in layers}) > 1:
        raise ResultError("Layers with unequal numbers of heads have no common table; leave heads=True out.")
    return np.stack(layers)
