"""Engines: the same bytes from one process or several, whatever dies on the way, and sentences that name the cause."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from pellucid.collect import engines
from pellucid.collect.build import build_store
from pellucid.collect.engines import engine_of
from pellucid.collect.moments import Moments
from pellucid.collect.runner import Runner
from pellucid.collect.sweep import sweep
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import OutOfMemory, SweepError
from pellucid.model import Model
from tests.collect.sweeping import Rows, Trap, files_of, reader, saved, stories

SMALL = {"token_budget": 150, "shard_tokens": 200, "threads": 1}
ONE = {"token_budget": 99, "threads": 1}  # copies of a process cannot use the threads of its pool


@pytest.fixture
def forked(monkeypatch):
    """Workers that begin as copies of this process, in milliseconds; `spawn` takes seconds to import everything."""
    real = multiprocessing.get_context
    monkeypatch.setattr(engines.multiprocessing, "get_context", lambda _: real("fork"))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.setattr(os, "fsync", lambda _: None)


def test_processes_give_the_same_bytes_though_one_is_killed(tmp_path):
    """New processes, a collector of the user's own, a model from a folder, and a death in the middle of a shard."""
    model, corpus = Model.load(saved(tmp_path / "gpt2")), stories(25)
    word = list(corpus)[12].words[0]
    wanted = (Moments("resid.*", groups=True), Rows(("mlp.1",), ("upos",)), Trap(("resid.0",), word, "kill", None))
    calm = (*wanted[:2], Trap(("resid.0",), "nowhere"))
    marker = tmp_path / "killed"
    deadly = (*wanted[:2], Trap(("resid.0",), word, "kill", str(marker)))
    inline = sweep(model, corpus, calm, folder=tmp_path / "inline", **SMALL)
    assert not marker.exists()
    several = sweep(model, corpus, deadly, folder=tmp_path / "several", engine="processes", workers=2, **SMALL)
    assert marker.exists()
    assert several.states.keys() == inline.states.keys()
    for name, state in inline.states.items():
        assert several.states[name].same(state), name
    one, other = files_of(tmp_path / "inline"), files_of(tmp_path / "several")
    assert one.keys() == other.keys()
    assert one["states.safetensors"] == other["states.safetensors"]
    assert one["pilots.safetensors"] == other["pilots.safetensors"]


def test_every_shard_is_run_once(tmp_path, monkeypatch):
    """Also the first, whose middle batch was the pilot."""
    run, gather = list[int](), Runner.shard

    def noted(self, shard, *arguments, **options):
        run.append(shard.index)
        return gather(self, shard, *arguments, **options)

    monkeypatch.setattr(Runner, "shard", noted)
    for folder in (None, tmp_path / "kept"):
        run.clear()
        found = sweep(reader("gpt2"), stories(25), Moments("resid.0"), folder=folder, **SMALL)
        assert found[Moments].n == found.words
        assert len(run) > 2
        assert run == list(range(len(run)))


def test_processes_without_a_folder_leave_nothing(tmp_path, monkeypatch, forked):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model, corpus = reader("gpt2"), stories(20)
    wanted = [Moments("resid.*", groups=True), Rows(("resid.1",))]
    one = sweep(model, corpus, wanted, **SMALL)
    several = sweep(model, corpus, wanted, engine="processes", workers=3, **SMALL)
    assert all(several.states[name].same(one.states[name]) for name in one.states)
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_the_same_from_processes(tmp_path, forked):
    model, corpus = reader("gpt2"), stories(20)
    build_store(model, corpus, tmp_path / "inline", "resid.*", **SMALL)
    build_store(model, corpus, tmp_path / "several", "resid.*", engine="processes", workers=2, **SMALL)
    assert files_of(tmp_path / "inline") == files_of(tmp_path / "several")


@pytest.mark.parametrize("batched", [True, False])
def test_a_sentence_that_kills_every_worker_is_named(tmp_path, forked, batched):
    """After three deaths; the sweep can be resumed without it, and what was done is kept."""
    sentences = [*stories(12), Sentence.of_words(["dog", "zebra"], id="deadly", document="d"), *stories(6)]
    trap = Trap(("resid.0",), "zebra")
    options = {**SMALL, "token_budget": 400 if batched else 1}
    with pytest.raises(
        SweepError, match=r"died 3 times on the same shard \(exit code -9\), at sentence 'deadly' \('dog zebra'\)"
    ):
        sweep(
            reader("gpt2"), Corpus.of(sentences), trap, folder=tmp_path / "s", engine="processes", workers=2, **options
        )
    assert list((tmp_path / "s" / "nodes").glob("*.safetensors"))


def test_two_deaths_on_one_shard_are_survived(tmp_path, forked):
    corpus = Corpus.of([*stories(6), Sentence.of_words(["dog", "zebra"], id="deadly", document="d")])
    wanted = [Moments("resid.*", groups=True), Trap(("resid.0",), "zebra", "kill", str(tmp_path / "killed"), 2)]
    found = sweep(reader("gpt2"), corpus, wanted, engine="processes", workers=1, **SMALL)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["killed", "killed1"]
    assert found.states["0-moments"].same(sweep(reader("gpt2"), corpus, wanted, **SMALL).states["0-moments"])


def test_deaths_that_no_single_sentence_causes_name_the_batch(tmp_path, forked, monkeypatch):
    """Two sentences together kill, each alone does not."""
    real = Runner.shard

    def shard(self, shard, sentences, *, announce=lambda _: None):
        announce(0)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
        return real(self, shard, sentences, announce=announce)

    monkeypatch.setattr(Runner, "shard", shard)
    corpus = Corpus.of(["a dog", "a cat"])
    with pytest.raises(SweepError, match=r"died 3 times .* at a batch of the sentences [12], [12]\. .*--token-budget"):
        sweep(reader("gpt2"), corpus, Moments("resid.0"), engine="processes", workers=1, **ONE)


def test_errors_of_workers_arrive_as_they_are(tmp_path, forked):
    trap = Trap(("resid.0",), "dog", "raise")
    with pytest.raises(SweepError, match=r"^The word was met, and there is nothing to do about it\.$"):
        sweep(reader("gpt2"), Corpus.of(["a dog"]), trap, engine="processes", workers=2, **ONE)
    with pytest.raises(RuntimeError, match=r"(?s)AttributeError in a worker: .*Traceback|AttributeError in a worker"):
        sweep(reader("gpt2"), Corpus.of(["a dog"]), _Broken(("resid.0",)), engine="processes", workers=1, **ONE)


class _Broken(Rows):
    def open(self, setting):
        return None.nothing


def test_running_out_of_memory_in_a_worker_is_told_with_the_sentence(forked, monkeypatch):
    real = Model.run

    def run(self, batch, *arguments, **options):
        if os.getpid() != parent:
            raise OutOfMemory("cpu ran out of memory")
        return real(self, batch, *arguments, **options)

    parent = os.getpid()
    monkeypatch.setattr(Model, "run", run)
    with pytest.raises(OutOfMemory, match=r"sentence '1', alone in its batch"):
        sweep(
            reader("gpt2"),
            Corpus.of(["a dog"]),
            Moments("resid.0"),
            engine="processes",
            workers=1,
            **{**ONE, "token_budget": 8},
        )


def test_a_model_that_changed_behind_the_sweep_is_noticed(tmp_path, forked):
    model = Model.load(saved(tmp_path / "gpt2"))
    saved(tmp_path / "gpt2", seed=1)
    with pytest.raises(SweepError, match="is another model than when the sweep began"):
        sweep(model, stories(5), Moments("resid.0"), engine="processes", workers=1, **ONE)


def test_workers_that_die_at_the_start_are_told_of(forked, monkeypatch):
    monkeypatch.setattr(Runner, "open", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(SweepError, match=r"Workers died 3 times before .*\(exit code -9\): .*fewer workers"):
        sweep(reader("gpt2"), stories(5), Moments("resid.0"), engine="processes", workers=1, **ONE)


# -- orphans ---------------------------------------------------------------------------------------------------------


def coordinate(folder: str) -> None:
    """A sweep in processes that tells who they are and then works for minutes."""
    corpus = Corpus.of([f"the old dog sleeps {number}" for number in range(4000)])
    real = engines._receive

    def receive(worker):
        message = real(worker)
        if message is not None and message[0] == "batch":
            Path(folder, str(worker.process.pid)).touch()
        return message

    engines._receive = receive
    options = {"engine": "processes", "workers": 1, "threads": 1, "token_budget": 64}
    sweep(reader("gpt2"), corpus, Moments("resid.*"), **options)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_killed_coordinator_leaves_no_workers_behind(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=coordinate, args=(str(tmp_path),))
    process.start()
    try:
        until = time.monotonic() + 120
        while not list(tmp_path.iterdir()) and process.is_alive() and time.monotonic() < until:
            time.sleep(0.05)
        workers = [int(file.name) for file in tmp_path.iterdir()]
        assert len(workers) == 1
        assert alive(workers[0])
    finally:
        process.kill()
        process.join()
    until = time.monotonic() + 30
    while alive(workers[0]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(workers[0])


def test_engines_that_do_not_exist_are_refused():
    cpu = torch.device("cpu")
    with pytest.raises(SweepError, match=r"There is no engine 'spark'; use inline, processes, ray or ray://HOST:PORT"):
        engine_of("spark", None, cpu)
    with pytest.raises(SweepError, match="at least one worker, not 0"):
        engine_of("ray", 0, cpu)
    with pytest.raises(SweepError, match="The inline engine is one worker, not 2"):
        engine_of("inline", 2, cpu)
    assert engine_of("processes", 5, cpu).workers == 5
