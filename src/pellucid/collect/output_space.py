"""Output space: what a head's output projection lets through of its values, where that is less than all of them.

A head adds T = A·V·W_H to the stream. As long as the rows of W_H [d, width] are independent, V tells what can be told
about A; a head that was pruned or ablated, or whose W_H is of low rank, leaves more open.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.collect.null_space import values_of_heads

if TYPE_CHECKING:
    from pellucid.model import Model
    from pellucid.model.sites import Site

NOWHERE = -1
"""Stands for the number of a head in a layer whose output projection is not known."""
Deficient = tuple[str, int, str]
"""A pattern's name, the number of a head, and a basis [d, rank] of what its output projection reads, in base 64."""
_EPS = torch.finfo(torch.float32).eps


def deficient(model: Model, patterns: Iterable[Site]) -> tuple[Deficient, ...]:
    """The heads whose output projection has dependent rows, with what it reads; `NOWHERE` for layers without one.

    Singular values below max(d, width)·ε of the largest count as 0, with ε of float32.
    """
    found: list[Deficient] = []
    for site in patterns:
        slices = _slices(model, site)
        if slices is None:
            found.append((str(site), NOWHERE, ""))
            continue
        squares, vectors = torch.linalg.eigh(slices @ slices.mT)  # [heads, d], [heads, d, d]
        kept = squares > (max(slices.shape[1:]) * _EPS) ** 2 * squares[:, -1:]
        lost = (~kept.all(-1)).nonzero()[:, 0].tolist()
        found += [(str(site), head, _text(vectors[head][:, kept[head]])) for head in lost]
    return tuple(found)


def _slices(model: Model, pattern: Site) -> Tensor | None:
    """W_H of every head, [heads, d, width] in float64; None where the model has no such module."""
    tap = model.located.taps.get(pattern.beside("heads"))
    module: Any = None if tap is None else model.hf.get_submodule(tap.module)
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or not weight.is_floating_point() or weight.dim() != 2:
        return None
    heads, width = model.size(pattern)[0], model.size(pattern.beside("value"))[-1]
    rows = weight.detach().double().cpu()
    rows = rows.T if isinstance(module, nn.Linear) else rows  # Conv1D has its input first
    return rows.unflatten(0, (heads, width)) if len(rows) == heads * width else None


def _text(basis: Tensor) -> str:
    return b64encode(np.ascontiguousarray(basis.numpy()).tobytes()).decode()


class OutputSpace:
    """What output projections let through of values, by the name of a layer's pattern."""

    def __init__(self, found: Iterable[Deficient]) -> None:
        self._bases: dict[str, dict[int, str]] = {}
        for name, head, text in found:
            if head != NOWHERE:
                self._bases.setdefault(name, {})[head] = text

    def through(self, name: str, values: Tensor, heads: int) -> Tensor:
        """Values [.., key–value heads, keys, d] as they are, or [.., heads, keys, d] with what heads do not let through
        gone."""
        bases: Mapping[int, str] = self._bases.get(name, {})
        if not bases:
            return values
        own = values.double().movedim(-3, 0)
        own = values_of_heads(own, heads).clone()
        for head, text in bases.items():
            basis = torch.from_numpy(np.frombuffer(b64decode(text), dtype=np.float64).copy())
            basis = basis.view(values.shape[-1], -1).to(own.device)  # [d, rank]
            read = own[head] @ basis
            own[head] = torch.nn.functional.pad(read, (0, values.shape[-1] - read.shape[-1]))
        return own.movedim(0, -3)


def told(found: Iterable[Deficient] | None) -> list[str]:
    """What is to be said of output projections, one sentence each."""
    if found is None:
        return ["Whether output projections let all of the values through was not looked at; sweep with a model."]
    known = tuple(found)
    lost = [f"{name.replace('pattern.', '')}.{head}" for name, head, _ in known if head != NOWHERE]
    unknown = [name for name, head, _ in known if head == NOWHERE]
    lines: list[str] = []
    if lost:
        shown = ", ".join(lost[:20]) + (f" and {len(lost) - 20} more" if len(lost) > 20 else "")
        lines.append(f"The output projection lets only a part of the values through, which counts alone, in {shown}.")
    if unknown:
        lines.append(
            f"No output projection was found for {unknown[0]}{' and others' if len(unknown) > 1 else ''}: it is taken "
            "to let all of the values through."
        )
    return lines
