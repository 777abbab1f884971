"""Reading neurons: traces against the model's own numbers, tables against counting by hand, planted responses."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import pellucid as pl
from pellucid.collect.traces import Traces
from pellucid.corpus import Sentence
from pellucid.errors import PellucidError
from pellucid.model import Model
from pellucid.neurons import Concept, NeuronReading, read, selectivity
from pellucid.neurons.reading import Traced, _chance, _measured, correlation, explained
from pellucid.neurons.reading_tables import activity, class_rows
from tests.neurons import planted

NOUN, OTHER = planted.names()["NOUN"], "neurons.1:0"


@pytest.fixture(scope="module")
def reading() -> NeuronReading:
    return read(planted.model(), planted.corpus(), neurons=[NOUN, OTHER], concept="upos", token_budget=512)


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Values of both neurons at every word, the words, and their tags, from a store."""
    folder = tmp_path_factory.mktemp("reading") / "store"
    pl.build_store(planted.model(), planted.corpus(), folder, ("neurons.*",), dtype="float32")
    store = pl.Store.open(folder)
    values = np.stack([store.unit("neurons.0", planted.neurons()["NOUN"]).numpy(), store.unit("neurons.1", 0).numpy()])
    frame = store.words(["word", "upos"])
    return values.T.astype(np.float64), frame["word"].tolist(), frame["upos"].to_numpy()


def test_contexts_are_the_largest_and_smallest(reading, rows):
    values, words, _ = rows
    for unit, name in enumerate((NOUN, OTHER)):
        for end, sign in (("largest", -1), ("smallest", 1)):
            own = [row for row in reading.rows_of("contexts", name) if row["end"] == end]
            order = np.argsort(sign * values[:, unit], kind="stable")[:20]
            assert [row["activation"] for row in own] == pytest.approx(values[order, unit].tolist(), rel=1e-5)
            best = {words[place] for place in np.flatnonzero(np.isclose(values[:, unit], own[0]["activation"]))}
            assert own[0]["word"] in best


def test_top_words_are_those_with_the_largest_mean_z(reading, rows):
    values, words, _ = rows
    z = (values - values.mean(0)) / values.std(0)
    small = np.array([word.lower() for word in words])
    means = {word: np.abs(z[small == word, 1]).mean() for word in set(small) if (small == word).sum() > 1}
    own = reading.rows_of("words", OTHER)
    assert [row["mean |z|"] for row in own] == pytest.approx(sorted(means.values(), reverse=True)[:15], rel=1e-4)
    assert own[0]["count"] == int((small == own[0]["word"]).sum())


def test_activity_and_histograms_hold_all_words(reading, rows):
    values, words, _ = rows
    table = reading.table("activity").columns
    assert table["mean"] == pytest.approx(values.mean(0), rel=1e-5)
    assert table["sd"] == pytest.approx(values.std(0), rel=1e-5)
    assert table["kind"].tolist() == ["mostly silent", "varies"]
    assert reading.table("histogram").columns["count"].sum(1).tolist() == [len(words)] * 2


def test_silent_and_saturated_are_told_by_size_and_range():
    """100 words, of which one is at 10: within 0.1 of 0 is silent, whatever the spread, and of an end saturated."""
    peak = np.zeros(100)
    peak[7] = 10.0
    rest = peak == 0
    ends = np.where(np.arange(100) < 60, 5.0, -5.0)
    mostly = "saturated: mostly at an end of its range"
    units = {
        "below": (peak + 0.09 * rest, 0.99, 1.0, "mostly silent"),
        "above": (peak + 0.11 * rest, 0.0, 1.0, mostly),
        "low": (-peak - 0.09 * rest, 0.99, 1.0, "mostly silent"),
        "near an end": (ends + np.where(np.arange(100) % 2, 0.0, 0.09) * -np.sign(ends), 0.0, 1.0, mostly),
        "off its ends": (ends * np.where(np.arange(100) % 4, 0.97, 1.0), 0.0, 0.25, "varies"),
    }
    columns = activity(SimpleNamespace(values=np.stack([each[0] for each in units.values()], 1), neurons=tuple(units)))
    told = columns.columns
    assert told["silent"].tolist() == pytest.approx([each[1] for each in units.values()])
    assert told["saturated"].tolist() == pytest.approx([each[2] for each in units.values()])
    assert told["kind"].tolist() == [each[3] for each in units.values()]


def test_classes_tell_the_planted_one(reading, rows):
    values, _, tags = rows
    own = {row["class"]: row for row in reading.rows_of("classes", NOUN)}
    z = (values[:, 0] - values[:, 0].mean()) / values[:, 0].std()
    assert own["NOUN"]["mean z"] == pytest.approx(z[tags == "NOUN"].mean(), rel=1e-5)
    assert own["NOUN"]["words"] == int((tags == "NOUN").sum())
    count, rest = (tags == "NOUN").sum(), ((tags != "NOUN") & (tags != "")).sum()
    assert own["NOUN"]["chance"] == pytest.approx(np.sqrt(2 / np.pi * (1 / count + 1 / rest)))
    assert max(own.values(), key=lambda row: row["d′"])["class"] == "NOUN"


def test_texts_colour_whole_sentences(reading):
    rows = reading.rows_of("texts", NOUN)
    first = [row["word"] for row in rows if row["sentence"] == 1]
    assert any(list(sentence.words) == first for sentence in planted.corpus())
    assert {row["sentence"] for row in rows} == {1, 2, 3}


def test_a_sentence_that_comes_again_is_shown_once():
    """The same five sentences four times over have the contexts and coloured texts that they have once."""
    few = list(planted.corpus().take(5))
    again = [replace(each, id=f"{each.id}-{time}") for time in range(4) for each in few]
    once, often = (read(planted.model(), pl.Corpus.of(each), neurons=[NOUN, OTHER]) for each in (few, again))
    columns = ("end", "rank", "left", "word", "right")
    for name in (NOUN, OTHER):
        lines = [[[row[column] for column in columns] for row in each.rows_of("contexts", name)]
                 for each in (once, often)]  # fmt: skip
        assert lines[0] == lines[1]
        texts = [[(row["sentence"], row["word"]) for row in each.rows_of("texts", name)] for each in (once, often)]
        assert texts[0] == texts[1]
        assert len({tuple(word for at, word in texts[1] if at == rank) for rank in (1, 2, 3)}) == 3


def test_measures_against_plain_formulas(reading, rows):
    values, words, _ = rows
    small = np.array([word.lower() for word in words])
    at = reading.place("measure", "word")
    centred = values - values.mean(0)
    between = sum((small == word).sum() * (values[small == word].mean(0) - values.mean(0)) ** 2 for word in set(small))
    assert reading.values[at] == pytest.approx(between / (centred**2).sum(0), rel=1e-5)
    assert reading.values[at, 0] > 0.9, "a neuron that reads the word's tag is told by the word"
    assert reading.null[at, 0] == pytest.approx((len(set(small)) - 1) / (len(small) - 1))
    assert reading.low is not None
    assert (reading.low <= reading.values).all()


def test_intervals_of_shares_and_sizes_end_at_0_and_1():
    few = read(planted.model(), planted.corpus().take(12), neurons=[NOUN, OTHER], concept="upos")
    assert ((few.low >= 0) & (few.low <= few.values + 1e-9) & (few.values <= few.high + 1e-9) & (few.high <= 1)).all()
    assert (few.low == 0).any()
    assert (few.high == 1).any()


def test_position_and_frequency_neurons_are_found():
    dice = np.random.default_rng(0)
    place, count = np.tile(np.arange(20.0), 50), dice.integers(1, 100, 1000).astype(float)
    noise = 0.1 * dice.normal(size=(1000, 3))
    values = noise + np.stack([place / 20, np.log(count) / 5, np.zeros(1000)], axis=1)
    assert correlation(values, place) == pytest.approx([np.corrcoef(values[:, u], place)[0, 1] for u in range(3)])
    assert abs(correlation(values, place)).argmax() == 0
    assert abs(correlation(values, np.log(count))).argmax() == 1
    types = dice.integers(0, 200, 1000)
    drawn = [explained(dice.permutation(values), types) for _ in range(20)]
    assert np.mean(drawn, axis=0) == pytest.approx(np.full(3, (len(set(types.tolist())) - 1) / 999), rel=0.1)


def test_a_dead_neuron_is_called_so():
    found = read(planted.model(), planted.corpus().take(40), neurons=["mlp.1:0"], concept=Concept.property("first"))
    assert found.table("activity").columns["kind"].tolist() == ["dead: it never changes"]
    assert (found.values == 0).all()


def test_traces_merge_and_refuse():
    found = pl.sweep(planted.model(), planted.corpus().take(60), [Traces((NOUN,))], shard_tokens=128, token_budget=64)
    view = found[Traces]
    assert view.ordinal.tolist() == list(range(len(view.ordinal)))
    assert len(view.ordinal) == sum(len(sentence.spans) for sentence in planted.corpus().take(60))
    assert len(np.unique(view.group)) > 1
    assert read(found).neurons == (NOUN,)
    corpus = planted.corpus().take(5)
    for call, message in (
        (lambda: read(found, neurons=["neurons.0:1"]), "was not traced"),
        (lambda: read(planted.model(), corpus), "give a corpus and the neurons"),
        (lambda: read(planted.model(), corpus, neurons=["neurons.0:64"]), "units 0 to 63; there is no unit 64"),
        (lambda: read(planted.model(), corpus, neurons=["neurons.9:1"]), "neurons.9"),
        (lambda: read(planted.model(), corpus, neurons=["neurons.0"]), "names no unit"),
        (lambda: Traces(("neurons.0:1", "neurons.0:1")), "named twice"),
        (lambda: Traces(()), "one or more units"),
    ):
        with pytest.raises(PellucidError, match=message):
            call()


def test_classes_have_the_distance_of_selectivity():
    """Also where a neuron is the same for all words of a class, and so has no spread inside."""
    neuron = planted.names()["NOUN"]
    text = planted.corpus().take(40)
    for concept in ("upos", "upos=NOUN"):
        reading = read(planted.model(), text, neurons=[neuron], concept=concept)
        ranking = selectivity(planted.model(), text, concept=concept, sites="neurons.0", control=False)
        at = ranking.place("neuron", neuron)
        for row in reading.rows_of("classes", neuron):
            if row["class"] in ranking.classes:
                place = ranking.place("class", row["class"])
                told, expected = (min(each, 1e3) for each in (row["d′"], ranking.values[place, at]))  # or no spread
                assert told == pytest.approx(expected, rel=1e-3)
                assert row["chance"] == pytest.approx(ranking.null[place, at])
    sentences = {place: Sentence.of_words([tag], labels={"label": [tag]}) for place, tag in enumerate("AABB")}
    values, every = np.array([[1.0], [1.0], [-1.0], [-1.0]]), np.zeros(4, dtype=np.int64)
    rest = tuple("AABB"), every, every, np.arange(4), every, every, sentences
    same = Traced(("a",), values, values, *rest)
    found = class_rows(same, [Concept.label("label")])
    assert found.columns["d′"][0] == -found.columns["d′"][1] > 1e3


def test_traces_are_of_the_first_model():
    """Also where it has no such site, and the second one has: there is nothing to trace then."""
    wide = Model.random_like(planted.model(), 1)
    text = planted.corpus().take(10)
    alone = pl.sweep(planted.model(), text, Traces(("neurons.1:0",)), progress=False)[Traces]
    for unit in ("neurons.1:0", "0:neurons.1:0"):
        both = pl.sweep([planted.model(), wide], text, Traces((unit,)), progress=False)[Traces]
        np.testing.assert_allclose(both.values, alone.values, rtol=1e-4, atol=1e-6)
    deeper = pl.Model.load("zoo:tagger")
    with pytest.raises(PellucidError, match=r"neurons\.3"):
        pl.sweep([planted.model(), deeper], text, Traces(("neurons.3:0",)), progress=False)
    with pytest.raises(PellucidError, match=r"1:neurons\.1"):
        pl.sweep([planted.model(), wide], text, Traces(("1:neurons.1:0",)), progress=False)


def _traced(values: np.ndarray, sentences: dict[int, Sentence]) -> Traced:
    """Neurons [words, neurons] at all words of some sentences, a second one included."""
    texts = {number: [*each.words, *(each.second.words if each.second else ())] for number, each in sentences.items()}
    words = tuple(word for text in texts.values() for word in text)
    number = np.array([number for number, text in texts.items() for _ in text])
    position = np.concatenate([np.arange(len(text)) for text in texts.values()])
    types = np.unique(np.array(words), return_inverse=True)[1]
    counts = np.bincount(types)[types]
    z = (values - values.mean(0)) / values.std(0)
    names = tuple(f"neurons.0:{unit}" for unit in range(values.shape[1]))
    return Traced(names, values, z, words, types, counts, number, position, number % 2, sentences)


def test_the_place_in_the_second_sentence_of_a_pair_begins_again():
    first, second = Sentence.of_words(["a", "b", "c"]), Sentence.of_words(["d", "e"])
    pairs = {0: replace(first, second=second, joint=True), 1: second}
    data = _traced(np.array([[1.0], [2.0], [3.0], [1.0], [2.0], [1.0], [2.0]]), pairs)
    assert data.place.tolist() == [1, 2, 3, 1, 2, 1, 2]
    assert _measured(data, np.ones(7, dtype=bool))[1] == pytest.approx([1.0])


def test_chance_is_the_mean_of_values_dealt_out_at_random():
    """E|r| ≈ √(2/(π(n − 1))), for the place and for the frequency, and E η² = (W − 1)/(n − 1)."""
    dice = np.random.default_rng(4)
    vocabulary = np.array([f"w{place}" for place in range(30)])
    often = 1 / np.arange(1.0, 31.0)
    sentences = {
        number: Sentence.of_words(dice.choice(vocabulary, 12, p=often / often.sum()).tolist()) for number in range(20)
    }
    data = _traced(dice.normal(size=(240, 4000)), sentences)
    chance = _chance(data)
    assert chance.shape == (3, 4000)
    assert chance[1:, 0] == pytest.approx([np.sqrt(2 / (np.pi * 239))] * 2)
    assert chance[0, 0] == pytest.approx((len(set(data.words)) - 1) / 239)
    drawn = _measured(data, np.ones(240, dtype=bool)).mean(axis=1)
    assert drawn == pytest.approx(chance[:, 0], rel=0.04)
