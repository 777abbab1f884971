"""Evaluation of rankings: planted neurons first make curves fall, random ones do not; layers; smallest sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pellucid import neurons
from pellucid.collect.build import build_store
from pellucid.heads import measured
from pellucid.model import Edit, Model
from pellucid.neurons.judging.evaluation import _sets, numbers
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.results import Provenance, ResultError
from tests.neurons import planted


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    models = [planted.model(), Model.random_like(planted.model(), 4)]
    folder = tmp_path_factory.mktemp("stores") / "both"
    return build_store(models, planted.corpus(), folder, "neurons.*", dtype="float32", progress=False)


@pytest.fixture(scope="module")
def ranking():
    """A ranking that puts the planted neurons first."""
    names = tuple(f"neurons.{layer}:{unit}" for layer in range(2) for unit in range(planted.INNER))
    first = list(planted.names().values())
    score = np.array([2.0 - first.index(name) / 100 if name in first else 1 / (2 + place)
                      for place, name in enumerate(names)])  # fmt: skip
    origin = Provenance("neurons.ranking", {"method": "by hand", "concept": "upos"})
    return Ranking({"class": ("NOUN",), "neuron": names}, score[None], None, None, None, "no interval: by hand", origin,
                   {"overall": overall_table(names, score, null=np.zeros(len(names)))})  # fmt: skip


def test_the_model_loses_its_task_without_the_first_neurons(ranking):
    text = planted.corpus().take(40)
    found = neurons.ablated_in_model(
        planted.model(), text, ranking, label="upos", counts=(1, 7, 14), draws=2, progress=False
    )
    assert found.axes == {"measure": ("top", "bottom", "random"), "neurons": (1, 7, 14)}
    whole = found.table("whole").columns["value"]
    top, bottom, random = found.values
    assert bottom == pytest.approx(np.full(3, whole[0]), abs=1e-6)
    assert (np.diff(top) > 0).all()
    assert top[2] > whole[0] + 1
    assert (random < top).all()
    assert found.null == pytest.approx(np.tile(random, (3, 1)))
    measuring = measured(planted.model(), text, label="upos")
    gone = [int(name.split(":")[1]) for name in ranking.order()[:7]]
    plain, cut = (measuring.scores(edits) for edits in ((), Edit.zero("neurons.0", neurons=gone)))
    assert whole[0] == pytest.approx(plain["loss"], abs=1e-5)
    assert whole[1] == pytest.approx(plain["accuracy"])
    assert top[1] == pytest.approx(cut["loss"], abs=1e-5)
    assert found.table("scores").columns["accuracy"][0, 1] == pytest.approx(cut["accuracy"])
    assert "replaced in the model" in found.done
    mean = neurons.ablated_in_model(planted.model(), text, ranking, label="upos", counts=(14,), draws=1,
                                    replacement="mean", progress=False)  # fmt: skip
    assert mean.values[0, 0] > whole[0]
    assert mean.values[0, 0] != pytest.approx(top[2], abs=1e-3)


def test_a_probe_loses_its_accuracy_without_the_first_neurons(both, ranking):
    found = neurons.ablated_in_probe(both, ranking, concept="upos", counts=(14, 64), epochs=30, penalty="l2")
    whole = found.table("whole").columns["value"][0]
    top, bottom, random = found.values
    assert whole > 0.95
    assert top[0] < whole - 0.2
    assert bottom[0] > whole - 0.05
    assert random[0] > top[0]
    kept = neurons.ablated_in_probe(both, ranking, concept="upos", counts=(14, 64), epochs=30, keep=True)
    assert kept.values[0, 0] > kept.values[1, 0] + 0.3
    assert kept.values[0, 0] > kept.values[2, 0] + 0.2
    assert "kept" in kept.done


def test_probes_trained_anew_need_only_the_planted_neurons(both, ranking):
    found = neurons.trained_anew(both, ranking, concept="upos", counts=(2, 14, 128), epochs=30, draws=2)
    whole = found.table("whole").columns["value"][0]
    top, bottom, random = found.values
    assert top[1] > whole - 0.03
    assert top[0] < top[1]
    assert top[1] > random[1] + 0.1
    assert random[1] > bottom[1] - 0.2
    assert top[2] == pytest.approx(bottom[2], abs=1e-6)
    smallest = found.table("smallest")
    assert smallest.axes["within"] == pytest.approx((0.01, 0.02, 0.05))
    for share, count in zip(smallest.axes["within"], smallest.columns["neurons"], strict=True):
        enough = [size for size, one in zip((2, 14, 128), top, strict=True) if one >= (1 - share) * whole]
        assert count == min(enough, default=0)
    assert smallest.columns["neurons"][2] == 14


def test_only_the_layer_with_planted_neurons_tells_the_concept(both):
    found = neurons.per_layer(both, concept="upos=NOUN,VERB,ADJ", epochs=30)
    assert found.axes["site"] == ("neurons.0", "neurons.1")
    accuracy, random, control, selectivity = found.values
    assert accuracy[0] > 0.97
    assert accuracy[0] > accuracy[1]
    assert selectivity == pytest.approx(accuracy - control)
    assert (random < accuracy[0]).all()
    assert 0.3 < found.null[0, 0] < 0.5
    assert (found.null[:, 0] == found.null[:, 1]).all()
    alone = neurons.probe(both, concept="upos=NOUN,VERB,ADJ", sites="neurons.1", penalty="l2", seeds=1, epochs=30,
                          progress=False)  # fmt: skip
    assert accuracy[1] == pytest.approx(alone.values[0, 0], abs=0.03)


def test_sets_are_the_first_the_last_and_draws():
    order = [f"n:{place}" for place in range(10)]
    top, bottom, random = _sets(order, (2, 5), 3, 0)
    assert top == [[order[:2]], [order[:5]]]
    assert bottom == [[order[8:]], [order[5:]]]
    assert [len(draw) for draw in random[1]] == [5, 5, 5]
    assert all(few == many[:2] for few, many in zip(random[0], random[1], strict=True))
    assert len({tuple(draw) for draw in random[1]}) == 3
    assert numbers(None, 1000) == (10, 20, 50, 100, 200, 500)
    assert numbers((7, 3, 3), 10) == (3, 7)
    for wrong in ((0,), (11,), ()):
        with pytest.raises(ResultError, match="10 neurons"):
            numbers(wrong, 10)
    with pytest.raises(ResultError, match="draws=0"):
        _sets(order, (2,), 0, 0)


def test_a_ranking_of_other_neurons_is_refused(both, ranking):
    few = ranking.neurons[:5]
    other = replace(
        ranking,
        axes={"class": ("NOUN",), "neuron": few},
        values=ranking.values[:, :5],
        tables={"overall": overall_table(few, np.ones(5), null=np.zeros(5))},
    )
    with pytest.raises(ResultError, match="rank the same sites"):
        neurons.ablated_in_probe(both, other, concept="upos")
