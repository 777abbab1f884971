"""Relevance of heads by layer-wise relevance propagation (Voita et al. 2019); imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pellucid.attribution.baselines import embedded
from pellucid.attribution.lrp.relevance import NOTICE, sweep_lrp
from pellucid.attribution.lrp.rules import VOITA
from pellucid.attribution.sweep import Asked
from pellucid.attribution.targets import Resolved
from pellucid.errors import ModelError
from pellucid.heads.weighing.ablating import real_tokens
from pellucid.heads.weighing.gradients import by_group
from pellucid.train.tasks import IGNORED

if TYPE_CHECKING:
    from pellucid.heads.weighing.measuring import Measured
    from pellucid.model import Run
    from pellucid.model.sites import Site

__all__ = ["NOTICE", "lrp_sums"]
Array = np.ndarray[Any, Any]


def lrp_sums(found: Measured, sites: Sequence[Site], *, lost: list[int] | None = None) -> Array:
    """The relevance of every head for what the model predicts, summed over each document group, [heads, groups].

    Each goal starts with a relevance of 1 at the logit that the model holds likeliest there, whatever its size, so
    that all goals count alike; a head has the relevance of all its features at all real tokens. The rules divide by
    sums that may come to 0: texts whose relevance is not finite are left out, and their number added to `lost`.
    """
    parts: list[Array] = []
    texts = broken = 0
    for step in range(found.steps()):
        given = found.batch(step)
        through = found.passing()
        found.task.logits(through, given)
        assert through.last is not None and through.last.batch is not None
        batch = through.last.batch
        target = Resolved("what is predicted", likeliest(given["goals"]))
        asked = Asked(found.model, batch, (target,), tuple(sites), {}, embedded(found.model, batch))
        swept = sweep_lrp(asked, [VOITA])
        rows = [
            (swept.parts[VOITA, 0, site].sum(dim=-1) * real_tokens(batch, site).cpu()[:, None]).sum(dim=-1)
            for site in sites
        ]
        of_texts = torch.cat(rows, dim=1)
        finite = of_texts.isfinite().all(dim=1)
        texts, broken = texts + len(finite), broken + int((~finite).sum())
        parts.append(by_group(found, step, torch.where(finite[:, None], of_texts, 0.0).numpy()))
    if broken == texts:
        raise ModelError(f"No text has a relevance that is a number by these rules ({texts} tried); leave lrp out.")
    if lost is not None:
        lost.append(broken)
    return np.sum(parts, axis=0)


def likeliest(goals: Tensor) -> Any:
    """A score [B] whose parts are the largest logits at the goals, each over its own size: 1 for every goal."""

    def score(run: Run) -> Tensor:
        output: Any = run.output
        if "start_logits" in output:
            logits = torch.stack([output["start_logits"], output["end_logits"]], dim=1)
        else:
            logits = run.logits
        top = logits.max(dim=-1).values
        size = torch.where(top.abs() > torch.finfo(top.dtype).tiny, top, 1.0).detach()
        asked = (goals != IGNORED).to(top)
        return (top / size * asked).reshape(len(goals), -1).sum(dim=1)

    return score
