"""One sweep along a path: gradients, conductance and integrals of all sites and targets from the same passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.attribution import nodes as rules
from pellucid.attribution.passes import Held, passes
from pellucid.model import Edit
from pellucid.model.sites import Site

if TYPE_CHECKING:
    from pellucid.attribution.nodes import Nodes
    from pellucid.attribution.targets import Resolved
    from pellucid.model import Batch, Model

Points = Mapping[Site, Tensor]
Key = tuple[str, int, Site]
"""A method, the number of a target, and a site."""

AUTOMATIC = (25, 50, 100, 200, 400)
"""Steps that are tried in turn until the sums are complete enough."""
CUTS = frozenset({"embed", "resid", "mid"})
"""Kinds of sites through which all that the input does must pass, so that conductance there is complete."""


@dataclass(frozen=True, eq=False)
class Swept:
    """What passes left: a tensor [B, …] of the site's shape per method, target and site, detached and in float64.

    `inputs` are the sites that stand for the text; `start` and `end` the targets' scores [targets, B] at the baseline,
    where a method looked at one, and at the text; `steps` and `points` tell how many steps the path had and how many
    points were run.
    """

    inputs: tuple[Site, ...]
    parts: Mapping[Key, Tensor]
    start: Tensor | None
    end: Tensor
    steps: int
    points: int
    note: str = ""
    starts: Mapping[Site, Tensor] = field(default_factory=dict[Site, Tensor])
    """Scores [targets, B] at the start of a path of the site's own, where it had one."""
    reach: Mapping[Key, Tensor] = field(default_factory=dict[Key, Tensor])
    """Half the width of an interval, in the shape of the part, where a method draws at random and knows its error."""
    shares: Mapping[tuple[str, int], Mapping[str, Tensor]] = field(
        default_factory=dict[tuple[str, int], Mapping[str, Tensor]]
    )
    """Where a target's score [B] went, by method and number of the target, where a method hands it back in parts."""
    cuts: frozenset[str] = CUTS
    """Kinds of sites through which all that the input does must pass in this model."""
    baseline: str = ""
    """The name of what the path started from, where whoever asked wants to know."""

    def told(self) -> dict[str, Any]:
        """What a result's origin says of the passes; what there was none of is left out."""
        facts = {"baseline": self.baseline, "steps": self.steps, "points": self.points, "note": self.note}
        return {name: fact for name, fact in facts.items() if fact or name in ("steps", "points")}

    def joined(self, other: Swept) -> Swept:
        """This and another sweep of the same targets as one."""
        said = [part for note in (self.note, other.note) for part in note.split("; ") if part]
        note = "; ".join(dict.fromkeys(said))
        return Swept(
            self.inputs,
            {**self.parts, **other.parts},
            other.start if self.start is None else self.start,
            self.end,
            max(self.steps, other.steps),
            self.points + other.points,
            note,
            {**self.starts, **other.starts},
            {**self.reach, **other.reach},
            {**self.shares, **other.shares},
            self.cuts & other.cuts,
        )


@dataclass(eq=False)
class Sums:
    """Running sums over the points of a path for one target and site, in the site's shape [B, …].

    `methods` tells which of them are needed. Numbers of half precision are added up in single precision.
    """

    methods: frozenset[str]
    trapezoid: bool
    integral: Tensor | None = None
    product: Tensor | None = None
    first: Tensor | None = None
    value: Tensor | None = None
    slope: Tensor | None = None

    def add(self, values: Tensor, slopes: Tensor, weights: Tensor) -> None:
        """Takes in K further points: values and gradients [K, B, …], weights [K]."""
        values, slopes = _wide(values), _wide(slopes)
        if self.methods & INTEGRALS:
            counted = weights != 0  # a gradient that overflows at an end must not spoil a sum without it
            weighted = torch.tensordot(weights[counted].to(slopes), slopes[counted], dims=1).double()
            self.integral = weighted if self.integral is None else self.integral + weighted
        if "conductance" in self.methods:
            self._multiply(values, slopes)
        if self.first is None and self.methods - AT_THE_END:
            self.first = values[0].clone()
        self.value, self.slope = values[-1].clone(), slopes[-1].clone()  # the batch itself is let go

    def _multiply(self, values: Tensor, slopes: Tensor) -> None:
        if self.value is None or self.slope is None:
            self.product = torch.zeros_like(values[0], dtype=torch.float64)
        else:
            values, slopes = torch.cat([self.value[None], values]), torch.cat([self.slope[None], slopes])
        assert self.product is not None
        heights = (slopes[:-1] + slopes[1:]) / 2 if self.trapezoid else slopes[:-1]
        self.product = self.product + (heights * (values[1:] - values[:-1])).sum(dim=0).double()

    def take(self, method: str) -> Tensor:
        """The attribution that a method reads off the sums."""
        assert self.value is not None and self.slope is not None
        if method == "saliency":
            return self.slope.double().abs()
        if method == "gradient_x_activation":
            return self.slope.double() * self.value.double()
        if method == "conductance":
            assert self.product is not None
            return self.product
        assert self.integral is not None and self.first is not None
        if method == "internal_influence":
            return self.integral
        return (self.value.double() - self.first.double()) * self.integral  # along the path of the input


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.element_size() < 4 else tensor


INTEGRALS = frozenset({"internal_influence", "input_path_gradients"})
AT_THE_END = frozenset({"saliency", "gradient_x_activation"})


@dataclass(frozen=True, eq=False)
class Asked:
    """What one sweep is asked for."""

    model: Model
    batch: Batch
    targets: tuple[Resolved, ...]
    sites: tuple[Site, ...]
    start: Points
    """Where the path starts; empty for methods that look at no baseline."""
    end: Points
    memory_limit: int | None = None
    held: Held = field(default_factory=Held)
    """What stands still while the path is walked."""


def sweep_path(asked: Asked, methods: Sequence[str], *, rule: str, steps: int) -> Swept:
    """Every method, target and site along the straight path from `start` to `end` of the sites that move."""
    rules.check_rule(rule)
    swept: Swept | None = None
    for points, names in _plan(methods, rule, steps):
        found = _walk(asked, points, names, 0 if points is rules.END else steps)
        swept = found if swept is None else swept.joined(found)
    assert swept is not None
    return swept


def _plan(methods: Sequence[str], rule: str, steps: int) -> list[tuple[Nodes, list[str]]]:
    """Which points are walked for which methods: one walk where both ends are among its points."""
    on_the_way = [name for name in methods if name not in AT_THE_END]
    if not on_the_way:
        return [(rules.END, list(methods))]
    if rule == "gauss":
        return [(rules.gauss(steps), list(methods))]
    walks = [
        (rules.captum(steps + 1), [name for name in on_the_way if name == "conductance"]),
        (rules.captum(steps), [name for name in on_the_way if name != "conductance"]),
        (rules.END, [name for name in methods if name in AT_THE_END]),
    ]
    return [(points, names) for points, names in walks if names]


def _walk(asked: Asked, nodes: Nodes, methods: Sequence[str], steps: int) -> Swept:
    device = asked.model.device
    alphas = torch.from_numpy(nodes.points)
    weights = torch.from_numpy(nodes.weights).to(device)

    def at(where: slice) -> Points:
        if nodes is rules.END:
            return {site: end[None] for site, end in asked.end.items()}
        alpha = alphas[where].to(device)
        return {site: _between(asked.start[site], end, alpha) for site, end in asked.end.items()}

    needed = frozenset(methods)
    sums = {
        (number, site): Sums(needed, nodes.trapezoid) for number in range(len(asked.targets)) for site in asked.sites
    }
    scores: list[Tensor] = []
    for found in passes(
        asked.model,
        asked.batch,
        at=at,
        count=len(alphas),
        sites=asked.sites,
        targets=asked.targets,
        memory_limit=asked.memory_limit,
        held=asked.held,
    ):
        scores.append(torch.stack([score.double() for score in found.scores], dim=1).cpu())
        for number, slopes in enumerate(found.gradients):
            for site in asked.sites:
                sums[number, site].add(found.values[site], slopes[site], weights[found.where])
    walked = torch.cat(scores)  # [points, targets, B]
    start, end = (None if nodes is rules.END else walked[0]), walked[-1]
    if start is not None and nodes.points[0] != 0:
        start, first = read(asked, asked.start)
        for (_, site), one in sums.items():
            one.first = first[site]
    if nodes.points[-1] != 1:
        end, last = read(asked, asked.end)
        for (_, site), one in sums.items():
            one.value = last[site]
    parts = {(name, number, site): one.take(name).cpu() for name in methods for (number, site), one in sums.items()}
    return Swept(tuple(asked.end), parts, start, end, steps, len(alphas), cuts=cuts(asked.model))


def cuts(model: Model) -> frozenset[str]:
    """Kinds of sites through which all must pass: not `mid` where the MLP reads what attention reads."""
    return CUTS - {"mid"} if "parallel" in model.forms.values() else CUTS


def ends(asked: Asked) -> tuple[Tensor, Tensor]:
    """The targets' scores [targets, B] at the path's two ends, by passes of their own."""
    return _scores(asked, asked.start), _scores(asked, asked.end)


def scores_at_end(asked: Asked) -> Tensor:
    """The targets' scores [targets, B] at the text."""
    return _scores(asked, asked.end)


def _scores(asked: Asked, points: Points) -> Tensor:
    return read(replace(asked, sites=()), points)[0]


def read(asked: Asked, points: Points) -> tuple[Tensor, dict[Site, Tensor]]:
    """The targets' scores [targets, B] and what stands at the sites, with the moving ones at a point of the path."""
    given = {**asked.held.values, **points}
    start = {site: value for site, value in given.items() if asked.held.late and site.kind == "resid"}
    edits = [Edit.patch(site, value) for site, value in given.items() if site not in start]
    wanted = tuple(dict.fromkeys([*asked.sites, *(site for target in asked.targets for site in target.sites)]))
    run = asked.model.run(asked.batch, wanted, edits, start=start)
    scores = torch.stack([target.score(run).detach().double() for target in asked.targets]).cpu()
    return scores, {site: run[site].detach().clone() for site in asked.sites}


def _between(start: Tensor, end: Tensor, alpha: Tensor) -> Tensor:
    """The points [K, B, …] of the straight path; its ends are exactly `start` and `end`."""
    share = alpha.to(end.dtype if end.dtype == torch.float64 else torch.float32)
    share = share.reshape(-1, *[1] * end.dim())
    between = (start + share * (end - start)).to(end.dtype)
    return torch.where(share == 1, end, between)
