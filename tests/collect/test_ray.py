"""The Ray engine: the same bytes as in this process, though actors die, and the same sentences where it fails."""

from __future__ import annotations

import os

import pytest

from pellucid.collect.engines import Inline
from pellucid.collect.moments import Moments
from pellucid.collect.ray_engine import _level
from pellucid.collect.sweep import sweep
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import SweepError
from pellucid.model import Model
from tests.collect.sweeping import Rows, Trap, files_of, reader, saved, stories

SMALL = {"token_budget": 150, "shard_tokens": 100, "threads": 1}


@pytest.fixture(scope="module")
def cluster():
    """One Ray for all tests here; a sweep uses the one that is there and leaves it running."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


class Killed(BaseException):
    pass


@pytest.mark.ray
def test_ray_gives_the_same_bytes_though_an_actor_is_killed(tmp_path, cluster, monkeypatch):
    """It also goes on with what another engine began, and merges blocks of shards in the cluster."""
    model, corpus = Model.load(saved(tmp_path / "gpt2")), stories(45)
    word = list(corpus)[30].words[0]
    wanted = [Moments("resid.*", groups=True), Rows(("mlp.1",), ("upos",))]
    deadly = Trap(("resid.0",), word, "kill", str(tmp_path / "killed"))
    (tmp_path / "killed").touch()
    inline = sweep(model, corpus, [*wanted, deadly], folder=tmp_path / "inline", **SMALL)
    real, left = Inline.run, [3]

    def three_shards(self, *arguments):
        for shard in real(self, *arguments):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            yield shard

    monkeypatch.setattr(Inline, "run", three_shards)
    with pytest.raises(Killed):
        sweep(model, corpus, [*wanted, deadly], folder=tmp_path / "ray", **SMALL)
    (tmp_path / "killed").unlink()
    sweep(model, corpus, [*wanted, deadly], folder=tmp_path / "ray", engine="ray", workers=2, **SMALL)
    assert (tmp_path / "killed").exists()
    assert inline.groups > 4
    assert files_of(tmp_path / "ray") == files_of(tmp_path / "inline")
    assert cluster.is_initialized()


@pytest.mark.ray
def test_a_sentence_that_kills_every_actor_is_named(cluster):
    sentences = [*stories(3), Sentence.of_words(["dog", "zebra"], id="deadly", document="d"), *stories(3, seed=5)]
    with pytest.raises(SweepError, match=r"died 3 times on the same shard, at sentence 'deadly' \('dog zebra'\)"):
        sweep(reader("gpt2"), Corpus.of(sentences), Trap(("resid.0",), "zebra"), engine="ray", workers=1, **SMALL)


@pytest.mark.ray
def test_errors_of_actors_arrive_as_they_are(tmp_path, cluster):
    model = Model.load(saved(tmp_path / "gpt2"))
    saved(tmp_path / "gpt2", seed=1)
    with pytest.raises(SweepError, match=r"^'.*' is another model than when the sweep began"):
        sweep(model, stories(5), Moments("resid.0"), engine="ray", workers=1, **SMALL)


def test_blocks_keep_every_worker_busy():
    for count in range(1, 300):
        for workers in (1, 2, 5, 16):
            level = _level(count, workers)
            assert 0 <= level <= 3
            assert level == 0 or count >> level >= 2 * workers


def test_an_address_that_nobody_listens_at_is_told(monkeypatch):
    import ray

    def refused(**_):
        raise ConnectionError("nobody there")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    with pytest.raises(SweepError, match=r"^Ray could not be reached at ray://nowhere:1 \(nobody there\)\.$"):
        sweep(reader("gpt2"), stories(3), Moments("resid.0"), engine="ray://nowhere:1", **SMALL)
