"""Activations that are no numbers in words that are tested on, or that stop training: named, never learned around."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import neurons
from pellucid.neurons.concepts import Concept
from pellucid.neurons.probing.material import Reading, material
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.results import Provenance, ResultError


def spoilt(place: str):
    """Arrays in which one neuron is infinite for one word: a word to test on, or one that stops training."""
    dice = np.random.default_rng(0)
    rows, tags = dice.normal(size=(400, 4)).astype(np.float32), dice.choice(["a", "b"], 400)
    store = neurons.array_store(rows, tags, sentences=(np.arange(400) // 4).tolist())
    dealt = material(store, Concept.parse("label"), Reading(), controlled=False).split
    word = int(np.flatnonzero(dealt.test if place == "test" else dealt.fold == 0)[3])
    store._rows[word, 2] = float("inf")
    return store


CASES = [(way, place) for way in ("probe", "gaussian", "forest", "neurox", "anew") for place in ("test", "held")
         if (way, place) != ("neurox", "test")]  # fmt: skip
"""NeuroX's probe reads the words to learn from alone."""


@pytest.mark.parametrize(("way", "place"), CASES)
def test_a_number_that_is_none_is_named_wherever_it_stands(place, way):
    store = spoilt(place)
    given = {"concept": "label"}
    ways = {
        "probe": lambda: neurons.probe(store, **given, random=twin(store), seeds=1, epochs=1, progress=False),
        "gaussian": lambda: neurons.gaussian(store, **given, count=2),
        "forest": lambda: neurons.forest(store, **given, trees=2, seeds=2),
        "neurox": lambda: neurons.rank(store, **given, methods="probe-elastic", preset="neurox"),
        "anew": lambda: neurons.trained_anew(store, ranking(), **given, counts=(2,), draws=1, epochs=1),
    }
    with pytest.raises(ResultError, match=r"resid\.0:2 is not a number"):
        ways[way]()


def twin(store):
    """The same words with other activations, as a random model's."""
    other = neurons.array_store(np.random.default_rng(1).normal(size=(400, 4)), ["a"] * 399 + ["b"],
                                name=f"{store.models[0].name} (random, seed 0)",
                                sentences=(np.arange(400) // 4).tolist())  # fmt: skip
    other.about["corpus"]["fingerprint"] = store.about["corpus"]["fingerprint"]
    return other


def ranking() -> Ranking:
    axes = {"class": ("b",), "neuron": tuple(f"resid.0:{unit}" for unit in range(4))}
    overall = overall_table(axes["neuron"], np.arange(4.0), null=np.zeros(4))
    return Ranking(axes, np.arange(4.0)[None], None, None, None, "none", Provenance("x", {"method": "by hand"}),
                   {"overall": overall})  # fmt: skip
