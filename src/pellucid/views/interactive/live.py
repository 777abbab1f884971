"""A model behind a view: exact weights, and weights of long texts that are made when they are looked at."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pellucid.errors import PellucidError, listing
from pellucid.views.interactive.payload import Chunk
from pellucid.views.interactive.scene import Block, Scene

if TYPE_CHECKING:
    from torch import Tensor

LAYERS = 4
"""Layers whose chunks are kept, and layers whose exact weights are, where those are few enough."""

_EXACT = 64 * 2**20
"""Bytes of a layer's exact weights that are kept whole; of a larger one only the row asked for."""


class Live:
    """Answers what a page asks of the models behind it; one question at a time."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self._scenes = tuple(scenes)
        self._lock = threading.RLock()
        self._chunks: OrderedDict[tuple[int, str, int], Mapping[str, Chunk]] = OrderedDict()
        self._exact: OrderedDict[tuple[int, str, str, int, int], Tensor] = OrderedDict()

    @property
    def large(self) -> bool:
        """Whether the weights are too many for a file."""
        return any(scene.large for scene in self._scenes)

    def chunk(self, name: str) -> Chunk:
        """A chunk of weights, named as in the header: a/PANEL/BLOCK/WEIGHTING/LAYER/HEAD/STRIP."""
        parts = name.split("/")
        if len(parts) != 7 or parts[0] != "a":
            raise PellucidError(f"There is no chunk {name!r} in this view.")
        scene, block, layer = self._place(*parts[1:5])
        with self._lock:
            key = (scene.panel, block.name, layer)
            if key not in self._chunks:
                self._chunks[key] = scene.layer_chunks(block, layer)
            _used(self._chunks, key, LAYERS)
            found = self._chunks[key].get(name)
        if found is None:
            raise PellucidError(f"There is no chunk {name!r}: layer {layer} has {block.heads[layer]} heads.")
        return found

    def exact(self, panel: Any, block: Any, weighting: Any, layer: Any, head: Any, query: Any) -> NDArray[np.float32]:
        """The model's own weights of one query row, float32 [keys]."""
        scene, found, number = self._place(panel, block, weighting, layer)
        rows, columns = (len(each) for each in scene.tokens(found))
        row = _number(query, range(rows), "query")
        which = _number(head, range(found.heads[number]), "head")
        whole = 4 * found.heads[number] * rows * columns <= _EXACT
        with self._lock:
            key = (scene.panel, found.name, weighting, number, -1 if whole else row)
            if key not in self._exact:
                rows_ = slice(None) if whole else slice(row, row + 1)
                self._exact[key] = scene.exact(found, number, rows_, weighting)
            _used(self._exact, key, LAYERS if whole else 16 * LAYERS)
            return self._exact[key][which, row if whole else 0].numpy()

    def _place(self, panel: Any, block: Any, weighting: Any, layer: Any) -> tuple[Scene, Block, int]:
        """The scene, block and layer that a question names."""
        scene = self._scenes[_number(panel, range(len(self._scenes)), "panel")]
        if block not in scene.blocks or weighting not in scene.blocks[block].weightings:
            known = next(iter(scene.blocks.values())).weightings
            raise PellucidError(
                f"There is no {weighting!r} of block {block!r}; this view has {listing(map(repr, known))} of "
                f"{listing(scene.blocks)}."
            )
        found = scene.blocks[block]
        return scene, found, _number(layer, found.layers, "layer")


def _number(text: Any, known: Sequence[int], noun: str) -> int:
    """A number from an address, one of those that exist."""
    try:
        number = int(text)
    except (TypeError, ValueError):
        number = -1
    if number not in known:
        raise PellucidError(f"There is no {noun} {text!r} here; there are {known[0]} to {known[-1]}.")
    return number


def _used(kept: OrderedDict[Any, Any], key: Any, most: int) -> None:
    """Moves a key to the end, and forgets the ones used longest ago."""
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
