"""What a view holds, read back: inflated chunks as arrays."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import PellucidError, listing
from pellucid.views.interactive.payload import STEPS, Bytes

if TYPE_CHECKING:
    from pellucid.views.interactive.view import View

Floats = NDArray[np.float32]

WEIGHT: Floats = ((np.arange(STEPS + 1) / STEPS) ** 2).astype(np.float32)
"""The weight that each byte stands for."""


def unpacked(raw: bytes, *, start: int, rows: int, keys: int, causal: bool) -> tuple[Bytes, Bytes]:
    """Codes [rows, keys] of the query rows from `start` on, and codes [rows] of the mass that each row dropped.

    Undoes the filter (each byte is a difference from the one above) and, where causal, the packing: row i has i + 1
    bytes, and the keys after it are zero.
    """
    found = np.frombuffer(raw, np.uint8)
    body, dropped = found[: len(found) - rows], found[len(found) - rows :]
    differences = np.zeros((rows, keys), np.uint8)
    if causal:
        differences[np.tri(rows, keys, start, dtype=np.bool_)] = body
    else:
        differences[:] = body.reshape(rows, keys)
    return np.cumsum(differences, axis=0, dtype=np.uint8), dropped


class HeadMatrix:
    """Codes of one head's weights, of which strips are inflated when their rows are asked for."""

    def __init__(self, view: View, stem: str, *, queries: int, keys: int, strip: int, causal: bool) -> None:
        self.queries, self.keys = queries, keys
        self._view, self._stem, self._strip, self._causal = view, stem, strip, causal
        self._strips: dict[int, tuple[Bytes, Bytes]] = {}

    def rows(self, places: NDArray[np.intp]) -> Bytes:
        """Codes of some query rows, [rows, keys]."""
        found = np.zeros((len(places), self.keys), np.uint8)
        for row, place in enumerate(places):
            found[row] = self._of(int(place))[0][int(place) % self._strip]
        return found

    def dropped(self, places: NDArray[np.intp]) -> Bytes:
        """Codes of the mass that the file does not keep of some query rows, [rows]."""
        return np.array([self._of(int(place))[1][int(place) % self._strip] for place in places], np.uint8)

    def _of(self, place: int) -> tuple[Bytes, Bytes]:
        """The strip that a row is in."""
        number = place // self._strip
        if number not in self._strips:
            start = number * self._strip
            self._strips[number] = unpacked(
                inflated(self._view, f"{self._stem}/{number}"),
                start=start,
                rows=min(self._strip, self.queries - start),
                keys=self.keys,
                causal=self._causal,
            )
        return self._strips[number]


def inflated(view: View, name: str) -> bytes:
    """The bytes of a chunk."""
    return zlib.decompress(view.chunk(name).stored)


class Held:
    """One panel of a view: its tokens, blocks and numbers."""

    def __init__(self, view: View, panel: int = 0) -> None:
        self.view, self.number = view, panel
        self.panel: Mapping[str, Any] = view.header["panels"][panel]
        self._matrices: dict[tuple[str, str, int, int], HeadMatrix] = {}

    @property
    def name(self) -> str:
        """The panel's name."""
        return str(self.panel["name"])

    def block(self, name: str) -> Mapping[str, Any]:
        """A block of heads by its name."""
        found = {block["name"]: block for block in self.panel["blocks"]}
        if name not in found:
            raise PellucidError(f"{self.name} has no {name!r} attention; it has {listing(found)}.")
        return found[name]

    def tokens(self, name: str | None = None) -> Mapping[str, Any]:
        """A list of tokens by its name; the first one without."""
        lists = self.panel["tokens"]
        return next(iter(lists.values())) if name is None else lists[name]

    def matrix(self, block: Mapping[str, Any], weighting: str, layer: int, head: int) -> HeadMatrix:
        """The weights of one head."""
        self._has(block, weighting)
        key = (str(block["name"]), weighting, layer, head)
        if key not in self._matrices:
            self._matrices[key] = HeadMatrix(
                self.view,
                f"a/{self.number}/{block['name']}/{weighting}/{layer}/{head}",
                queries=len(self.tokens(block["queries"])["text"]),
                keys=len(self.tokens(block["keys"])["text"]),
                strip=block["strip"],
                causal=block["causal"],
            )
        return self._matrices[key]

    def thumbs(self, block: Mapping[str, Any], weighting: str) -> Bytes:
        """Codes of all heads' thumbnails, [layers, most heads, side, side]."""
        self._has(block, weighting)
        raw = inflated(self.view, f"t/{self.number}/{block['name']}/{weighting}")
        shape = (len(block["layers"]), max(block["heads"]), block["thumb"], block["thumb"])
        return np.frombuffer(raw, np.uint8).reshape(shape)

    def statistic(self, block: Mapping[str, Any], name: str) -> Floats:
        """A statistic of all heads, [layers, most heads]; NaN where a layer lacks the head."""
        known = list(block["statistics"])
        if name not in known:
            raise PellucidError(f"{self.name} has no statistic {name!r} of its heads; it has {listing(known)}.")
        raw = inflated(self.view, f"s/{self.number}/{block['name']}")
        layers, most = len(block["layers"]), max(block["heads"])
        found = np.frombuffer(raw, "<f4").reshape(len(known), layers, most)[known.index(name)].astype(np.float32)
        found[np.arange(most) >= np.array(block["heads"])[:, None]] = np.nan
        return found

    def vectors(self, block: Mapping[str, Any], layer: int, head: int) -> tuple[Floats, Floats]:
        """Queries and keys of one head, [tokens, width] each."""
        kept = block["vectors"]["layers"] if block["vectors"] else []
        if layer not in kept:
            raise PellucidError(
                f"{self.name} holds no queries and keys of layer {layer}; it holds those of layers {listing(kept)}."
            )
        count = block["heads"][block["layers"].index(layer)]
        width = block["vectors"]["width"]
        parts = [inflated(self.view, f"{kind}/{self.number}/{block['name']}/{layer}") for kind in "qk"]
        query, key = (np.frombuffer(part, "<f2").reshape(count, -1, width)[head].astype(np.float32) for part in parts)
        return query, key

    def track(self, name: str) -> Floats:
        """One number per token, [tokens]; NaN where there is none."""
        names = list(self.panel["text"]["tracks"])
        values = np.frombuffer(inflated(self.view, f"text/{self.number}/tracks"), "<f4")
        return values.reshape(len(names), -1)[names.index(name)].astype(np.float32)

    def map(self, name: str) -> Floats:
        """Numbers of a map, [rows, tokens]."""
        values = np.frombuffer(inflated(self.view, f"text/{self.number}/map/{name}"), "<f4")
        return values.reshape(len(self.panel["text"]["maps"][name]["rows"]), -1).astype(np.float32)

    def lens(self) -> tuple[list[str], NDArray[np.uint32], Floats]:
        """Words, their numbers [rows, tokens, most] and probabilities [rows, tokens, most], likeliest first."""
        facts = self.panel["text"]["lens"]
        stem = f"text/{self.number}/lens"
        words, ids, codes = (inflated(self.view, f"{stem}/{part}") for part in ("words", "ids", "probs"))
        shape = (len(facts["rows"]), -1, facts["most"])
        probabilities = WEIGHT[np.frombuffer(codes, np.uint8)].reshape(shape)
        return words.decode().split("\n"), np.frombuffer(ids, "<u4").reshape(shape), probabilities

    def _has(self, block: Mapping[str, Any], weighting: str) -> None:
        if weighting not in block["weightings"]:
            known = listing(block["weightings"])
            raise PellucidError(f"{self.name} has no {weighting!r} weights; it has {known}.")
