"""What a recorder knows beforehand: the network's parts, found once, and the batch of the pass at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.model.sites import Site


@dataclass(frozen=True)
class Wiring:
    """A network's modules by path, their paths by identity, and every configuration object in it."""

    module: nn.Module
    parts: Mapping[str, nn.Module]
    names: Mapping[int, str]
    configs: tuple[Any, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Wiring:
        """Walks the network once; passes reuse what was found."""
        parts = dict(module.named_modules())
        configs: dict[int, Any] = {id(part.config): part.config for part in parts.values() if hasattr(part, "config")}
        named = [config for config in configs.values() if hasattr(config, "_attn_implementation_internal")]
        return cls(module, parts, {id(part): name for name, part in parts.items()}, tuple(named))


@dataclass(frozen=True)
class Frame:
    """What a pass needs to know of its batch: its size, and per stack which tokens are real ([B, T] booleans).

    `padded` names the stacks that have any padding at all, so that a full batch is not looked at again.
    """

    size: int
    real: Mapping[str | None, Tensor] = field(default_factory=dict[str | None, Tensor])
    padded: frozenset[str | None] = frozenset()

    @classmethod
    def of(cls, size: int, masks: Mapping[str | None, Tensor], device: torch.device) -> Frame:
        """From attention masks of 0 and 1, by stack; they are looked at where they are, before they move."""
        real = {stack: mask.bool() for stack, mask in masks.items()}
        padded = frozenset(stack for stack, tokens in real.items() if not bool(tokens.all()))
        return cls(size, {stack: tokens.to(device) for stack, tokens in real.items()}, padded)

    def source(self, site: Site) -> str | None:
        """The stack whose tokens a site's positions are: for cross attention, keys and values are the encoder's."""
        if site.stack is None and "decoder" in self.real:
            return "decoder"  # the logits of an encoder–decoder
        if site.stack != "cross":
            return site.stack
        return "encoder" if site.kind in ("key", "value") else "decoder"

    def length(self, site: Site) -> int | None:
        """Tokens of a row, padding included."""
        real = self.real.get(self.source(site))
        return None if real is None else real.shape[1]

    def rows(self, site: Site, length: int) -> Tensor | None:
        """Which of a site's positions are real, [B, T]; None where all are, or in a later generation step."""
        stack = self.source(site)
        return self.real[stack] if stack in self.padded and self.real[stack].shape[1] == length else None
