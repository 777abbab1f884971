"""Ablation inside a model: heads, units or whole sites replaced at some tokens or at all, many to a pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pellucid.attribution.removal.groups import Groups, reads
from pellucid.attribution.removal.perturbation import Begin, Change, scored
from pellucid.attribution.sweep import Asked, Key, Swept, ends
from pellucid.errors import AttributionError
from pellucid.model import Edit
from pellucid.model.sites import Site

if TYPE_CHECKING:
    from pellucid.attribution.targets import Resolved
    from pellucid.model import Batch, Model

Array = np.ndarray[Any, Any]
_FEW = 16
"""Copies of a pass that is not worth the trial whether it can start late."""


@dataclass(frozen=True, eq=False)
class Removals:
    """What is replaced at a site, one thing per copy of the batch: copy k replaces `units[k]` at `tokens[at[k]]`.

    `units` [K] are heads or units (the whole site where None), `tokens` [rows, B, T] tells at which tokens (or, of
    width 1, at all), and `instead` comes in their place, broadcastable to the site's tensor [B, …] (zero where None).
    """

    site: Site
    units: Array | None
    tokens: Array
    at: Array
    instead: Tensor | None


def divisions(model: Model, site: Site, by: str) -> Array | None:
    """The heads or units that a site is divided into, or None where it is taken whole."""
    if by == "site" or (by == "head" and not site.per_head):
        return None
    size = model.size(site)
    return np.arange(size[0] if site.per_head else size[-1])


def replaced(model: Model, batch: Batch, site: Site, replacement: object, edits: Iterable[Edit] = ()) -> Tensor | None:
    """What a site's places are replaced by, broadcastable to [B, …]: None for zero, or a mean over each text's tokens.

    Anything else stands for what the site holds in a pass with `edits`, those that put the baseline in.
    """
    if site.kind == "logits":
        raise AttributionError("The logits are the answer itself: there is nothing to ablate; choose another site.")
    if isinstance(replacement, str) and replacement == "zero":
        return None
    if not isinstance(replacement, str) or replacement != "mean":
        return model.run(batch, [site], edits)[site].detach().clone()
    if site.kind == "pattern":
        raise AttributionError(f"{site} holds weights that have no mean over the text; replace them by zero.")
    tensor: Tensor = model.run(batch, [site])[site].detach()
    mask = batch.target_mask if reads(site) == "decoder" and batch.target_mask is not None else batch.mask
    axis = 2 if site.per_head else 1
    real = mask.to(tensor.device).reshape(len(mask), *[1] * (axis - 1), -1, 1).to(tensor.dtype)
    return (tensor * real).sum(dim=axis, keepdim=True) / real.sum(dim=axis, keepdim=True)


def removing(model: Model, everything: Sequence[Removals]) -> Change:
    """The edits of copies that replace all of these things, one after the other; a pass may hold those of many sites.

    Copies beyond the last are the text as it is.
    """
    edges = np.cumsum([0, *(len(each.at) for each in everything)]).tolist()

    def change(where: slice) -> list[Edit]:
        edits: list[Edit] = []
        for each, first, last in zip(everything, edges[:-1], edges[1:], strict=True):
            start, stop = max(where.start, first), min(where.stop, last)
            if start < stop:
                away = _away(model, each, slice(start - first, stop - first)).to(model.device)  # [k, B, …]
                rows = torch.zeros(where.stop - where.start, *away.shape[1:], dtype=torch.bool, device=away.device)
                rows[start - where.start : stop - where.start] = away
                edits.append(Edit.gate(each.site, (~rows).flatten(0, 1)))
                if each.instead is not None:
                    edits.append(Edit.add(each.site, (rows * each.instead).flatten(0, 1)))
        return edits

    return change


def beginning(model: Model, batch: Batch, everything: Sequence[Removals], targets: Sequence[Resolved]) -> Begin:
    """Where passes of these removals start: with the text's own stream at the lowest block that they touch.

    Small passes, those of models with two stacks or that do not allow it, and targets read below are run whole.
    """
    edges = np.cumsum([0, *(len(each.at) for each in everything)]).tolist()
    read = [_layer(site) for target in targets for site in target.sites]
    streams: dict[Site, Tensor] = {}

    def begin(where: slice) -> dict[Site, Tensor]:
        spans = zip(everything, edges[:-1], edges[1:], strict=True)
        sites = [each.site for each, first, last in spans if max(where.start, first) < min(where.stop, last)]
        layer = min([*read, *(_layer(site) for site in sites)], default=0)
        site, count = Site("resid", layer), where.stop - where.start
        if count < _FEW or layer == 0 or site not in model.sites or model.cannot_start(site):
            return {}
        if site not in streams:
            streams[site] = model.run(batch, [site])[site].detach().clone()
        return {site: streams[site].repeat(count, 1, 1)}

    return begin


def _layer(site: Site) -> int:
    """The block of a model with one stack; 0 elsewhere, where passes are whole."""
    return site.layer if isinstance(site.layer, int) and site.stack is None else 0


def _away(model: Model, removals: Removals, where: slice) -> Tensor:
    """Which numbers of a site are replaced in some of its copies, broadcastable to the site's tensors [K, B, …]."""
    site, size = removals.site, model.size(removals.site)
    there = torch.from_numpy(removals.tokens[removals.at[where]])  # [K, B, T]
    part = torch.ones(len(there), 1, dtype=torch.bool)
    if removals.units is not None:
        chosen = torch.from_numpy(removals.units[where])
        part = torch.arange(size[0] if site.per_head else size[-1]) == chosen[:, None]
    part = part[:, None]  # [K, 1, places]
    if site.kind == "pattern":
        return part[..., None, None] & there[:, :, None, None, :]  # [K, B, heads, 1, keys]
    if site.per_head:
        return part[..., None, None] & there[:, :, None, :, None]  # [K, B, heads, T, 1]
    return part[:, :, None, :] & there[..., None]  # [K, B, T, width]


def ablate_sites(asked: Asked, groups: Groups, *, by: str, replacement: object) -> Swept:
    """The target's change when a place of a site is replaced at one group of tokens: every place × every group."""
    model, batch = asked.model, asked.batch
    baseline = [Edit.patch(place, start) for place, start in asked.start.items()]
    removals: list[Removals] = []
    for site in asked.sites:
        mine, units = groups.side(site), divisions(model, site, by)  # [B, T]
        numbers = np.unique(mine[mine >= 0])
        hit = mine[None] == numbers[:, None, None]  # [groups, B, T]
        places = 1 if units is None else len(units)
        at = np.tile(np.arange(len(numbers)), places)
        instead = replaced(model, batch, site, replacement, baseline)
        removals.append(Removals(site, None if units is None else np.repeat(units, len(numbers)), hit, at, instead))
    values = scored(
        model,
        batch,
        change=removing(model, removals),
        count=sum(len(each.at) for each in removals),
        targets=asked.targets,
        memory_limit=asked.memory_limit,
        begin=beginning(model, batch, removals, asked.targets),
    )
    start, end = ends(asked)
    parts: dict[Key, Tensor] = {}
    for each, effects in zip(removals, (end - values).split([len(each.at) for each in removals]), strict=True):
        for number, part in enumerate(_on_tokens(effects, each.tokens)):
            parts["ablation", number, each.site] = _shaped(part, each.site)
    return Swept(tuple(asked.end), parts, start, end, 0, len(values))


def _on_tokens(effects: Tensor, hit: Array) -> Tensor:
    """Effects [places·groups, targets, B] shared by the tokens of each group, [targets, B, places, T]."""
    sizes = torch.from_numpy(hit.sum(axis=2)).clamp(min=1)  # [groups, B]
    shares = effects.unflatten(0, (-1, len(hit))) / sizes[None, :, None]
    return torch.einsum("pgkb,gbt->kbpt", shares, torch.from_numpy(hit).double())


def _shaped(part: Tensor, site: Site) -> Tensor:
    """Numbers [B, places, T] in the shape of a site's attributions, with nothing to sum but themselves."""
    if site.kind == "pattern":
        return part[:, :, None, :]  # [B, heads, 1, keys]
    return part[..., None] if site.per_head else part.transpose(1, 2)
