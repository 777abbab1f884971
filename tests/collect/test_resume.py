"""Resuming: whatever stops a sweep or a build, and wherever, the same command goes on and leaves the same bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pellucid.collect.build import build_store
from pellucid.collect.moments import Moments
from pellucid.collect.runner import Runner
from pellucid.collect.sweep import sweep
from pellucid.collect.topk import TopContexts
from pellucid.model import Model
from scripts.kill_test import Outcome, differences, kill_test
from tests.collect.sweeping import files_of, reader, saved, stories

SMALL = {"token_budget": 150, "shard_tokens": 120, "threads": 1}
WANTED = (Moments("resid.*", groups=True), TopContexts("neurons.1", k=3))


class Killed(BaseException):
    """Nothing that tidies up after errors may catch this."""


@pytest.fixture
def unsynced(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def run_sweep(folder: Path, corpus) -> None:
    sweep(reader("gpt2"), corpus, WANTED, folder=folder, **SMALL)


def run_on_disk(folder: Path, corpus) -> None:
    sweep(reader("gpt2"), corpus, WANTED, folder=folder, memory_limit=1000, **SMALL)


def run_build(folder: Path, corpus) -> None:
    build_store(reader("gpt2"), corpus, folder, "resid.*", dtype="float32", **SMALL)


def visible(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in files_of(folder).items() if not name.endswith(".part")}


@pytest.mark.parametrize("run", [run_sweep, run_on_disk, run_build])
def test_a_kill_at_every_shard_costs_that_shard_alone(tmp_path, monkeypatch, unsynced, run):
    """Also a kill in every run: each resumed run does one more shard, and none twice."""
    corpus = stories(20)
    run(tmp_path / "whole", corpus)
    expected = visible(tmp_path / "whole")
    real, done = Runner.shard, list[int]()

    def counting(self, shard, *arguments, **options):
        if len(done) == limit:
            raise Killed
        done.append(shard.index)
        return real(self, shard, *arguments, **options)

    monkeypatch.setattr(Runner, "shard", counting)
    limit = 0
    while True:
        try:
            run(tmp_path / "killed", corpus)
        except Killed:
            limit += 1
        else:
            break
    assert done == list(range(len(done)))
    assert len(done) > 4
    assert visible(tmp_path / "killed") == expected


@pytest.mark.parametrize("run", [run_sweep, run_on_disk, run_build])
@pytest.mark.parametrize("operation", ["open", "replace", "unlink"])
def test_a_kill_before_any_file_operation_costs_nothing(tmp_path, monkeypatch, unsynced, run, operation):
    corpus = stories(7)
    run(tmp_path / "whole", corpus)
    expected = visible(tmp_path / "whole")
    real, left = getattr(Path, operation), [0]

    def counted(path, *arguments, **options):
        own = str(path).startswith(str(tmp_path)) and (operation != "open" or arguments[:1] == ("wb",))
        if own and left[0] == 0:
            left[0] = -1
            if operation == "open":
                path.write_bytes(b"half a file")
            raise Killed
        left[0] -= own
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, operation, counted)
    for at in range(200):
        left[0] = at
        try:
            run(tmp_path / f"killed-{at}", corpus)
        except Killed:
            left[0] = -1
            run(tmp_path / f"killed-{at}", corpus)
            assert visible(tmp_path / f"killed-{at}") == expected, at
        else:
            break
    assert at > (0 if operation == "unlink" and run is run_build else 2)
    assert visible(tmp_path / f"killed-{at}") == expected


def test_a_sweep_goes_on_with_less_or_more_memory(tmp_path, monkeypatch, unsynced):
    """What was begun in memory is finished on disk, and the other way round, with the same bytes."""
    corpus = stories(20)
    run_sweep(tmp_path / "whole", corpus)
    real, left = Runner.shard, [0]

    def counting(self, *arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return real(self, *arguments, **options)

    monkeypatch.setattr(Runner, "shard", counting)
    for first, then in ((run_sweep, run_on_disk), (run_on_disk, run_sweep)):
        left[0] = 3
        with pytest.raises(Killed):
            first(tmp_path / then.__name__, corpus)
        left[0] = 1000
        then(tmp_path / then.__name__, corpus)
        assert visible(tmp_path / then.__name__) == visible(tmp_path / "whole")


def test_a_sweep_goes_on_with_the_same_model_opened_anew(tmp_path, monkeypatch, unsynced):
    """From a folder, under another name and with another number of threads in force."""
    one = Model.load(saved(tmp_path / "one"))
    other = Model.load(saved(tmp_path / "other"))
    corpus = stories(12)
    sweep(one, corpus, WANTED, folder=tmp_path / "whole", **SMALL)
    real, left = Runner.shard, [2]

    def counting(self, *arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return real(self, *arguments, **options)

    monkeypatch.setattr(Runner, "shard", counting)
    with pytest.raises(Killed):
        sweep(one, corpus, WANTED, folder=tmp_path / "s", **SMALL)
    monkeypatch.setattr(Runner, "shard", real)
    sweep(other, corpus, WANTED, folder=tmp_path / "s", **{**SMALL, "threads": None})
    found, expected = files_of(tmp_path / "s"), files_of(tmp_path / "whole")
    assert found["states.safetensors"] == expected["states.safetensors"]


@pytest.mark.parametrize("what", ["sweep", "store"])
def test_killed_processes_leave_the_same_bytes(tmp_path, what):
    """The same as `scripts/kill_test.py`, which does it a hundred times over."""
    said: list[str] = []
    model = saved(tmp_path / "gpt2")
    done = kill_test(3, what=what, seed=2, minutes=1, model=model, sentences=10, long="window", say=said.append)
    assert done.kills == 3
    assert done.runs >= 1
    assert done.problems == []
    assert all("the same bytes" in line for line in said[1:])


def test_the_kill_test_sees_a_difference():
    """Else it would show nothing."""
    assert differences({"a": b"1", "b": b"2"}, {"a": b"1", "b": b"3"}) == "b"
    assert differences({"a": b"1", "b": b"2"}, {"a": b"1"}) == "b"
    assert differences({"a": b"1"}, {"a": b"1", "c": b""}) == "c"
    assert differences({"a": b"1"}, {"a": b"1"}) == ""
    assert "1 of them with a difference" in str(Outcome("sweep", 3, 1, 2, ["b"]))
