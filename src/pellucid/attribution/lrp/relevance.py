"""Layer-wise relevance propagation: a target's score, handed back layer by layer to what made it.

NOTICE. Layer-wise relevance propagation as such is the subject of patents of third parties (among them EP 3271863 B1,
US 12061966 B2 and CA 2979579 C, "Relevance score assignment for artificial neural networks"). Pellucid's licence
covers its code, not such rights; before commercial use, find out whether they concern you. Nothing in Pellucid loads
this module before a method `lrp_…` is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pellucid.attribution.lrp.ledger import Ledger
from pellucid.attribution.lrp.rules import VOITA, Rules, nonlinearities
from pellucid.attribution.passes import frozen
from pellucid.attribution.sweep import Asked, Key, Swept
from pellucid.errors import AttributionError, listing
from pellucid.model import Edit
from pellucid.model.changed_outputs import changed_outputs
from pellucid.model.run import Run
from pellucid.model.sites import Site

NOTICE = (
    "layer-wise relevance propagation is the subject of third parties' patents (EP 3271863 B1, US 12061966 B2, "
    "CA 2979579 C): check your own situation before commercial use; see docs/lrp.md"
)
TARGET, REST = "target's own form", "unaccounted for"


@cache
def _tell() -> None:
    """Logs the notice, once in a process."""
    logging.getLogger(__name__).warning("Notice: %s.", NOTICE)


def sweep_lrp(asked: Asked, methods: Sequence[str]) -> Swept:
    """Relevance at every site for every target: per method, one forward pass and one backward pass per target.

    What is explained is the score itself, not its change from a baseline: with what `shares` books as kept on the way,
    Σ relevance at the input = score (Bach et al. 2015).
    """
    _tell()
    parts: dict[Key, Tensor] = {}
    shares: dict[tuple[str, int], Mapping[str, Tensor]] = {}
    scores = torch.zeros(0)
    for method in methods:
        _check(asked, method)
        found = _propagated(asked, method)
        parts.update({(method, number, site): part for (number, site), part in found.relevance.items()})
        shares.update({(method, number): one for number, one in enumerate(found.shares)})
        scores = found.scores
    return Swept(tuple(asked.end), parts, None, scores, 0, len(methods), NOTICE, shares=shares)


@dataclass(frozen=True, eq=False)
class _Found:
    relevance: Mapping[tuple[int, Site], Tensor]
    shares: Sequence[Mapping[str, Tensor]]
    scores: Tensor


def _propagated(asked: Asked, method: str) -> _Found:
    """One forward pass under a set of rules, and a backward pass for each target."""
    model, inputs = asked.model, tuple(asked.end)
    sites = tuple(dict.fromkeys([*asked.sites, *inputs]))
    wanted = tuple(dict.fromkeys([*sites, *(site for target in asked.targets for site in target.sites)]))
    edits = [Edit.patch(site, point.detach().clone().requires_grad_()) for site, point in asked.end.items()]
    located = model.located
    time_first = any(tap.layout.time_first for tap in located.taps.values())
    rules = Rules(method, Ledger(asked.batch.size, time_first=time_first))
    relevance: dict[tuple[int, Site], Tensor] = {}
    shares: list[Mapping[str, Tensor]] = []
    scores: list[Tensor] = []
    with frozen(model):
        with changed_outputs(nonlinearities(model.hf), rules.straight), rules:
            run = model.run(asked.batch, wanted, edits, gradients=True)
        _check_attention(asked, rules)
        tensors, logits = [run[site] for site in sites], _logits(run)
        for number, target in enumerate(asked.targets):
            score = target.score(run)
            _check_score(target.name, score)
            found = _relevance(score, [*tensors, *logits], again=number + 1 < len(asked.targets))
            relevance.update({(number, site): part for site, part in zip(sites, found, strict=False)})
            scores.append(score.detach().double().cpu())
            reached = [relevance[number, site] for site in inputs]
            shares.append(_shares(scores[-1], inputs, reached, rules.ledger.taken(), found[len(sites) :]))
    return _Found(relevance, shares, torch.stack(scores))


def _relevance(score: Tensor, tensors: Sequence[Tensor], *, again: bool) -> list[Tensor]:
    """Activation × changed gradient of every tensor, in float64; zero where the score does not depend on it."""
    slopes: Any = torch.autograd.grad(score.sum(), tensors, retain_graph=again, allow_unused=True)
    return [
        (torch.zeros_like(tensor) if slope is None else tensor.detach().double() * slope.double()).double().cpu()
        for tensor, slope in zip(tensors, slopes, strict=True)
    ]


def _shares(
    score: Tensor,
    inputs: Sequence[Site],
    reached: Sequence[Tensor],
    kept: Mapping[str, Tensor],
    logits: Sequence[Tensor],
) -> dict[str, Tensor]:
    """Where the score [B] went: the input, what kept the rest, and what nothing accounts for."""

    def total(parts: Sequence[Tensor]) -> Tensor:
        return torch.stack([part.flatten(1).sum(dim=1) for part in parts]).sum(dim=0)

    told = {" + ".join(map(str, inputs)): total(reached), **kept}
    if logits and bool(logits[0].any()):  # a log-probability, for one, is not what its logits' relevance adds up to
        told[TARGET] = score - total(logits)
    return {**told, REST: score - torch.stack(list(told.values())).sum(dim=0)}


def _logits(run: Run) -> list[Tensor]:
    """The model's scores where it has some that a gradient reaches."""
    found = run.output.get("logits") if isinstance(run.output, Mapping) else None
    return [found] if isinstance(found, Tensor) and found.requires_grad else []


def _check_score(name: str, score: Tensor) -> None:
    if not score.requires_grad:
        raise AttributionError(f"The target {name!r} does not depend on the model's activations, so nothing made it.")
    if not bool(score.isfinite().all()):
        raise AttributionError(f"The target {name!r} is not a finite number; the model overflows.")


def _check(asked: Asked, method: str) -> None:
    model = asked.model
    routed = [
        site for site in asked.sites if site.kind in ("neurons", "routing") and site.beside("routing") in model.sites
    ]
    if routed:
        raise AttributionError(
            f"Relevance at {listing(routed)} is not to be had: units of routed experts are computed beside the pass; "
            "ask for mlp, heads or resid."
        )
    sums = [
        site
        for site in asked.sites
        if site.kind == "mid" and model.forms.get("decoder" if site.stack == "cross" else site.stack) != "post-norm"
    ]
    if sums and method == VOITA:
        raise AttributionError(
            f"{method} gives no relevance at {listing(sums)}: this model never reads it as one tensor, and the rule "
            "treats the summands apart; ask for attn and resid."
        )


def _check_attention(asked: Asked, rules: Rules) -> None:
    """Every attention layer must have shown its softmax, or its rules were not applied."""
    model = asked.model
    layers = {(site.stack, site.layer) for site in model.sites if site.kind in ("heads", "pattern")}
    if rules.attentions < len(layers):
        raise AttributionError(
            f"Relevance cannot be propagated through {model.name!r}: {len(layers) - rules.attentions} of its "
            f"{len(layers)} attention layers do not call torch's softmax or scaled_dot_product_attention; use "
            "integrated_gradients or conductance."
        )
