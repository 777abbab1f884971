"""Probes with their controls: planted neurons found, selectivity where the answer is known, splits, bad input."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
import torch

from pellucid import Corpus, Sentence, neurons
from pellucid.collect.build import build_store
from pellucid.errors import CorpusError, SiteError
from pellucid.model import Model
from pellucid.neurons.concepts import Concept
from pellucid.neurons.probing.controls import control_goals, majority
from pellucid.neurons.probing.intervals import accuracies, over_folds
from pellucid.neurons.probing.labels import Labelled, _Numbered, labelled, split
from pellucid.neurons.probing.probes import PENALTIES
from pellucid.neurons.probing.rows import ArrayRows
from pellucid.neurons.probing.training import Settings, Task, fit
from pellucid.neurons.ranking import accuracy_told
from pellucid.results import ResultError
from pellucid.uncertainty import jackknife
from tests.neurons import planted


@pytest.fixture(scope="module")
def probed(both):
    return neurons.probe(both, concept="upos", epochs=30, progress=False)


def test_planted_neurons_are_found_with_their_sign(probed):
    ranking = probed.ranking()
    for tag, name in planted.names().items():
        if tag == planted.FLIPPED:
            place = ranking.place("class", tag), ranking.place("neuron", name)
            assert ranking.values[place] < 0
            assert name in ranking.top(3, tag)
        else:
            assert ranking.top(1, tag, by="signed") == [name]
    assert len(set(ranking.top(14)) & set(planted.names().values())) >= 12
    assert ranking.method == "probe-elastic"
    assert "elastic net" in ranking.title
    table = probed.weights.columns["weight"]
    overall = ranking.overall.columns
    assert overall["score"] == pytest.approx(np.abs(table).sum(0), rel=0.2)
    assert overall["low"].min() == 0 < overall["low"].max()  # of sums of sizes; a weight may well be below 0
    assert ranking.low.min() < 0


def test_the_controls_stand_beside_and_below(probed):
    assert probed.axes["measure"] == ("accuracy", "random model", "control task", "selectivity")
    accuracy, random, control, selectivity = probed.values
    assert accuracy[0] > 0.95
    assert random[0] < accuracy[0] - 0.1
    assert control[0] < accuracy[0] - 0.1
    assert selectivity == pytest.approx(accuracy - control)
    words = probed.table("words").columns
    assert accuracy[0] == pytest.approx((accuracy[1:] * words["tested"]).sum() / words["tested"].sum())
    seeds = probed.table("seeds").columns
    assert accuracy[0] == pytest.approx(seeds["accuracy"].mean())
    assert control[0] == pytest.approx(seeds["control task"].mean())
    assert random[0] == pytest.approx(seeds["random model"].mean())
    biggest = words["learned"].argmax()
    assert probed.null[0, 0] == pytest.approx(words["tested"][biggest] / words["tested"].sum())
    assert probed.null[0, 1:].tolist() == [float(place == biggest) for place in range(len(words["learned"]))]
    assert len(probed.provenance.models) == 2


def test_a_model_and_a_corpus_bring_their_own_twin(both):
    text = planted.corpus().take(150)
    found = neurons.probe(
        planted.model(), text, concept="upos=NOUN", sites="neurons.0", seeds=1, epochs=30, progress=False
    )
    assert len(found.provenance.models) == 2
    assert found.provenance.models[0]["fingerprint"] != found.provenance.models[1]["fingerprint"]
    ranking = found.ranking()
    assert ranking.classes == ("NOUN",)
    assert ranking.top(1) == [planted.names()["NOUN"]]
    assert ranking.low is None
    assert ranking.resampled.startswith("no interval")
    assert found.axes["class"] == ("all classes", "NOUN", "other")


def test_every_penalty_trains_and_only_l1_leaves_neurons_out(both):
    zeros = {}
    for penalty in PENALTIES:
        found = neurons.probe(
            both, concept="upos=VERB", sites="neurons.0", penalty=penalty, l1=0.01, seeds=2, epochs=15, progress=False
        )
        zeros[penalty] = int((found.weights.columns["weight"] == 0).sum())
        assert found.ranking().top(1) == [planted.names()["VERB"]]
    assert zeros["l1"] > 20
    assert zeros["elastic"] > 20
    assert zeros["l2"] == zeros["none"] == 0


def test_selectivity_where_the_answer_is_known():
    """Neurons that show the class alone: a control task can only learn each class's most frequent control label."""
    dice = np.random.default_rng(0)
    types = dice.integers(0, 60, 4000)
    goals = types % 3
    learned = np.arange(4000) < 3000
    control = control_goals(goals, types, learned, 3, seed=1)
    rows = np.eye(3)[goals] + 0.01 * dice.normal(size=(4000, 3))
    tasks = [Task(each, learned, np.zeros(4000, bool)) for each in (goals, control)]
    found = fit(ArrayRows(rows), tasks, 3, Settings(l1=0.0, l2=1e-4))
    guesses = found.guesses(torch.from_numpy(rows[~learned]).float())
    assert (guesses[0] == goals[~learned]).all()
    best = {cls: Counter(control[learned & (goals == cls)].tolist()).most_common(1)[0][0] for cls in range(3)}
    expected = np.mean([best[cls] == label for cls, label in zip(goals[~learned], control[~learned], strict=True)])
    assert (guesses[1] == control[~learned]).mean() == pytest.approx(expected)
    assert expected < 0.6
    words = np.eye(60)[types]  # neurons that show the word itself: both are learned by heart, so nothing is selective
    found = fit(ArrayRows(words), tasks, 3, Settings(l1=0.0, l2=1e-4))
    guesses = found.guesses(torch.from_numpy(words[~learned]).float())
    assert (guesses[0] == goals[~learned]).all()
    assert (guesses[1] == control[~learned]).all()


def test_a_control_task_is_one_label_per_word_drawn_as_often_as_classes_occur():
    dice = np.random.default_rng(2)
    types = dice.integers(0, 3000, 20_000)
    goals = dice.choice(3, p=[0.7, 0.2, 0.1], size=20_000)
    goals[:50] = -1
    learned = np.arange(20_000) < 10_000
    control = control_goals(goals, types, learned, 3, seed=0)
    assert (control[:50] == -1).all()
    label = dict(zip(types[50:].tolist(), control[50:].tolist(), strict=True))
    assert (control[50:] == [label[word] for word in types[50:].tolist()]).all()
    shares = np.bincount(list(label.values())) / len(label)
    assert shares == pytest.approx([0.7, 0.2, 0.1], abs=0.03)
    assert (control_goals(goals, types, learned, 3, seed=1) != control).any()
    assert majority(goals, learned, 3) == 0
    assert majority(goals, goals == 2, 3) == 2


def by_documents(count: int, goals, documents) -> Labelled:
    classes = tuple(f"c{place}" for place in range(int(np.max(goals)) + 1))
    codes = np.asarray(goals)
    return Labelled(Concept.label("x"), classes, codes, np.arange(count), np.asarray(documents), "documents", {})


def test_documents_are_never_torn_apart():
    dice = np.random.default_rng(0)
    documents = np.sort(dice.integers(0, 60, 3000))
    goals = dice.integers(-1, 4, 3000)
    data = by_documents(3000, goals, documents)
    dealt = split(data, test=0.2, seed=3)
    known = goals >= 0
    assert not (dealt.test & dealt.training).any()
    assert ((dealt.test | dealt.training) == known).all()
    for document in range(60):
        mine = known & (documents == document)
        assert len(set(dealt.test[mine])) == 1
        assert len(set(dealt.fold[mine])) == 1
        assert len(set(dealt.group[mine])) == 1
    assert dealt.test.sum() / known.sum() == pytest.approx(0.2, abs=0.04)
    sizes = np.bincount(dealt.fold[dealt.training])
    assert len(sizes) == 10
    assert sizes.max() < 1.5 * sizes.min()
    for cls in range(4):
        assert (goals[dealt.test] == cls).any()
        assert (goals[dealt.training] == cls).any()
    assert (dealt.without(3) == (dealt.training & (dealt.fold != 3))).all()
    assert (split(data, seed=3).fold == dealt.fold).all()
    assert (split(data, seed=4).fold != dealt.fold).any()


def test_a_class_of_one_document_and_too_little_text_are_refused():
    documents = np.repeat(np.arange(30), 10)
    goals = np.tile([0, 1], 150)
    goals[documents == 7] = 2
    with pytest.raises(CorpusError, match="'c2' occurs in too few documents"):
        split(by_documents(300, goals, documents))
    with pytest.raises(CorpusError, match="11 documents have labelled words"):
        split(by_documents(300, np.tile([0, 1], 150), np.minimum(documents, 10)))
    with pytest.raises(CorpusError, match="test=1"):
        split(by_documents(300, np.tile([0, 1], 150), documents), test=1.0)


def test_a_class_is_learned_whichever_fold_is_left_out():
    """A class of three documents is dealt out until two of them stand in different folds, and one is for testing."""
    documents = np.repeat(np.arange(40), 10)
    goals = np.tile([0, 1], 200)
    goals[np.isin(documents, [3, 19, 33])] = 2
    for seed in range(12):
        dealt = split(by_documents(400, goals, documents), seed=seed)
        assert (goals[dealt.test] == 2).any()
        for fold in range(10):
            assert set(goals[dealt.without(fold)]) == {0, 1, 2}
    goals[documents == 33] = 0
    with pytest.raises(CorpusError, match="'c2' occurs in too few documents"):
        split(by_documents(400, goals, documents))


def test_a_class_is_learned_whichever_two_folds_are_left_out_where_that_can_be():
    """Probes that choose the smallest set leave out two: a class of five documents is dealt out to three folds."""
    documents = np.repeat(np.arange(40), 10)
    goals = np.tile([0, 1], 200)
    goals[np.isin(documents, [3, 11, 19, 27, 33])] = 2
    for seed in range(20):
        dealt = split(by_documents(400, goals, documents), seed=seed)
        assert (goals[dealt.test] == 2).any()
        assert len(set(dealt.fold[dealt.training & (goals == 2)])) >= 3


def test_labels_are_those_of_the_words(both):
    data = labelled(both, Concept.label("upos"), fewest=20)
    table = both.words(["word", "upos"])
    assert [data.classes[code] for code in data.goals] == table["upos"].tolist()
    words = table["word"].str.lower().tolist()
    assert len(set(zip(data.types.tolist(), words, strict=True))) == len(set(words))
    assert data.unit == "documents"
    rare = labelled(both, Concept.label("upos"), fewest=60)
    counts = Counter(table["upos"])
    assert rare.left_out == {tag: count for tag, count in sorted(counts.items()) if count < 60}
    assert set(rare.classes) == {tag for tag, count in counts.items() if count >= 60}
    assert (rare.goals == -1).sum() == sum(rare.left_out.values())


def test_one_long_word_takes_no_room_for_all_others():
    """20,000 names beside one of 20,000 characters: as an array of names these are 1.6 GB."""
    given = ["b" * 20_000, *(f"w{place:05d}" for place in range(20_000, 0, -1)), "a", "w00002", "é"]
    column = _Numbered()
    for name in given:
        column.add(name)
    tracemalloc.start()
    found = column.sorted()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 << 20
    order = {name: place for place, name in enumerate(sorted(set(given)))}
    assert found.tolist() == [order[name] for name in given]


def test_a_ranking_of_weights_has_the_accuracy_and_controls_of_its_probe(both):
    probed = neurons.probe(both, concept="upos=NOUN", sites="neurons.0", penalty="l1", seeds=2, progress=False)
    made = neurons.rank(both, concept="upos=NOUN", sites="neurons.0", methods="probe-l1", seeds=2)["probe-l1"]
    table = made.table("accuracy")
    assert table.axes["measure"] == ("accuracy", "random model", "control task", "selectivity")
    for name, part in (("value", probed.values), ("majority", probed.null), ("low", probed.low), ("high", probed.high)):
        assert table.columns[name].tolist() == part[:, 0].tolist()
    told = made.accuracies
    assert told["accuracy"] == probed.values[0, 0]
    assert told["random model"] == probed.values[1, 0]
    assert told["majority"] == probed.null[0, 0]
    assert "random model" in accuracy_told(made)
    with pytest.raises(ResultError, match="seeds=11"):
        neurons.rank(both, concept="upos=NOUN", sites="neurons.0", methods="probe-l1", seeds=11)


def test_a_ranking_of_weights_of_arrays_has_an_accuracy_too():
    dice = np.random.default_rng(2)
    tags = dice.choice(["a", "b"], 500, p=[0.7, 0.3])
    rows = dice.normal(size=(500, 6))
    rows[tags == "a", 3] += 4
    words = [f"w{place % 40}" for place in range(500)]
    store = neurons.array_store(rows, tags, words=words, sentences=(np.arange(500) // 5).tolist())
    told = neurons.rank(store, concept="label", methods="probe-l2")["probe-l2"].accuracies
    assert set(told) == {"accuracy", "control task", "selectivity", "majority", "low", "high"}
    assert told["accuracy"] > 0.93
    assert told["majority"] == pytest.approx(0.7, abs=0.07)
    assert told["control task"] < 0.8
    assert told["selectivity"] == pytest.approx(told["accuracy"] - told["control task"])
    assert told["low"] < told["accuracy"] < told["high"] + 1e-9


def test_arrays_are_probed_without_a_random_model(tmp_path):
    """Nothing else changes: the ranking is the method's, and accuracy less each other control is told."""
    dice = np.random.default_rng(2)
    tags = dice.choice(["a", "b"], 500, p=[0.7, 0.3])
    rows = dice.normal(size=(500, 6))
    rows[tags == "a", 4] += 4
    words = [f"w{place % 40}" for place in range(500)]
    store = neurons.array_store(rows, tags, words=words, sentences=(np.arange(500) // 5).tolist(), layers=2)
    found = neurons.probe(store, concept="label", progress=False)
    assert found.axes["measure"] == ("accuracy", "control task", "selectivity")
    accuracy, control, selectivity = found.values[:, 0]
    assert accuracy > 0.93 > 0.8 > control
    assert selectivity == pytest.approx(accuracy - control)
    margins = found.table("margins")
    assert margins.axes["control"] == ("majority", "control task")
    assert margins.columns["value"] == pytest.approx(accuracy - np.array([found.null[0, 0], control]))
    assert set(found.table("seeds").columns) == {"accuracy", "control task", "epochs"}
    assert found.table("seeds").columns["control task"].mean() == pytest.approx(control)
    ranked = neurons.rank(store, concept="label", methods="probe-elastic")["probe-elastic"]
    assert ranked.values.tolist() == found.ranking().values.tolist()
    assert ranked.accuracies == found.ranking().accuracies
    found.save(tmp_path / "probe")
    layers = neurons.per_layer(store, concept="label")
    assert layers.axes == {"measure": ("accuracy", "control task", "selectivity"), "site": ("resid.0", "resid.1")}
    assert layers.values[0, 1] > 0.93 > 0.8 > layers.values[0, 0]
    assert layers.null[2] == pytest.approx(layers.null[0] - layers.null[1])
    part = neurons.training_part(store, concept="label")
    assert neurons.probe(part, concept="label", seeds=1, epochs=2, progress=False).values.shape == (3, 3)


def test_only_the_random_twin_of_the_model_is_taken_as_one(tmp_path):
    """Another model, one of another shape and another model's twin read the same text, and are no control."""
    text = planted.corpus().take(60)
    twin = Model.random_like(planted.model(), 2)
    changed = planted.network()
    changed.transformer.wte.weight.data += 0.1
    other = Model.load(changed, tokenizer=planted.tokenizer())
    other.name = "other"
    stores = {
        name: build_store(model, text, tmp_path / name, "neurons.0", dtype="float32", progress=False)
        for name, model in (("own", planted.model()), ("twin", twin), ("other", other),
                            ("theirs", Model.random_like(other, 2)), ("both", [planted.model(), twin]))
    }  # fmt: skip
    given = {"concept": "upos=NOUN", "seeds": 1, "epochs": 2, "progress": False}
    for wrong in ("other", "theirs", "own"):
        with pytest.raises(ResultError, match=r"no randomly initialised twin of .* a store of Model\.random_like"):
            neurons.probe(stores["own"], random=stores[wrong], **given)
    found = [neurons.probe(stores["own"], random=stores[name], **given) for name in ("twin", "both")]
    assert found[0].values.tolist() == found[1].values.tolist()
    assert found[1].provenance.models[1]["name"] == twin.name


def test_bad_input_is_one_sentence(both, tmp_path):
    alone = build_store(planted.model(), planted.corpus().take(40), tmp_path / "s", "neurons.0", progress=False)
    with pytest.raises(ResultError, match="no randomly initialised twin"):
        neurons.probe(alone, concept="upos")
    with pytest.raises(ResultError, match=r"no randomly initialised twin of .*Model\.random_like"):
        neurons.probe(alone, concept="upos", random=alone)
    with pytest.raises(ResultError, match="one corpus"):
        neurons.probe(alone, concept="upos", random=both)
    for options, message in (
        ({"concept": "upos=DOG"}, "No word of this text has DOG"),
        ({"concept": "nothing"}, "No word of this text has a class"),
        ({"concept": "pattern:.*"}, "two or more classes"),
        ({"concept": "upos", "fewest": 10**6}, "fewest"),
        ({"concept": "upos", "penalty": "l3"}, "no penalty 'l3'"),
        ({"concept": "upos", "seeds": 0}, "seeds=0"),
        ({"concept": "upos", "seeds": 11}, "seeds=11"),
    ):
        with pytest.raises((CorpusError, ResultError), match=message):
            neurons.probe(both, **options)
    with pytest.raises((ResultError, SiteError), match=r"resid\.1"):
        neurons.probe(both, concept="upos", sites="resid.1")
    with pytest.raises(ResultError, match="a corpus to read"):
        neurons.probe(planted.model(), concept="upos")
    with pytest.raises(ResultError, match="has its text already"):
        neurons.probe(both, planted.corpus(), concept="upos")
    with pytest.raises(ResultError, match="does not keep: give a store"):
        neurons.probe(both.about, concept="upos")


def test_a_corpus_without_documents_is_dealt_out_by_sentences():
    sentences = [
        Sentence.of_words(sentence.words, id=str(number), document="one", labels=sentence.labels)
        for number, sentence in enumerate(planted.corpus().take(120))
    ]
    found = neurons.probe(
        planted.model(),
        Corpus.of(sentences),
        concept="upos=DET",
        sites="neurons.0",
        seeds=1,
        epochs=2,
        progress=False,
    )
    assert found.resampled.startswith("10 sentence groups")
    assert found.provenance.arguments["unit"] == "sentences"


def test_accuracies_and_their_interval_by_hand():
    hits = np.array([[[3.0, 1.0], [2.0, 0.0], [4.0, 0.0]]])
    counts = np.array([[4.0, 2.0], [5.0, 0.0], [4.0, 0.0]])
    values, interval = accuracies(hits, counts)
    assert values[0] == pytest.approx([10 / 15, 9 / 13, 1 / 2])
    without = [np.array([6 / 9]), np.array([8 / 10]), np.array([6 / 11])]
    expected = jackknife(np.array([10 / 15]), without, [6, 5, 4])
    assert interval.low is not None
    assert interval.low[0, 0] == pytest.approx(expected.low[0])
    assert interval.high[0, 0] == pytest.approx(expected.high[0])
    assert interval.low[0, 2] == interval.high[0, 2] == 0.5
    twice, _ = accuracies(hits, counts, lambda share: 2 * share)
    assert twice == pytest.approx(2 * values)


def test_ten_folds_give_the_jackknife():
    numbers = np.random.default_rng(0).normal(size=10)
    found = over_folds(numbers[:, None])
    without = [np.array([each]) for each in numbers]
    expected = jackknife(np.array([numbers.mean()]), without, [1.0] * 10)
    assert found.high is not None
    assert expected.high is not None
    assert found.high - found.low == pytest.approx(expected.high - expected.low)
    assert "10 of 10 document groups" in found.resampled
    assert over_folds(numbers[:1, None]).low is None
