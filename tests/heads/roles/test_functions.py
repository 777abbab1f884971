"""Head functions: planted heads are found, random ones are not; corrections, thresholds, and what cannot be told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import pellucid as pl
from pellucid.corpus import Corpus, Sentence
from pellucid.heads import functions, head_collectors
from pellucid.heads.roles.chance import holm, p_values
from pellucid.heads.roles.examples import examples
from pellucid.model import Model
from pellucid.results import Result, ResultError
from tests.heads.built_models import PLANTED, REST, grammar_corpus, planted, random_model, repeated_corpus
from tests.tiny_models import network, opened, word_tokenizer

NAMES = {function: f"{layer}.{head}" for function, (layer, head) in PLANTED.items()}


@pytest.fixture(scope="module")
def found():
    model = planted()
    return pl.sweep(model, grammar_corpus(), head_collectors(model), progress=False)


@pytest.fixture(scope="module")
def result(found):
    return functions(found)


def test_the_planted_heads_and_no_others(result):
    assert result.heads("positional") == [NAMES["previous"]]
    assert result.heads("rare words") == [NAMES["rare"]]
    assert result.heads("induction") == [NAMES["induction"]]
    assert result.heads("syntactic")[0] == NAMES["subject"]
    assert not {f"{layer}.{head}" for layer, head in REST} & set(result.labels)
    assert {name: labels[0] for name, labels in result.labels.items()} == {
        NAMES["previous"]: "positional",
        NAMES["subject"]: "syntactic",
        NAMES["rare"]: "rare words",
        NAMES["induction"]: "induction",
    }
    told = result.table("labels").columns
    assert told["offset"][PLANTED["previous"]] == "-1"
    assert told["relation"][PLANTED["subject"]] == "nsubj to dependent"
    assert told["relation"][PLANTED["previous"]] == ""


def test_scores_are_what_the_heads_were_built_for(result):
    assert result.measure("positional")[PLANTED["previous"]] == 1
    assert result.measure("rare words")[PLANTED["rare"]] == 1
    assert result.measure("induction")[PLANTED["induction"]] > 0.9
    tests = result.table("tests").columns
    for function, name in (("positional", "previous"), ("rare words", "rare"), ("induction", "induction")):
        at = result.place("measure", function), *PLANTED[name]
        assert tests["corrected"][at] < 1e-3
        assert result.low[at] > result.null[at]
    assert (tests["corrected"] >= tests["p"]).all()


def test_rare_words_are_counted_by_sentence(result, found):
    """Number, chance and score are of sentences, each of which hits or not."""
    counts = Counter(word.lower() for sentence in grammar_corpus() for word in sentence.words)
    chances = []
    for sentence in grammar_corpus():
        told = [counts[word.lower()] for word in sentence.words]
        shares = [told[: at + 1].count(min(told[: at + 1])) / (at + 1) for at in range(1, len(told))]
        chances.append(sorted(shares, reverse=True)[len(shares) // 2])
    at = result.place("measure", "rare words"), *PLANTED["rare"]
    assert result.table("tests").columns["n"][at] == len(chances) == 400
    assert result.null[at] == pytest.approx(np.mean(chances))
    other = result.place("measure", "rare words"), *PLANTED["previous"]
    words = found[pl.HeadTargets].links("pattern.0")[0, 0, PLANTED["previous"][1]]
    assert 0 < result.values[other] != pytest.approx(words / found[pl.HeadTargets].cases("pattern.0")[0, 0])


def test_the_best_fixed_offset_is_the_syntactic_baseline(result):
    """The previous-token head finds every dependent that stands before its head, and is not syntactic for it."""
    counts = {}
    for sentence in grammar_corpus():
        for head in range(len(sentence.words)):
            own = {arc.dependent - head for arc in sentence.arcs if arc.head == head and arc.relation == "nsubj"}
            for offset in {offset for offset in own if offset < 0}:
                counts[offset] = counts.get(offset, 0) + 1
    table = result.table("baselines")
    at = table.axes["relation"].index("nsubj to dependent")
    offset = max(counts, key=lambda each: counts[each])
    assert table.columns["offset"][at] == offset == -1
    assert table.columns["share"][at] == pytest.approx(counts[offset] / table.columns["n"][at])
    relations = result.table("relations").columns
    back = relations["share"][at][PLANTED["previous"]]
    assert back == pytest.approx(table.columns["share"][at])
    assert relations["above the best offset"][at][PLANTED["subject"]] > 0.1
    own = relations["above the best offset"].argmax(0)  # a head's own relation is not the one it finds most often
    assert (own != relations["share"].argmax(0)).any()
    assert np.array_equal(result.measure("syntactic"), np.take_along_axis(relations["share"], own[None], axis=0)[0])


def test_repeated_words_show_the_induction_head_and_say_what_is_missing():
    result = functions(planted(), repeated_corpus())
    assert result.heads("induction") == [NAMES["induction"]]
    assert result.measure("induction")[PLANTED["induction"]] > 0.95
    assert "syntactic" not in result.axes["measure"]
    skipped = result.table("skipped").columns
    assert dict(zip(skipped["function"].tolist(), skipped["why"].tolist(), strict=True)) == {
        "syntactic": "the corpus has no dependency arcs"
    }
    assert set(result.measures) == set(result.axes["measure"])


@pytest.mark.parametrize("causal", [True, False])
def test_random_models_have_no_functions(causal):
    """Eight heads each of several models, near-uniform and sharp: not one label."""
    corpus = grammar_corpus().take(150)
    for seed in range(3):
        for scale in (0.02, 0.5):
            model = random_model(seed, causal=causal, scale=scale)
            assert functions(model, corpus, random=False).labels == {}, (seed, scale)


def captions(count: int = 60) -> Corpus:
    """Captions whose rarest word is one of many sub-words, as rare words are: even attention ends there."""
    dice = np.random.default_rng(0)
    strange = ["".join(dice.choice(list("bcdfgklmnprstvz"), 12)) for _ in range(count)]
    places = ["a man in a blue shirt sits on the {}", "two dogs run near a {} in the snow", "the {} of a young girl"]
    return Corpus.of([places[at % 3].format(word) for at, word in enumerate(strange)], name="captions")


def test_random_models_of_sub_words_have_no_functions():
    """Without a random model to compare with, every head of a random model would look for rare words."""
    model = Model.random_like(Model.load("zoo:translate"), 1)
    model.name = "another random model"
    alone, beside = functions(model, captions(), random=False), functions(model, captions())
    assert set(alone.labels.values()) == {("rare words",)}
    assert "No randomly initialised model was read" in alone.beside_random
    assert beside.labels == {}
    assert "rare words (12 of 12 heads" in beside.beside_random


def test_heads_of_a_random_twin_raise_the_bar(result):
    """What a network that has learned nothing does as well is no function; where it does nothing, nothing changes."""
    model, corpus = planted(), grammar_corpus()
    collectors = head_collectors(model)
    beside = functions(pl.sweep([model, Model.random_like(model)], corpus, collectors, progress=False))
    assert beside.labels == result.labels
    assert set(beside.table("random model").columns["heads"]) == {0}
    assert beside.beside_random.startswith("No head of a randomly initialised model passes")
    assert result.beside_random.startswith("No randomly initialised model was read")
    assert functions(model, corpus.take(60)).beside_random.startswith("No head of a randomly")
    as_good = Model.load(model.hf, tokenizer=model.tokenizer)
    as_good.name = f"{model.name} (random, seed 0)"
    found = pl.sweep([model, as_good], corpus, collectors, progress=False)
    none = functions(found)
    assert none.labels == {}
    told = dict(zip(*(none.table("random model").columns[name].tolist() for name in ("function", "best")), strict=True))
    assert told["positional"] == result.measure("positional").max()
    assert "positional (1 of" in none.beside_random
    assert "0.10 better" in none.beside_random
    kept = functions(found, beyond=0.0).labels
    assert kept == {**result.labels, NAMES["rare"]: ("rare words",)}, "as good as the best is good enough"


def test_the_false_positives_of_the_test_itself_are_rare():
    """Largest weights on random words: the smallest corrected p of 40 heads is under .05 in few of 200 draws."""
    dice = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        size = dice.integers(3, 12, size=60)  # words in sight of a sentence's queries
        hits = dice.binomial(6, 1 / size[:, None], size=(60, 40)).astype(float)
        expected = 6 / size
        spread = ((hits - expected[:, None]) ** 2).sum(0)
        variance = np.maximum(spread, (6 / size * (1 - 1 / size)).sum())
        p = p_values(hits.sum(0), np.full(40, expected.sum()), variance, np.full(40, 360.0))
        wrong += bool((holm(p) < 0.05).any())
    assert wrong <= 20


def test_p_values_and_holm():
    p = p_values(np.array([5.0, 0.0, 3.0]), np.array([2.0, 2.0, 3.0]), np.array([4.0, 4.0, 0.0]), np.array([9.0, 9, 0]))
    assert p[:2] == pytest.approx(stats.norm.sf([1.5, -1.0]))
    assert p[2] == 1  # no queries, no test
    given = np.array([[0.01, 0.04], [0.03, 0.005]])
    assert holm(given) == pytest.approx(np.array([[0.03, 0.06], [0.06, 0.02]]))


def test_thresholds_are_arguments(found):
    strict = functions(found, positional=1.0, induction=0.99, syntactic=0.9, rare_times=6)
    assert strict.labels == {NAMES["previous"]: ("positional",)}
    assert functions(found, level=1e-60).heads("induction") == []
    wide = functions(found, without=())
    assert "punct to head" in wide.table("relations").axes["relation"]
    assert "punct to head" not in functions(found).table("relations").axes["relation"]
    assert len(functions(found, least=200).table("baselines").axes["relation"]) < 20
    assert strict.provenance.arguments["induction"] == 0.99


@pytest.mark.parametrize(
    ("options", "told"),
    [({"sink": 0}, "sink=0 is a share"), ({"level": 2}, "level=2 is a share"), ({"least": 0}, "least=0 at least 1")],
)
def test_rules_that_make_no_sense(found, options, told):
    with pytest.raises(ResultError, match=told):
        functions(found, **options)


def test_what_is_neither_a_sweep_nor_a_model_and_a_corpus(found):
    with pytest.raises(ResultError, match="has its corpus already"):
        functions(found, grammar_corpus())
    with pytest.raises(ResultError, match="give a corpus to read"):
        functions(planted())
    with pytest.raises(pl.PellucidError, match="no HeadTargets"):
        functions(pl.sweep(planted(), grammar_corpus().take(5), pl.HeadCounts(), progress=False))


def test_one_word_sentences_are_refused_by_name():
    with pytest.raises(ResultError, match="No query sees two words"):
        functions(planted(), Corpus.of(["dog", "she"]))


def test_a_model_without_attention_weights_is_refused():
    linear = Model.wrap(torch.nn.Linear(3, 3), sites={"out": ""}, name="a linear map")
    with pytest.raises(ResultError, match="'a linear map' shows no self-attention weights"):
        functions(linear, Corpus.of(["the old dog runs"]))


def test_offsets_with_few_cases_are_not_tested():
    """In 15 sentences of eight words, seven words before stand 15 words only: a head cannot be positional there."""
    corpus = repeated_corpus(15, length=4)
    result = functions(planted(), corpus, random=False)
    assert result.table("offsets").axes["offset"] == ("-6", "-5", "-4", "-3", "-2", "-1", "0")
    assert "-7" in functions(planted(), corpus, least=15, random=False).table("offsets").axes["offset"]
    assert result.heads("positional") == [NAMES["previous"]]
    with pytest.raises(ResultError, match="fewer than 400 cases of every function"):
        functions(planted(), corpus, random=False, least=400)


def test_with_grouped_queries_a_head_is_a_query_head():
    model = Model.load(network("llama"), tokenizer=word_tokenizer())
    config = opened("llama").hf.config
    assert config.num_key_value_heads < config.num_attention_heads
    texts = ["the old dog runs near the red cat"] * 12
    result = functions(model, Corpus.of(texts))
    assert len(result.axes["head"]) == config.num_attention_heads


def test_saved_and_loaded(result, tmp_path):
    again = Result.load(result.save(tmp_path / "functions"))
    assert again.same(result)
    assert again.labels == result.labels


def test_examples_are_sentences_where_the_head_does_it(result, found):
    made = examples(planted(), grammar_corpus(), result, found.corpus_words)
    own = [(name, function) for name, functions in result.labels.items() for function in functions]
    counts = Counter((f"{each.layer}.{each.head}", each.function) for each in made)
    assert set(counts) == set(own)
    often = {key: count for key, count in counts.items() if key[1] in ("positional", "rare words")}
    assert set(often.values()) == {3}  # other functions may have fewer sentences that show them
    assert max(counts.values()) == 3
    assert len({each.sentence.id for each in made}) < len(made)  # equally good ones are from few sentences
    for function, name in (("positional", "previous"), ("rare words", "rare"), ("syntactic", "subject")):
        best = next(each for each in made if each.function == function and (each.place, each.head) == PLANTED[name])
        assert best.hits == best.cases > 0
    for each in made:
        shares = [one.hits / (one.cases + 1) for one in made if (one.function, one.place, one.head) == _who(each)]
        assert shares == sorted(shares, reverse=True)
        if each.function == "induction":
            words = [word.lower() for word in each.sentence.words]
            assert len(set(words)) < len(words)
    alone = examples(planted(), grammar_corpus(), result, found.corpus_words, each=1, tried=5)
    assert len(alone) <= len(own)
    early = [each.id for each in grammar_corpus() if 6 <= len(each.words) <= 25][:5]
    assert {each.sentence.id for each in alone} <= set(early)


def _who(example):
    return example.function, example.place, example.head


def test_heads_of_a_decoder_read_its_own_text():
    """Of an encoder–decoder, `side` says whose heads are looked at; a decoder never reads its last word."""
    model = Model.load(network("bart"), tokenizer=word_tokenizer())
    first, second = "the old dog sleeps near the cat", "a red dog runs the dog runs"
    pairs = [
        replace(Sentence.of_words(first.split(), id=str(at)), second=Sentence.of_words(second.split()))
        for at in range(24)
    ]
    corpus = Corpus.of(pairs)
    for side, count in (("source", 7), ("target", 6)):
        found = pl.sweep(model, corpus, head_collectors(model, side=side), side=side, progress=False)
        result = functions(found)
        assert result.axes["layer"] == tuple(range(len(result.axes["layer"])))
        assert result.table("tests").columns["n"][result.place("measure", "sink")].max() == 24 * count
        everything = functions(found, sink=1e-9, positional=1e-9, duplicate=1e-9, level=1.0)
        made = examples(model, corpus, everything, found.corpus_words, side=side)
        assert made
        assert all(each.sentence.second is not None for each in made)
    with pytest.raises(ResultError, match="no weights of a decoder"):
        head_collectors(planted(), side="target")
