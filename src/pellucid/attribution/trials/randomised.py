"""Models whose weights are made random step by step from the top: what an attribution must not survive."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from pellucid.errors import AttributionError
from pellucid.model import Model

if TYPE_CHECKING:
    from torch import Tensor

ALL = "all weights"
_BLOCK = re.compile(r"^(.*?\.\d+)\.")


def groups(model: Model) -> list[tuple[str, list[str]]]:
    """The names of a network's weights in its own order: a group for every block, and one for what stands between.

    A weight that is used twice stands where it is first.
    """
    found: list[tuple[str, list[str]]] = []
    for name, _ in model.hf.named_parameters():
        block = _BLOCK.match(name)
        label = block[1] if block is not None else ""
        if not found or found[-1][0] != label:
            found.append((label, []))
        found[-1][1].append(name)
    return found


def stages(model: Model, count: int) -> list[tuple[str, int]]:
    """At most `count` steps of the cascade, the top first, with the group from which on weights are random.

    The last step is always all of them.
    """
    if count < 1:
        raise AttributionError(f"The weights are made random in {count} steps; it takes at least 1.")
    known = groups(model)
    top = len(known) - 1
    cuts = sorted({round(float(cut)) for cut in np.linspace(top, 0, min(count, top + 1))}, reverse=True)
    if count == 1 or top == 0:
        cuts = [0]
    return [(_called(known, cut), cut) for cut in cuts]


def randomised(model: Model, count: int, seed: int) -> Iterator[tuple[str, Model]]:
    """The model with random weights, from all of them to those at the top alone; each stage is the same object.

    Random weights are those that the configuration starts training from; trained ones are put back from the bottom.
    """
    twin = Model.random_like(model, seed)
    trained: dict[str, Tensor] = dict(model.hf.named_parameters())
    fresh: dict[str, Tensor] = dict(twin.hf.named_parameters())
    known = groups(model)
    done = 0
    for name, cut in reversed(stages(model, count)):
        with torch.no_grad():
            for _, weights in known[done:cut]:
                for weight in weights:
                    fresh[weight].copy_(trained[weight])
        done = cut
        yield name, twin


def _called(known: list[tuple[str, list[str]]], cut: int) -> str:
    """What a stage is called: from which block on weights are random."""
    if cut == 0:
        return ALL
    label = known[cut][0]
    return "the head" if not label else f"{'.'.join(label.split('.')[-2:])} and above"
