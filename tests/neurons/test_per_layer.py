"""Accuracy per layer: a probe on each site alone, with the controls of every probe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pellucid import neurons
from pellucid.neurons.concepts import Concept
from pellucid.neurons.probing import per_layer, probes
from pellucid.neurons.probing.material import Reading, material
from pellucid.neurons.probing.training import Settings, fit
from pellucid.results import ResultError
from tests.neurons import planted


def test_only_the_layer_with_planted_neurons_tells_the_concept(both):
    found = neurons.per_layer(both, concept="upos=NOUN,VERB,ADJ", epochs=30, seeds=1)
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


def test_layers_are_means_over_seeds(both):
    """Those of a site are a probe's of as many seeds, its control task and the random model's among them."""
    settings = {"concept": "upos=NOUN,VERB", "penalty": "l2", "epochs": 8, "seeds": 3}
    found = neurons.per_layer(both, sites="neurons.1", **settings)
    alone = neurons.probe(both, sites="neurons.1", **settings, progress=False)
    assert found.values[:, 0] == pytest.approx(alone.values[:, 0], abs=1e-6)
    assert found.null[:, 0] == pytest.approx(alone.null[:, 0])
    assert found.provenance.arguments["seeds"] == neurons.per_layer(both, concept="upos=NOUN", epochs=1).provenance \
        .arguments["seeds"] == 3  # fmt: skip
    with pytest.raises(ResultError, match="seeds=11"):
        neurons.per_layer(both, **{**settings, "seeds": 11})


def test_layers_are_trained_one_at_a_time_with_the_numbers_of_all_together(both, monkeypatch):
    """What is held while training is of one site; a training of all sites at once, each with its columns, gives the
    same."""
    read = list[tuple[str, ...]]()

    def noted(rows, *rest):
        read.append(rows.names)
        return fit(rows, *rest)

    monkeypatch.setattr(per_layer, "fit", noted)
    layers = neurons.per_layer(both, concept="upos=NOUN,VERB", epochs=8, seeds=2)
    assert [len(names) for names in read] == [planted.INNER] * 4
    found = material(both, Concept.parse("upos=NOUN,VERB"), Reading())
    sites = np.array([name.rpartition(":")[0] for name in found.rows.names])
    kinds, names = (probes.real_tasks(found, 2), probes.control_tasks(found, 2, 0)), ("neurons.0", "neurons.1")
    tasks = [replace(each, columns=sites == name) for made in kinds for name in names for each in made]
    together = probes.tested(found.rows, fit(found.rows, tasks, 3, Settings(0.0, 1e-3, epochs=8)), tasks, found)
    expected = together.sum(axis=(1, 2)).reshape(2, 2, 2).mean(axis=2) / found.split.test.sum()
    assert layers.values[[0, 2]] == pytest.approx(expected, abs=2e-3)
