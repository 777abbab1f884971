"""Replaying a store: collectors find in it what they find in a sweep, up to the precision of what is kept."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.collect.build import build_store
from pellucid.collect.counts import HeadCounts
from pellucid.collect.moments import Moments
from pellucid.collect.replay import replay
from pellucid.collect.store import Store
from pellucid.collect.sweep import sweep
from pellucid.collect.topk import TopContexts
from pellucid.errors import SweepError
from tests.collect.sweeping import Rows, in_order, reader, stories

SMALL = {"token_budget": 150, "shard_tokens": 200, "threads": 1}
COLLECTORS = (
    Moments("resid.*"),
    Moments("neurons.1", groups=True),
    Rows(("resid.2",), ("upos",)),
    TopContexts("neurons.1", k=3),
)


@pytest.fixture(scope="module")
def swept():
    return sweep(reader("gpt2"), stories(30), COLLECTORS, **SMALL)


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> dict[str, Store]:
    folder = tmp_path_factory.mktemp("stores")
    sites = ("resid.*", "neurons.1")
    return {
        dtype: build_store(reader("gpt2"), stories(30), folder / dtype, sites, dtype=dtype, **SMALL)
        for dtype in ("float32", "float16", "bfloat16")
    }


def test_rows_come_back_with_all_that_is_told_about_them(stores, swept):
    one, other = in_order(replay(stores["float32"], COLLECTORS)), in_order(swept)
    assert one.keys() == other.keys()
    for name, value in other.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(one[name], value)
        else:
            assert one[name] == value


@pytest.mark.parametrize(("dtype", "close"), [("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2)])
def test_moments_are_those_of_the_sweep(stores, swept, dtype, close):
    found = replay(stores[dtype], COLLECTORS)
    for name in ("0-moments", "1-moments"):
        mine, its = found[name], swept[name]
        assert mine.n == its.n == found.words
        assert mine.keys == its.keys
        for key in its.keys:
            scale = np.abs(its.mean(key)).max() + np.sqrt(its.variance(key).max())
            np.testing.assert_allclose(mine.mean(key), its.mean(key), atol=close * scale)
            np.testing.assert_allclose(mine.variance(key), its.variance(key), atol=close * scale**2 * 4)
    assert found["1-moments"].groups == swept["1-moments"].groups
    for group in swept["1-moments"].groups:
        assert found["1-moments"].group(group).n == swept["1-moments"].group(group).n


def test_tables_point_to_the_same_sentences(stores, swept):
    found = replay(stores["float32"], COLLECTORS)
    mine, its = found.states["3-top-contexts"], swept.states["3-top-contexts"]
    assert mine.same(its)
    assert found.sentences == swept.sentences != {}
    assert found.corpus_words == swept.corpus_words
    assert found.counts == swept.counts
    assert found.groups == swept.groups


def test_rows_are_read_in_blocks_of_any_size(stores, swept, monkeypatch):
    monkeypatch.setattr("pellucid.collect.replay._ROWS", 7)
    one = in_order(replay(stores["float32"], Rows(("resid.2",), ("upos",))))
    np.testing.assert_array_equal(one["resid.2"], in_order(swept)["resid.2"])


def test_what_a_store_cannot_answer_is_said(stores, tmp_path):
    store = stores["float16"]
    with pytest.raises(SweepError, match=r"reads whole tensors \(pattern\.\*\), which a store does not keep"):
        replay(store, HeadCounts())
    with pytest.raises(SweepError, match=r"The store does not hold mlp\.0, mlp\.1, mlp\.2; it holds resid\.0"):
        replay(store, Moments("mlp.*"))
    part = build_store(reader("gpt2"), stories(30), tmp_path / "s", "resid.0", part=(0, 2), **SMALL)
    with pytest.raises(SweepError, match=r"is not complete: .* shards are missing"):
        replay(part, Moments("resid.0"))


def test_a_missing_table_is_named(tmp_path):
    store = build_store(reader("gpt2"), stories(8), tmp_path / "s", "resid.0", **SMALL)
    (store.folder / "shards" / "000001.parquet").unlink()
    with pytest.raises(SweepError, match=r"000001\.parquet' is damaged or missing"):
        replay(store, Moments("resid.0"))


def test_stores_of_two_models_stand_side_by_side(tmp_path):
    """Other tokenizers cut other shards; rows meet by their word all the same."""
    one = build_store(reader("gpt2"), stories(30), tmp_path / "one", "resid.*", dtype="float32", **SMALL)
    bert = {**SMALL, "shard_tokens": 120}
    other = build_store(reader("bert"), stories(30), tmp_path / "other", "resid.*", dtype="float32", **bert)
    assert len(one.entries) != len(other.entries)
    pairs = Moments("resid.*", pairs=(("0:resid.*", "1:resid.*"),))
    mine = replay([one, other], pairs)[Moments]
    its = sweep([reader("gpt2"), reader("bert")], stories(30), pairs, **SMALL)[Moments]
    assert mine.keys == its.keys
    assert mine.n == its.n
    for left, right in (("0:resid.1", "1:resid.2"), ("0:resid.0", "1:resid.0")):
        expected = its.scatter(left, right)
        np.testing.assert_allclose(mine.scatter(left, right), expected, atol=1e-4 * np.abs(expected).max())


def test_stores_of_other_words_are_refused(tmp_path):
    made = {
        name: build_store(reader("gpt2"), corpus, tmp_path / name, "resid.0", **SMALL, **options)
        for name, corpus, options in (
            ("one", stories(30), {}),
            ("fewer", stories(20), {}),
            ("pieces", stories(30), {"pooling": "all"}),
        )
    }
    with pytest.raises(SweepError, match="fingerprints differ"):
        replay([made["one"], made["fewer"]], Moments("resid.0"))
    with pytest.raises(SweepError, match="not of the same words"):
        replay([made["one"], made["pieces"]], Moments("resid.0"))
    with pytest.raises(SweepError, match="at least one"):
        replay([], Moments("resid.0"))
