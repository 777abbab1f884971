"""What attention adds to the stream, taken apart by source token for any located model, and checked against it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pellucid.errors import ModelError
from pellucid.heads.flow.norms import Mixing, NormSplit

if TYPE_CHECKING:
    from pellucid.model import Model, Run
    from pellucid.model.sites import Site

_EPSILONS = ("eps", "variance_epsilon", "epsilon")
"""What norms call the number that keeps them from dividing by zero."""
NEAR = 1e-4
"""How far sums may be from the model's own tensors, relative to the largest value; more in half precision."""


def sites_of(model: Model, pattern: Site) -> tuple[Site, ...]:
    """The sites that a layer's mixing is made of; one that the model lacks is refused with the reason."""
    kinds = ("value", "attn", "resid", *(("mid",) if _post_norm(model, pattern) else ()))
    wanted = tuple(pattern.beside(kind) for kind in kinds)
    for site in wanted:
        if site not in model.sites:
            why = model.missing.get(str(site), "the model has no such site")
            raise ModelError(f"Norm-based attention of {pattern} needs {site}, which cannot be read: {why}.")
    if pattern.beside("heads") not in model.located.taps:
        raise ModelError(
            f"Norm-based attention of {pattern} needs the output projection of its heads, and {model.name!r} has no "
            "module for it."
        )
    return (pattern, *wanted)


def mixing(model: Model, pattern: Site, run: Run) -> tuple[Mixing, float]:
    """The mixing of one layer of one text, and how far its sum is from the model's own, relative to that.

    The terms of all tokens, the output bias and the norms' shifts add up to what the model computed; where they do not,
    it mixes tokens in another way, and is refused.
    """
    taps = model.located.taps
    weights = run[pattern][0].double()  # [H, T, T]
    values = run[pattern.beside("value")][0].double()  # [groups, T, dh]
    values = values.repeat_interleave(weights.shape[0] // values.shape[0], dim=0)
    tensors = [run[pattern.beside(kind)][0] for kind in ("attn", "resid")]
    given, stream = (tensor.double() for tensor in tensors)
    near = max(NEAR, 8 * torch.finfo(tensors[0].dtype).eps)
    weight, bias = _projection(model, taps[pattern.beside("heads")].module)
    vectors = torch.einsum("htd,hdm->htm", values, weight.unflatten(0, (len(values), -1)))
    projected = torch.einsum("hij,hjd->id", weights, vectors) + bias
    tap = taps.get(pattern.beside("attn"))
    scale = 1.0 if tap is None else tap.scale
    out = None
    if _off(projected * scale, given) > near and tap is not None:
        out = _split(model, tap.module, projected, given, scale, near)
    error = _off(projected * scale if out is None else out.whole(projected), given)
    norm = None
    if _post_norm(model, pattern):
        mid = run[pattern.beside("mid")][0].double()
        norm = _split(model, taps[pattern.beside("mid")].module, stream + given, mid, 1.0, near)
        error = max(error, _off(norm.whole(stream + given), mid) if norm is not None else torch.inf)
    if not error <= near:
        raise ModelError(
            f"What attention adds at {pattern} of {model.name!r} is not the sum of its weights times projected values "
            f"(off by {error:.1%}), so it cannot be divided among tokens; use rollout or attribution."
        )
    return Mixing(weights, vectors, stream, scale, out, norm), error


def _post_norm(model: Model, pattern: Site) -> bool:
    return model.forms.get(pattern.stack) == "post-norm"


def _projection(model: Model, path: str) -> tuple[Tensor, Tensor]:
    """The output projection as weight [H·dh, d] and bias [d] (or 0)."""
    module: Any = model.hf.get_submodule(path)
    weight = module.weight.detach().double()
    weight = weight.T if isinstance(module, nn.Linear) else weight  # Conv1D has its input first
    bias = getattr(module, "bias", None)
    return weight, weight.new_zeros(()) if bias is None else bias.detach().double()


def _split(model: Model, path: str, states: Tensor, wanted: Tensor, scale: float, near: float) -> NormSplit | None:
    """The norm at a path at the statistics of states [T, d], of the form that gives what the model computed."""
    found = min(
        (
            (_off(split.whole(states), wanted), place, split)
            for place, split in enumerate(_forms(model, path, states, scale))
        ),
        key=lambda each: each[:2],
        default=None,
    )
    return found[2] if found is not None and found[0] <= near else None


def _forms(model: Model, path: str, states: Tensor, scale: float) -> Iterator[NormSplit]:
    """Every form that a norm may have: with a mean or without, its gain as stored or around one."""
    module: Any = model.hf.get_submodule(path)
    weight, bias = (getattr(module, name, None) for name in ("weight", "bias"))
    epsilon = next((float(getattr(module, name)) for name in _EPSILONS if hasattr(module, name)), 0.0)
    stored = states.new_ones(states.shape[1]) if weight is None else weight.detach().double()
    shift = torch.zeros_like(stored) if bias is None else bias.detach().double()
    for centred, gain in product((True, False), (stored, 1 + stored)):
        if gain.shape == states.shape[1:]:
            rest = states - states.mean(-1, keepdim=True) if centred else states
            deviation = (rest.square().mean(-1) + epsilon).sqrt()
            yield NormSplit(gain, shift, deviation, centred, scale)


def _off(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, relative to the largest value; infinite where one is not a number."""
    error = float((found - wanted).abs().max() / wanted.abs().max().clamp(min=torch.finfo(torch.float64).tiny))
    return error if error == error else torch.inf
