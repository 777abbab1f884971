"""Forests: importances that are scikit-learn's, each class's part of them by hand, planted neurons, all controls."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import t
from sklearn.ensemble import RandomForestClassifier

from pellucid import neurons
from pellucid.collect.build import build_store
from pellucid.model import Model
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.concepts import Concept
from pellucid.neurons.probing.forest import _grown
from pellucid.neurons.probing.gini import class_importances
from pellucid.neurons.probing.labels import Split
from pellucid.neurons.probing.material import Reading, material
from pellucid.neurons.probing.rows import ArrayRows
from pellucid.results import ResultError
from tests.neurons import planted

WORDS = 600


def stored(label: str = "abc"):
    """Neuron 1 tells `a` from the rest, neuron 4 tells `b` from `c`, neuron 2 is noise; sentences of five words."""
    dice = np.random.default_rng(5)
    tags = dice.choice(list(label), WORDS)
    rows = dice.normal(size=(WORDS, 6))
    rows[tags == "a", 1] -= 5
    rows[:, 4] += np.select([tags == "b", tags == "c"], [3, -3], 0)
    return neurons.array_store(rows, tags, sentences=(np.arange(WORDS) // 5).tolist())


def test_the_parts_of_classes_are_those_worked_out_by_hand():
    """Four words of `a`, two of `b`, two of `c`: n·p(1 − p) is 2, 1.5 and 1.5 at the root. The split at neuron 0 leaves
    b and c with 1 each, so gains 2, .5 and .5; that at neuron 1 gains the rest."""
    goals = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    rows = np.array([[1.0, 0], [1, 0], [1, 0], [1, 0], [0, -1], [0, -1], [0, 1], [0, 1]])
    model = RandomForestClassifier(1, bootstrap=False, max_features=None, random_state=0).fit(rows, goals)
    found = class_importances(model, 4)
    assert found == pytest.approx(np.array([[0.4, 0], [0.1, 0.2], [0.1, 0.2], [0, 0]]), abs=1e-12)


@pytest.mark.parametrize("classes", [2, 5])
def test_parts_sum_to_scikit_learns_importances(classes):
    dice = np.random.default_rng(classes)
    goals = np.sort(dice.choice([0, 1, 2, 4, 6][:classes], 300))
    rows = dice.normal(size=(300, 8)) + 0.1 * goals[:, None] * np.arange(8)
    model = RandomForestClassifier(20, random_state=1).fit(rows, goals)
    found = class_importances(model, 7)
    assert found.sum(axis=0) == pytest.approx(model.feature_importances_, abs=1e-12)
    assert (found >= 0).all()
    assert np.flatnonzero(found.sum(axis=1)).tolist() == sorted(set(goals.tolist())), "a class keeps its number"
    older = [_in_words(each.tree_) for each in model.estimators_]
    counted = SimpleNamespace(n_features_in_=8, classes_=model.classes_, estimators_=older)
    assert class_importances(counted, 7) == pytest.approx(found, abs=1e-12)


def _in_words(tree):
    """A tree whose nodes hold numbers of words, as those of older scikit-learn do."""
    names = ("children_left", "children_right", "feature", "weighted_n_node_samples")
    value = tree.value * tree.weighted_n_node_samples[:, None, None]
    return SimpleNamespace(tree_=SimpleNamespace(value=value, **{name: getattr(tree, name) for name in names}))


def test_a_forest_that_never_splits_has_no_importances():
    model = RandomForestClassifier(3, random_state=0).fit(np.ones((10, 2)), np.arange(10) % 2)
    assert class_importances(model, 2).tolist() == [[0, 0], [0, 0]]


def test_every_class_has_an_order_of_its_own():
    found = neurons.forest(stored(), concept="label", trees=40, seeds=3)
    one, other = found.place("neuron", "resid.0:1"), found.place("neuron", "resid.0:4")
    part = {cls: np.abs(found.values[found.place("class", cls)]) for cls in "abc"}
    assert found.classes_apart == ("a", "b", "c")
    assert found.top(1, "a") == ["resid.0:1"]
    assert found.top(1, "b") == found.top(1, "c") == ["resid.0:4"]
    assert part["a"][one] > max(part["b"][one], part["c"][one]) + 0.03, "it tells `a` from the rest"
    assert part["a"][other] < 0.6 * min(part["b"][other], part["c"][other]), "it tells `b` from `c`"
    assert found.values[0, one] < 0 < found.values[1, other]
    assert found.values[2, other] < 0
    assert np.abs(found.values).sum(axis=0) == pytest.approx(found.overall.columns["score"], abs=1e-12)
    assert found.null.sum(axis=0) == pytest.approx(found.overall.columns["null"], abs=1e-12)
    assert found.null.sum() == pytest.approx(1)
    assert len({tuple(row) for row in found.null.round(9).tolist()}) == 3, "chance is each class's own"
    shared = neurons.polysemy(found, 1).table("neurons").columns
    assert shared["which"].tolist() == ["b, c", "a"]


def test_the_rest_of_the_words_has_the_other_half():
    found = neurons.forest(stored(), concept="label=a", trees=20, seeds=1)
    assert found.classes == ("a",)
    assert 2 * np.abs(found.values[0]) == pytest.approx(found.overall.columns["score"], abs=1e-12)
    assert found.low is None


def test_intervals_are_over_the_forests_class_by_class():
    store = stored()
    found = neurons.forest(store, concept="label", trees=10, seeds=3)
    given = material(store, Concept.parse("label"), Reading(), controlled=False)
    real = np.stack([_grown(given, fold, 10, 10_000, 0).real for fold in range(3)])
    reach = t.ppf(0.975, 2) * 9 / 10**0.5 * real.std(axis=0, ddof=1)
    assert np.abs(found.values) == pytest.approx(real.mean(axis=0))
    sign, ends = np.sign(found.values), [np.clip(np.abs(found.values) + each, 0, 1) for each in (-reach, reach)]
    assert np.sort([sign * end for end in ends], axis=0) == pytest.approx(np.stack([found.low, found.high]))
    overall, width = found.overall.columns, t.ppf(0.975, 2) * 9 / 10**0.5 * real.sum(axis=1).std(axis=0, ddof=1)
    assert overall["high"] == pytest.approx(np.minimum(1, overall["score"] + width))
    assert overall["low"] == pytest.approx(np.maximum(0, overall["score"] - width))
    assert overall["low"].min() == 0 < overall["low"].max()
    assert "3 of 10 document groups" in found.resampled


def test_a_forest_finds_the_planted_neuron():
    text = planted.corpus().take(150)
    found = neurons.forest(planted.model(), text, concept="upos=NOUN", sites="neurons.*", trees=30, seeds=2)
    names = planted.names()
    assert found.top(1) == [names["NOUN"]]
    assert found.values[0, found.place("neuron", names["NOUN"])] > 0
    flipped = neurons.forest(planted.model(), text, concept="upos=ADJ", sites="neurons.0", trees=30, seeds=1)
    assert flipped.top(1) == [names["ADJ"]]
    assert flipped.values[0, flipped.place("neuron", names["ADJ"])] < 0
    accuracy = found.table("accuracy").columns
    assert (accuracy["forest"] > accuracy["majority"]).all()
    assert (accuracy["shuffled labels"] < accuracy["forest"]).all()
    assert accuracy["selectivity"] == pytest.approx(accuracy["forest"] - accuracy["control task"])
    assert len(set(accuracy["control task"])) == 2, "each forest has labels of its own"
    assert found.overall.columns["score"].sum() == pytest.approx(1)
    assert found.overall.columns["null"].max() < found.overall.columns["score"].max()
    with pytest.raises(ResultError, match="trees=0"):
        neurons.forest(planted.model(), text, concept="upos", trees=0)


def test_the_random_model_is_a_forest_of_its_own_rows(tmp_path):
    """Its accuracy is that which a forest of the random model has when this is the model."""
    text, settings = planted.corpus().take(100), {"concept": "upos=NOUN,VERB,DET", "trees": 15, "seeds": 2}
    twin = Model.random_like(planted.model(), 0)
    own, alone, further = (
        build_store(model, text, tmp_path / name, "neurons.0", dtype="float32", progress=False)
        for model, name in ((planted.model(), "own"), (twin, "twin"), (Model.random_like(twin, 1), "further"))
    )
    found = neurons.forest(planted.model(), text, sites="neurons.0", **settings)
    beside = neurons.forest(own, random=alone, **settings)
    turned = neurons.forest(alone, random=further, **settings).table("accuracy").columns
    for each in (found, beside):
        columns = each.table("accuracy").columns
        assert columns["random model"].tolist() == turned["forest"].tolist()
        assert (columns["random model"] < columns["forest"]).all()
        assert len(each.provenance.models) == 2
    with pytest.raises(ResultError, match=r"no randomly initialised twin.*or give random="):
        neurons.forest(own, **settings)
    with pytest.raises(ResultError, match="random= with a store only"):
        neurons.forest(planted.model(), text, random=alone, **settings)


def test_arrays_have_no_random_model():
    found = neurons.forest(stored(), concept="label", trees=5, seeds=1)
    told = ["forest", "shuffled labels", "majority", "control task", "selectivity"]
    assert list(found.table("accuracy").columns) == told
    part = neurons.training_part(stored(), concept="label")
    made = neurons.rank(part, methods=["forest", "gaussian", "probe-l2"], trees=20, seeds=1, count=2)
    for name, ranking in made.items():
        assert set(ranking.top(2)) == {"resid.0:1", "resid.0:4"}, name


def test_the_gini_order_of_a_separable_case():
    """One neuron decides, a noisy copy helps, noise does not: the forest's own importances keep that order."""
    dice = np.random.default_rng(0)
    goals = dice.integers(0, 2, 400)
    rows = dice.normal(size=(400, 5))
    rows[:, 2] = goals + 0.05 * dice.normal(size=400)
    rows[:, 4] = goals + 0.6 * dice.normal(size=400)
    model = RandomForestClassifier(50, random_state=0).fit(rows, goals)
    fold = np.where(np.arange(400) < 300, np.arange(400) % 10, -1)
    data = SimpleNamespace(goals=goals, types=np.arange(400), classes=("no", "yes"))
    split = Split(fold < 0, fold, np.where(fold < 0, 0, -1))
    made = _grown(SimpleNamespace(rows=ArrayRows(rows), twin=None, data=data, split=split), 0, 50, 10_000, 0)
    real = made.real.sum(axis=0)
    assert np.argsort(-real)[:2].tolist() == np.argsort(-model.feature_importances_)[:2].tolist() == [2, 4]
    again = RandomForestClassifier(50, random_state=0).fit(rows[fold > 0].astype(np.float32), goals[fold > 0])
    assert real == pytest.approx(again.feature_importances_)
    assert made.shuffled.sum(axis=0).max() < 0.4
    assert made.accuracy["forest"] == 1.0
    assert made.accuracy["control task"] < 0.7, "labels of words that were never seen cannot be learned"
    assert made.accuracy["selectivity"] == made.accuracy["forest"] - made.accuracy["control task"]


def test_words_that_memory_does_not_hold_are_told():
    store, row = stored(), 4 * 6
    whole = neurons.forest(store, concept="label", trees=5, seeds=2)
    words = whole.provenance.arguments["words"]
    split = material(store, Concept.parse("label"), Reading(), controlled=False).split
    assert words == [split.without(fold).sum() for fold in range(2)]
    with pytest.warns(NeuronWarning, match=f"memory={200 * row} bytes holds 200 words of 6 neurons, so a forest learns "
                      f"from these, and not from {max(words)}; for all use {row * max(words)} or more"):  # fmt: skip
        small = neurons.forest(store, concept="label", trees=5, seeds=2, memory=200 * row)
    assert small.provenance.arguments["words"] == [200, 200]
    fewer = neurons.forest(store, concept="label", trees=5, seeds=1, rows=200, memory=row * 200)
    assert fewer.provenance.arguments["words"] == [200], "asked for, and so no more than that is missed"
    with pytest.raises(ResultError, match="rows=1 words make no forest"):
        neurons.forest(store, concept="label", rows=1)


@pytest.mark.parametrize("memory", [-5, 0, 1, 4 * 6 * 100 - 1])
@pytest.mark.parametrize("way", [neurons.forest, neurons.probe, neurons.per_layer, neurons.gaussian])
def test_a_memory_that_holds_too_few_words_is_refused_with_what_is_needed(way, memory):
    held = max(0, memory) // 24
    message = rf"^memory={memory} bytes holds {held} words of 6 neurons, .* use 2400 or more \(--memory 0.001\), or"
    with pytest.raises(ResultError, match=message):
        way(stored(), concept="label", memory=memory)


def test_the_usual_memory_is_never_refused(monkeypatch):
    monkeypatch.setattr("pellucid.neurons.probing.material.MEMORY", 50)
    made = neurons.probe(stored(), concept="label", memory=50, seeds=1, epochs=2, progress=False)
    assert made.values[0, 0] > 0.5
