"""Which weights feed which head: found from gradients of one small pass, so that no family needs an adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pellucid.model.batch import Batch
from pellucid.model.survey import probe_inputs

if TYPE_CHECKING:
    from pellucid.model import Model, Run
    from pellucid.model.sites import Site

KINDS = ("query", "key", "value")


@dataclass(frozen=True, eq=False)
class Feeding:
    """How one parameter feeds heads: along `axis`, `rows` [heads, size] says what each head of each kind reads."""

    axis: int
    rows: Mapping[str, Tensor]

    def kept(self, heads: Mapping[str, list[int]]) -> Tensor:
        """The places along the axis that are left when only some heads of each kind are."""
        left = torch.zeros(next(iter(self.rows.values())).shape[1], dtype=torch.bool)
        for kind, rows in self.rows.items():
            left |= rows[heads[kind]].any(dim=0)
        return left.nonzero().flatten()


def probed(model: Model, sites: Iterable[Site]) -> Run:
    """One small pass with the queries, keys and values of some layers, from which gradients can be taken."""
    return model.run(probe_batch(model), [site.beside(kind) for site in sites for kind in KINDS], gradients=True)


def feeding(model: Model, run: Run, site: Site, path: str, spared: frozenset[str]) -> dict[str, Feeding]:
    """Every parameter of an attention module that parts into heads, by its full name; `run` is what `probed` gave.

    A parameter parts along an axis where the gradients of different heads' queries, keys or values do not overlap.
    One that all heads share (a norm, a low-rank factor) is left out, and so are the modules in `spared`.
    """
    sites = {kind: site.beside(kind) for kind in KINDS}
    names = [
        name
        for name, _ in model.hf.named_parameters()
        if name.startswith(f"{path}.") and name.rpartition(".")[0] not in spared
    ]
    parameters = dict(model.hf.named_parameters())
    generator = torch.Generator().manual_seed(0)
    touched: dict[str, dict[str, list[Tensor]]] = {name: {} for name in names}
    for kind, place in sites.items():
        value = run[place]
        for head in range(value.shape[1]):
            part = value[:, head]
            weights = torch.randn(part.shape, generator=generator).to(part)
            grads = torch.autograd.grad(
                part,
                [parameters[name] for name in names],
                weights,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            for name, grad in zip(names, grads, strict=True):
                touched[name].setdefault(kind, []).append((grad != 0).cpu())
    found = {name: _parted(heads) for name, heads in touched.items()}
    return {name: parts for name, parts in found.items() if parts is not None}


def probe_batch(model: Model) -> Batch:
    """A small batch of random tokens, as the survey of a model uses."""
    given = probe_inputs(model.hf)
    return Batch.of_ids(
        given["input_ids"],
        given["attention_mask"],
        target_ids=given.get("decoder_input_ids"),
        target_mask=given.get("decoder_attention_mask"),
    )


def _parted(heads: Mapping[str, list[Tensor]]) -> Feeding | None:
    """The axis along which a parameter parts into heads; None where it does not."""
    reads = {kind: torch.stack(hits) for kind, hits in heads.items() if any(bool(hit.any()) for hit in hits)}
    if not reads:
        return None
    dims = next(iter(reads.values())).dim() - 1
    for axis in range(dims):
        others = tuple(other + 1 for other in range(dims) if other != axis)
        rows = {kind: hits.any(dim=others) if others else hits for kind, hits in reads.items()}
        together = torch.cat(list(rows.values()))  # every place serves one head of one kind, and none serves none
        if bool((together.sum(dim=0) == 1).all()) and len(together) > 1:
            return Feeding(axis, rows)
    return None
