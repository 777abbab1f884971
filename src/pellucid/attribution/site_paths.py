"""Integrated gradients along a site's own path: its activation moves from the baseline's to the text's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from pellucid.attribution.passes import Held
from pellucid.attribution.sweep import Asked, Swept, read, sweep_path
from pellucid.model.sites import Site

_READ = "input_path_gradients"
"""What the sweep computes at the site that moves: the change times the integral of the gradient."""


@dataclass(frozen=True, eq=False)
class Ends:
    """What stands at sites, [B, …], at the baseline (`low`) and at the text (`high`), and the targets' scores there."""

    low: Mapping[Site, Tensor]
    high: Mapping[Site, Tensor]
    start: Tensor
    end: Tensor


def activations(asked: Asked) -> Ends:
    """One pass at each end of the input's path, which reads the sites and the streams where later passes start."""
    streams = [stream for site in asked.sites for stream in _streams(asked, site)]
    wanted = tuple(dict.fromkeys([*asked.sites, *streams]))
    both = replace(asked, sites=wanted)
    (start, low), (end, high) = read(both, asked.start), read(both, asked.end)
    return Ends(low, high, start, end)


def sweep_site(asked: Asked, site: Site, ends: Ends, *, rule: str, steps: int) -> Swept:
    """Integrated gradients of one site, by passes in which nothing but the site moves.

    It is complete: Σ = F with the text's activation − F with the baseline's. Blocks below the site are left out of the
    passes where the model allows it.
    """
    streams = _streams(asked, site)
    why = asked.model.cannot_start(streams) if streams else ""
    still = {} if why else {stream: ends.high[stream] for stream in streams if stream != site}
    cut = {stream.stack for stream in still} | ({site.stack} if site.kind == "resid" else set[str | None]())
    inputs = {place: point for place, point in asked.end.items() if place.stack not in cut}
    one = replace(
        asked,
        sites=(site,),
        start={site: ends.low[site]},
        end={site: ends.high[site]},
        held=Held({**inputs, **still}, late=bool(streams) and not why),
    )
    found = sweep_path(one, [_READ], rule=rule, steps=steps)
    assert found.start is not None
    parts = {("integrated_gradients", number, place): part for (_, number, place), part in found.parts.items()}
    return replace(
        found,
        inputs=tuple(asked.end),
        parts=parts,
        start=ends.start,
        end=ends.end,
        note=f"blocks below a site were not left out: {why}" if why else "",
        starts={site: found.start},
    )


def _streams(asked: Asked, site: Site) -> list[Site]:
    """The streams with which passes that look at a site can start: that of its block and, for a decoder, the source's.

    None where a target is read further below.
    """
    known, stack = asked.model.sites, "decoder" if site.stack == "cross" else site.stack
    found = [Site("resid", site.layer, stack)] if isinstance(site.layer, int) else []
    if found and stack == "decoder":
        found.append(max((one for one in known if one.kind == "resid" and one.stack == "encoder"), key=_layer))
    below = [
        place
        for target in asked.targets
        for place in target.sites
        for stream in found
        if ("decoder" if place.stack == "cross" else place.stack) == stream.stack and _layer(place) < _layer(stream)
    ]
    return [] if below or not all(stream in known for stream in found) else found


def _layer(site: Site) -> int:
    return site.layer if isinstance(site.layer, int) else -1
