"""Probeless: against the formula on arrays, on planted neurons, and from every source."""

from __future__ import annotations

import warnings
from itertools import combinations

import numpy as np
import pytest

import pellucid as pl
from pellucid.errors import PellucidError
from pellucid.neurons import Concept, Ranking, array_store, iou, precision, probeless, selectivity
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.class_sums import ClassSums
from pellucid.neurons.probeless import mean_distances
from pellucid.neurons.ranking import by_site, overall_table, split_name
from pellucid.results import Provenance, Result, ResultError
from pellucid.uncertainty import jackknife
from tests.neurons import planted


def sums_of(rows: np.ndarray, tags: np.ndarray) -> ClassSums:
    classes = sorted(set(tags))
    parts = [rows[tags == name] for name in classes]
    return ClassSums(
        tuple(classes),
        np.array([len(part) for part in parts], float),
        np.stack([part.mean(0) for part in parts]),
        np.stack([part.var(0) for part in parts]),
    )


def drawn(seed: int = 0, n: int = 300, width: int = 5) -> tuple[np.ndarray, np.ndarray]:
    dice = np.random.default_rng(seed)
    return dice.normal(size=(n, width)), dice.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])


def test_scores_are_the_published_sums():
    rows, tags = drawn()
    means = {name: rows[tags == name].mean(0) for name in "abc"}
    scores = mean_distances(sums_of(rows, tags))
    overall = sum(abs(means[one] - means[two]) for one, two in combinations("abc", 2))
    assert scores.overall == pytest.approx(overall)
    assert abs(scores.signed[2]) == pytest.approx(abs(means["c"] - means["a"]) + abs(means["c"] - means["b"]))
    assert (np.sign(scores.signed[2]) == np.sign(means["c"] - (means["a"] + means["b"]) / 2)).all()


def test_standardised_scores_do_not_depend_on_the_scale():
    rows, tags = drawn()
    one = mean_distances(sums_of(rows, tags), standardise=True)
    other = mean_distances(sums_of(rows * [1, 10, 100, 0.1, 3], tags), standardise=True)
    assert one.overall == pytest.approx(other.overall)
    assert one.null == pytest.approx(other.null)
    assert one.overall == pytest.approx(mean_distances(sums_of(rows / rows.std(0), tags)).overall)


def test_chance_is_what_shuffled_labels_give():
    rows, tags = drawn(1)
    dice = np.random.default_rng(2)
    shuffled = [mean_distances(sums_of(rows, dice.permutation(tags))) for _ in range(300)]
    scores = mean_distances(sums_of(rows, tags))
    assert scores.overall_null == pytest.approx(np.mean([each.overall for each in shuffled], axis=0), rel=0.1)
    assert scores.null[2] == pytest.approx(np.mean([abs(each.signed[2]) for each in shuffled], axis=0), rel=0.1)


def test_a_constant_neuron_scores_nothing_and_is_last():
    rows, tags = drawn()
    rows[:, 2] = 4.25
    for standardise in (False, True):
        scores = mean_distances(sums_of(rows, tags), standardise=standardise)
        assert scores.overall[2] == 0
        assert (scores.signed[:, 2] == 0).all()
        assert scores.overall.argmin() == 2


@pytest.fixture(scope="module")
def ranked() -> Ranking:
    return probeless(planted.model(), planted.corpus(), concept="upos", sites="neurons.*")


def test_every_planted_neuron_is_first_for_its_tag(ranked):
    for tag, name in planted.names().items():
        assert ranked.top(1, tag) == [name], tag
        value = ranked.values[ranked.place("class", tag), ranked.place("neuron", name)]
        assert (value < 0) == (tag == planted.FLIPPED)
    flipped = planted.names()[planted.FLIPPED]
    assert ranked.order(planted.FLIPPED, by="signed")[-1] == flipped, "with a sign it stands last"


def test_the_interval_and_chance_stand_beside(ranked):
    assert (ranked.low <= ranked.values).all()
    assert (ranked.values <= ranked.high).all()
    assert "document groups" in ranked.resampled
    assert ranked.null.shape == ranked.values.shape
    name = planted.names()["NOUN"]
    at = ranked.place("class", "NOUN"), ranked.place("neuron", name)
    assert ranked.low[at] > ranked.null[at]
    control = ranked.table("random model").columns["value"]
    assert abs(control[at]) < ranked.values[at] / 3
    words = ranked.table("classes").columns["words"]
    assert int(words.sum()) == sum(len(sentence.spans) for sentence in planted.corpus())


def test_one_class_is_read_from_the_statistics_of_all(ranked):
    found = pl.sweep(
        planted.model(), planted.corpus(), [pl.ClassMoments("neurons.*", label="upos", covariance="diagonal")]
    )
    derived = probeless(found, concept="upos=NOUN")
    direct = probeless(planted.model(), planted.corpus(), concept="upos=NOUN", sites="neurons.*", control=False)
    assert derived.classes == direct.classes == ("NOUN",)
    assert derived.values == pytest.approx(direct.values, rel=1e-5, abs=1e-6)  # batches differ, and so does rounding
    assert derived.null == pytest.approx(direct.null, rel=1e-5, abs=1e-6)
    assert derived.low is None
    assert "not kept apart" in derived.resampled
    assert derived.top(1) == [planted.names()["NOUN"]]


def test_a_store_gives_the_same_and_learns_new_concepts(tmp_path, ranked):
    store = pl.build_store(planted.model(), planted.corpus(), tmp_path / "s", ("neurons.*",), dtype="float32")
    store = pl.Store.open(tmp_path / "s") if store is None else store
    again = probeless(store, concept="upos")
    assert again.values == pytest.approx(ranked.values, rel=1e-5, abs=1e-5)
    assert again.low == pytest.approx(ranked.low, rel=1e-3, abs=1e-3)
    later = probeless(store, concept=Concept.property("first"))
    assert later.classes == ("first",)
    rows, tags = store.layer("neurons.0").numpy().astype(float), store.words(["upos"])["upos"].to_numpy()
    group = np.concatenate([np.full(entry.rows, entry.group) for entry in store.entries])

    def distance(kept: np.ndarray) -> np.ndarray:
        return rows[kept & (tags == "NOUN")].mean(0) - rows[kept & (tags != "NOUN")].mean(0)

    numbers = np.unique(group)
    by_hand = jackknife(
        distance(group >= 0),
        [distance(group != number) for number in numbers],
        [int((group == number).sum()) for number in numbers],
    )
    nouns = probeless(store, concept="upos=NOUN", sites="neurons.0")
    assert nouns.low[0] == pytest.approx(by_hand.low, rel=1e-3, abs=1e-4)
    assert nouns.high[0] == pytest.approx(by_hand.high, rel=1e-3, abs=1e-4)


def test_a_class_of_few_words_is_warned_of_with_both_numbers():
    rows, tags = np.random.default_rng(0).normal(size=(60, 7)), ["a"] * 40 + ["b"] * 16 + ["c"] * 4
    for way in (probeless, selectivity, iou, precision):
        with pytest.warns(NeuronWarning, match=r"1 of 3 classes have fewer than 10 words \('c' has 4\), .* 7 neurons"):
            way(array_store(rows, tags), concept="label")
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        probeless(array_store(rows, ["a"] * 44 + ["b"] * 16), concept="label")


def test_without_spreads_there_is_no_chance_and_no_standardising():
    found = pl.sweep(planted.model(), planted.corpus().take(40), [pl.ClassMoments("neurons.0", label="upos")])
    assert probeless(found, concept="upos").null is None
    with pytest.raises(ResultError, match="covariance='diagonal'"):
        probeless(found, concept="upos", standardise=True)


def test_bad_input_is_one_sentence():
    corpus = planted.corpus().take(10)
    found = pl.sweep(planted.model(), corpus, [pl.ClassMoments("neurons.0", label="upos")])
    for call, message in (
        (lambda: probeless(planted.model(), concept="upos"), "needs a corpus"),
        (lambda: probeless(found, corpus, concept="upos"), "text already"),
        (lambda: probeless(found, concept="xpos"), "those of this sweep are of the labels upos"),
        (lambda: probeless(found, concept="upos", sites="resid.0"), "resid.0"),
        (lambda: probeless(found, concept="upos=NOPE"), "No word of this text has NOPE"),
        (lambda: probeless(planted.model(), corpus, concept="nothing"), "label 'nothing'"),
        (lambda: pl.neurons.rank(found, concept="upos", methods="guess"), "no ranking by guess"),
    ):
        with pytest.raises(PellucidError, match=message):
            call()


def test_orders_ties_names_and_limits(ranked):
    axes = {"class": ("a",), "neuron": ("x.0:0", "x.0:1", "x.1:0")}
    values = np.array([[-2.0, 1.0, 2.0]])
    overall = overall_table(axes["neuron"], np.array([2.0, 1.0, 2.0]), null=np.ones(3))
    tiny = Ranking(axes, values, None, None, None, "none", Provenance("neurons.ranking"), {"overall": overall})
    assert tiny.order() == ["x.0:0", "x.1:0", "x.0:1"]
    assert tiny.order("a", by="signed") == ["x.1:0", "x.0:1", "x.0:0"]
    assert by_site(tiny.order()) == {"x.0": [0, 1], "x.1": [0]}
    assert split_name("encoder.neurons.3:17") == ("encoder.neurons.3", 17)
    for call, message in (
        (lambda: tiny.top(4), "no top 4"),
        (lambda: tiny.top(1, "b"), "no class 'b'"),
        (lambda: tiny.top(1, by="size"), "absolute, signed"),
        (lambda: split_name("neurons.3"), "names no neuron"),
        (lambda: Ranking(axes, values, None, None, None, "none", Provenance("x"), {}), "table 'overall'"),
    ):
        with pytest.raises(ResultError, match=message):
            call()


def test_saved_and_loaded(ranked, tmp_path):
    ranked.save(tmp_path / "r")
    loaded = Result.load(tmp_path / "r")
    assert isinstance(loaded, Ranking)
    assert loaded.same(ranked)
    assert loaded.title == "Neurons for upos, by differences of class means (Probeless)"
    assert (loaded.method, loaded.concept) == ("probeless", "upos")
