"""The merge tree: the order of shards decides, never the order of arrival; a kill anywhere costs nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar
from weakref import WeakSet

import numpy as np
import pytest

from pellucid.collect.collector import Collector
from pellucid.collect.runner import RECORD, merge_states
from pellucid.collect.state import State, load_states, save_states
from pellucid.collect.tree import Tree
from pellucid.errors import SweepError


@dataclass(frozen=True)
class Bracket(Collector):
    """A merge that tells left from right and one bracketing from another."""

    kind: ClassVar[str] = "test-bracket"

    def open(self, setting):
        raise AssertionError("never opened")

    def merge(self, left: State, right: State) -> State:
        value = left.arrays["value"] * 1.1 + right.arrays["value"] / 3
        return State({"value": value}, {"told": f"({left.facts['told']} {right.facts['told']})"})


NAMED = {"b": Bracket()}


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    """What the disk does after a power cut cannot be tested here, and waiting for it takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def leaf(index: int) -> dict[str, State]:
    value = np.array([np.sin(index + 1.0), index / 7])
    return {
        "b": State({"value": value}, {"told": str(index)}),
        RECORD: State({}, {"unmatched": index, "halved": [[index, 1]]}),
    }


def told(first: int, last: int, width: int) -> str:
    """The bracketing of shards `first` to `last` under a node that has room for `width`."""
    if last - first == 1:
        return str(first)
    half = width // 2
    if last - first <= half:
        return told(first, last, half)
    return f"({told(first, first + half, half)} {told(first + half, last, half)})"


def root_in_order(count: int) -> dict[str, State]:
    tree = Tree(NAMED, count, None)
    for index in range(count):
        tree.put(0, index, leaf(index))
    root = tree.root()
    tree.close()
    return root


def same(one: dict[str, State], other: dict[str, State]) -> bool:
    return one.keys() == other.keys() and all(one[name].same(other[name]) for name in one)


def put(tree: Tree, index: int) -> None:
    """As the inline engine does."""
    tree.put(0, index, leaf(index))


def put_file(tree: Tree, index: int) -> None:
    """As worker processes do: they write the file, and the tree takes it in."""
    save_states(tree.path(0, index), leaf(index))
    tree.put_file(index)


@pytest.mark.parametrize("count", range(1, 41))
def test_the_bracketing_is_that_of_a_balanced_tree(count):
    width = 1 << (count - 1).bit_length()
    root = root_in_order(count)
    assert root["b"].facts["told"] == told(0, count, width)
    assert root[RECORD].facts == {
        "unmatched": count * (count - 1) // 2,
        "halved": [[index, 1] for index in range(count)],
    }


@pytest.mark.parametrize("how", [put, put_file])
@pytest.mark.parametrize("durable", [True, False])
def test_any_order_of_arrival_gives_the_same_bytes(tmp_path, how, durable):
    for count in (*range(1, 12), 21, 40):
        expected = root_in_order(count)
        for seed in range(2):
            order = list(range(count))
            random.Random(seed).shuffle(order)
            tree = Tree(NAMED, count, tmp_path / f"{count}-{seed}" if durable else None)
            for done, index in enumerate(order):
                assert sorted(tree.missing()) == sorted(order[done:])
                how(tree, index)
            assert tree.missing() == []
            assert same(tree.root(), expected)
            if durable:
                assert len(list(tree.folder.iterdir())) == 1  # what was merged is gone
            tree.close()
            assert not tree.folder.exists()


def test_blocks_that_were_merged_elsewhere_fit_in():
    """Ray hands in nodes of a higher level, at the right edge too."""
    for count in range(1, 41):
        expected = root_in_order(count)
        for level in range(min(3, (count - 1).bit_length()) + 1):
            tree = Tree(NAMED, count, None)
            blocks = list(range((count + (1 << level) - 1) >> level))
            random.Random(count).shuffle(blocks)
            for index in blocks:
                members = range(index << level, min((index + 1) << level, count))
                states = {member: leaf(member) for member in members}
                tree.put(level, index, merged(states, level, index, count))
            assert same(tree.root(), expected)
            tree.close()


def merged(states: dict[int, dict[str, State]], level: int, index: int, count: int) -> dict[str, State]:
    if level == 0:
        return states[index]
    left = merged(states, level - 1, 2 * index, count)
    if (2 * index + 1) << (level - 1) >= count:
        return left
    return merge_states(NAMED, left, merged(states, level - 1, 2 * index + 1, count))


class Killed(BaseException):
    """The process is gone: nothing that tidies up after errors may catch this."""


class Clock:
    """Counts operations on files, and kills before the one that it is set to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.at, self.count = -1, 0
        for name in ("open", "replace", "unlink"):
            patch.setattr(Path, name, self._counting(getattr(Path, name)))

    def _counting(self, real: Callable[..., object]) -> Callable[..., object]:
        def counted(path: Path, *arguments: object, **options: object) -> object:
            if self.count == self.at:
                self.at = -1
                raise Killed
            self.count += 1
            return real(path, *arguments, **options)

        return counted

    def run(self, at: int, work: Callable[[], object]) -> bool:
        """Runs until the kill; whether it came."""
        self.at, self.count = at, 0
        try:
            work()
        except Killed:
            return True
        finally:
            self.at = -1
        return False


def fill(
    folder: Path, count: int, order: Sequence[int], how: Callable[[Tree, int], None], done: set[int] | None = None
) -> Tree:
    """A tree with all that it misses put in; `done` gathers what it has taken, and must not be asked for again."""
    tree = Tree(NAMED, count, folder)
    missing = set(tree.missing())
    assert not missing & (done or set())
    for index in order:
        if index in missing:
            how(tree, index)
            if done is not None:
                done.add(index)
    return tree


@pytest.mark.parametrize("how", [put, put_file])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 9])
def test_a_kill_between_any_two_file_operations_costs_nothing(tmp_path, monkeypatch, count, how):
    expected = root_in_order(count)
    clock = Clock(monkeypatch)
    for seed in range(2):
        order = list(range(count))
        random.Random(seed).shuffle(order)
        at = 0
        done: set[int] = set()
        while clock.run(at, partial(fill, tmp_path / f"{seed}-{at}", count, order, how, done)):
            tree = fill(tmp_path / f"{seed}-{at}", count, order[::-1], how, done)
            assert same(tree.root(), expected), at
            assert len(list(tree.folder.iterdir())) == 1
            at, done = at + 1, set()
        assert at > count


@pytest.mark.parametrize("how", [put, put_file])
def test_kills_while_recovering_from_kills_cost_nothing(tmp_path, monkeypatch, how):
    """Also the opening of a tree, which removes and merges what it finds, may be cut off anywhere."""
    count, chance = 11, random.Random(5)
    expected = root_in_order(count)
    clock = Clock(monkeypatch)
    for trial in range(12):
        order = list(range(count))
        chance.shuffle(order)
        for _ in range(40):
            if not clock.run(chance.randrange(12), partial(fill, tmp_path / str(trial), count, order, how)):
                break
            chance.shuffle(order)
        tree = fill(tmp_path / str(trial), count, order, how)
        assert same(tree.root(), expected)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 9])
def test_files_that_workers_left_are_taken_in(tmp_path, count):
    """The coordinator was killed before it heard of them: every shard is there, and nothing is run again."""
    for index in range(count):
        tmp_path.joinpath("n").mkdir(exist_ok=True)
        save_states(tmp_path / "n" / f"0-{index}.safetensors", leaf(index))
    tree = Tree(NAMED, count, tmp_path / "n")
    assert tree.missing() == []
    assert same(tree.root(), root_in_order(count))


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_node_is_made_again(tmp_path, damage):
    count = 6
    tree = Tree(NAMED, count, tmp_path / "n")
    for index in (0, 1, 2, 3, 5):
        put(tree, index)
    file = tree.path(2, 0)
    content = bytearray(file.read_bytes())
    if damage == "cut":
        content = content[:-5]
    elif damage == "flip":
        content[-3] ^= 1
    else:
        content = bytearray()
    file.write_bytes(content)
    with pytest.raises(SweepError, match="is damaged or missing"):
        load_states(file)
    again = Tree(NAMED, count, tmp_path / "n")
    assert again.missing() == [0, 1, 2, 3, 4]
    for index in again.missing():
        put(again, index)
    assert same(again.root(), root_in_order(count))


@pytest.mark.parametrize("room", [0, 16, 40, 1 << 20])
def test_without_a_folder_nodes_wait_in_memory_while_there_is_room(room):
    tree, count = Tree(NAMED, 8, None, room=room), 8  # a leaf has 16 bytes
    for index in (0, 2, 4, 6):
        tree.put(0, index, leaf(index))
        files = len(list(tree.folder.iterdir()))
        assert files == max(0, index // 2 + 1 - room // 16)
    for index in (1, 3, 5, 7):
        tree.put(0, index, leaf(index))
    assert list(tree.folder.iterdir()) == []
    assert same(tree.root(), root_in_order(count))
    tree.close()


def test_room_is_that_of_the_nodes_that_wait():
    """Two leaves that are merged no longer wait: their node takes the room that they had."""
    tree = Tree(NAMED, 4, None, room=16)
    for index in (0, 1):
        tree.put(0, index, leaf(index))
        assert list(tree.folder.iterdir()) == []
    tree.put(0, 2, leaf(2))
    assert len(list(tree.folder.iterdir())) == 1
    tree.close()


def test_parts_of_files_are_swept_away(tmp_path):
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / ".0-1.safetensors.77.part").write_bytes(b"half")
    tree = Tree(NAMED, 2, tmp_path / "n")
    assert list(tree.folder.iterdir()) == []
    assert tree.missing() == [0, 1]


def test_the_same_states_give_the_same_bytes_and_come_back(tmp_path):
    one = {"x": State({"b": np.arange(6.0).reshape(2, 3).T, "a": np.array([1, 2])}, {"k": [1, "ü"]}), "y": State()}
    other = {"y": State(), "x": State({"a": np.array([1, 2]), "b": np.arange(6.0).reshape(2, 3).T}, {"k": [1, "ü"]})}
    for name, states in (("one", one), ("other", other)):
        save_states(tmp_path / name, states)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert same(load_states(tmp_path / "one"), one)
    assert not one["x"].same(State(one["x"].arrays, {"k": [2, "ü"]}))
    assert not one["x"].same(State({**one["x"].arrays, "a": np.array([1, 3])}, one["x"].facts))


def test_states_of_a_newer_format_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pellucid.collect.state.FORMAT", 2)
    save_states(tmp_path / "s", leaf(0))
    monkeypatch.setattr("pellucid.collect.state.FORMAT", 1)
    with pytest.raises(SweepError, match=r"newer Pellucid \(format 2\); update"):
        load_states(tmp_path / "s")


@dataclass(frozen=True)
class Watched(Bracket):
    """Keeps an eye on the states that it has made."""

    kind: ClassVar[str] = "test-watched"
    made: WeakSet[State] = field(default_factory=WeakSet[State])

    def merge(self, left: State, right: State) -> State:
        merged = super().merge(left, right)
        self.made.add(merged)
        return merged


def test_what_was_merged_is_gone_before_the_next_neighbour_is_read(monkeypatch) -> None:
    """The eighth shard merges three times in a row: at each reading there is only what the merge before gave."""
    collector, alive = Watched(), list[int]()

    def load(file: Path, **how: bool) -> dict[str, State]:
        alive.append(len(collector.made))
        return load_states(file, **how)

    monkeypatch.setattr("pellucid.collect.tree.load_states", load)
    tree = Tree({"b": collector}, 8, None, room=0)
    for index in range(8):
        states = leaf(index)
        collector.made.add(states["b"])
        tree.put(0, index, states)
    tree.close()
    assert alive == [1] * 7
