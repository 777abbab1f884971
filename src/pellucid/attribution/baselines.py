"""Baselines: what a path starts from, as embeddings: nothing, a filler token, the mean embedding or another text."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.errors import AttributionError, listing
from pellucid.model import Edit
from pellucid.model.sites import Site

if TYPE_CHECKING:
    from pellucid.model import Batch, Model

NAMES = ("zero", "pad", "mask", "mean")
AUTOMATIC = "auto"
"""`zero`, or `mean` for models whose stream would be all zeros then: their norms have no usable gradient there."""
Given = str | Tensor | Mapping[Site, Tensor]
Points = dict[Site, Tensor]


class _Enough(Exception):
    """Ends a pass once every embedding has been read."""


def embedded(model: Model, batch: Batch) -> Points:
    """The embeddings of every token, [B, T, width] by site: of the encoder and of the decoder where there are both.

    The pass ends as soon as they are read.
    """
    sites = [site for site in model.sites if site.kind == "embed"]
    if not sites:
        why = model.missing.get("embed", "the survey of this model did not find it")
        raise AttributionError(f"{model.name!r} has no site 'embed' that a path could start from: {why}.")
    taken: Points = {}

    def take(site: Site, tensor: Tensor) -> None:
        taken[site] = tensor.detach().clone()
        if len(taken) == len(sites):
            raise _Enough

    with suppress(_Enough):
        model.run(batch, sites, reduce=take)
    return taken


def settled(model: Model, batch: Batch, given: Given, ends: Points) -> tuple[Given, str]:
    """The baseline asked for, `auto` as what it stands for in this model, and why that."""
    return automatic(model, batch, ends) if isinstance(given, str) and given == AUTOMATIC else (given, "")


def check(name: str) -> None:
    """Raises where there is no baseline of that name."""
    if name not in (AUTOMATIC, *NAMES) and not name.startswith("text:"):
        raise AttributionError(
            f"There is no baseline {name!r}; the baselines are {listing((AUTOMATIC, *NAMES))}, text:ANOTHER TEXT, or "
            "a tensor."
        )


def baseline(model: Model, batch: Batch, given: Given, ends: Points) -> Points:
    """Where the path to the embeddings `ends` starts, by the same sites; padding stays as it is.

    `zero` and `mean` (of the whole embedding table) stand for every token; `pad` and `mask` take the place of all but
    special ones (and a decoder's first), `text:…` that of all the text's, and leaves a decoder's. A tensor
    [B, T, width] is taken as it comes.
    """
    if isinstance(given, Tensor):
        if len(ends) > 1:
            raise AttributionError(f"A baseline tensor is needed for each of {listing(ends)}; give a dictionary.")
        return _checked({next(iter(ends)): given}, ends)
    if not isinstance(given, str):
        return _checked(dict(given), ends)
    check(given)
    if given == AUTOMATIC:
        given, _ = automatic(model, batch, ends)
    if given == "zero":
        start = {site: torch.zeros_like(end) for site, end in ends.items()}
    elif given == "mean":
        start = {site: _mean(model, batch, site, end).expand_as(end).clone() for site, end in ends.items()}
    elif given in ("pad", "mask"):
        start = embedded(model, _filled(model, batch, given))
    else:
        start = embedded(model, _other_text(model, batch, given.removeprefix("text:")))
    return {site: torch.where(real(batch, site, end), start[site], end) for site, end in ends.items()}


def automatic(model: Model, batch: Batch, ends: Points) -> tuple[str, str]:
    """The baseline that `auto` stands for in this model, and why it is not `zero` where it is another.

    Reads the stream that enters the first block while all embeddings are zero. RMSNorm and its like divide by the size
    of what they get: from a stream of zeros every gradient is huge, and paths from there cannot be summed up.
    """
    sites = [site for site in model.sites if site.kind == "resid" and site.layer == 0]
    edits = [Edit.patch(site, torch.zeros_like(end)) for site, end in ends.items()]
    empty: list[Site] = []
    seen: list[Site] = []

    def look(site: Site, stream: Tensor) -> None:
        seen.append(site)
        if bool((stream == 0).all(dim=-1).any()):
            empty.append(site)
        if len(seen) == len(sites):
            raise _Enough

    with suppress(_Enough):
        model.run(batch, sites, edits, reduce=look)
    if not empty:
        return "zero", ""
    try:
        for site, end in ends.items():
            _mean(model, batch, site, end)
    except AttributionError:
        return "zero", ""
    return "mean", "baseline: the mean embedding, because zeros leave this model's stream empty and without gradients"


def real(batch: Batch, site: Site, like: Tensor) -> Tensor:
    """Which tokens of an embedding [B, T, width] are real, [B, T, 1]."""
    mask = batch.target_mask if site.stack == "decoder" and batch.target_mask is not None else batch.mask
    return mask.bool().to(like.device)[..., None]


def _filled(model: Model, batch: Batch, which: str) -> Batch:
    token = getattr(model.tokenizer, f"{which}_token_id", None)
    if token is None:
        raise AttributionError(
            f"{model.name!r} has no {which} token for a baseline; use {listing(n for n in NAMES if n != which)}."
        )
    ids = torch.where(batch.special | ~batch.mask.bool(), batch.ids, token)
    if batch.target_ids is None:
        return replace(batch, ids=ids)
    assert batch.target_mask is not None
    first = (batch.target_mask.cumsum(dim=1) == 1) & batch.target_mask.bool()  # the decoder's start token
    kept = first | ~batch.target_mask.bool()
    return replace(batch, ids=ids, target_ids=torch.where(kept, batch.target_ids, token))


def _other_text(model: Model, batch: Batch, text: str) -> Batch:
    if batch.size != 1:
        raise AttributionError(f"One baseline text was given for {batch.size} texts; explain them one by one.")
    other = model.tokenize(text)
    if other.ids.shape != batch.ids.shape:
        raise AttributionError(
            f"The baseline text has {other.ids.shape[1]} tokens and the text {batch.ids.shape[1]}; they must be of the "
            "same length."
        )
    if not torch.equal(other.special.bool(), batch.special.bool().to(other.special.device)):
        raise AttributionError(
            "The special tokens of the baseline text do not stand where those of the text do, as with a second "
            "sentence: a baseline text is one sentence for one; use another baseline, or give a tensor."
        )
    return replace(batch, ids=other.ids)


def _mean(model: Model, batch: Batch, site: Site, end: Tensor) -> Tensor:
    """The mean over the embedding table, in the scale in which the model uses it."""
    hf: Any = model.hf
    table: Tensor = hf.get_input_embeddings().weight.detach()
    ids = batch.target_ids if site.stack == "decoder" and batch.target_ids is not None else batch.ids
    rows = table[ids.to(table.device)].to(end)
    if rows.shape == end.shape:
        scale = (rows * end).sum() / (rows * rows).sum()
        near = max(1e-3, 4 * torch.finfo(end.dtype).eps)  # models scale in their own precision
        if torch.allclose(scale * rows, end, rtol=near, atol=1e-5):
            return scale * table.float().mean(dim=0).to(end)
    raise AttributionError(
        f"{model.name!r} does not read its tokens from one table as they are, so it has no mean embedding; use "
        f"{listing(name for name in NAMES if name != 'mean')}."
    )


def _checked(given: Points, ends: Points) -> Points:
    absent = [site for site in ends if site not in given]
    if absent:
        raise AttributionError(f"The baseline has nothing for {listing(absent)}; it has {listing(given)}.")
    for site, end in ends.items():
        if given[site].shape != end.shape:
            raise AttributionError(
                f"The baseline for {site} has shape {tuple(given[site].shape)} and the text {tuple(end.shape)}; they "
                "must be equal."
            )
    return {site: given[site].detach().to(end) for site, end in ends.items()}
