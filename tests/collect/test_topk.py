"""Top contexts: exact under ties and any cutting, against a full sort."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.collect import topk
from pellucid.collect.collector import collector_of
from pellucid.collect.state import load_states, save_states
from pellucid.collect.topk import TopContexts
from pellucid.collect.words import WordBatch
from pellucid.errors import SweepError
from tests.collect.batches import batches_of, copy_of, facts_of, merged, setting_of, shard, with_pilot

SETTING = setting_of(facts_of({"resid.0": (5,), "neurons.0": (3,)}))
SITES = ("resid.0", "neurons.0")


def rows_of(count: int, seed: int, *, ties: bool = False) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    rows = {"resid.0": draw.normal(size=(count, 5)), "neurons.0": draw.normal(size=(count, 3)) * 1e4}
    if ties:
        rows = {key: np.round(np.maximum(value / np.abs(value).max() * 2, 0)) for key, value in rows.items()}
        rows["resid.0"][::3] *= -0.0  # negative zero equals zero
    return {key: value.astype(np.float32) for key, value in rows.items()}


def sorted_out(value: np.ndarray, k: int, *, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """Values and ordinals [units, k] by a stable sort of everything: of equals, the earlier row."""
    order = np.argsort(-value if largest else value, axis=0, kind="stable")[:k].T
    return np.take_along_axis(value.T, order, axis=1), order


def check(view, rows: dict[str, np.ndarray], k: int, length: int = 5) -> None:
    for key, value in rows.items():
        for found, largest in ((view.largest(key), True), (view.smallest(key), False)):
            values, ordinal = sorted_out(value, k, largest=largest)
            width = values.shape[1]
            np.testing.assert_array_equal(found.value[:, :width], values)
            np.testing.assert_array_equal(found.ordinal[:, :width], ordinal)
            np.testing.assert_array_equal(found.sentence[:, :width], ordinal // length)
            np.testing.assert_array_equal(found.position[:, :width], ordinal % length)
            assert np.isnan(found.value[:, width:]).all()
            assert (found.ordinal[:, width:] == -1).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 5),
    ties=st.booleans(),
    k=st.sampled_from([1, 4, 20]),
    pilot=st.booleans(),
    cuts=st.lists(st.integers(1, 149), max_size=7, unique=True).map(sorted),
    ends=st.sets(st.integers(1, 7), max_size=4),
    shape=st.lists(st.integers(0, 9), max_size=8),
    late=st.randoms(use_true_random=False),
)
def test_any_shards_in_any_tree_give_the_full_sort(seed, ties, k, pilot, cuts, ends, shape, late):
    rows = rows_of(150, seed, ties=ties)
    collector = TopContexts(SITES, k=k)
    batches = batches_of(rows, cuts)
    setting = with_pilot(collector, SETTING, batches[0]) if pilot else SETTING
    edges = sorted({0, *(end for end in ends if end < len(batches)), len(batches)})
    parts = [batches[start:stop] for start, stop in pairwise(edges)]
    for part in parts:
        late.shuffle(part)  # batches of a shard come by length, not in the order of the corpus
    states = [shard(collector, setting, part) for part in [*parts, []]]
    before = [copy_of(state) for state in states]
    found = merged(collector, states, shape)
    assert all(state.same(other) for state, other in zip(states, before, strict=True))
    check(collector.view(found, setting), rows, k)
    assert found.same(merged(collector, [shard(collector, setting, batches), shard(collector, setting, [])], []))


def test_the_sweep_is_cut_into_small_pieces_without_loss(monkeypatch):
    rows = rows_of(600, 9, ties=True)
    monkeypatch.setattr(topk, "_AT_ONCE", 64)
    monkeypatch.setattr(topk, "_ROWS", 7)
    collector = TopContexts(SITES, k=6)
    check(collector.view(shard(collector, SETTING, batches_of(rows, (50, 51, 300))), SETTING), rows, 6)


def test_the_pilot_prunes_what_cannot_win():
    rows = rows_of(400, 2)
    collector = TopContexts(SITES, k=3)
    batches = batches_of(rows, (200,))
    setting = with_pilot(collector, SETTING, batches[0])
    second = collector.view(shard(collector, setting, batches[1:]), setting).largest("resid.0")
    bar = np.sort(rows["resid.0"][:200], axis=0)[-3]
    kept = ~np.isnan(second.value)
    assert (second.value[kept] > np.broadcast_to(bar[:, None], kept.shape)[kept]).all()
    assert not kept.all()
    assert collector.pilot(batches_of(rows, (2,))[0], SETTING) is None


def test_a_dead_unit_brings_no_candidates(monkeypatch):
    """Units that are zero everywhere tie at every word: only the first k words may be looked at."""
    rows = {"resid.0": np.zeros((3000, 5)), "neurons.0": np.maximum(rows_of(3000, 1)["neurons.0"], 0)}
    looked_at = 0
    ranks = topk.ranks

    def counting(values, ordinal, side):
        nonlocal looked_at
        looked_at += values.numel()
        return ranks(values, ordinal, side)

    collector = TopContexts(SITES, k=5)
    batches = batches_of(rows, tuple(range(100, 3000, 100)))
    setting = with_pilot(collector, SETTING, batches[0])
    monkeypatch.setattr(topk, "ranks", counting)
    view = collector.view(shard(collector, setting, batches), setting)
    check(view, {key: value.astype(np.float32) for key, value in rows.items()}, 5)
    assert looked_at < 3000


@pytest.mark.parametrize("ready", [False, True])
def test_nan_is_refused_with_site_and_unit(ready):
    rows = rows_of(60, 0)
    rows["neurons.0"][50, 2] = np.nan
    collector = TopContexts(SITES, k=5)
    with pytest.raises(SweepError, match=r"Unit 2 of 'neurons.0' is NaN"):
        shard(collector, SETTING, batches_of(rows, (30,) if ready else ()))
    with pytest.raises(SweepError, match=r"Unit 2 of 'neurons.0' is NaN"):
        collector.pilot(batches_of(rows, ())[0], SETTING)


def test_infinities_and_extremes_keep_their_order():
    column = np.array([0.0, -np.inf, 3e38, np.inf, -3e38, 1e-42, -1e-42, -0.0], np.float32)
    setting = setting_of(facts_of({"resid.0": (1,)}))
    collector = TopContexts("resid.0", k=8)
    view = collector.view(shard(collector, setting, batches_of({"resid.0": column[:, None]}, (3,))), setting)
    np.testing.assert_array_equal(view.largest("resid.0").value[0], np.sort(column)[::-1])
    np.testing.assert_array_equal(view.smallest("resid.0").ordinal[0], [1, 4, 6, 0, 7, 5, 2, 3])


def test_sentences_shown_and_states_from_a_file(tmp_path):
    rows = rows_of(150, 4)
    collector = TopContexts(SITES, k=2)
    state = shard(collector, SETTING, batches_of(rows, (70,)))
    shown = {
        int(ordinal) // 5
        for value in rows.values()
        for largest in (True, False)
        for ordinal in sorted_out(value, 2, largest=largest)[1].ravel()
    }
    assert collector.sentences(state) == shown
    assert collector.sentences(shard(collector, SETTING, [])) == set()
    save_states(tmp_path / "states", {"top": state})
    assert load_states(tmp_path / "states")["top"].same(state)
    assert collector_of(collector.describe()) == collector
    assert collector.memory(SETTING, 1) == state.bytes
    with pytest.raises(SweepError, match=r"No contexts of 'resid.1'.*resid.0, neurons.0"):
        collector.view(state, SETTING).largest("resid.1")


def test_too_many_words_are_refused():
    batch = batches_of(rows_of(10, 0), ())[0]
    far = WordBatch(batch.rows, batch.sentence, batch.position, batch.ordinal + 2**32 - 10, 0, batch.sentences)
    collector = TopContexts(SITES, k=3)
    view = collector.view(shard(collector, SETTING, [far]), SETTING)
    assert view.largest("resid.0").ordinal.max() <= 2**32 - 1
    further = WordBatch(batch.rows, batch.sentence, batch.position, batch.ordinal + 2**32 - 9, 0, batch.sentences)
    with pytest.raises(SweepError, match=r"more than 4,294,967,296 words"):
        shard(collector, SETTING, [further])


def test_rows_are_not_changed():
    batch = batches_of(rows_of(60, 0), ())[0]
    before = {key: value.clone() for key, value in batch.rows.items()}
    shard(TopContexts(SITES, k=3), SETTING, [batch, batch])
    assert all(torch.equal(batch.rows[key], value) for key, value in before.items())
