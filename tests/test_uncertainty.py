"""The jackknife: known answers for means, ratios and unequal groups, and Student's t against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pellucid.uncertainty import Interval, jackknife, over_documents, over_groups, t_quantile


def of_groups(groups: list[np.ndarray], statistic, **options):
    whole = statistic(np.concatenate(groups))
    without = [statistic(np.concatenate(groups[:j] + groups[j + 1 :])) for j in range(len(groups))]
    return whole, jackknife(whole, without, [len(group) for group in groups], **options)


def mean(rows: np.ndarray) -> np.ndarray:
    return rows.mean(axis=0)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 10, 49])
@pytest.mark.parametrize("chance", [0.5, 0.9, 0.975, 0.995])
def test_student(freedom, chance):
    assert t_quantile(chance, freedom) == pytest.approx(stats.t.ppf(chance, freedom), rel=1e-10, abs=1e-12)


def test_single_observations_give_the_classical_interval_of_a_mean():
    rows = np.random.default_rng(0).normal(size=(10, 3))
    whole, interval = of_groups([row[None] for row in rows], mean)
    reach = stats.t.ppf(0.975, 9) * rows.std(axis=0, ddof=1) / np.sqrt(10)
    assert np.allclose(interval.low, whole - reach, rtol=1e-12)
    assert np.allclose(interval.high, whole + reach, rtol=1e-12)
    assert interval.resampled == "10 document groups (jackknife, 95%)"


def test_equal_groups_give_the_plain_delete_one_group_formula():
    groups = list(np.random.default_rng(1).normal(size=(5, 7, 2)))

    def ratio(rows):
        return rows[:, 0].sum(keepdims=True) / (9 + rows[:, 1].sum(keepdims=True))

    whole, interval = of_groups(groups, ratio)
    without = np.array([ratio(np.concatenate(groups[:j] + groups[j + 1 :])) for j in range(5)])
    # θ_J differs from the plain estimate by the jackknife's bias, so this formula is the pseudo-values' variance
    pseudo = 5 * whole - 4 * without
    deviation = np.sqrt(((pseudo - pseudo.mean(0)) ** 2).sum(0) / (5 * 4))
    assert np.allclose(interval.high - whole, stats.t.ppf(0.975, 4) * deviation, rtol=1e-10)


def test_unequal_groups_have_the_error_of_a_mean_over_all_words():
    """With independent words, the interval must cover the truth as often as it says, however unequal the groups."""
    rng = np.random.default_rng(2)
    sizes = [5, 5, 10, 20, 40, 40, 80, 100, 100, 100]
    covered = 0
    for _ in range(400):
        _, interval = of_groups([rng.normal(size=(size, 1)) for size in sizes], mean)
        covered += bool(interval.low[0] <= 0 <= interval.high[0])
    assert 0.92 <= covered / 400 <= 0.98


def test_words_that_go_together_widen_the_interval():
    rng = np.random.default_rng(3)
    free = [rng.normal(size=(50, 1)) for _ in range(10)]
    tied = [rng.normal(size=(50, 1)) + rng.normal() for _ in range(10)]
    (_, narrow), (_, wide) = of_groups(free, mean), of_groups(tied, mean)
    assert (wide.high - wide.low)[0] > 3 * (narrow.high - narrow.low)[0]


def test_few_groups_are_named_and_one_gives_none():
    rows = np.arange(6.0).reshape(3, 2, 1)
    assert of_groups(list(rows), mean)[1].resampled == "3 document groups, fewer than 10 (jackknife, 95%)"
    assert of_groups(list(rows), mean, level=0.9)[1].resampled.endswith("(jackknife, 90%)")
    for without, sizes, reason in (([np.ones(1)], [4], "one document group"), ([], [], "not kept apart")):
        interval = jackknife(np.ones(1), without, sizes)
        assert interval.low is None
        assert interval.high is None
        assert reason in interval.resampled


class View:
    """Numbers of several groups, as views of collectors have them."""

    def __init__(self, parts: dict[int, list[float]]) -> None:
        self.parts = parts

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(self.parts)

    def group(self, number: int) -> View:
        return View({number: self.parts[number]})

    def without(self, number: int) -> View:
        return View({other: part for other, part in self.parts.items() if other != number})

    def every(self) -> np.ndarray:
        return np.concatenate([np.array(part) for part in self.parts.values()])


def interval_of(parts: dict[int, list[float]]):
    return over_groups(View(parts), lambda view: view.every().mean(keepdims=True), lambda view: len(view.every()))


def test_groups_of_a_view_are_left_out_in_turn_and_empty_ones_are_none():
    parts = {0: [1.0, 2.0], 3: [4.0, 4.5], 7: [0.0, 1.0]}
    with_empty = interval_of({**parts, 8: []})
    groups = [np.array(part)[:, None] for part in parts.values()]
    _, expected = of_groups(groups, mean)
    assert with_empty.low.tolist() == expected.low.tolist()
    assert with_empty.resampled.startswith("3 document groups")
    alone = interval_of({0: [1.0, 2.0], 1: []})  # leaving out the only group with words leaves nothing to measure
    assert alone.low is None


def test_whole_documents_are_left_out_together():
    values = np.array([[1.0, 2.0], [3.0, 5.0], [4.0, 1.0], [8.0, 0.0], [9.0, 7.0]])
    whole, found = over_documents(values, ["a", "a", "b", "c", "c"])
    expected, wanted = of_groups([values[:2], values[2:3], values[3:]], mean)
    np.testing.assert_allclose(whole, expected)
    np.testing.assert_allclose((found.low, found.high), (wanted.low, wanted.high))
    assert found.resampled == wanted.resampled


def test_many_documents_make_ten_groups_and_one_makes_no_interval():
    values = np.random.default_rng(0).normal(size=(57, 2))
    _, found = over_documents(values, [str(number) for number in range(57)])
    groups = [values[[number * 10 // 57 == group for number in range(57)]] for group in range(10)]
    np.testing.assert_allclose(found.low, of_groups(groups, mean)[1].low)
    assert over_documents(values, ["one"] * 57)[1].low is None


def test_another_statistic_than_the_mean():
    """Sums over counts, as ratios over texts of unequal length need them."""
    values = np.array([[2.0, 1.0], [6.0, 3.0], [1.0, 4.0]])
    whole, _ = over_documents(values, ["a", "b", "c"], lambda part: part[:, 0].sum(keepdims=True) / part[:, 1].sum())
    assert whole == pytest.approx(9 / 8)


def test_ends_stay_where_the_number_itself_must():
    wide = Interval(np.array([-0.3, -2.0]), np.array([0.4, 5.0]), "ten groups")
    kept = wide.within(np.array([0.0, -np.inf]), np.array([1.0, 3.0]))
    assert kept.low is not None
    assert kept.high is not None
    assert (kept.low.tolist(), kept.high.tolist(), kept.resampled) == ([0.0, -2.0], [0.4, 3.0], "ten groups")
    none = Interval(None, None, "no interval")
    assert none.within(0.0, 1.0) is none
