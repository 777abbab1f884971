"""Completeness: whether attributions add up to the change of the target between baseline and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pellucid.attribution.sweep import Swept
from pellucid.model.sites import Site

if TYPE_CHECKING:
    from torch import Tensor

_CANCELLING = 0.1
"""Where tokens cancel, so that the target hardly changes, errors are judged by this share of their total size."""


@dataclass(frozen=True, eq=False)
class Sum:
    """Sums [targets, B] of a method's attributions at a place, what they should be, and the tokens' total size."""

    method: str
    place: str
    total: Tensor
    wanted: Tensor
    size: Tensor

    @property
    def error(self) -> Tensor:
        """The difference, relative to the target's change (or to the size of tokens that cancel)."""
        scale = torch.maximum(self.wanted.abs(), _CANCELLING * self.size).clamp(min=1e-12)
        return (self.total - self.wanted).abs() / scale


def sums(swept: Swept) -> list[Sum]:
    """The sums of complete methods at every place through which all must pass.

    Conductance adds up at the input and in the stream between blocks, not at a sub-layer that the stream runs past. A
    model with two stacks has such a place at its inputs only, all of them together.
    """
    found: list[Sum] = []
    for method in ("integrated_gradients", "conductance", "shapley"):
        sites = [site for name, number, site in swept.parts if name == method and number == 0]
        if not sites:
            continue
        assert swept.start is not None  # these methods have a baseline
        if all(site in sites for site in swept.inputs):
            found.append(_sum(swept, method, swept.inputs, swept.start))
        for site in sites:
            if method == "integrated_gradients" and site in swept.starts:
                found.append(_sum(swept, method, [site], swept.starts[site]))
            elif method == "conductance" and site.kind in swept.cuts - {"embed"} and len(swept.inputs) == 1:
                found.append(_sum(swept, method, [site], swept.start))
    return found


def _sum(swept: Swept, method: str, sites: Sequence[Site], start: Tensor) -> Sum:
    numbers = range(len(swept.end))
    parts = [torch.stack([swept.parts[method, number, site] for number in numbers]) for site in sites]
    tokens = torch.cat([_per_token(part, site) for part, site in zip(parts, sites, strict=True)], dim=2)
    place = " + ".join(map(str, sites))
    return Sum(method, place, tokens.sum(dim=2), swept.end - start, tokens.abs().sum(dim=2))


def _per_token(part: Tensor, site: Site) -> Tensor:
    """Attributions [targets, B, …] with all but the tokens' axis summed, [targets, B, T]; a pattern's is its last."""
    if not site.per_head:
        return part.sum(dim=3)
    return part.sum(dim=(2, 3)) if site.kind == "pattern" else part.sum(dim=(2, 4))
