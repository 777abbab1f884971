"""Trajectories over templated sentences: a planted unit moves where it must, and templates are all their sentences."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import neurons
from pellucid.errors import SiteError
from pellucid.neurons.judging.trajectories import TEMPLATES, sentences
from pellucid.results import ResultError
from tests.neurons import planted


def words_of(tag: str) -> list[str]:
    return sorted(word for word, kind in planted.tags_of_words().items() if kind == tag)


@pytest.fixture(scope="module")
def stimuli():
    """Sentences of three words; the second is a noun or a verb."""
    nouns, verbs, dets = words_of("NOUN")[:3], words_of("VERB")[:4], words_of("DET")[:1]
    return {
        "noun": [[dets[0], word, dets[0]] for word in nouns],
        "verb": [[dets[0], word, dets[0]] for word in verbs],
    }


def test_the_planted_neuron_moves_at_its_word(stimuli):
    name = planted.names()["NOUN"]
    found = neurons.trajectories(planted.model(), [name, "neurons.1:2"], stimuli)
    assert found.axes["measure"] == (name, "neurons.1:2")
    assert found.axes["position"] == (1, 2, 3)
    noun, verb = found.measure(name)
    assert noun[1] > verb[1] + 1
    assert noun[[0, 2]] == pytest.approx(verb[[0, 2]])
    by_hand = [planted.model().run(" ".join(words), ["neurons.1"])["neurons.1"][0, :, 2] for words in stimuli["verb"]]
    rows = np.array([each.tolist() for each in by_hand])
    assert found.measure("neurons.1:2")[1] == pytest.approx(rows.mean(0), abs=1e-6)
    assert found.table("spread").columns["sd"][1, 1] == pytest.approx(rows.std(0, ddof=1), abs=1e-6)
    assert found.null[0, 0] == pytest.approx((noun + verb) / 2)
    half = (found.high - found.low)[1, 1] / 2
    assert half == pytest.approx(3.182446 * rows.std(0, ddof=1) / 2, rel=1e-4, abs=1e-9)  # t of 3 degrees
    assert found.table("words").columns["word"][0].tolist() == stimuli["noun"][0]


def test_templates_are_all_their_sentences():
    assert sentences(("the", "cat|dog", "is very|was not")) == [
        ["the", "cat", "is", "very"],
        ["the", "cat", "was", "not"],
        ["the", "dog", "is", "very"],
        ["the", "dog", "was", "not"],
    ]
    for kinds in TEMPLATES.values():
        assert len({len(words) for slots in kinds.values() for words in sentences(slots)}) == 1
        assert len(kinds) >= 2


def test_bad_input_is_one_sentence(stimuli):
    model, name = planted.model(), ["neurons.0:3"]
    with pytest.raises(ResultError, match="no stimuli 'mood'"):
        neurons.trajectories(model, name, "mood")
    with pytest.raises(ResultError, match=r"\[2, 3\] words"):
        sentences(("the", "cat|big dog"))
    with pytest.raises(ResultError, match="two or more kinds"):
        neurons.trajectories(model, name, {"one": stimuli["noun"]})
    with pytest.raises(ResultError, match="the same number in each"):
        neurons.trajectories(model, name, {**stimuli, "longer": [["a"] * 4] * 2})
    with pytest.raises(SiteError, match=r"no site 'mlp\.9'"):
        neurons.trajectories(model, ["mlp.9:0"], stimuli)
