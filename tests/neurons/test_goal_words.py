"""Ablation for the words that language models are asked for: the goals of a class, and what answers there lose."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from pellucid import Corpus, neurons
from pellucid.heads import measured
from pellucid.model import Edit, Model
from pellucid.neurons import Concept
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.judging.ablation import by_ablation, by_greedy_ablation
from pellucid.neurons.judging.goal_words import goal_words
from pellucid.results import ResultError
from tests.heads.measuring_models import CORPORA, model_for
from tests.tiny_models import network, word_tokenizer

ANIMALS = Concept.words(["cat", "dog"], name="animals")
TEXT = ["the keys near the cabinet are old", "a red dog runs", "the cat sleeps in the cabinet and the dog is old"]


def reader(kind: str) -> Model:
    """A random model one of whose tokens is one word."""
    return Model.load(network(kind), tokenizer=word_tokenizer(closing=kind == "bert"))


def by_hand(model: Model, corpus: Corpus, words: list[str], units: list[int]) -> float:
    """(p − p')/p of the model's answers, mean over goals that are one of some words, told by the goal's own id."""
    found, mine = measured(model, corpus), torch.tensor(model.tokenizer.convert_tokens_to_ids(words))
    drops: list[float] = []
    for step in range(found.steps()):
        batch = found.batch(step)
        there = torch.isin(batch["goals"], mine)
        edit = Edit.zero("neurons.1", neurons=units)
        plain, now = (
            torch.softmax(found.task.logits(found.passing(edits), batch).double(), -1)[there] for edits in ([], [edit])
        )
        rows = torch.arange(int(there.sum()))
        p, q = plain[rows, plain.argmax(-1)], now[rows, plain.argmax(-1)]
        drops += ((p - q) / p).tolist()
    assert drops
    return float(np.mean(drops))


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_neurons_are_ranked_by_answers_at_words_of_the_class(kind):
    model, text = reader(kind), Corpus.of(TEXT * 8)
    found = by_ablation(model, text, concept=ANIMALS, sites="neurons.1")
    assert (found.classes, found.concept) == (("animals",), "animals")
    for name in found.top(2):
        expected = by_hand(model, text, ["cat", "dog"], [int(name.split(":")[1])])
        assert found.values[0, found.place("neuron", name)] == pytest.approx(expected, abs=1e-6)
    every = neurons.ablation(model, text, sites="neurons.1", progress=False)
    assert np.abs(every.values[0] - found.values[0]).max() > 1e-4
    greedy = by_greedy_ablation(model, text, concept=ANIMALS, sites="neurons.1", count=2, within=5)
    steps = greedy.table("steps").columns
    gone = [int(name.split(":")[1]) for name in steps["neuron"]]
    assert steps["lost"] == pytest.approx([by_hand(model, text, ["cat", "dog"], gone[:k]) for k in (1, 2)], abs=1e-6)
    assert greedy.classes == ("animals",)


def test_goals_that_are_no_words_are_of_no_class():
    """Texts end in </s>, which is asked for too; lengths have no `other` that could take it in."""
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer(closing=True))
    text = Corpus.of(TEXT * 2)
    found = by_ablation(model, text, concept="property:length", sites="neurons.1")
    assert found.classes == ("1-2", "3-4", "5-7")
    lengths = {
        "1-2": ["a", "is", "in"],
        "3-4": ["the", "keys", "near", "are", "old", "red", "dog", "runs", "cat", "and"],
        "5-7": ["cabinet", "sleeps"],
    }
    best = found.top(1)[0]
    at, unit = found.place("neuron", best), int(best.split(":")[1])
    expected = [by_hand(model, text, words, [unit]) for words in lengths.values()]
    assert found.values[:, at] == pytest.approx(expected, abs=1e-6)
    together = by_hand(model, text, [word for words in lengths.values() for word in words], [unit])
    assert found.overall.columns["score"][at] == pytest.approx(together, abs=1e-6)


@pytest.mark.parametrize("task", ["lm", "mlm"])
@pytest.mark.parametrize("length", [32, 6])
def test_sub_words_belong_to_the_word_that_they_are_a_part_of(task, length):
    """The goals of each class, put together again, are the words of that class, however long rows are."""
    model, text = model_for(task), CORPORA[task][0].take(30)
    found = measured(model, text, length=length)
    told = goal_words(found, Concept.parse("upos"))
    written: dict[str, Counter[str]] = {name: Counter() for name in told.classes}
    for step in range(found.steps()):
        goals = told.held.batch(0, step)["goals"]
        codes = told.codes(step)
        assert codes.shape == goals.shape
        for goal, code in zip(goals.flatten().tolist(), codes.flatten().tolist(), strict=True):
            if code >= 0:
                written[told.classes[code]].update(model.tokenizer.decode([goal]).strip().lower())
    expected: dict[str, Counter[str]] = {name: Counter() for name in told.classes}
    for sentence in text:
        first = model.tokenizer(sentence.text, return_offsets_mapping=True)["offset_mapping"][0][1]
        for (start, stop), tag in zip(sentence.spans, sentence.label("upos"), strict=True):
            if tag is not None:
                begin = max(start, first) if task == "lm" else start  # nothing stands before the first token of a lm
                expected[tag].update(sentence.text[begin:stop].lower())
    assert written == expected


def test_models_whose_answers_are_no_words_of_the_text_are_ranked_by_all_of_them():
    text = CORPORA["translate"][0].take(8)
    with pytest.warns(
        NeuronWarning, match="cannot be told apart by 'upos=NOUN', so ablation ranks neurons by what all"
    ):
        found = by_ablation(model_for("translate"), text, concept="upos=NOUN", sites="encoder.neurons.1")
    assert found.classes == ("all answers",)
    assert found.concept == "translate"


def test_bands_stand_in_their_own_order():
    """By name, 16-31 would come before 2-3."""
    told = goal_words(measured(reader("gpt2"), Corpus.of([" ".join(TEXT[2:] * 3)] * 2)), Concept.property("position"))
    assert told.classes == ("2-3", "4-7", "8-15", "16-31", "32+")


def test_a_class_that_is_never_asked_for_is_refused():
    model, text = reader("gpt2"), Corpus.of(["the cat sleeps", "the cat sleeps"])
    with pytest.raises(ResultError, match=r"is asked for no word of 'dogs' in .*; it is asked for other\. Give more"):
        by_ablation(model, text, concept=Concept.words(["dog"], name="dogs"))
