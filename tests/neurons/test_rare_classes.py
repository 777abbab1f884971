"""Classes of few words: left out where classes were not named, as if their words had no class."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import neurons
from pellucid.neurons.arrays import array_store
from pellucid.neurons.rare_classes import left_out_told


def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Two classes of many words, and one of three words that neuron 4 alone tells."""
    dice = np.random.default_rng(1)
    tags = np.array(["a"] * 60 + ["b"] * 57 + ["c"] * 3)
    rows = dice.normal(size=(120, 6))
    rows[tags == "a", 2] += 1.5
    rows[tags == "c", 4] += 40
    order = dice.permutation(120)
    return rows[order], tags[order]


@pytest.mark.parametrize("options", [{}, {"exact": True}])
def test_scores_are_those_of_the_words_that_are_left(options):
    rows, tags = drawn()
    methods = ["iou", "precision"] if options else ["probeless", "selectivity", "iou", "precision"]
    store = array_store(rows, tags, sentences=np.arange(120) // 4)
    made = neurons.rank(store, methods=methods, least=10, **options)
    named = neurons.rank(store, concept="label=a,b", methods=methods, **options)
    plain = neurons.rank(store, methods=methods, **options)
    for name, ranking in made.items():
        assert ranking.classes == ("a", "b")
        np.testing.assert_array_equal(ranking.values, named[name].values)
        for part in ("score", "null"):
            np.testing.assert_array_equal(ranking.overall.columns[part], named[name].overall.columns[part])
        assert ranking.table("left out").axes["class"] == ("c",)
        assert ranking.table("left out").columns["words"].tolist() == [3]
        assert "c (3)" in left_out_told(ranking)
        assert "left out" not in plain[name].tables
    assert made[methods[-1]].top(1) == ["resid.0:2"]
    assert plain["precision"].top(1) == ["resid.0:4"]


def test_classes_that_were_named_or_are_the_only_ones_stay():
    rows, tags = drawn()
    named = neurons.rank(rows, tags, concept="label=a,b,c", least=10)["probeless"]
    assert named.classes == ("a", "b", "c")
    kept = np.isin(tags, ["a", "c"])
    two = neurons.rank(rows[kept], tags[kept], least=10)["probeless"]
    assert two.classes == ("a", "c")
    assert left_out_told(two) == ""
