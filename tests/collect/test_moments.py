"""Moments: sums, change of shift, groups and merging, and CKA from them against NumPy in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.collect import sums as sums_module
from pellucid.collect.collector import collector_of
from pellucid.collect.moments import Moments, of_rows
from pellucid.collect.state import load_states, save_states
from pellucid.collect.sums import exact_products
from pellucid.errors import SweepError
from pellucid.similarity import pair_of_rows
from pellucid.similarity.cca import svcca
from pellucid.similarity.cka import debiased_cka
from pellucid.similarity.pair import Pair, pair_of, side_of
from tests.collect.batches import batches_of, copy_of, facts_of, merged, setting_of, shard, with_pilot

WIDTHS = {"resid.0": (6,), "resid.1": (4,), "heads.0": (2, 3)}
SETTING = setting_of(facts_of(WIDTHS))
SITES = ("resid.*", "heads.0")


def whole_numbers(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of small whole numbers: every float32 product and sum of them is exact."""
    draw = np.random.default_rng(seed)
    return {key: draw.integers(-9, 10, (count, int(np.prod(size)))).astype(float) for key, size in WIDTHS.items()}


def rough(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Correlated rows with outlier dimensions: offsets of 1e3 to 1e4 and very unequal scales, as float32 holds them."""
    draw = np.random.default_rng(seed)
    common = draw.normal(size=(count, 3))
    rows: dict[str, np.ndarray] = {}
    for key, size in WIDTHS.items():
        width = int(np.prod(size))
        value = common @ draw.normal(size=(3, width)) + draw.normal(size=(count, width))
        value[:, 0] = value[:, 0] * 30 + 8192
        value[:, 1] -= 1500
        rows[key] = value.astype(np.float32).astype(np.float64)
    return rows


def swept(collector: Moments, rows: dict[str, np.ndarray], cuts: tuple[int, ...] = (), **options):
    batches = batches_of(rows, cuts, **options)
    setting = with_pilot(collector, SETTING, batches[0])
    return collector.view(shard(collector, setting, batches), setting)


def centred(value: np.ndarray) -> np.ndarray:
    return value - value.mean(0)


def debiased(x: np.ndarray, y: np.ndarray) -> float:
    """Unbiased HSIC by its definition (Song et al. 2012) on n × n matrices without their diagonals."""
    n = len(x)
    k, m = x @ x.T, y @ y.T
    np.fill_diagonal(k, 0)
    np.fill_diagonal(m, 0)
    return (np.trace(k @ m) + k.sum() * m.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (k.sum(0) @ m.sum(0))) / (
        n * (n - 3)
    )


def debiased_from(view, left: str, right: str) -> float:
    n = view.n
    total = (view.scatter(left, right) ** 2).sum()
    return (
        total
        - n / (n - 2) * view.norm_products(left, right)
        + view.norm_sum(left) * view.norm_sum(right) / ((n - 1) * (n - 2))
    )


@pytest.mark.parametrize(("left", "right"), [("resid.0", "resid.1"), ("heads.0", "resid.0"), ("resid.1", "resid.1")])
def test_both_cka_from_the_view_are_those_of_the_rows(left, right):
    rows = rough(700)
    view = swept(Moments(SITES), rows, (200, 450))
    x, y = centred(rows[left]), centred(rows[right])
    plain = np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    norms = [np.linalg.norm(view.scatter(*pair)) for pair in ((left, right), (left, left), (right, right))]
    assert norms[0] ** 2 / (norms[1] * norms[2]) == pytest.approx(plain, abs=5e-6)  # float32 products
    unbiased = debiased(x, y) / np.sqrt(debiased(x, x) * debiased(y, y))
    ours = debiased_from(view, left, right) / np.sqrt(
        debiased_from(view, left, left) * debiased_from(view, right, right)
    )
    assert ours == pytest.approx(unbiased, abs=1e-5)


@pytest.mark.parametrize("pairs", ["all", "diagonal", "units"])
def test_means_variances_and_lengths_survive_large_offsets(pairs):
    rows = rough(900, seed=3)
    view = swept(Moments(SITES, pairs=pairs), rows, (100, 130))
    assert view.n == 900
    for key, value in rows.items():
        np.testing.assert_allclose(view.mean(key), value.mean(0), rtol=1e-9, atol=2e-9)
        np.testing.assert_allclose(view.variance(key), value.var(0), rtol=1e-6)
        lengths = np.linalg.norm(value, axis=1)
        assert view.mean_length(key) == pytest.approx(lengths.mean(), rel=1e-7)
        assert view.length_variance(key) == pytest.approx(lengths.var(), rel=1e-3)
        assert view.norm_sum(key) == pytest.approx((centred(value) ** 2).sum(), rel=1e-6)


def test_row_norm_products_are_those_of_centred_rows():
    rows = rough(500, seed=5)
    view = swept(Moments(SITES), rows, (40,))  # a small pilot: the shift is not the mean
    for left in rows:
        for right in rows:
            k, m = ((centred(rows[key]) ** 2).sum(1) for key in (left, right))
            assert view.norm_products(left, right) == pytest.approx(k @ m, rel=1e-6)


def test_scatter_gives_both_orders():
    rows = whole_numbers(300)
    view = swept(Moments(SITES), rows)
    expected = centred(rows["heads.0"]).T @ centred(rows["resid.1"])
    np.testing.assert_allclose(view.scatter("heads.0", "resid.1"), expected, atol=1e-2)
    np.testing.assert_array_equal(view.scatter("heads.0", "resid.1"), view.scatter("resid.1", "heads.0").T)


def test_uncentred_float32_would_fail_here():
    """The trap: without a pilot's shift the same rows lose their variance in float32 products."""
    rows = rough(900, seed=3)
    collector = Moments(SITES)
    view = collector.view(shard(collector, SETTING, batches_of(rows, ())), SETTING)
    expected = centred(rows["heads.0"]).T @ centred(rows["resid.1"])

    def error(found):
        return abs(found.scatter("heads.0", "resid.1") - expected).max() / abs(expected).max()

    assert error(view) > 1e-5
    assert error(swept(collector, rows)) < 1e-6


def test_the_product_of_a_site_with_itself_is_in_float64(monkeypatch):
    monkeypatch.setattr(sums_module, "_TALL", 100)  # several parts of rows and stripes of columns
    monkeypatch.setattr(sums_module, "_STRIPE", 3)
    rows = {key: value - value.mean() for key, value in rough(900, seed=3).items()}
    collector = Moments(SITES)
    view = collector.view(shard(collector, SETTING, batches_of(rows, (250, 600))), SETTING)
    kept = rows["resid.0"].astype(np.float32).astype(np.float64)
    whole = (kept - kept.mean(0)).T @ (kept - kept.mean(0))
    np.testing.assert_allclose(view.scatter("resid.0", "resid.0"), whole, atol=1e-13 * abs(kept.T @ kept).max())
    np.testing.assert_array_equal(view.scatter("resid.0", "resid.0"), view.scatter("resid.0", "resid.0").T)


def test_more_rows_than_a_block_are_all_counted(monkeypatch):
    monkeypatch.setattr(sums_module, "BLOCK", 64)
    monkeypatch.setattr("pellucid.collect.moments.BLOCK", 64)
    rows = whole_numbers(1000)
    collector = Moments(SITES, groups=True)
    batches = batches_of(rows, (10, 300, 364), groups=(0, 1, 0, 1))
    view = collector.view(shard(collector, SETTING, batches), SETTING)
    assert view.n == 1000
    np.testing.assert_allclose(view.mean("resid.0"), rows["resid.0"].mean(0), rtol=1e-12)
    both = rows["resid.0"].T @ rows["resid.1"]
    np.testing.assert_array_equal(view.sums["product.0"][:, 6:10], both)
    lengths = np.linalg.norm(rows["resid.1"], axis=1)
    assert view.mean_length("resid.1") == pytest.approx(lengths.mean(), rel=1e-7)


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 119), max_size=6, unique=True).map(sorted),
    ends=st.sets(st.integers(0, 6), max_size=4),
    shape=st.lists(st.integers(0, 9), max_size=8),
    pairs=st.sampled_from(["all", "diagonal", "units", (("resid.0", "heads.*"),)]),
    groups=st.booleans(),
)
def test_any_shards_in_any_tree_equal_one_pass(cuts, ends, shape, pairs, groups):
    rows = whole_numbers(120)
    collector = Moments(SITES, pairs=pairs, groups=groups)
    batches = batches_of(rows, cuts, groups=[number % 3 for number in range(len(cuts) + 1)])
    setting = with_pilot(collector, SETTING, batches_of(rows, (4,))[0])
    setting.pilot.arrays["shift"][:] = np.round(setting.pilot.arrays["shift"])  # whole: all float32 sums are exact
    edges = sorted({0, *(end for end in ends if end < len(batches)), len(batches)})
    parts = [batches[start:stop] for start, stop in pairwise(edges)]
    states = [shard(collector, setting, part) for part in [*parts, []]]  # an empty shard among them
    before = [copy_of(state) for state in states]
    found, whole = merged(collector, states, shape), shard(collector, setting, batches)
    assert all(state.same(other) for state, other in zip(states, before, strict=True))
    assert found.arrays.keys() == whole.arrays.keys()
    for name, array in whole.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=1e-12, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("pairs", ["all", "diagonal", "units", (("resid.0", "resid.1"),)])
def test_a_change_of_shift_is_exact(pairs):
    rows = whole_numbers(90)
    collector = Moments(SITES, pairs=pairs)
    moved = np.arange(16, dtype=np.float32) - 5
    setting = with_pilot(collector, SETTING, batches_of(rows, ())[0])
    setting.pilot.arrays["shift"][:] = moved
    direct = shard(collector, setting, batches_of(rows, ()))
    view = collector.view(shard(collector, SETTING, batches_of(rows, ())), SETTING).shifted(moved)
    for name, array in view.sums.items():
        np.testing.assert_allclose(array, direct.arrays[f"all/{name}"], rtol=1e-12, atol=1e-6, err_msg=name)


def test_states_of_different_pilots_merge():
    rows = rough(400, seed=9)
    collector = Moments(SITES, groups=True)
    first, second = batches_of(rows, (150,), groups=(4, 7))
    states = [shard(collector, with_pilot(collector, SETTING, batch), [batch]) for batch in (first, second)]
    assert not np.array_equal(states[0].arrays["shift"], states[1].arrays["shift"])
    view = collector.view(collector.merge(*states), SETTING)
    for left, right in (("resid.0", "heads.0"), ("resid.1", "resid.1")):
        expected = centred(rows[left]).T @ centred(rows[right])
        np.testing.assert_allclose(view.scatter(left, right), expected, rtol=1e-5, atol=1e-4 * np.abs(expected).max())
        k, m = ((centred(rows[key]) ** 2).sum(1) for key in (left, right))
        assert view.norm_products(left, right) == pytest.approx(k @ m, rel=1e-5)


def test_groups_apart_and_left_out():
    rows = rough(300, seed=2)
    view = swept(Moments(SITES, groups=True), rows, (80, 170), groups=(3, 10, 3))
    mine = np.r_[0:80, 170:300]
    assert view.groups == (3, 10)
    assert (view.group(3).n, view.without(3).n, view.n) == (210, 90, 300)
    np.testing.assert_allclose(view.group(3).mean("resid.1"), rows["resid.1"][mine].mean(0), atol=5e-9)
    kept = centred(rows["resid.1"][80:170])
    np.testing.assert_allclose(view.without(3).variance("resid.1"), (kept**2).mean(0), rtol=1e-5)
    k = (kept**2).sum(1)
    assert view.without(3).norm_products("resid.1", "resid.1") == pytest.approx(k @ k, rel=1e-5)
    with pytest.raises(SweepError, match=r"no document group 4; there are 3, 10"):
        view.group(4)


def test_states_come_back_from_a_file_to_the_bit(tmp_path):
    rows = rough(50)
    collector = Moments(SITES, groups=True)
    state = shard(
        collector, with_pilot(collector, SETTING, batches_of(rows, ())[0]), batches_of(rows, (9,), groups=(0, 2))
    )
    save_states(tmp_path / "states", {"moments": state})
    assert load_states(tmp_path / "states")["moments"].same(state)
    assert collector_of(collector.describe()) == collector
    chosen = Moments(SITES, pairs=(("resid.0", "resid.1"),))
    assert collector_of(chosen.describe()) == chosen


def test_the_same_rows_give_the_same_bytes_however_they_are_batched():
    rows = rough(500)
    collector = Moments(SITES)
    setting = with_pilot(collector, SETTING, batches_of(rows, (100,))[0])
    one, other = (shard(collector, setting, batches_of(rows, cuts)) for cuts in ((), (1, 17, 300)))
    for name in ("all/sum", "all/product.0", "all/third", "all/fourth", "all/norms"):
        np.testing.assert_array_equal(one.arrays[name], other.arrays[name])


def test_memory_is_what_the_state_takes_and_is_limited():
    rows = whole_numbers(60)
    for pairs in ("all", "diagonal", "units", (("resid.*", "heads.0"),)):
        for groups in (False, True):
            collector = Moments(SITES, pairs=pairs, groups=groups)
            state = shard(collector, SETTING, batches_of(rows, (20, 40), groups=(0, 1, 2)))
            assert collector.memory(SETTING, 3) == state.bytes
    with pytest.raises(SweepError, match=r"3 sites need 2,104 bytes, and memory_limit is 2,000; .*pairs='diagonal'"):
        Moments(SITES, memory_limit=2000).memory(SETTING, 1)


def test_several_models_meet_by_their_numbers():
    setting = setting_of(facts_of({"resid.0": (3,)}), facts_of({"resid.0": (2,), "resid.1": (2,)}))
    draw = np.random.default_rng(0)
    rows = {
        "0:resid.0": draw.normal(size=(50, 3)),
        "1:resid.0": draw.normal(size=(50, 2)),
        "1:resid.1": draw.normal(size=(50, 2)),
    }
    collector = Moments("resid.*", pairs=(("0:resid.*", "1:resid.1"),))
    view = collector.view(shard(collector, setting, batches_of(rows, (20,))), setting)
    expected = centred(rows["0:resid.0"]).T @ centred(rows["1:resid.1"])
    np.testing.assert_allclose(view.scatter("0:resid.0", "1:resid.1"), expected, atol=1e-4)
    with pytest.raises(SweepError, match=r"'0:resid.0' and '1:resid.0' were not gathered.*pairs='all'"):
        view.scatter("0:resid.0", "1:resid.0")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_none_are_refused_by_name(bad):
    rows = whole_numbers(30)
    rows["resid.1"][7, 2] = bad
    where = r"Unit 2 of 'resid.1' is NaN or infinite for 'w2', word 3 of sentence 's1';"
    for cuts in ((), (5,), (7,), (8, 20)):
        with pytest.raises(SweepError, match=where):
            shard(Moments(SITES), SETTING, batches_of(rows, cuts))
    with pytest.raises(SweepError, match=where):
        Moments(SITES).pilot(batches_of(rows, ())[0], SETTING)


def test_what_was_not_asked_for_is_refused():
    view = swept(Moments(SITES, pairs="units"), whole_numbers(20))
    with pytest.raises(SweepError, match=r"only single units; sweep again with pairs='all'"):
        view.scatter("resid.0", "resid.0")
    with pytest.raises(SweepError, match=r"No moments of 'resid.7'.*resid.0, resid.1, heads.0"):
        view.mean("resid.7")
    with pytest.raises(SweepError, match=r"pairs='some' means nothing; use 'all'"):
        Moments(SITES, pairs="some")
    with pytest.raises(SweepError, match=r"names 'heads.0', which the sites 'resid.\*' do not include"):
        Moments("resid.*", pairs=(("resid.0", "heads.0"),)).open(SETTING)
    empty = Moments(SITES).view(shard(Moments(SITES), SETTING, []), SETTING)
    assert empty.n == 0
    with pytest.raises(SweepError, match=r"hold no rows"):
        empty.mean("resid.0")


@pytest.mark.parametrize("allowed", ["highest", "high", "medium"])
def test_products_are_full_float32_whatever_is_allowed_elsewhere(allowed):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(allowed)
    try:
        with exact_products():
            assert torch.backends.cuda.matmul.allow_tf32 is False
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == allowed
        assert torch.backends.cuda.matmul.allow_tf32 is (allowed != "highest")
    finally:
        torch.set_float32_matmul_precision(before)


def test_products_are_full_float32_also_when_the_newer_switch_was_used():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        with exact_products():
            assert matmul.fp32_precision == "ieee"
            assert matmul.allow_tf32 is False
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


def with_outliers(count: int, width: int, seed: int, *, peak: float = 800) -> dict[str, np.ndarray]:
    """Two sites with a falling spectrum and outlier dimensions whose means reach `peak`, as float32 holds them."""
    draw = np.random.default_rng(seed)
    common = draw.normal(size=(count, 12))
    rows: dict[str, np.ndarray] = {}
    for key in ("resid.0", "resid.1"):
        own = draw.normal(size=(count, width)) * np.geomspace(2, 0.05, width)
        value = common @ draw.normal(size=(12, width)) / 2 + own
        value[:, :3] = value[:, :3] * [10, 3, 1] + [peak, -peak / 2, peak / 4]
        rows[key] = value.astype(np.float32).astype(np.float64)
    return rows


def both_of(rows: dict[str, np.ndarray], precision: str) -> tuple[Pair, Pair]:
    """The pair of two sites from moments of that precision, and from the rows in NumPy's float64."""
    setting = setting_of(facts_of({key: (value.shape[1],) for key, value in rows.items()}))
    collector = Moments("resid.*", precision=precision)
    batches = batches_of(rows, tuple(range(500, len(rows["resid.0"]), 500)))
    setting = with_pilot(collector, setting, batches[0])
    view = collector.view(shard(collector, setting, batches), setting)
    left, right = (side_of(view, key, precision=precision) for key in rows)
    return pair_of(view, left, right), pair_of_rows(rows["resid.0"], rows["resid.1"])


@pytest.mark.parametrize("peak", [0, 800, 1e4])
def test_float64_moments_are_numpys_own(peak):
    ours, exact = both_of(with_outliers(2000, 24, 0, peak=peak), "float64")
    for one, other in ((ours.left, exact.left), (ours.right, exact.right)):
        scale = np.sqrt(np.outer(np.diag(other.scatter), np.diag(other.scatter)))
        assert (np.abs(one.scatter - other.scatter) / scale).max() < 1e-12
        assert one.norm_sum == pytest.approx(other.norm_sum, rel=1e-12)
        assert one.norm_squares == pytest.approx(other.norm_squares, rel=1e-12)
    scale = np.sqrt(np.outer(np.diag(exact.left.scatter), np.diag(exact.right.scatter)))
    assert (np.abs(ours.cross - exact.cross) / scale).max() < 1e-12
    assert ours.norm_products == pytest.approx(exact.norm_products, rel=1e-12)
    assert debiased_cka(ours) == pytest.approx(debiased_cka(exact), rel=1e-12)
    assert svcca(ours) == pytest.approx(svcca(exact), rel=1e-11)


@pytest.mark.parametrize("peak", [0, 800])
def test_float32_products_leave_scores_their_seven_digits(peak):
    """Measured over these seeds: CKA within 9e-8, SVCCA within 8e-8, with outlier means of 800 as without any.

    Each product carries one float32 rounding (2⁻²³ = 1.2e-7), and a score of a few dozen features averages little of it
    away: 1e-8 is not reached at this size. The means themselves cost nothing, since the pilot's shift goes first.
    """
    errors: list[tuple[float, float]] = []
    for seed in range(8):
        ours, exact = both_of(with_outliers(2000, 32, seed, peak=peak), "float32")
        errors.append((abs(debiased_cka(ours) - debiased_cka(exact)), abs(svcca(ours) - svcca(exact))))
    assert np.max(errors) < 2.0**-23 * 1.5
    assert np.median(errors) < 4e-8
    assert np.max(errors) > 1e-12  # these are float32 products indeed


def test_moments_of_rows_at_hand():
    rows = with_outliers(600, 8, 4)
    groups = np.random.default_rng(0).integers(0, 4, 600) * 3
    view = of_rows({key: torch.tensor(value, dtype=torch.float32) for key, value in rows.items()}, groups)
    assert (view.n, view.keys, view.groups) == (600, ("resid.0", "resid.1"), (0, 3, 6, 9))
    for found, kept in ((view, groups >= 0), (view.without(6), groups != 6), (view.group(3), groups == 3)):
        assert found.n == kept.sum()
        exact = pair_of_rows(rows["resid.0"][kept], rows["resid.1"][kept])
        left, right = (side_of(found, key, precision="float64") for key in rows)
        scale = np.sqrt(np.outer(np.diag(exact.left.scatter), np.diag(exact.right.scatter)))
        assert (np.abs(found.scatter("resid.0", "resid.1") - exact.cross) / scale).max() < 1e-11
        assert debiased_cka(pair_of(found, left, right)) == pytest.approx(debiased_cka(exact), rel=1e-10)
    np.testing.assert_allclose(view.mean("resid.1"), rows["resid.1"].mean(0), rtol=1e-12)
