"""Selective units: planted ones are found at the right end, chance and intervals have known answers."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.collect.moments import Moments
from pellucid.collect.topk import TopContexts
from pellucid.concordance import in_context, word_at
from pellucid.corpus import Sentence
from pellucid.errors import PellucidError
from pellucid.model.sites import Site
from pellucid.neurons import selective
from pellucid.neurons.words import chance_shares, document_bootstrap, most_frequent, normal_height
from pellucid.results import ResultError
from tests.found_by_hand import facts, found_of, gathered, with_twin, word_batch

WORDS = ["the", "Cat", "sat", "on", "a", "mat", "again", "today"]
COUNT, K, UNITS = 60, 10, 6
MODEL = facts({Site("neurons", layer): (UNITS,) for layer in range(2)})


def corpus() -> list[Sentence]:
    """Sixty shuffled sentences, three to a document."""
    rng = np.random.default_rng(0)
    return [
        Sentence.of_words([WORDS[place] for place in rng.permutation(8)], id=f"s{number}", document=f"d{number // 3}")
        for number in range(COUNT)
    ]


def activations(sentences: list[Sentence], layer: int, seed: int) -> list[np.ndarray]:
    """Noise, and in layer 1: unit 2 high on `cat`, unit 4 low on `mat`, unit 5 silent."""
    rng = np.random.default_rng([seed, layer])
    found = []
    for sentence in sentences:
        rows = rng.normal(size=(8, UNITS))
        if layer == 1 and seed == 0:
            words = [word.lower() for word in sentence.words]
            rows[words.index("cat"), 2] += 8
            rows[words.index("mat"), 4] -= 8
            rows[:, 5] = 0.25
        found.append(rows)
    return found


def found(models=(MODEL,), k: int = K, sentences: list[Sentence] | None = None):
    sentences = corpus() if sentences is None else sentences
    rows = {
        f"{number}:neurons.{layer}" if len(models) > 1 else f"neurons.{layer}": activations(sentences, layer, number)
        for number in range(len(models))
        for layer in range(2)
    }
    batches = [
        word_batch({key: parts[number] for key, parts in rows.items()}, sentence=number, start=8 * number)
        for number in range(len(sentences))
    ]
    collectors = [TopContexts("neurons.*", k=k), Moments("neurons.*", pairs="units")]
    states = {collector: gathered(collector, models, batches) for collector in collectors}
    frequent = {word.lower(): len(sentences) for word in WORDS}
    return found_of(models, states, words=8 * len(sentences), frequent=frequent, sentences=sentences)


# -- the analysis ----------------------------------------------------------------------------------------------


def test_planted_units_come_first_with_their_word_and_end():
    result = selective(found())
    assert set(result.axes["unit"][:2]) == {"neurons.1:2", "neurons.1:4"}
    units = result.units.to_frame().set_index("unit")
    assert units.loc["neurons.1:2", ["word", "end"]].tolist() == ["cat", "largest"]
    assert units.loc["neurons.1:4", ["word", "end"]].tolist() == ["mat", "smallest"]
    assert result.measure("share")[:2].tolist() == [1, 1]
    assert (np.diff(result.measure("share")) <= 0).all()
    drawn = chance_shares({word.lower(): COUNT for word in WORDS}, 8 * COUNT, K, ends=2, seed=0)
    assert result.null[:, 0].tolist() == [drawn.mean(), normal_height(K, 8 * COUNT)]


def test_height_is_in_the_units_own_standard_deviations():
    result = selective(found())
    for unit, best in ((2, np.sort), (4, lambda values: np.sort(-values))):
        values = np.concatenate(activations(corpus(), 1, 0))[:, unit].astype(np.float32).astype(np.float64)
        height = abs(best(values)[-K:].mean() - (values.mean() if unit == 2 else -values.mean())) / values.std()
        place = result.place("unit", f"neurons.1:{unit}")
        assert result.measure("height")[place] == pytest.approx(height, rel=1e-5)


def test_a_silent_unit_is_counted_and_never_shown():
    result = selective(found(), top=100)
    assert "neurons.1:5" not in result.axes["unit"]
    assert len(result.axes["unit"]) == 2 * UNITS - 1
    sites = result.sites.to_frame().set_index("site")
    assert sites.loc["neurons.1", ["units", "silent"]].tolist() == [UNITS, 1]
    assert sites.loc["neurons.0", ["units", "silent"]].tolist() == [UNITS, 0]


def test_noise_has_the_share_that_chance_gives():
    """Units of a random model agree on a word no more often than words drawn by frequency."""
    sites = selective(found(with_twin(MODEL))).sites.to_frame()
    twin = sites[sites["model"] == "tiny (random, seed 0)"]
    assert len(twin) == 2
    assert twin["mean share"].mean() == pytest.approx(twin["chance share"].iloc[0], abs=0.04)
    assert (sites["selective by chance"] <= 0.01).all()
    planted = sites[(sites["model"] == "tiny") & (sites["site"] == "neurons.1")].iloc[0]
    assert planted["selective"] == pytest.approx(2 / 5, abs=0.21)


def test_contexts_are_the_words_themselves_in_their_sentences():
    sentences = corpus()
    table = selective(found(sentences=sentences), top=3).contexts.to_frame()
    assert len(table) == 3 * K
    mine = table[table["unit"] == "neurons.1:2"]
    assert mine["rank"].tolist() == list(range(1, K + 1))
    assert (np.diff(mine["activation"]) <= 0).all()
    assert set(mine["word"]) == {"Cat"}
    texts = {sentence.text: sentence.document for sentence in sentences}
    for row in table.itertuples():
        assert texts[row.left + row.word + row.right] == row.document


def test_the_interval_resamples_documents():
    result = selective(found(), top=20)
    assert (result.low <= result.values).all()
    assert (result.values <= result.high).all()
    at = [place for place, share in enumerate(result.measure("share")) if share < 1]
    assert (result.high - result.low)[0, at].min() > 0
    assert "documents of each unit's contexts (bootstrap, 95%" in result.resampled


def test_the_seed_fixes_everything_and_matters():
    assert selective(found(), seed=3).same(selective(found(), seed=3))
    one, other = selective(found(), seed=3), selective(found(), seed=4)
    assert one.axes["unit"] == other.axes["unit"]
    assert not np.array_equal(one.null, other.null)
    assert one.provenance.seed == 3


def test_what_is_missing_is_named():
    with pytest.raises(ResultError, match="top=0"):
        selective(found(), top=0)
    with pytest.raises(ResultError, match="k of 2 or more"):
        selective(found(k=1))
    with pytest.raises(PellucidError, match=r"no 'heads' .* sweep with TopContexts\(\"heads"):
        selective(found(), kind="heads")
    silent = facts({Site("neurons", 0): (2,)})
    batch = word_batch({"neurons.0": np.ones((8, 2))})
    kinds = [TopContexts("neurons.*", k=3), Moments("neurons.*", pairs="units")]
    given = found_of(
        [silent],
        {kind: gathered(kind, [silent], [batch]) for kind in kinds},
        words=8,
        frequent={"a": 8},
        sentences=corpus()[:1],
    )
    with pytest.raises(ResultError, match="Every unit is silent"):
        selective(given)


# -- its parts -------------------------------------------------------------------------------------------------


def test_the_most_frequent_of_a_row():
    word, share = most_frequent(np.array([[3, 1, 3, 2], [4, 2, 2, 4], [5, 6, 7, 8], [1, 1, 1, 1]]))
    assert word.tolist() == [3, 2, 5, 1]
    assert share.tolist() == [0.5, 0.5, 0.25, 1]


def test_chance_of_two_words_in_closed_form():
    """Three draws of two equally likely words: 3 of 3 with chance 1/4, else 2 of 3."""
    shares = chance_shares({"a": 5, "b": 5}, 10, 3, ends=1, seed=0, draws=40_000)
    assert set(np.round(shares, 6)) == {0.666667, 1.0}
    assert shares.mean() == pytest.approx(1 / 4 + 3 / 4 * 2 / 3, abs=0.003)
    twice = chance_shares({"a": 5, "b": 5}, 10, 3, ends=2, seed=0, draws=40_000)
    assert (twice == 1).mean() == pytest.approx(1 - (3 / 4) ** 2, abs=0.01)


def test_words_that_are_not_listed_never_agree():
    shares = chance_shares({"a": 1}, 1_000_000, 4, ends=1, seed=0, draws=500)
    assert shares.mean() == pytest.approx(0.25, abs=0.01)
    with pytest.raises(ResultError, match="do not fit"):
        chance_shares({"a": 11}, 10, 3, ends=1, seed=0)


def test_the_height_of_a_normal_unit():
    drawn = np.sort(np.random.default_rng(0).normal(size=(200, 5000)), axis=1)
    assert normal_height(20, 5000) == pytest.approx(drawn[:, -20:].mean(), abs=0.02)
    assert normal_height(5, 5) == 0


def test_the_bootstrap_draws_whole_documents():
    hits = np.array([1, 1, 1, 1, 0, 0])
    values = np.arange(6.0)
    low, high = document_bootstrap(hits, values, np.array([0, 0, 0, 0, 1, 1]), seed=0)
    assert low[0] == 0
    assert high[0] == 1
    assert (low[1], high[1]) == (1.5, 4.5)
    same = document_bootstrap(hits, values, np.zeros(6, dtype=int), seed=0)
    assert same[0].tolist() == same[1].tolist() == [4 / 6, 2.5]
    each = document_bootstrap(hits, values, np.arange(6), seed=0, draws=20_000)
    share = np.random.default_rng(1).binomial(6, 4 / 6, size=20_000) / 6
    assert each[0][0] == pytest.approx(np.quantile(share, 0.025), abs=1e-9)


def test_a_word_in_its_sentence():
    sentence = Sentence.of_text("“One two, three four five six seven!” he said.")
    for position, word in enumerate(sentence.words):
        left, middle, right = in_context(sentence, position, around=50)
        assert (middle, word_at(sentence, position)) == (word, word)
        assert left + middle + right == sentence.text
    assert in_context(sentence, 5, around=2) == ("… , three ", "four", " five six …")
    assert in_context(sentence, -1, around=2) == ("", "(special token)", "“One …")


def test_words_of_a_second_sentence_count_on():
    pair = Sentence.of_words(["a", "b"], second=Sentence.of_words(["c", "d"]), joint=True)
    assert [word_at(pair, position) for position in range(4)] == ["a", "b", "c", "d"]
