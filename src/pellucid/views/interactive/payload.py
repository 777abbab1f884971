"""What travels to a page: a header of plain facts and deflated chunks of bytes, attention as one byte per weight."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Bytes = NDArray[np.uint8]

FORMAT = 1
STEPS = 255
"""Steps of the code: byte b stands for the weight (b/255)², so small weights keep more digits than large ones."""

_STRIP = 2**20
"""Weights of a chunk, about: so much is inflated when a head is opened."""


@dataclass(frozen=True)
class Chunk:
    """Deflated bytes, and how many they were before."""

    stored: bytes
    raw: int


@dataclass(frozen=True)
class Payload:
    """All that a page shows: the header (see `web/src/contract.ts`) and the chunks that it names."""

    header: Mapping[str, Any]
    chunks: Mapping[str, Chunk]


def codes(weights: Tensor) -> Tensor:
    """Weights between 0 and 1 as bytes, the nearest to 255·√w: the error of √w is at most half a step, 1/510."""
    import torch

    return weights.float().clamp(0, 1).sqrt_().mul_(STEPS).round_().to(torch.uint8)


def code(weight: float) -> int:
    """One weight as a byte."""
    return round(STEPS * min(1.0, max(0.0, weight)) ** 0.5)


def strip_rows(queries: int, keys: int) -> int:
    """Rows of a weights chunk: all of them, unless the text is long."""
    return min(queries, max(32, _STRIP // keys))


def strips(coded: Bytes, dropped: Bytes, *, causal: bool, rows: int) -> list[Chunk]:
    """One head's codes [queries, keys] as chunks of `rows` rows each, with a byte of dropped mass [queries] per row.

    Each byte is stored as the difference from the one above it in the same column (mod 256), the first row of a strip
    as it is; a causal row i keeps its first i + 1 bytes. The bytes of dropped mass follow the strip's rows.
    """
    found: list[Chunk] = []
    for start in range(0, len(coded), rows):
        part = coded[start : start + rows]
        stored = part.copy()
        stored[1:] -= part[:-1]
        kept = stored[_seen(len(part), coded.shape[1], start)] if causal else stored
        found.append(deflated(kept.tobytes() + dropped[start : start + rows].tobytes()))
    return found


@lru_cache(maxsize=64)
def _seen(rows: int, keys: int, start: int) -> NDArray[np.bool_]:
    """The keys that rows `start`… of a causal block see."""
    return np.tri(rows, keys, start, dtype=np.bool_)


def deflated(raw: bytes) -> Chunk:
    """Bytes in zlib's format.

    Only runs and single bytes are coded: on attention, matches further back cost ten times as long and save nothing.
    """
    squeezer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
    return Chunk(squeezer.compress(raw) + squeezer.flush(), len(raw))


def numbers(array: NDArray[Any], kind: str) -> Chunk:
    """Numbers of a kind ("<f4", "<f2", "<u4"), always with the lowest byte first."""
    return deflated(np.ascontiguousarray(array, dtype=np.dtype(kind)).tobytes())


def tiles(coded: Bytes, side: int) -> Bytes:
    """The largest code of each of side × side tiles of every head: [H, queries, keys] → [H, side, side]."""
    for axis in (2, 1):
        count = coded.shape[axis]
        starts = np.arange(side) * count // side
        if side > count:
            coded = np.take(coded, starts, axis=axis)
            continue
        coded = np.maximum.reduceat(coded, starts, axis=axis)
    return coded
