"""Names of heads: `3.2` is head 2 of layer 3; in an encoder–decoder `encoder.3.2`, `decoder.3.2` or `cross.3.2`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pellucid.errors import ModelError, SiteError, listing
from pellucid.model.sites import Site

if TYPE_CHECKING:
    from pellucid.model import Model

Head = tuple[Site, int]
"""A head: its site `heads.L`, and its number there. With grouped queries it is a query head."""


def head_name(site: Site, head: int) -> str:
    """The name of a head: LAYER.HEAD, after the stack where the model has several."""
    place = f"{site.layer}.{head}"
    return place if site.stack is None else f"{site.stack}.{place}"


def head_sites(model: Model) -> tuple[Site, ...]:
    """The sites `heads.L` of a model, in order; a model without any is refused."""
    found = tuple(site for site in model.sites if site.kind == "heads")
    if not found:
        raise ModelError(
            f"{model.name!r} has no attention heads whose outputs can be told apart, so none can be gated or removed; "
            "models with softmax attention over heads have sites called heads.0, heads.1 and so on."
        )
    return found


def all_heads(model: Model) -> tuple[Head, ...]:
    """Every head of a model, layer by layer."""
    return tuple((site, head) for site in head_sites(model) for head in range(model.size(site)[0]))


def find_heads(model: Model, names: Iterable[str]) -> tuple[Head, ...]:
    """The heads of some names, each once, in the model's order; an unknown name raises and says what exists."""
    known = {head_name(site, head): (site, head) for site, head in all_heads(model)}
    asked = [names] if isinstance(names, str) else list(names)
    for name in asked:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise SiteError(f"There is no head {name!r}; {model.name!r} has {_told(model)}.{hint}")
    wanted = set(asked)
    return tuple(head for name, head in known.items() if name in wanted)


def _told(model: Model) -> str:
    """The heads of a model in short form: `0.0 to 0.3, 1.0 to 1.3`."""
    spans = [
        f"{head_name(site, 0)} to {head_name(site, model.size(site)[0] - 1)}"
        for site in head_sites(model)
        if model.size(site)[0]
    ]
    return listing(spans, most=6)
