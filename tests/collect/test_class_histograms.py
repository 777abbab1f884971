"""Class histograms: against counting by hand, in every cutting, with and without document groups."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.collect import class_histograms
from pellucid.collect.class_histograms import ClassHistograms
from pellucid.collect.classes import ClassMoments
from pellucid.errors import SweepError
from tests.collect.batches import batches_of, facts_of, merged, setting_of, shard, with_pilot

COUNT, WIDTHS = 211, {"neurons.0": 3, "resid.1": 70}
SETTING = setting_of(facts_of({name: (width,) for name, width in WIDTHS.items()}))


def drawn() -> tuple[dict[str, np.ndarray], list[str | None]]:
    dice = np.random.default_rng(8)
    rows = {name: dice.normal(3, 2, size=(COUNT, width)).astype(np.float32) for name, width in WIDTHS.items()}
    rows["neurons.0"][:, 1] = np.maximum(rows["neurons.0"][:, 1], 0)
    rows["resid.1"][:, 5] = 0.25  # constant
    rows["resid.1"][::7, 6] *= 1e6
    stretches = ["bc" if number < 100 else "ca" for number in range(COUNT)]  # blocks know different values
    return rows, [None if number % 9 == 0 else pair[number % 2] for number, pair in enumerate(stretches)]


def swept(collector, cuts, groups=None, shards=1, order=()):
    rows, labels = drawn()
    batches = batches_of(rows, cuts, groups=groups, labels=labels)
    setting = with_pilot(collector, SETTING, batches[0])
    parts = np.array_split(np.arange(len(batches)), shards)
    states = [shard(collector, setting, [batches[number] for number in part]) for part in parts]
    return collector.view(merged(collector, states, order), setting), setting


def by_hand(setting, bins):
    """Counts {value: [unit, bin]} of all columns, in float64."""
    rows, labels = drawn()
    whole = np.concatenate([rows[name] for name in WIDTHS], axis=1).astype(np.float64)
    z = (whole - setting.pilot.arrays["centre"]) / setting.pilot.arrays["scale"]
    place = np.floor(bins / 2 * (1 + (1 - 2.0**-20) * z / (1 + np.abs(z)))).astype(int)
    found = {}
    for value in "abc":
        chosen = place[[label == value for label in labels]]
        found[value] = np.array([np.bincount(chosen[:, unit], minlength=bins) for unit in range(whole.shape[1])])
    return found


@pytest.mark.parametrize("cuts", [(), (40, 41, 150)])
def test_counts_are_those_by_hand(cuts, monkeypatch):
    monkeypatch.setattr(class_histograms, "_ROWS", (48, 48))  # several blocks, none of which ends with a batch
    monkeypatch.setattr(class_histograms, "_AT_ONCE", 40)  # a few rows at a time
    view, setting = swept(
        ClassHistograms(tuple(WIDTHS), label="tag", bins=31), cuts
    )  # an odd number: medians lie inside a bin
    expected = by_hand(setting, 31)
    assert view.values == ("a", "b", "c")
    start = 0
    for key, width in WIDTHS.items():
        for place, value in enumerate("abc"):
            assert np.array_equal(view.histograms(key)[place], expected[value][start : start + width]), (key, value)
        start += width
    assert view.counts.tolist() == [int(expected[value][0].sum()) for value in "abc"]
    assert view.counts.sum() + int(view.state.arrays["unlabelled"][0]) == COUNT


def test_edges_are_where_bins_change():
    view, _ = swept(ClassHistograms("neurons.0", label="tag", bins=15), ())
    rows, labels = drawn()
    values = rows["neurons.0"][[label is not None for label in labels], 0].astype(np.float64)
    inner = view.edges("neurons.0")[0]
    counts = np.bincount(np.searchsorted(inner, values, side="right"), minlength=15)
    assert counts.tolist() == view.histograms("neurons.0").sum(0)[0].tolist()
    assert (np.diff(inner) > 0).all()


def test_the_pilots_grid_is_the_median_and_the_spread_about_it():
    """In standard deviations for normal values; the mean distance where half is constant, a part of a constant."""
    column = np.array([-4.0, -1.0, 0.0, 2.0, 9.0])  # distances 4, 1, 0, 2, 9
    rows = {"neurons.0": np.stack([column, [3, 3, 3, 3, 8], np.full(5, -20.0)], axis=1).astype(np.float32)}
    pilot = ClassHistograms("neurons.0", label="tag").pilot(batches_of(rows, ())[0], SETTING)
    assert pilot.arrays["centre"].tolist() == [0, 3, -20]
    assert pilot.arrays["scale"] == pytest.approx([1.4826 * 2, 1.0, 0.02])


@pytest.mark.parametrize(("shards", "order"), [(3, (0, 0)), (3, (1, 0)), (1, ())])  # one shard holds all groups
def test_shards_and_groups_merge_to_one_pass(shards, order):
    cuts, groups = (30, 60, 120, 121), (0, 0, 2, 2, 5)
    plain = ClassHistograms(tuple(WIDTHS), label="tag", bins=16)
    whole, _ = swept(plain, cuts)
    apart, _ = swept(plain, cuts, shards=shards, order=order)
    assert np.array_equal(whole.state.arrays["counts"], apart.state.arrays["counts"])
    kept, _ = swept(ClassHistograms(tuple(WIDTHS), label="tag", bins=16, groups=True), cuts, groups, shards, order)
    assert kept.groups == (0, 2, 5)
    assert kept.values == whole.values
    assert np.array_equal(kept.histograms("resid.1"), whole.histograms("resid.1"))
    for number in kept.groups:
        both = kept.group(number).histograms("resid.1") + kept.without(number).histograms("resid.1")
        assert np.array_equal(both, whole.histograms("resid.1"))
    assert kept.group(2).counts.sum() < kept.counts.sum()


@pytest.mark.parametrize("covariance", ["none", "diagonal", "full"])
def test_class_moments_keep_groups_apart_too(covariance):
    cuts, groups = (30, 60, 120, 121), (0, 0, 2, 2, 5)
    rows, labels = drawn()
    kept, _ = swept(ClassMoments("neurons.0", label="tag", covariance=covariance, groups=True), cuts, groups, 3)
    whole, _ = swept(ClassMoments("neurons.0", label="tag", covariance=covariance), cuts)
    assert kept.means("neurons.0") == pytest.approx(whole.means("neurons.0"), rel=1e-6)
    chosen = [place for place in range(60, 121) if labels[place] == "b"]
    own = rows["neurons.0"][chosen].astype(np.float64)
    assert kept.group(2).mean("b", "neurons.0") == pytest.approx(own.mean(0), rel=1e-6)
    rest = [place for place in range(COUNT) if labels[place] == "b" and not 60 <= place < 121]
    assert kept.without(2).mean("b", "neurons.0") == pytest.approx(rows["neurons.0"][rest].mean(0), rel=1e-5)
    if covariance != "none":
        assert kept.group(2).variance("b", "neurons.0") == pytest.approx(own.var(0), rel=1e-5)
    assert whole.groups == ()


def test_bad_input_is_named():
    rows, labels = drawn()
    rows["resid.1"][100, 7] = np.nan
    collector = ClassHistograms(tuple(WIDTHS), label="tag")
    with pytest.raises(SweepError, match=r"Unit 7 of 'resid.1' is NaN"):
        shard(collector, SETTING, batches_of(rows, (), labels=labels))
    with pytest.raises(SweepError, match="between 2 and 256"):
        ClassHistograms("resid.1", label="tag", bins=300)
    with pytest.raises(SweepError, match="memory_limit"):
        ClassHistograms(tuple(WIDTHS), label="tag", memory_limit=1000).memory(SETTING, 10)
    one, two = (shard(ClassHistograms("resid.1", label="tag", bins=bins), SETTING, []) for bins in (8, 16))
    with pytest.raises(SweepError, match="cannot be merged"):
        ClassHistograms("resid.1", label="tag", bins=8).merge(one, two)


def test_numbers_too_large_to_be_added_up_are_no_reason_to_refuse():
    rows = {"neurons.0": np.array([[1.5e38, -1.5e38, 0.25]] * 12, dtype=np.float32)}
    collector = ClassHistograms("neurons.0", label="tag", bins=4)
    setting = setting_of(facts_of({"neurons.0": (3,)}))  # no pilot: centre 0, scale 1
    view = collector.view(shard(collector, setting, batches_of(rows, (), labels=["a", "b"] * 6)), setting)
    assert view.histograms("neurons.0")[0].tolist() == [[0, 0, 0, 6], [6, 0, 0, 0], [0, 0, 6, 0]]


def test_units_that_never_leave_the_centre_are_told_from_those_that_do_so_late():
    """Units of several sites stand side by side."""
    rows = {name: np.tile(np.array([7.0, 7.0, 0.0], np.float32), (40, 1)) for name in ("neurons.0", "neurons.1")}
    rows["neurons.1"][:, 0] += np.arange(40) % 3
    rows["neurons.1"][38, 1] = 7.001  # in the last of the batches
    collector = ClassHistograms(("neurons.0", "neurons.1"), label="tag")
    batches = batches_of(rows, (10, 20, 35), labels=["a"] * 40)
    setting = with_pilot(collector, setting_of(facts_of({"neurons.0": (3,), "neurons.1": (3,)})), batches[0])
    early, late = [False] * 3 + [True, False, False], [False] * 3 + [True, True, False]
    assert shard(collector, setting, batches[:3]).arrays["moves"].tolist() == early
    assert shard(collector, setting, batches).arrays["moves"].tolist() == late
    parts = [shard(collector, setting, [each]) for each in batches]
    assert merged(collector, parts, (0, 0, 0)).arrays["moves"].tolist() == late


def test_groups_may_have_fewer_bins_than_the_whole():
    cuts, groups = (30, 60, 120, 121), (0, 0, 2, 2, 5)
    fine = ClassHistograms(tuple(WIDTHS), label="tag", bins=16, groups=True)
    few = ClassHistograms(tuple(WIDTHS), label="tag", bins=16, groups=True, group_bins=4)
    for shards, order in ((1, ()), (3, (1, 0))):
        one, _ = swept(fine, cuts, groups, shards, order)
        other, _ = swept(few, cuts, groups, shards, order)
        assert np.array_equal(one.histograms("resid.1"), other.histograms("resid.1"))
        assert other.group(0).bins == 4
        for number in one.groups:
            whole = one.without(number).histograms("resid.1")
            assert np.array_equal(
                whole.reshape(*whole.shape[:2], 4, 4).sum(3), other.without(number).histograms("resid.1")
            )
            assert np.array_equal(one.without(number).counts, other.without(number).counts)
    assert other.edges("resid.1")[:, 3::4] == pytest.approx(other.group(0).edges("resid.1"))
    with pytest.raises(SweepError, match="must be 2 or more and divide"):
        ClassHistograms("resid.1", label="tag", bins=16, group_bins=5)
