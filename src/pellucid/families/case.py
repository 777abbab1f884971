"""What the oracle is given for one model, and how it compares a captured tensor with what it should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.families.blocks import Row, Stack

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Finding:
    """One comparison: the largest absolute error, relative to the largest value of the reference."""

    check: str
    site: str
    error: float
    ok: bool
    note: str = ""


@dataclass(frozen=True)
class Case:
    """A captured run of one model: its parts, its inputs and the model's own outputs for them."""

    name: str
    model: PreTrainedModel
    row: Row
    captured: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Any]
    tolerance: float

    def depth(self, stack: Stack) -> int:
        """The number of blocks of a stack."""
        return int(getattr(self.model.config, stack.layers))

    def module(self, path: str, layer: int = 0) -> nn.Module:
        """The module at a path, in the given block; a model without its head lacks the path's first part."""
        base = self.model.base_model_prefix
        path = path if hasattr(self.model, base) else path.removeprefix(f"{base}.")
        return self.model.get_submodule(path.format(layer))

    def parameter(self, path: str, layer: int) -> Tensor:
        """The parameter at a path, in the given block, in float32."""
        parent, _, name = path.rpartition(".")
        return self.module(parent, layer).get_parameter(name).float()

    def setting(self, name: str) -> float:
        """A number from the model's config."""
        return float(getattr(self.model.config, name))

    def real(self, prefix: str) -> Tensor:
        """Which positions of a stack hold tokens: [B, T], bool."""
        name = "decoder_attention_mask" if prefix == "decoder." else "attention_mask"
        return self.inputs[name].bool()

    def ids(self, prefix: str) -> Tensor:
        """The token ids of a stack: [B, T]."""
        return self.inputs["decoder_input_ids" if prefix == "decoder." else "input_ids"]

    def norm(self, path: str, x: Tensor, layer: int = 0) -> Tensor:
        """Apply a norm in the model's own precision, past any hook: [..., d] to [..., d]."""
        return self.module(path, layer).forward(x.to(self.model.dtype)).float()

    def linear(self, path: str, x: Tensor, layer: int = 0, *, transposed: bool = False) -> Tensor:
        """Apply a linear layer in float32, past any hook; `transposed` for weights held as [in, out]."""
        module = self.module(path, layer)
        weight = module.get_parameter("weight").float()
        y = x @ (weight if transposed else weight.T)
        bias = dict(module.named_parameters(recurse=False)).get("bias")
        return y if bias is None else y + bias.float()

    def compare(
        self,
        check: str,
        site: str,
        needs: tuple[str, ...],
        reference: Callable[..., Tensor],
        where: Tensor,
        *,
        note: str = "",
    ) -> Finding:
        """Compare a captured site with `reference(*needed sites)` at the positions `where` [B, T]."""

        def error(found: Tensor, *needed: Tensor) -> float:
            return difference(found, reference(*needed), where)

        return self.judge(check, site, (site, *needs), error, note=note)

    def judge(
        self, check: str, site: str, needs: tuple[str, ...], error: Callable[..., float], *, note: str = ""
    ) -> Finding:
        """A finding from `error(*needed sites)`, or one that names the sites that were not captured."""
        missing = [name for name in needs if name not in self.captured]
        if missing:
            return Finding(check, site, float("inf"), False, f"missing {', '.join(missing)}")
        try:
            size = error(*(self.captured[name].detach().float() for name in needs))
        except (RuntimeError, IndexError) as problem:  # shapes that do not fit together are a finding, too
            return Finding(check, site, float("inf"), False, f"could not be compared: {problem}")
        return Finding(check, site, size, size <= self.tolerance, note)


def difference(found: Tensor, wanted: Tensor, where: Tensor) -> float:
    """The largest error of [B, T, ·] or [B, H, T, ·] at the positions `where` [B, T], relative to `wanted`.

    Tensors of unlike shape raise; an error that is not a number counts as infinite.
    """
    if found.shape != wanted.shape:
        raise RuntimeError(f"got {tuple(found.shape)}, expected {tuple(wanted.shape)}")
    found, wanted = at(found.float(), where), at(wanted.float(), where)
    largest = wanted.abs().max().clamp_min(torch.finfo(torch.float32).tiny)
    error = float((found - wanted).abs().max() / largest)
    return error if error == error else float("inf")


def at(tensor: Tensor, where: Tensor) -> Tensor:
    """The rows of [B, T, ·] or [B, H, T, ·] at the positions `where` [B, T]: [n, ·] or [n, H, ·]."""
    return (tensor.transpose(1, 2) if tensor.dim() == 4 else tensor)[where]
