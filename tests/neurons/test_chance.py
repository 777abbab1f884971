"""Chance of rankings: what shuffled labels give, at the better end of the values and for the best class."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import neurons
from pellucid.neurons.chance import distance_chance, overlap_chance, precision_chance
from pellucid.neurons.class_sums import ClassSums
from pellucid.neurons.selectivity import d_prime

SHARES = (0.32, 0.3, 0.28, 0.1)
CLASSES = tuple("abcd")


def labels(n: int = 400) -> np.ndarray:
    return np.repeat(CLASSES, [round(share * n) for share in SHARES])


def drawn(width: int, n: int = 400) -> np.ndarray:
    """Neurons that know nothing; the last one is still."""
    rows = np.random.default_rng(1).normal(size=(n, width + 1))
    rows[:, width] = 2.0
    return rows


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("way", [neurons.iou, neurons.precision], ids=["iou", "precision"])
def test_chance_is_what_shuffled_labels_give_with_both_ends(way, exact):
    """Each of 200 neurons of noise is one more draw of the labels, and these are shuffled twice."""
    dice, rows = np.random.default_rng(5), drawn(200)
    made = [way(neurons.array_store(rows, dice.permutation(labels())), concept="label", exact=exact) for _ in range(2)]
    sizes = np.mean([np.abs(each.values)[:, :-1].mean(1) for each in made], axis=0)
    overall = np.mean([each.overall.columns["score"][:-1].mean() for each in made])
    null, best = made[0].null, made[0].overall.columns["null"]
    assert null[:, :-1].mean(1) == pytest.approx(sizes, rel=0.05)
    assert best[:-1].mean() == pytest.approx(overall, rel=0.03)
    assert best[0] > null[:, 0].max() * 1.01, "the best of all classes"
    if way is neurons.precision or exact:
        assert null[:, -1] == pytest.approx(np.abs(made[0].values)[:, -1], abs=1e-9), "a still neuron has one score"


def test_chance_of_a_threshold_is_that_of_masks_of_that_size():
    """At a threshold the two masks hold all words together, and neurons fire on different numbers of words."""
    dice, counts = np.random.default_rng(2), np.array([200, 120, 60, 20])
    upper = dice.integers(1, 399, size=60)
    null, overall = overlap_chance(upper, 400 - upper, counts, [0, 1, 2], 0)
    codes = np.repeat(np.arange(4), counts)
    for unit in (0, 7, 33):
        best = []
        for _ in range(300):
            first = np.bincount(dice.permutation(codes)[: upper[unit]], minlength=4)
            ends = [(first, upper[unit]), (counts - first, 400 - upper[unit])]
            best.append(np.max([(hit / (counts + size - hit))[:3] for hit, size in ends], axis=0))
        assert null[:, unit] == pytest.approx(np.mean(best, axis=0), rel=0.05)
        assert overall[unit] == pytest.approx(np.max(best, axis=1).mean(), rel=0.05)


def test_masks_of_both_ends_never_share_a_word():
    """Of two words one is above and one below, so that one end always has the only word of a class."""
    null, overall = overlap_chance(np.array([1.0]), np.array([1.0]), np.array([1, 1]), [0], 0)
    assert null[0, 0] == pytest.approx(1.0)
    assert overall[0] == pytest.approx(1.0)


def test_masks_that_share_words_are_drawn_by_what_they_leave_out():
    counts = np.array([60, 40])
    null, _ = overlap_chance(np.array([80.0]), np.array([80.0]), counts, [0], 0)
    dice, codes, best = np.random.default_rng(0), np.repeat([0, 1], counts), []
    for _ in range(1000):
        mixed = dice.permutation(codes) == 0
        best.append(max(part.sum() / (60 + 80 - part.sum()) for part in (mixed[:80], mixed[20:])))
    assert null[0, 0] == pytest.approx(np.mean(best), rel=0.02)


def test_the_mean_of_average_precision_is_exact():
    """One end, 2 of 4 words: the six orders give the mean by hand."""
    orders = [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]
    mean = np.mean([(1 / first + 2 / second) / 2 for first, second in orders])
    harmonic = (1 / np.arange(1, 5)).sum()
    null, _ = precision_chance(np.array([[harmonic]]), np.array([2, 2]), [0], 0)
    assert null[0, 0] == pytest.approx(mean, abs=1e-9)
    constant, best = precision_chance(np.array([[1.0], [1.0]]), np.array([2, 2]), [0], 0)
    assert constant[0, 0] == best[0] == 0.5


def test_large_texts_have_the_same_chance_as_dealing_all_words_out():
    counts = np.array([30_000, 9_000, 1_000])
    null, overall = precision_chance(np.full((2, 1), (1 / np.arange(1, 40_001)).sum()), counts, [0, 1, 2], 0)
    dice, codes, best = np.random.default_rng(3), np.repeat(np.arange(3), counts), []
    for _ in range(40):
        mixed = dice.permutation(codes)
        ends = [[neurons.average_precision(side, mixed, 3) for side in (np.arange(40_000.0), -np.arange(40_000.0))]]
        best.append(np.max(ends[0], axis=0))
    assert null[:, 0] == pytest.approx(np.mean(best, axis=0), rel=0.03)
    assert overall[0] == pytest.approx(np.max(best, axis=1).mean(), rel=0.03)


@pytest.mark.parametrize(("counts", "rel"), [((5, 199_995), 0.05), ((100, 199_900), 0.02)])
def test_rare_classes_of_large_texts_are_dealt_out_among_all_words(counts, rel):
    n = sum(counts)
    null, _ = precision_chance(np.full((2, 1), (1 / np.arange(1, n + 1)).sum()), np.array(counts), [0], 0)
    hits, draws = np.arange(1, counts[0] + 1), 2_000_000 // counts[0]  # a single lucky word weighs much
    ranks = np.sort(np.random.default_rng(4).integers(1, n + 1, (draws, counts[0])), axis=1)
    best = np.maximum((hits / ranks).mean(1), (hits / (n + 1 - ranks[:, ::-1])).mean(1))
    assert null[0, 0] == pytest.approx(best.mean(), rel=rel)


def test_neurons_of_few_values_have_little_to_choose_between_their_ends():
    """Fires or not, on 2% of 2,000 words: shuffled labels by hand."""
    fires, dice, best = np.arange(2000) < 40, np.random.default_rng(5), []
    for _ in range(400):
        codes = dice.permutation(np.arange(2000) < 200).astype(int)
        best.append(max(neurons.average_precision(side, codes, 2)[1] for side in (fires * 1.0, fires * -1.0)))
    ties = np.array([[1 + 0.98], [1 + 0.02]])
    null, _ = precision_chance(ties, np.array([1800, 200]), [1], 0)
    assert null[0, 0] == pytest.approx(np.mean(best), abs=0.001)


def test_the_largest_distance_of_all_classes_is_what_shuffled_labels_give():
    dice, rows, tags = np.random.default_rng(6), drawn(3)[:, :3], labels()

    def sums(names) -> ClassSums:
        parts = [rows[names == name] for name in CLASSES]
        means, spread = (np.stack([each(part, axis=0) for part in parts]) for each in (np.mean, np.var))
        return ClassSums(CLASSES, np.array([float(len(part)) for part in parts]), means, spread)

    best = np.mean([d_prime(sums(dice.permutation(tags))).overall for _ in range(300)], axis=0)
    found = d_prime(sums(tags))
    assert found.overall_null == pytest.approx(best, rel=0.1)
    assert (found.overall_null > found.null.max(0)).all()
    assert distance_chance(np.array([10.0, 30.0]), [0], 0) == pytest.approx(
        np.sqrt(2 / np.pi * (1 / 10 + 1 / 30)), rel=0.05
    )


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("way", [neurons.iou, neurons.precision], ids=["iou", "precision"])
def test_the_interval_is_of_the_end_that_counts(way, exact):
    """Neurons of noise have ends that are nearly as good: without a group the other may be better, and still the
    interval is that of one end, and does not reach over to the other's sign."""
    rows, tags = drawn(40), np.random.default_rng(7).permutation(labels())
    made = way(neurons.array_store(rows, tags, sentences=(np.arange(400) // 4).tolist()), concept="label", exact=exact)
    upper = way(neurons.array_store(rows, tags, sentences=(np.arange(400) // 4).tolist()), concept="label", exact=exact,
                ends="upper")  # fmt: skip
    counts = made.values > 0
    assert 0.2 < counts[:, :-1].mean() < 0.8
    assert made.low[counts] == pytest.approx(upper.low[counts], abs=1e-9)
    assert made.high[counts] == pytest.approx(upper.high[counts], abs=1e-9)
