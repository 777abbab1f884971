"""Quantiles: exact counts on the grid, the stated error, units that never move, and merging."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.collect import quantiles
from pellucid.collect.collector import collector_of
from pellucid.collect.quantiles import Quantiles
from pellucid.collect.state import load_states, save_states
from pellucid.errors import SweepError
from tests.collect.batches import batches_of, copy_of, facts_of, merged, setting_of, shard, with_pilot

WIDTH = 8
SETTING = setting_of(facts_of({"neurons.0": (WIDTH,), "resid.0": (2,)}))
SITES = ("neurons.0", "resid.0")


def rows_of(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Units of many kinds: normal, far off, heavy tails, mostly zero, constant, zero, two values, a tiny spread."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, WIDTH))
    x[:, 1] = x[:, 1] * 3 + 8000
    x[:, 2] = draw.standard_cauchy(count) * 10
    x[:, 3] = np.where(draw.random(count) < 0.9, 0, np.abs(x[:, 3]))
    x[:, 4] = 7.5
    x[:, 5] = 0
    x[:, 6] = np.sign(x[:, 6])
    x[:, 7] = 4096 + x[:, 7] * 0.01
    return {"neurons.0": x.astype(np.float32), "resid.0": draw.normal(size=(count, 2)).astype(np.float32)}


def swept(collector: Quantiles, rows, cuts=()):
    batches = batches_of(rows, cuts)
    setting = with_pilot(collector, SETTING, batches[0])
    return collector.view(shard(collector, setting, batches), setting)


@pytest.mark.parametrize("bins", [2, 3, 17, 256, 1000])
def test_counts_are_those_of_the_edges(bins):
    rows = rows_of(3000)
    view = swept(Quantiles(SITES, bins=bins), rows, (400,))
    assert view.n == 3000
    for number, key in enumerate(SITES):
        for unit in range(rows[key].shape[1]):
            edges = view.arrays[f"edges/{number}"][unit]
            expected = np.bincount(np.searchsorted(edges, rows[key][:, unit], side="right"), minlength=bins)
            np.testing.assert_array_equal(view.arrays[f"counts/{number}"][unit], expected, err_msg=f"unit {unit}")
            np.testing.assert_array_equal(view.histogram(key, unit)[0], expected)


def test_values_on_an_edge_go_above_it():
    rows = rows_of(500)
    collector = Quantiles(SITES, bins=40)
    setting = with_pilot(collector, SETTING, batches_of(rows, ())[0])
    edges = setting.pilot.arrays["edges/0"]
    on = {"neurons.0": edges.T.copy(), "resid.0": np.zeros((39, 2))}
    under = {"neurons.0": np.nextafter(edges.T, np.float32(-np.inf)), "resid.0": np.zeros((39, 2))}
    counts = [shard(collector, setting, batches_of(each, ())).arrays["counts/0"] for each in (on, under)]
    for unit in (0, 1, 2):
        assert counts[0][unit].tolist() == [0] + [1] * 39
        assert counts[1][unit].tolist() == [1] * 39 + [0]


@pytest.mark.parametrize("q", [0, 0.001, 0.25, 0.5, 0.9, 0.999, 1])
def test_quantiles_are_within_the_stated_error(q):
    rows = rows_of(4001, seed=1)
    view = swept(Quantiles(SITES), rows, (300, 2000))
    for key in SITES:
        exact = np.quantile(rows[key].astype(float), q, axis=0)
        off = np.abs(view.quantile(q, key) - exact)
        assert (off <= view.error(q, key) + 1e-6 * np.abs(exact)).all()
    spread = view.error(q, "neurons.0")[0]
    assert spread <= (0.08 if 0.2 < q < 0.95 else 0.2)  # of a standard deviation of 1
    if q in (0, 1):
        assert (view.error(q, "neurons.0") == 0).all()


def test_units_that_never_move_are_exact():
    view = swept(Quantiles(SITES), rows_of(200))
    for q in (0, 0.3, 0.5, 1):
        np.testing.assert_array_equal(view.quantile(q, "neurons.0")[[4, 5]], [7.5, 0])
        np.testing.assert_array_equal(view.error(q, "neurons.0")[[4, 5]], 0)


def test_a_unit_constant_in_the_pilot_may_move_later():
    rows = rows_of(1000)
    rows["neurons.0"][500:, 4] += np.linspace(0, 3, 500)
    view = swept(Quantiles(SITES), rows, (500,))
    off = np.abs(view.quantile(0.9, "neurons.0")[4] - np.quantile(rows["neurons.0"][:, 4], 0.9))
    assert off <= view.error(0.9, "neurons.0")[4]
    assert view.largest("neurons.0")[4] == np.float32(10.5)


def test_values_out_of_range_stay_countable():
    rows = rows_of(1000)
    rows["neurons.0"][700:, 0] = 1e6
    rows["neurons.0"][650:700, 0] = -1e30
    view = swept(Quantiles(SITES, bins=32), rows, (500,))
    counts, edges = view.histogram("neurons.0", 0)
    assert (counts[0], counts[-1]) == (50, 300)
    assert (edges[0], edges[-1]) == (-np.float32(1e30), 1e6)
    assert counts.sum() == 1000
    assert view.smallest("neurons.0")[0] == -np.float32(1e30)


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 299), max_size=6, unique=True).map(sorted),
    ends=st.sets(st.integers(1, 6), max_size=4),
    shape=st.lists(st.integers(0, 9), max_size=8),
    step=st.sampled_from([9, 100, 2**19]),
)
def test_any_shards_in_any_tree_equal_one_pass(cuts, ends, shape, step):
    rows = rows_of(300)
    collector = Quantiles(SITES, bins=20)
    batches = batches_of(rows, cuts)
    setting = with_pilot(collector, SETTING, batches_of(rows, (60,))[0])
    whole = shard(collector, setting, batches_of(rows, ()))
    edges = sorted({0, *(end for end in ends if end < len(batches)), len(batches)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantiles, "_AT_ONCE", step)
        states = [shard(collector, setting, batches[start:stop]) for start, stop in pairwise(edges)]
    states.append(shard(collector, setting, []))
    before = [copy_of(state) for state in states]
    assert merged(collector, states, shape).same(whole)
    assert all(state.same(other) for state, other in zip(states, before, strict=True))


def test_other_grids_are_not_merged():
    rows = rows_of(300)
    collector = Quantiles(SITES)
    states = [shard(collector, with_pilot(collector, SETTING, batch), [batch]) for batch in batches_of(rows, (100,))]
    with pytest.raises(SweepError, match=r"different grids cannot be merged"):
        collector.merge(*states)


def test_without_a_pilot_the_grid_is_standard():
    rows = rows_of(500)
    collector = Quantiles("resid.0")
    setting = replace(SETTING, pilot=collector.pilot(batches_of({"resid.0": np.zeros((0, 2))}, ())[0], SETTING))
    assert setting.pilot is None
    view = collector.view(shard(collector, setting, batches_of(rows, ())), setting)
    off = np.abs(view.quantile(0.4, "resid.0") - np.quantile(rows["resid.0"], 0.4, axis=0))
    assert (off <= view.error(0.4, "resid.0")).all()


def test_states_come_back_and_nonsense_is_refused(tmp_path):
    rows = rows_of(300)
    collector = Quantiles(SITES)
    setting = with_pilot(collector, SETTING, batches_of(rows, ())[0])
    state = shard(collector, setting, batches_of(rows, ()))
    save_states(tmp_path / "states", {"quantiles": state})
    assert load_states(tmp_path / "states")["quantiles"].same(state)
    assert collector_of(collector.describe()) == collector
    assert collector.memory(SETTING, 1) == state.bytes
    view = collector.view(state, setting)
    with pytest.raises(SweepError, match=r"between 0 and 1, and 1.5"):
        view.quantile(1.5, "resid.0")
    with pytest.raises(SweepError, match=r"No histogram of 'resid.5'"):
        view.quantile(0.5, "resid.5")
    with pytest.raises(SweepError, match=r"units 0 to 1, and unit 2"):
        view.histogram("resid.0", 2)
    with pytest.raises(SweepError, match=r"hold no rows"):
        collector.view(shard(collector, setting, []), setting).quantile(0.5, "resid.0")
    for bad in (np.nan, np.inf, -np.inf):
        rows["neurons.0"][250, 3] = bad
        with pytest.raises(SweepError, match=r"Unit 3 of 'neurons.0' is NaN or infinite"):
            shard(collector, setting, batches_of(rows, ()))
