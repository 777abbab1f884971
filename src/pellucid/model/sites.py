"""Sites: the named places of a network, and the patterns that select several of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from pellucid.errors import SiteError, listing

KINDS = (
    "embed",
    "resid",
    "query",
    "key",
    "value",
    "pattern",
    "heads",
    "attn",
    "mid",
    "routing",
    "neurons",
    "mlp",
    "logits",
)
"""Every kind of site of a transformer, in the order in which a block produces them."""

MEANINGS = {
    "embed": "the embedding of each token",
    "resid": "the stream of vectors that runs through the model; .0 enters the first block",
    "query": "what each head looks for",
    "key": "what each head is found by",
    "value": "what each head would pass on",
    "pattern": "attention weights: how much each token takes from each other one",
    "heads": "the output of each attention head",
    "attn": "what attention adds to the stream",
    "mid": "the stream between attention and the MLP",
    "routing": "the weight given to each expert",
    "neurons": "hidden units of the MLP",
    "mlp": "what the MLP adds to the stream",
    "logits": "the model's scores for its answer",
}
"""What each kind of site is, in plain words."""

STACKS = ("encoder", "decoder", "cross")
HEAD_KINDS = frozenset({"query", "key", "value", "pattern", "heads"})
"""Kinds whose tensors have one slice per attention head."""

CUSTOM = "custom"
_UNNUMBERED = frozenset({"embed", "logits", CUSTOM})


@dataclass(frozen=True)
class Site:
    """A named place in the network: `Site("neurons", 5)` is written `neurons.5`.

    `layer` counts blocks from 0 (for `resid`, the stream before block `layer`); it is None for `embed` and `logits`,
    and the name of the place for `custom` sites of a wrapped module.
    """

    kind: str
    layer: int | str | None = None
    stack: str | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.kind, self.layer, self.stack)))  # looked up at every tap
        if self.kind not in KINDS and self.kind != CUSTOM:
            close = difflib.get_close_matches(self.kind, KINDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise SiteError(
                f"There is no kind of site called {self.kind!r}; the kinds are {listing(KINDS, most=20)}.{hint}"
            )
        if self.stack is not None and self.stack not in STACKS:
            raise SiteError(f"There is no stack called {self.stack!r}; the stacks are {listing(STACKS)}.")
        if self.kind not in _UNNUMBERED and not isinstance(self.layer, int):
            raise SiteError(f"A {self.kind!r} site needs a layer number, as in '{self.kind}.0'; got {self.layer!r}.")

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Site], tuple[str, int | str | None, str | None]]:
        return Site, (self.kind, self.layer, self.stack)  # a stored hash would hold for one process only

    def __str__(self) -> str:
        if self.kind == CUSTOM:
            return str(self.layer)
        parts = (self.stack, self.kind, self.layer)
        return ".".join(str(part) for part in parts if part is not None)

    @property
    def per_head(self) -> bool:
        """Whether the tensor is [B, H, T, ·], one slice per attention head."""
        return self.kind in HEAD_KINDS

    @cache  # noqa: B019  # sites are few, and asked for again at every pass
    def beside(self, kind: str, layer: int | None = None) -> Site:
        """The site of another kind in the same stack and block (or in block `layer`)."""
        return Site(kind, self.layer if layer is None else layer, self.stack)


def expand(wanted: str | Site | Iterable[str | Site], existing: Sequence[Site]) -> tuple[Site, ...]:
    """The existing sites that the given names and patterns select, each once, in the order asked for.

    `resid.*` takes every layer, `neurons.3-5` a range, `*.pattern.*` every stack; commas join several. A name that
    selects nothing raises and lists what exists.
    """
    items = [wanted] if isinstance(wanted, (str, Site)) else list(wanted)
    found: dict[Site, None] = {}
    for item in items:
        if isinstance(item, Site):
            if item not in existing:
                raise SiteError(_nothing(str(item), existing))
            found[item] = None
            continue
        patterns = [part.strip() for part in item.split(",")]
        if not all(patterns):
            raise SiteError(f"{item!r} holds an empty name, which means no site. This model has {describe(existing)}.")
        for pattern in patterns:
            found.update(dict.fromkeys(_select(pattern, existing)))
    return tuple(found)


def single(wanted: str | Site, existing: Sequence[Site]) -> Site:
    """The one existing site that a name means."""
    found = expand(wanted, existing)
    if len(found) != 1:
        raise SiteError(f"{str(wanted)!r} means {len(found)} sites ({listing(found)}); exactly one is needed here.")
    return found[0]


def _select(pattern: str, existing: Sequence[Site]) -> list[Site]:
    if pattern == "*":
        return list(existing)
    custom = [
        site for site in existing if site.kind == CUSTOM and pattern in (str(site), f"{CUSTOM}.{site}", f"{CUSTOM}.*")
    ]
    if custom:
        return custom
    parts = pattern.split(".")
    stack = parts.pop(0) if parts[0] in STACKS or (parts[0] == "*" and len(parts) > 1) else None
    if len(parts) not in (1, 2):
        raise SiteError(_nothing(pattern, existing))
    kind, layer = parts[0], parts[1] if len(parts) == 2 else None
    chosen = [
        site
        for site in existing
        if site.kind != CUSTOM
        and (stack == "*" or site.stack == stack)
        and kind in ("*", site.kind)
        and _layer_fits(layer, site.layer)
    ]
    if not chosen:
        raise SiteError(_nothing(pattern, existing))
    return chosen


def _layer_fits(wanted: str | None, layer: int | str | None) -> bool:
    if wanted is None or layer is None:
        return wanted is None and layer is None
    if wanted == "*":
        return True
    span = re.fullmatch(r"(\d+)-(\d+)", wanted)
    if span:
        return int(span[1]) <= int(layer) <= int(span[2])
    return wanted == str(layer)


def _nothing(pattern: str, existing: Sequence[Site]) -> str:
    """Why a pattern selects nothing, what exists, and the nearest name."""
    names = [str(site) for site in existing]
    close = (
        difflib.get_close_matches(pattern, names, n=1) or [name for name in names if name.endswith(f".{pattern}")][:1]
    )
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"No site matches {pattern!r}. This model has {describe(existing)}.{hint}"


def describe(sites: Iterable[Site]) -> str:
    """Sites in short form, as patterns: `embed, resid.0-12, heads.0-11`."""
    layers: dict[tuple[str | None, str], list[int]] = {}
    plain: list[str] = []
    for site in sites:
        if isinstance(site.layer, int):
            layers.setdefault((site.stack, site.kind), []).append(site.layer)
        else:
            plain.append(str(site))
    for (stack, kind), numbers in layers.items():
        name = f"{stack}.{kind}" if stack else kind
        whole = numbers == list(range(numbers[0], numbers[-1] + 1))
        plain.append(
            f"{name}.{numbers[0]}-{numbers[-1]}"
            if whole and len(numbers) > 1
            else f"{name}.{','.join(map(str, numbers))}"
        )
    return listing(plain, most=40)
