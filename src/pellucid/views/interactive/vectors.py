"""Queries and keys for the neuron view: stored as float16, and checked to give the attention they belong to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pellucid.model.sites import Site
from pellucid.views.interactive.payload import Chunk, numbers

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.views.interactive.scene import Block, Scene

LARGEST = 20_000_000
"""Bytes of deflated queries and keys that a view holds; the first layers that fit are kept."""

_CLOSE = 0.02
_SAMPLE = 64


class Vectors:
    """Takes queries and keys as they pass, finds the factor of q·k, and says where softmax does not follow from it."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._parts: dict[Site, Tensor] = {}
        self._held: dict[tuple[str, int], tuple[Chunk, Chunk]] = {}
        self._left_out: dict[str, list[int]] = {}
        self._width: dict[str, int] = {}
        self._scale: dict[str, float] = {}
        self._worst: dict[str, tuple[float, int, int]] = {}
        known = set(scene.model.sites)
        self._blocks = {
            pattern: (block, layer)
            for block in scene.blocks.values()
            for layer, pattern in block.sites.items()
            if {pattern.beside("query"), pattern.beside("key")} <= known
        }
        self.sites = [pattern.beside(kind) for pattern in self._blocks for kind in ("query", "key")]

    @property
    def size(self) -> int:
        """Bytes held so far."""
        return sum(len(chunk.stored) for pair in self._held.values() for chunk in pair)

    def take(self, site: Site, tensor: Tensor) -> None:
        """Keeps a query or key tensor [1, heads, tokens, width] until its layer's pattern comes, or the end."""
        self._parts[site] = tensor[0].detach().float().cpu()

    def see(self, pattern: Site, weights: Tensor) -> None:
        """A layer's weights [H, queries, keys]: with them, its queries and keys are checked and stored."""
        if pattern not in self._blocks:
            return
        query, key = (self._parts.pop(pattern.beside(kind), None) for kind in ("query", "key"))
        if query is None or key is None:
            return
        block, layer = self._blocks[pattern]
        key = key.repeat_interleave(len(query) // len(key), dim=0)
        if query.shape[-1] != key.shape[-1] or query.shape[:2] != weights.shape[:2] or key.shape[1] != weights.shape[2]:
            self._left_out.setdefault(block.name, []).append(layer)
            return
        self._compare(block, layer, query, key, weights.float().cpu())
        pair = numbers(query.numpy(), "<f2"), numbers(key.numpy(), "<f2")
        fits = self._width.setdefault(block.name, query.shape[-1]) == query.shape[-1]
        if not fits or self._left_out.get(block.name) or self.size + sum(len(x.stored) for x in pair) > LARGEST:
            self._left_out.setdefault(block.name, []).append(layer)
            return
        self._held[block.name, layer] = pair

    def chunks(self) -> dict[str, Chunk]:
        """The chunks of all layers that fit."""
        panel = self._scene.panel
        return {
            f"{kind}/{panel}/{block}/{layer}": chunk
            for (block, layer), pair in self._held.items()
            for kind, chunk in zip("qk", pair, strict=True)
        }

    def told(self, block: Block) -> dict[str, Any] | None:
        """What the header says of a block's vectors; None where there are none."""
        layers = [layer for name, layer in self._held if name == block.name]
        if not layers:
            return None
        return {"layers": layers, "width": self._width[block.name], "scale": self._scale[block.name]}

    def notes(self) -> list[str]:
        """Sentences on the layers left out, and on attention that q·k alone does not give."""
        found: list[str] = []
        for name, block in self._scene.blocks.items():
            mine = [layer for held, layer in self._held if held == name]
            where = f"block {name!r}" if len(self._scene.blocks) > 1 else "this view"
            if not any(each.name == name for each, _ in self._blocks.values()):
                found.append(f"The model gives no queries and keys of {where}, so the neuron view lacks them.")
            elif set(mine) < set(block.layers):
                kept = f"layers {mine[0]} to {mine[-1]}" if mine else "no layers"
                found.append(
                    f"Queries and keys of {where} are there for {kept}; more would take over {LARGEST // 10**6} MB "
                    "(choose others with layers=)."
                )
            worst, layer, head = self._worst.get(name, (0.0, 0, 0))
            if worst > 0.01:
                found.append(
                    f"Softmax of q·k × {self._scale[name]:.4g} does not give the attention of {where}: position biases "
                    f"or other changes differ by up to {worst:.2f} (layer {layer}, head {head})."
                )
        return found

    def _compare(self, block: Block, layer: int, query: Tensor, key: Tensor, weights: Tensor) -> None:
        """Finds the factor of q·k from the first layer, and the largest difference from the model's own weights."""
        import torch

        rows = torch.linspace(0, query.shape[1] - 1, min(_SAMPLE, query.shape[1])).long()
        dots = query[:, rows] @ key.transpose(1, 2)  # [H, rows, keys]
        seen = weights[:, rows]
        if block.name not in self._scale:
            self._scale[block.name] = _factor(dots, seen, query.shape[-1])
        scores = (dots * self._scale[block.name]).masked_fill(seen <= 0, -torch.inf)
        off = (torch.softmax(scores, -1).nan_to_num(0.0) - seen).abs().amax((1, 2))
        if float(off.max()) > self._worst.get(block.name, (-1.0,))[0]:
            self._worst[block.name] = (float(off.max()), layer, int(off.argmax()))


def _factor(dots: Tensor, weights: Tensor, width: int) -> float:
    """The factor s for which ln w and s·q·k run alike along each row, by least squares; 1/√width or 1 where close."""
    good = weights > 1e-5
    count = good.sum(-1, keepdim=True).clamp(min=1)
    logs = weights.clamp(min=1e-30).log()
    logs, dots = (part - (part * good).sum(-1, keepdim=True) / count for part in (logs, dots))
    square = float((dots * dots * good).double().sum())
    found = float((logs * dots * good).double().sum()) / square if square > 0 else 0.0
    likely = (1 / math.sqrt(width), 1.0)
    near = [each for each in likely if abs(found - each) <= _CLOSE * each]
    return near[0] if near else found if found > 0 else likely[0]
