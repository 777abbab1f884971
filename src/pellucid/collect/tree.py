"""The merge tree: states of shards put together in an order that depends on their numbers alone, never on arrival."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pellucid.collect.collector import Collector
from pellucid.collect.runner import States, merge_states
from pellucid.collect.state import load_states, save_states
from pellucid.errors import SweepError
from pellucid.saving import move_file

Place = tuple[int, int]
"""Level and number of a node: node (l, i) covers the shards from i·2^l up to (i+1)·2^l."""
_ROOM = 1 << 24  # bytes of nodes that wait in memory where no folder was asked for


class Tree:
    """States of shards, merged two by two as soon as neighbours are there; what waits for its neighbour is on disk.

    With a `folder`, every node is written durably before it counts: whatever happens, a tree opened on the same folder
    goes on from there. Without one, nodes of up to `room` bytes together wait in memory, others in a temporary folder.
    `on_disk` is for states larger than memory: all nodes are files, merged array by array, and the root stays one.
    """

    def __init__(
        self,
        collectors: Mapping[str, Collector],
        count: int,
        folder: Path | None,
        *,
        room: int = _ROOM,
        on_disk: bool = False,
    ) -> None:
        self.collectors, self.count, self.durable, self._room = collectors, count, folder is not None, room
        self.on_disk = on_disk
        self.folder = Path(tempfile.mkdtemp(prefix="pellucid-")) if folder is None else folder
        self._memory: dict[Place, States] = {}
        self._nodes: set[Place] = set()
        if folder is not None:
            folder.mkdir(exist_ok=True)
            self._find()

    def missing(self) -> list[int]:
        """The shards that no node covers yet."""
        return [index for index in range(self.count) if not self.covered(0, index)]

    def covered(self, level: int, index: int) -> bool:
        """Whether a node, or one above it, is there."""
        while (level, index) not in self._nodes:
            if self._width(level) <= 1:
                return False
            level, index = level + 1, index >> 1
        return True

    def path(self, level: int, index: int) -> Path:
        """The file of a node."""
        return self.folder / f"{level}-{index}.safetensors"

    def put(self, level: int, index: int, states: States) -> None:
        """Takes in a finished node, merges upwards while neighbours are there, and keeps the result."""
        if self.covered(level, index):
            return
        merged: list[Place] = []
        for place, above in self._upwards(level, index):
            level, index = above
            if place is not None:
                states = self._merged(place, states)
                merged.append(place)
        waiting = [node for place, node in self._memory.items() if place not in merged]
        fits = sum(state.bytes for node in (*waiting, states) for state in node.values()) <= self._room
        files = self.durable or self.on_disk
        if not files and (fits or self._width(level) == 1):  # the root is asked for next
            self._memory[level, index] = states
        else:
            save_states(self.path(level, index), states, durable=self.durable)
        self._nodes.add((level, index))
        for place in merged:
            self._drop(place)

    def put_file(self, index: int) -> None:
        """Takes in a shard whose states a worker has already written to its file."""
        above = next(iter(self._upwards(0, index)), None)
        if above is None:
            self._nodes.add((0, index))
            return
        file = self.path(0, index)
        self.put(0, index, load_states(file, on_disk=self.on_disk))
        file.unlink(missing_ok=True)

    def root(self) -> States:
        """The states of the whole corpus."""
        return self._load(self._top())

    def hand_over(self, file: Path) -> None:
        """Gives the whole corpus' file another name, outside of the tree."""
        top = self._top()
        move_file(self.path(*top), file, durable=self.durable)
        self._nodes.discard(top)

    def _top(self) -> Place:
        top = (0, 0)
        while self._width(top[0]) > 1:
            top = (top[0] + 1, 0)
        assert top in self._nodes, "the tree is not complete"
        return top

    def close(self) -> None:
        """Removes every node."""
        self._nodes.clear()
        self._memory.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _width(self, level: int) -> int:
        """Nodes of a level."""
        return (self.count + (1 << level) - 1) >> level

    def _upwards(self, level: int, index: int) -> Iterator[tuple[Place | None, Place]]:
        """Steps up from a node: the neighbour to merge with (None at the right edge, which moves up as it is)."""
        while self._width(level) > 1:
            neighbour = (level, index ^ 1)
            if neighbour[1] >= self._width(level):
                yield None, (level + 1, index >> 1)
            elif neighbour in self._nodes:
                yield neighbour, (level + 1, index >> 1)
            else:
                return
            level, index = level + 1, index >> 1

    def _merged(self, neighbour: Place, states: States) -> States:
        """A node's states and its neighbour's, which nothing holds afterwards."""
        other = self._load(neighbour)
        left, right = (other, states) if neighbour[1] % 2 == 0 else (states, other)
        return merge_states(self.collectors, left, right)

    def _load(self, place: Place) -> States:
        if place in self._memory:
            return self._memory[place]
        return load_states(self.path(*place), on_disk=self.on_disk)

    def _drop(self, place: Place) -> None:
        self._nodes.discard(place)
        if self._memory.pop(place, None) is None:
            self.path(*place).unlink(missing_ok=True)

    def _find(self) -> None:
        """Nodes that an earlier run left: those above win over what they were made of; damaged ones are refused."""
        for file in self.folder.glob(".*.part"):
            file.unlink(missing_ok=True)
        for file in self.folder.glob("*.safetensors"):
            level, _, index = file.stem.partition("-")
            self._nodes.add((int(level), int(index)))
        for level, index in sorted(self._nodes):
            self._nodes.discard((level, index))
            if self.covered(level, index):
                self.path(level, index).unlink(missing_ok=True)
                continue
            self._nodes.add((level, index))
            self._check(self.path(level, index))
        for level, index in sorted(self._nodes):  # neighbours whose merging was cut off, and the right edge's moving up
            if (level, index) in self._nodes and next(self._upwards(level, index), None) is not None:
                states = self._load((level, index))
                self._nodes.discard((level, index))
                self.put(level, index, states)
                self.path(level, index).unlink(missing_ok=True)

    def _check(self, file: Path) -> None:
        """A node that cannot be read is made again: renaming is atomic, so it was damaged later."""
        try:
            load_states(file, on_disk=True)
        except SweepError:
            file.unlink(missing_ok=True)
            level, _, index = file.stem.partition("-")
            self._nodes.discard((int(level), int(index)))
