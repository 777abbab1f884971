"""Statistics larger than memory: they stay on disk, give the same numbers, and are never in memory together."""

from __future__ import annotations

import os
import pickle
import tempfile
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from pellucid.collect import moments
from pellucid.collect import sweep as sweeping
from pellucid.collect.build import build_store
from pellucid.collect.collector import Collector
from pellucid.collect.found import Found
from pellucid.collect.moments import Moments
from pellucid.collect.replay import replay
from pellucid.collect.runner import RECORD
from pellucid.collect.sample import TokenSample
from pellucid.collect.state import Deferred, State, load_states, put_away, save_states
from pellucid.collect.sums import merged
from pellucid.collect.sweep import sweep
from pellucid.collect.tree import Tree
from pellucid.errors import SweepError
from pellucid.model.sites import Site
from tests.collect.sweeping import files_of, reader, stories
from tests.found_by_hand import facts, gathered, word_batch

SMALL: dict[str, Any] = {"token_budget": 150, "shard_tokens": 20, "threads": 1}
WANTED = (Moments("resid.*", groups=True), TokenSample("resid.*", size=50))
MB = 1 << 20


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for all temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def same(one: Found, other: Found) -> bool:
    return one.states.keys() == other.states.keys() and all(
        state.same(other.states[name]) for name, state in one.states.items()
    )


@pytest.mark.parametrize(
    ("mixed", "options"),
    [(False, {}), (True, {}), (True, {"engine": "processes", "workers": 2})],
    ids=["inline", "inline-mixed", "processes-mixed"],
)
def test_the_states_are_those_in_memory_to_the_bit(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mixed: bool, options: dict[str, Any]
) -> None:
    """Also where a shard holds several document groups, as it does where states are large."""
    if mixed:
        monkeypatch.setattr(sweeping, "LARGE", 0)
    corpus = stories(40)
    kept = sweep(reader("gpt2"), corpus, WANTED, folder=tmp_path / "memory", **SMALL)
    for folder in (None, tmp_path / "disk"):
        if options and folder is None:
            continue
        found = sweep(reader("gpt2"), corpus, WANTED, folder=folder, memory_limit=1000, **SMALL, **options)
        assert isinstance(found.states["0-moments"].arrays, Deferred)
        assert found[Moments].on_disk
        assert len(found[Moments].groups) == 8
        assert same(found, kept)
    assert not isinstance(kept.states["0-moments"].arrays, Deferred)
    assert not kept[Moments].on_disk
    assert files_of(tmp_path / "disk") == files_of(tmp_path / "memory")
    assert list(temporary.iterdir()) == []


def test_groups_are_put_away_as_they_end(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shard of eight groups, the sums of one are in memory."""
    real, away = moments.put_away, list[int]()

    def counted(arrays: Any, folder: Path) -> Deferred:
        away.append(len(arrays))
        return real(arrays, folder)

    monkeypatch.setattr(moments, "put_away", counted)
    monkeypatch.setattr(sweeping, "LARGE", 0)
    options = {**SMALL, "shard_tokens": 10**6}
    plain = sweep(reader("gpt2"), stories(40), WANTED, **options)
    assert away == []
    found = sweep(reader("gpt2"), stories(40), WANTED, memory_limit=1000, **options)
    assert len(away) == 7
    assert same(found, plain)


def test_a_group_that_comes_again_goes_on(tmp_path: Path) -> None:
    model = facts({Site("resid", 0): (3,)})
    rows = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    batches = [word_batch({"resid.0": rows[n : n + 2]}, group=n % 4) for n in (0, 2, 4)]  # groups 0, 2 and 0 again
    collector = Moments("resid.*", groups=True)
    whole = gathered(collector, (model,), batches)
    assert {name.partition("/")[0] for name in whole.arrays} == {"shift", "0", "2"}
    assert whole.arrays["0/n"].tolist() == [4]
    assert gathered(collector.on_disk(tmp_path), (model,), batches).same(whole)


def test_an_array_is_read_when_asked_for_though_its_file_is_gone(tmp_path: Path) -> None:
    values = {"a": np.arange(12.0).reshape(3, 4), "b": np.zeros((0, 5), np.int32), "c": np.array([True, False])}
    save_states(tmp_path / "s", {"x": State(values, {"k": 1})})
    state = load_states(tmp_path / "s", on_disk=True)["x"]
    (tmp_path / "s").unlink()
    assert state.same(State(values, {"k": 1}))
    assert state.bytes == 12 * 8 + 2
    assert not state.arrays["a"].flags.writeable
    assert isinstance(pickle.loads(pickle.dumps(state)).arrays, dict)  # as Ray sends it to another machine
    assert pickle.loads(pickle.dumps(state)).same(state)


def test_files_are_those_of_safetensors(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.numpy import load_file

    values = {
        kind: np.arange(5).astype(kind)
        for kind in [
            "bool",
            "uint8",
            "int8",
            "uint16",
            "int16",
            "float16",
            "uint32",
            "int32",
            "float32",
            "uint64",
            "int64",
            "float64",
        ]
    }
    save_states(tmp_path / "s", {"x": State(values), "y": State({"a": np.ones((2, 3)).T}, {"é": [1]})})
    read = load_file(tmp_path / "s")
    assert read.keys() == {*(f"x/{kind}" for kind in values), "y/a"}
    for kind, value in values.items():
        assert read[f"x/{kind}"].dtype == value.dtype
        assert np.array_equal(read[f"x/{kind}"], value)
    assert read["y/a"].shape == (3, 2)
    with safe_open(tmp_path / "s", framework="numpy") as file:
        assert set(file.metadata()) == {"about"}
    with pytest.raises(SweepError, match=r"'x/words' holds <U2, which cannot be saved"):
        save_states(tmp_path / "t", {"x": State({"words": np.array(["ab"])})})
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("on_disk", [True, False])
@pytest.mark.parametrize("at", [0, 5, 60, 300, -4, -700])
def test_damage_is_seen_when_a_file_is_opened(tmp_path: Path, on_disk: bool, at: int) -> None:
    save_states(tmp_path / "s", {"x": State({"a": np.arange(100.0), "b": np.arange(3)}, {"k": 1})})
    content = bytearray((tmp_path / "s").read_bytes())
    for damaged in (content[:at] if at else content[:3], content[:at] + bytes([content[at] ^ 1]) + content[at:][1:]):
        (tmp_path / "s").write_bytes(bytes(damaged))
        with pytest.raises(SweepError, match="is damaged or missing"):
            load_states(tmp_path / "s", on_disk=on_disk)


def test_merging_adds_where_both_have_an_array(tmp_path: Path) -> None:
    left = {"shift": np.ones(2), "0/s": np.array([0.1, 0.2]), "1/s": np.array([5.0, 6.0])}
    right = {"shift": np.ones(2), "1/s": np.array([0.3, 0.4]), "2/s": np.array([7.0, 8.0])}
    whole = merged(left, right, once=("shift",))
    assert isinstance(whole, dict)
    for one, other in ((put_away(left, tmp_path), right), (left, put_away(right, tmp_path))):
        later = merged(one, other, once=("shift",))
        assert isinstance(later, Deferred)
        assert State(later).same(State(whole))
    assert whole["shift"].tolist() == [1, 1]
    assert whole["1/s"].tolist() == [5.3, 6.4]
    assert list(whole) == ["0/s", "1/s", "2/s", "shift"]
    assert list(tmp_path.iterdir()) == []  # a file without a name


@dataclass(frozen=True)
class Large(Collector):
    """Twenty arrays of a megabyte, which add."""

    kind: ClassVar[str] = "test-large"

    def open(self, setting: Any) -> Any:
        raise AssertionError("never opened")

    def merge(self, left: State, right: State) -> State:
        return State(merged(left.arrays, right.arrays, once=()), left.facts)


@pytest.mark.parametrize("count", [2, 5, 8])
def test_states_are_never_in_memory_together(tmp_path: Path, count: int) -> None:
    tree = Tree({"large": Large()}, count, None, on_disk=True)
    for index in range(count):
        arrays = {str(number): np.full(MB // 8, float(index + number)) for number in range(20)}
        save_states(tree.path(0, index), {"large": State(arrays), RECORD: State({}, {"unmatched": 0, "halved": []})})
    tracemalloc.start()
    try:
        for index in range(count):
            tree.put_file(index)
        root = tree.root()["large"].arrays
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 6 * MB
    tree.close()
    assert all(root[str(n)][7] == sum(range(count)) + count * n for n in range(20))


def test_a_finished_sweep_is_read_as_asked(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    sweep(reader("gpt2"), stories(20), WANTED, folder=folder, **SMALL)
    for limit, on_disk in ((1000, True), (1 << 30, False), (None, False)):
        found = sweep(reader("gpt2"), stories(20), WANTED, folder=folder, memory_limit=limit, **SMALL)
        assert found[Moments].on_disk == on_disk
    assert Found.load(folder, memory_limit=1000)[Moments].on_disk
    assert not Found.load(folder)[Moments].on_disk


def test_a_replay_keeps_its_statistics_on_disk_too(tmp_path: Path, temporary: Path) -> None:
    store = build_store(reader("gpt2"), stories(20), tmp_path / "store", "resid.*", dtype="float32", **SMALL)
    kept, found = (replay(store, WANTED, memory_limit=limit) for limit in (None, 1000))
    assert found[Moments].on_disk
    assert not kept[Moments].on_disk
    assert same(found, kept)
    assert list(temporary.iterdir()) == []
