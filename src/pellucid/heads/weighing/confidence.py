"""Confidence of heads by document group: how sharply each looks, from `HeadCounts`; cross attention token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.counts import HeadCounts
from pellucid.collect.sweep import sweep
from pellucid.corpus import Corpus
from pellucid.errors import ModelError, listing
from pellucid.heads.weighing.gradients import by_group

if TYPE_CHECKING:
    from pellucid.heads.weighing.measuring import Measured
    from pellucid.model.sites import Site

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Confidence:
    """Largest weights summed over the queries of each group [heads, G], what uniform attention gives, and queries."""

    sums: Array
    chance: Array
    queries: Array

    def mean(self, without: int | None = None) -> Array:
        """The mean over queries [heads], of all groups or without one."""
        return self._over(self.sums, without)

    def uniform(self) -> Array:
        """The same of uniform attention over what a query may see [heads]."""
        return self._over(self.chance, None)

    def _over(self, sums: Array, without: int | None) -> Array:
        kept = [group for group in range(sums.shape[1]) if group != without]
        return sums[:, kept].sum(axis=1) / np.maximum(self.queries[:, kept].sum(axis=1), 1)


def confidence_sums(found: Measured, sites: Sequence[Site]) -> Confidence:
    """The confidence of the heads of some sites, `heads.L`, by document group.

    Self-attention is counted by `HeadCounts`, word by word; cross attention by tokens, special ones left out as query
    and as key and nothing renormalised (Voita et al. 2019).
    """
    absent = [site for site in sites if site.beside("pattern") not in found.model.sites]
    if absent:
        raise ModelError(
            f"{found.model.name!r} shows no attention pattern beside {listing(absent)}, so those heads have no "
            "confidence; leave the method 'confidence' out."
        )
    groups = found.group_count
    parts = [_of_stack(found, stack, groups) for stack in dict.fromkeys(site.stack for site in sites)]
    held = {site: numbers for part in parts for site, numbers in part.items()}
    joined = [np.concatenate([held[site.beside("pattern")][place] for site in sites]) for place in range(3)]
    return Confidence(*joined)


Numbers = dict["Site", tuple[Array, Array, Array]]


def _of_stack(found: Measured, stack: str | None, groups: int) -> Numbers:
    """Sums, chance and queries [heads, groups] of the patterns of a stack."""
    model = found.model
    sites = [site for site in model.sites if site.kind == "pattern" and site.stack == stack]
    if stack == "cross":
        return _crossing(found, sites, groups)
    held: Numbers = {}
    for site in sites:
        shape = (model.size(site.beside("heads"))[0], groups)
        held[site] = (np.zeros(shape), np.zeros(shape), np.zeros(shape))
    for group in range(groups):
        places = np.flatnonzero(found.groups == group)
        part = _run(found.corpus, int(places[0]), int(places[-1]) + 1)
        side = "target" if stack == "decoder" else "source"
        counts = HeadCounts(tuple(str(site) for site in sites), groups=False)
        view = sweep(model, part, counts, side=side, long="window", progress=False)[HeadCounts]
        for site in sites:
            words = view.n(str(site))
            sums, chance, queries = held[site]
            queries[:, group] = words
            if words:
                sums[:, group] = words * view.mean("confidence", str(site))
                chance[:, group] = words * view.chance("confidence", str(site))
    return held


def _run(corpus: Corpus, first: int, last: int) -> Corpus:
    """The sentences of a corpus from one number to another."""
    return Corpus(corpus.name, corpus.unit, partial(_between, corpus, first, last))


def _between(corpus: Corpus, first: int, last: int) -> Any:
    return islice(iter(corpus), first, last)


def _crossing(found: Measured, sites: Sequence[Site], groups: int) -> Numbers:
    """Cross attention: of every word piece that the decoder reads, the largest weight on one that the encoder read."""
    model = found.model
    special = torch.tensor(sorted(set(model.tokenizer.all_special_ids)))
    totals = [np.zeros((len(sites) * model.size(sites[0].beside("heads"))[0], groups)) for _ in range(3)]
    for step in range(found.steps()):
        inputs = found.batch(step)
        through = found.passing()
        found.task.logits(through, inputs)
        assert through.last is not None and through.last.batch is not None
        batch = through.last.batch
        assert batch.target_ids is not None and batch.target_mask is not None
        keys = batch.mask.bool().cpu() & ~torch.isin(batch.ids.cpu(), special)
        queries = batch.target_mask.bool().cpu() & ~torch.isin(batch.target_ids.cpu(), special)
        seen = keys.any(dim=1, keepdim=True)
        queries = queries & seen
        run = model.run(batch, sites, reduce=partial(_largest, keys=keys))
        uniform = torch.where(seen, 1 / batch.mask.sum(dim=1, keepdim=True).cpu(), 0.0)[:, None]  # [B, 1, 1]
        one = torch.cat([run[site] for site in sites], dim=1).double()  # [B, heads, T]
        for total, numbers in zip(totals, (one, uniform.expand_as(one), torch.ones_like(one)), strict=True):
            rows = (numbers * queries[:, None]).sum(dim=2).numpy()
            total += by_group(found, step, rows)
    parts = [np.split(total, len(sites)) for total in totals]
    return {site: (parts[0][at], parts[1][at], parts[2][at]) for at, site in enumerate(sites)}


def _largest(site: Site, pattern: Tensor, *, keys: Tensor) -> Tensor:
    """The largest weight [B, heads, queries] on a key that counts."""
    return pattern.masked_fill(~keys.to(pattern.device)[:, None, None], 0.0).amax(dim=-1).cpu()
