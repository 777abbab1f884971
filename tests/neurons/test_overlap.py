"""IoU and average precision: the tutorial's table, scikit-learn, brute force on rows, and planted neurons."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import pellucid as pl
from pellucid.collect.replay import replay
from pellucid.neurons import (
    array_store,
    average_precision,
    bitmasks,
    iou,
    iou_table,
    precision,
    probeless,
    selectivity,
)
from pellucid.neurons.class_sums import class_collectors
from pellucid.neurons.histograms import Binned, histogram_collectors
from pellucid.neurons.overlap import Cut, binned_overlap, overlap_doubt
from pellucid.neurons.precision import binned_precision, precision_doubt
from pellucid.results import ResultError
from pellucid.uncertainty import jackknife
from tests.neurons import planted


def test_the_tutorials_table():
    activations = np.array([[0.7, -1.2, 0.7, 0.0], [-0.5, 0.9, -1.2, 0.4]])  # two neurons at four sentences
    concepts = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=bool)  # Noun, Verb, Paris
    expected = [[2 / 3, 1 / 3, 1 / 2], [1 / 4, 1 / 3, 0 / 3]]
    assert iou_table(activations > 0, concepts) == pytest.approx(np.array(expected), abs=1e-15)


@pytest.mark.parametrize("ranked", [iou, precision])
def test_intervals_of_several_sites_are_those_of_each_alone(ranked):
    model, text, sites = planted.model(), planted.corpus(80), ("resid.0", "neurons.0", "resid.1")
    both = ranked(model, text, concept="upos", sites=sites, control=False)
    alone = [ranked(model, text, concept="upos", sites=site, control=False) for site in sites]
    for end in ("low", "high"):
        assert np.ptp(getattr(both, end)) > 0
        assert np.array_equal(getattr(both, end), np.concatenate([getattr(each, end) for each in alone], axis=1))


@pytest.mark.parametrize("words", [1, 63, 64, 65, 1000])
def test_packed_masks_count_like_booleans(words, monkeypatch):
    dice = np.random.default_rng(words)
    left, right = dice.random((7, words)) < 0.4, dice.random((5, words)) < 0.2
    for own in (True, False):
        if not own:
            monkeypatch.delattr(np, "bitwise_count")
            bitmasks._bits.cache_clear()
        one, two = bitmasks.packed(left), bitmasks.packed(right)
        assert bitmasks.sizes(one).tolist() == left.sum(1).tolist()
        assert np.array_equal(bitmasks.shared(one, two), left.astype(int) @ right.T.astype(int))
    bitmasks._bits.cache_clear()


def test_empty_masks_overlap_in_nothing():
    nothing = np.zeros((1, 10), dtype=bool)
    assert iou_table(nothing, nothing).tolist() == [[0.0]]
    with pytest.raises(ResultError, match="10 words and concepts for 9"):
        iou_table(nothing, nothing[:, :9])


@pytest.mark.parametrize("ties", [False, True])
def test_average_precision_is_scikit_learns(ties):
    dice = np.random.default_rng(4)
    for _ in range(20):
        n = int(dice.integers(5, 80))
        values = dice.integers(0, 6, n).astype(float) if ties else dice.normal(size=n)
        codes = dice.integers(0, 3, n)
        found = average_precision(values, codes, 3)
        for place in range(3):
            if (codes == place).any():
                assert found[place] == pytest.approx(average_precision_score(codes == place, values), abs=1e-12)


def rows_and_bins(
    seed: int = 0, n: int = 4000, width: int = 12, bins: int = 64
) -> tuple[np.ndarray, np.ndarray, Binned]:
    """Rows [n, neurons], codes of three classes (the last one `other`), and their histograms on even bins."""
    dice = np.random.default_rng(seed)
    codes = dice.choice(3, n, p=[0.1, 0.3, 0.6])
    rows = dice.normal(size=(n, width))
    rows[:, 0] += 2 * (codes == 0)
    rows[:, 1] -= 3 * (codes == 1)
    rows[:, 2] = np.maximum(rows[:, 2], 0)  # half of its values are equal
    edges = np.linspace(-4, 4, bins - 1)
    place = np.searchsorted(edges, rows, side="right")
    hist = np.array([[np.bincount(place[codes == z, u], minlength=bins) for u in range(width)] for z in range(3)])
    return rows, codes, Binned(("a", "b", "other"), hist, np.tile(edges, (width, 1)), (rows != rows[:1]).any(0))


def brute_iou(rows: np.ndarray, codes: np.ndarray, cut: Cut) -> np.ndarray:
    """Signed IoU [class, neuron] by plain sets of words."""
    found = np.zeros((2, rows.shape[1]))
    for unit in range(rows.shape[1]):
        values = rows[:, unit]
        for z in range(2):
            scores = []
            for side in (1, -1):
                if cut.threshold is not None:
                    limit = side * cut.threshold
                else:
                    limit = np.sort(side * values)[int(cut.quantile * (len(values) - 1))]
                fires = set(np.flatnonzero(side * values > limit).tolist())
                own = set(np.flatnonzero(codes == z).tolist())
                scores.append(len(fires & own) / max(1, len(fires | own)))
            if cut.ends == "upper":
                found[z, unit] = scores[0]
            else:
                found[z, unit] = scores[0] if scores[0] >= scores[1] else -scores[1]
    return found


CUTS = [Cut(0.9, None, "both"), Cut(0.99, None, "upper"), Cut(None, 0.5, "both"), Cut(None, -0.3, "upper")]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_bins_give_the_overlap_up_to_the_stated_error(cut):
    rows, codes, data = rows_and_bins()
    scores = binned_overlap(data, cut=cut)
    error = overlap_doubt(data, scores, cut=cut)
    exact = brute_iou(rows, codes, cut)
    sure = np.abs(np.abs(scores.signed) - np.abs(exact)) <= error + 1e-12
    assert sure.all()
    assert np.median(error) < 0.02, "the bound says something"
    clear = np.abs(exact) > 0.35
    assert clear.any() == (cut.ends == "both")
    assert (np.sign(scores.signed) == np.sign(exact))[clear].all()
    off = binned_overlap(rows_and_bins(bins=250)[2], cut=cut)
    assert (
        np.abs(np.abs(off.signed) - np.abs(exact)).mean() < np.abs(np.abs(scores.signed) - np.abs(exact)).mean() + 1e-4
    )


def test_bins_give_the_precision_up_to_the_stated_error():
    rows, codes, data = rows_and_bins()
    scores = binned_precision(data)
    error = precision_doubt(data, scores)
    for unit in range(rows.shape[1]):
        for z in range(2):
            both = [average_precision_score(codes == z, side * rows[:, unit]) for side in (1, -1)]
            assert abs(scores.signed[z, unit]) == pytest.approx(max(both), abs=error[z, unit] + 1e-9)
    assert scores.signed[0, 0] > 0.5
    assert scores.signed[1, 1] < -0.8
    assert 0 < np.median(error) < 0.05


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted") / "store"
    pl.build_store(planted.model(), planted.corpus(), folder, ("neurons.*",), dtype="float32")
    return pl.Store.open(folder)


@pytest.fixture(scope="module")
def matrix(store):
    rows = np.concatenate([store.layer(key).numpy() for key in store.keys], axis=1)
    return rows, store.words(["upos"])["upos"].to_numpy()


def test_exact_overlap_is_that_of_the_stores_rows(store, matrix):
    rows, tags = matrix
    found = iou(store, concept="upos=NOUN", quantile=0.9, exact=True)
    codes = np.where(tags == "NOUN", 0, 2)
    expected = brute_iou(rows, codes, Cut(0.9, None, "both"))[0]
    assert found.values[0] == pytest.approx(expected, abs=1e-12)
    assert found.classes == ("NOUN",)
    assert found.low is not None
    at = found.place("neuron", planted.names()["NOUN"])
    assert found.low[0, at] > found.null[0, at]
    group = np.concatenate([np.full(entry.rows, entry.group) for entry in store.entries])
    again = [_iou_without(rows[:, at], codes, group != left, 0.9) for left in np.unique(group)]
    from pellucid.uncertainty import jackknife

    sizes = [int((group == left).sum()) for left in np.unique(group)]
    expected_interval = jackknife(np.array(expected[at]), [np.array(each) for each in again], sizes)
    assert found.low[0, at] == pytest.approx(float(expected_interval.low), abs=1e-9)


def _iou_without(values: np.ndarray, codes: np.ndarray, kept: np.ndarray, quantile: float) -> float:
    """The upper end's IoU on some of the words, with the threshold of all of them."""
    limit = np.sort(values)[int(quantile * (len(values) - 1))]
    fires, own = (values > limit) & kept, (codes == 0) & kept
    return (fires & own).sum() / (fires | own).sum()


def test_a_value_at_the_threshold_does_not_fire():
    rows = np.array([[3.0, 2.0, 2.0, 1.0, 0.0, 2.0]]).T
    upper, both = (
        iou(array_store(rows, list("aabbbb")), concept="label", quantile=None, threshold=2.0, ends=ends, exact=True)
        for ends in ("upper", "both")
    )
    assert upper.values[:, 0].tolist() == [1 / 2, 0.0]
    assert both.values[:, 0].tolist() == [1 / 2, -2 / 4]


def test_exact_precision_is_scikit_learns_on_the_stores_rows(store, matrix):
    rows, tags = matrix
    found = precision(store, concept="upos", exact=True, sites="neurons.0")
    for cls in ("NOUN", "ADJ", "VERB"):
        for unit in (0, 3, planted.neurons()[cls]):
            both = [average_precision_score(tags == cls, side * rows[:, unit].astype(float)) for side in (1, -1)]
            best = both[0] if both[0] >= both[1] else -both[1]
            assert found.values[found.place("class", cls), unit] == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("rank", [iou, precision], ids=["iou", "precision"])
@pytest.mark.parametrize("exact", [False, True])
def test_planted_neurons_are_first(rank, exact, store):
    options = {"exact": True} if exact else {}
    source = (store,) if exact else (planted.model(), planted.corpus())
    if rank is iou:
        options |= {"quantile": None, "threshold": 1.0}
    found = rank(*source, concept="upos", sites="neurons.*", **options)
    for tag, name in planted.names().items():
        best = found.scores(tag).max()
        assert found.scores(tag)[found.place("neuron", name)] == pytest.approx(best, abs=1e-9), tag
        assert (found.values[found.place("class", tag), found.place("neuron", name)] < 0) == (tag == planted.FLIPPED)
    if not exact:
        assert found.low is not None
        assert found.resampled.startswith("10 document groups")
        assert (found.table("error").columns["value"] >= 0).all()
        assert "random model" in found.tables


def test_one_class_in_a_sweep_has_an_interval():
    found = iou(planted.model(), planted.corpus(), concept="upos=VERB", sites="neurons.*", quantile=0.85)
    assert found.low is not None
    assert (found.low <= found.values).all()
    assert found.top(1) == [planted.names()["VERB"]]


def test_a_store_replayed_agrees_with_the_exact_within_the_error(store):
    near, exact = (iou(store, concept="upos", quantile=0.9, exact=exact) for exact in (False, True))
    error = near.table("error").columns["value"]
    assert (np.abs(np.abs(near.values) - np.abs(exact.values)) <= error + 1e-9).all()


def test_bad_cuts_and_sources():
    for call, message in (
        (lambda: iou(None, concept="upos", quantile=1.0), "less than 1"),
        (lambda: iou(None, concept="upos", threshold=0.0), "give one of the two"),
        (lambda: iou(None, concept="upos", ends="left"), "both, upper"),
        (lambda: iou(planted.model(), concept="upos", exact=True), "give a Store"),
        (lambda: precision(planted.model(), concept="upos", exact=True), "give a Store"),
    ):
        with pytest.raises(ResultError, match=message):
            call()


def test_the_part_of_a_bin_below_a_threshold_is_taken_at_the_lower_end():
    """Even values from −4 to 4 in bins of 1: below −2.8 lie all of the first bin and a fifth of the second."""
    values = np.arange(-4, 4, 0.001) + 0.0005
    own = values < -2.8
    edges = np.arange(-3.0, 4.0)
    place = np.searchsorted(edges, values, side="right")
    hist = np.array([np.bincount(place[mask], minlength=8) for mask in (own, ~own)])[:, None]
    scores = binned_overlap(Binned(("a", "other"), hist, edges[None], np.ones(1, bool)), cut=Cut(None, -2.8, "both"))
    both, size = 1000 + 0.2 * 200, 1000 + 0.2 * 1000
    assert scores.signed[0, 0] == pytest.approx(-both / (size + 1200 - both))


def test_the_error_of_precision_allows_for_hits_that_come_last():
    """Nine hits and one other word in one bin: at worst the other comes first, and Σ i/(i+1) over 9 is .786."""
    hist = np.zeros((2, 1, 2), dtype=int)
    hist[0, 0, 1], hist[1, 0, 1] = 9, 1
    data = Binned(("a", "other"), hist, np.zeros((1, 1)), np.ones(1, bool))
    scores = binned_precision(data, ends="upper")
    error = precision_doubt(data, scores, ends="upper")
    worst = sum(i / (i + 1) for i in range(1, 10)) / 9
    assert scores.signed[0, 0] == pytest.approx(0.9)
    assert error[0, 0] == pytest.approx(0.9 - worst, abs=1e-6)


def tied_rows(seed: int, n: int) -> tuple[np.ndarray, np.ndarray, Binned]:
    """Rows with equal values: silent for a share of words, constant, of few values, and a peak without ties."""
    dice = np.random.default_rng(seed)
    codes = dice.choice(3, n, p=[0.1, 0.3, 0.6])
    silent = [np.maximum(dice.normal(size=n) - shift + (codes == 0), 0) for shift in (-1, 0, 0.5, 1, 2, 3, 4)]
    rest = [np.zeros(n), np.full(n, 0.3), -silent[3], dice.integers(0, 3, n), dice.normal(size=n) * 1e-3,
            np.where(dice.random(n) < 0.03, 2.0, 0.0), dice.normal(size=n)]  # fmt: skip
    rows = np.stack([*silent, *rest], axis=1).astype(np.float64)
    centre = np.median(rows, axis=0)
    away = np.abs(rows - centre)
    scale = 1.4826 * np.median(away, axis=0)
    for instead in (away.mean(0), 1e-3 * np.abs(centre), np.ones_like(centre)):  # as class histograms choose it
        scale = np.where(scale > 1e-6 * np.abs(centre), scale, instead)
    u = 2 * np.arange(1, 64) / 64 - 1
    edges = centre[:, None] + scale[:, None] * (u / (1 - np.abs(u)))
    bins = [np.searchsorted(edges[unit], rows[:, unit], side="right") for unit in range(rows.shape[1])]
    hist = np.array([[np.bincount(each[codes == z], minlength=64) for each in bins] for z in range(3)])
    return rows, codes, Binned(("a", "b", "other"), hist, edges, np.ptp(rows, axis=0) > 0)


TIED = [Cut(0.95, None, "both"), Cut(0.5, None, "upper"), Cut(0.0, None, "both"), Cut(None, 0.0, "both"),
        Cut(None, 0.0, "upper"), Cut(None, 0.3, "both"), Cut(None, 0.2, "upper"), Cut(None, 1.0, "both")]  # fmt: skip


@pytest.mark.parametrize("cut", TIED, ids=str)
def test_the_error_covers_neurons_with_equal_values(cut):
    for seed, n in enumerate((50, 400, 3000)):
        rows, codes, data = tied_rows(seed, n)
        scores = binned_overlap(data, cut=cut)
        error = overlap_doubt(data, scores, cut=cut)
        exact = brute_iou(rows, codes, cut)
        off = np.abs(np.abs(scores.signed) - np.abs(exact))
        assert (off <= error + 1e-12).all()
        same = np.ptp(rows, axis=0) == 0
        assert np.array_equal(scores.signed[:, same], exact[:, same])
        assert not error[:, same].any()
        silent = (rows == 0).mean(axis=0) > 0.5
        assert off[:, silent].max() < 0.02 + 8 / n, "equal values are at one side of the threshold together"


def test_a_constant_neuron_has_no_overlap_in_a_sweep_either():
    dice = np.random.default_rng(0)
    rows = dice.normal(size=(600, 4)).astype(np.float32)
    rows[:, 1], rows[:, 2], rows[:, 3] = 0, 0.7, np.maximum(rows[:, 3] - 2.5, 0)
    source = array_store(rows, dice.choice(["a", "b", "c"], 600), sentences=np.arange(600) // 5)
    near, exact = (iou(source, concept="label", exact=exact) for exact in (False, True))
    assert not near.values[:, 1:3].any()
    assert not near.table("error").columns["value"][:, 1:3].any()
    assert not near.null[:, 1:3].any()
    assert np.abs(near.values) == pytest.approx(np.abs(exact.values), abs=0.01)


def test_a_neuron_that_wakes_after_the_pilot_is_not_taken_for_a_constant():
    """Silent where the grid is fixed, tiny and all for one class later: the score is in doubt, as the error says."""
    dice = np.random.default_rng(0)
    rows = np.zeros((4096, 8), np.float32)
    rows[2048:, 0] = dice.uniform(1e-6, 1.1e-6, 2048)  # so small beside the others that one bin holds all
    rows[2048:, 1] = dice.uniform(0.010, 0.011, 2048)
    rows[:, 2:] = 0.02 * dice.normal(size=(4096, 6))
    source = array_store(rows, np.repeat(["a", "b"], 2048), sentences=np.arange(4096) // 8)
    near, exact = (iou(source, concept="label", quantile=0.5, exact=exact) for exact in (False, True))
    assert np.abs(exact.values[:, :2]) == pytest.approx(1.0, abs=1e-3)
    off = np.abs(np.abs(near.values) - np.abs(exact.values))
    assert (off <= near.table("error").columns["value"] + 1e-9).all()
    assert np.abs(near.values[:, 1]) == pytest.approx(1.0, abs=1e-3), "the grid has the scale of the units beside it"


@pytest.mark.parametrize("ranked", [iou, precision, probeless, selectivity])
def test_groups_weigh_by_the_words_that_the_concept_has(ranked):
    """Classes picked from a larger label have the interval of a text in which the other words have no label."""
    dice = np.random.default_rng(3)
    labels = np.full(1600, "x", dtype=object)
    for group, share in enumerate((0.9, 0.05, 0.05, 0.05)):
        place = group * 400 + np.arange(int(share * 400))
        labels[place] = dice.choice(["a", "b"], len(place))
    rows = dice.normal(size=(1600, 3)).astype(np.float32)
    rows[labels == "a", 0] += 1
    sentences = np.arange(1600) // 400
    few = labels != "x"
    made = []
    for kept in (np.ones(1600, bool), few):
        store = array_store(rows[kept], labels[kept], sentences=sentences[kept])
        gathered = [*class_collectors(("resid.0",), "label"), *histogram_collectors(("resid.0",), "label")]
        made.append(ranked(replay(store, gathered, progress=False), concept="label=a,b"))
    whole, alone = made
    near = 1e-4 if ranked in (probeless, selectivity) else 0.05  # the grid of bins is that of other words
    assert whole.values == pytest.approx(alone.values, abs=near)
    assert (whole.high - whole.low) == pytest.approx(alone.high - alone.low, rel=0.2, abs=near)


@pytest.mark.parametrize("kind", ["constant", "binary", "few values"])
def test_exact_precision_leaves_groups_out_whole_where_values_are_equal(kind):
    """By hand: the average precision without each group, of sizes that differ."""
    dice = np.random.default_rng(1)
    sizes = (40, 80, 160, 320)
    groups = np.repeat(np.arange(4), sizes)
    codes = (dice.random(600) < np.array([0.6, 0.5, 0.3, 0.2])[groups]).astype(int)
    values = {
        "constant": np.zeros(600),
        "binary": (dice.random(600) < 0.3 + 0.3 * codes).astype(float),
        "few values": dice.integers(0, 4, 600) + codes,
    }[kind].astype(np.float32)
    labels = np.array(["other", "a"])[codes]
    source = array_store(values[:, None], labels, sentences=groups)
    found = precision(source, concept="label=a", exact=True, ends="upper")
    by_hand = [average_precision(values[groups != each], codes[groups != each], 2)[1] for each in range(4)]
    whole = average_precision(values, codes, 2)[1]
    interval = jackknife(np.array([whole]), [np.array([each]) for each in by_hand], sizes)
    assert found.values[0, 0] == pytest.approx(whole)
    assert found.low[0, 0] == pytest.approx(interval.low[0], abs=1e-6)
    assert found.high[0, 0] == pytest.approx(interval.high[0], abs=1e-6)
