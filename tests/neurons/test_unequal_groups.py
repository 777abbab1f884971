"""Document groups of unequal size: every interval weighs them by their words, as the jackknife by hand does."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from pellucid.neurons import array_store, iou, precision, probeless, resampled_stability, selectivity
from pellucid.neurons.judging.group_means import over_kept_groups
from pellucid.uncertainty import Interval, jackknife

SIZES = (110, 60, 30, 15)
WORDS = sum(SIZES)


def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole numbers from 0 to 6 [words, neurons], so that bins hide nothing; classes; and the sentence of each word."""
    dice, groups = np.random.default_rng(3), np.repeat(np.arange(len(SIZES)), SIZES)
    tags = dice.choice(["a", "b"], WORDS, p=[0.4, 0.6])
    moved = dice.integers(0, 4, (WORDS, 5)) + (tags == "a")[:, None] * (1 + groups % 3)[:, None]
    return moved.astype(float), tags, groups


def overlap(values: np.ndarray, own: np.ndarray) -> float:
    fires = values > 2.5
    return (fires & own).sum() / (fires | own).sum()


def distance(values: np.ndarray, own: np.ndarray) -> float:
    return values[own].mean() - values[~own].mean()


def apart(values: np.ndarray, own: np.ndarray) -> float:
    return distance(values, own) / np.sqrt((values[own].var() + values[~own].var()) / 2)


WAYS = {
    "probeless": (probeless, {}, distance),
    "selectivity": (selectivity, {}, apart),
    "iou": (iou, {"quantile": None, "threshold": 2.5, "ends": "upper"}, overlap),
    "iou exact": (iou, {"quantile": None, "threshold": 2.5, "ends": "upper", "exact": True}, overlap),
    "precision": (precision, {"ends": "upper"}, lambda values, own: average_precision_score(own, values)),
}


def by_hand(of, values: np.ndarray, own: np.ndarray, groups: np.ndarray) -> Interval:
    without = [np.array(of(values[groups != left], own[groups != left])) for left in range(len(SIZES))]
    return jackknife(np.array(of(values, own)), without, SIZES)


@pytest.mark.parametrize("name", WAYS)
def test_rankings_weigh_groups_by_their_words(name):
    way, options, of = WAYS[name]
    rows, tags, groups = drawn()
    found = way(array_store(rows, tags, sentences=groups.tolist()), concept="label", **options)
    assert found.resampled.startswith("4 document groups")
    for unit in range(rows.shape[1]):
        expected = by_hand(of, rows[:, unit], tags == "a", groups)
        assert found.values[0, unit] == pytest.approx(float(of(rows[:, unit], tags == "a")), abs=1e-6)
        assert found.low[0, unit] == pytest.approx(float(expected.low), abs=1e-6)
        assert found.high[0, unit] == pytest.approx(float(expected.high), abs=1e-6)


def test_exact_precision_weighs_groups_by_their_words():
    """No two values are equal and words are fewer than its bins by rank, so that leaving a group out is exact."""
    rows, tags, groups = drawn()
    rows += np.random.default_rng(4).random(rows.shape)
    found = precision(array_store(rows, tags, sentences=groups.tolist()), concept="label", ends="upper", exact=True)
    for unit in range(rows.shape[1]):
        expected = by_hand(WAYS["precision"][2], rows[:, unit], tags == "a", groups)
        assert found.low[0, unit] == pytest.approx(float(expected.low), abs=1e-6)


def test_means_over_groups_weigh_them_by_what_they_count():
    sums, sizes = np.array([30.0, 12.0, 0.0, 1.0]), np.array([40.0, 15.0, 0.0, 5.0])
    value, interval = over_kept_groups(lambda kept: np.array([sums[kept].sum() / sizes[kept].sum()]), sizes)
    without = [np.array([part]) for part in (13 / 20, 31 / 45, 42 / 55)]
    expected = jackknife(np.array([43 / 60]), without, [40, 15, 5])
    assert value == pytest.approx([43 / 60])
    assert interval.low == pytest.approx(expected.low)
    assert interval.high == pytest.approx(expected.high)


def test_groups_are_drawn_again_with_replacement():
    """All groups, each once, would give the same ranking every time."""
    dice = np.random.default_rng(5)
    store = array_store(dice.normal(size=(WORDS, 20)), drawn()[1], sentences=drawn()[2].tolist())
    found = resampled_stability(store, concept="label", counts=(5,), draws=6)
    assert found.values[0] < 0.9
