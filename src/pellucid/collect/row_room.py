"""Room for the rows of a batch: one block of memory that serves batch after batch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from pellucid.collect.state import Array

_ALIGNED = 64
"""Bytes at whose multiples tensors begin, as torch has them: products of other tensors may differ in the last bit."""
K = TypeVar("K", bound=Hashable)


@dataclass(eq=False)
class _Block:
    """Memory, and what tells whether a tensor lies in it."""

    memory: Array
    lent: ref[Array] | None = None

    @property
    def free(self) -> bool:
        return self.lent is None or self.lent() is None


@dataclass(eq=False)
class RowRoom:
    """Lends tensors on the CPU in float32; their memory is lent again when nobody has any of them, or a part of one.

    Rows are the largest that a batch makes. Taken from the C library as they come, they lie between the tensors of the
    pass and leave gaps that batches of other lengths cannot use.
    """

    _blocks: list[_Block] = field(default_factory=list[_Block])

    def lend(self, shapes: Mapping[K, tuple[int, int]]) -> dict[K, Tensor]:
        """A tensor of every shape, with any content."""
        step = _ALIGNED // 4
        sizes = [-(-height * width // step) * step for height, width in shapes.values()]
        flat = self._memory(sum(sizes))
        parts = zip(shapes.items(), flat.split(sizes), strict=True)
        return {key: part[: height * width].view(height, width) for (key, (height, width)), part in parts}

    def _memory(self, size: int) -> Tensor:
        room = size + _ALIGNED // 4
        self._blocks = [block for block in self._blocks if not block.free or len(block.memory) >= room]
        block = next((block for block in self._blocks if block.free), None)
        if block is None:
            block = _Block(np.empty(room + room // 4, np.float32))
            self._blocks.append(block)
        start = -block.memory.ctypes.data % _ALIGNED // 4
        part = block.memory[start : start + size]
        block.lent = ref(part)  # the tensor, and what is made of it without a copy, keep it
        return torch.from_numpy(part)

    def clear(self) -> None:
        """Lets go of the memory."""
        self._blocks.clear()
