"""Telling tokens from states: against a plain loop over texts, planted cases, and what is refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from pellucid import Corpus, Model, sweep
from pellucid.collect.nearest_tokens import Frequencies, NearestTokens
from pellucid.corpus import Sentence
from pellucid.errors import SweepError
from pellucid.identifiability import tokens
from pellucid.identifiability.notes import IdentifiabilityWarning, notes_of
from pellucid.identifiability.token_maps import RIDGE, few_tokens, held_out
from pellucid.identifiability.token_split import SHARE
from pellucid.results import Result, ResultError
from tests.tiny_models import WORDS, network, save, word_tokenizer


def texts(count: int = 60) -> list[str]:
    dice = np.random.default_rng(0)
    return [" ".join(dice.choice(WORDS, size=dice.integers(4, 10))) for _ in range(count)]


@pytest.fixture(scope="module", params=["gpt2_folder", "bert_folder"])
def model(request):
    return Model.load(request.getfixturevalue(request.param))


@pytest.fixture(scope="module")
def found(model):
    return tokens(model, Corpus.of(texts()), maps=("identity", "linear"))


def states(model: Model, text: str) -> tuple[dict[int, np.ndarray], np.ndarray, np.ndarray]:
    """States by layer [tokens, width], ids, and which tokens are no special ones."""
    batch = model.tokenize(text)
    run = model.run(batch, sites=["resid.*"])
    layers = [site.layer for site in model.sites if site.kind == "resid"]
    rows = {layer: run[f"resid.{layer}"][0].double().numpy() for layer in layers}
    return rows, batch.ids[0].numpy(), ~batch.special[0].numpy()


def plain_rates(model: Model, to: int = 0) -> tuple[np.ndarray, float]:
    """Rates [identity cosine, identity l2, linear cosine, linear l2] by layer, and chance, by loops."""
    every = [states(model, text) for text in texts()]
    learn = [each for place, each in enumerate(every) if place % SHARE != SHARE - 1]
    ask = [each for place, each in enumerate(every) if place % SHARE == SHARE - 1]
    goal = np.concatenate([rows[to][kept] for rows, _, kept in learn])
    rates, chances = [], []
    for layer in sorted(set(every[0][0]) - {to}):
        x = np.concatenate([rows[layer][kept] for rows, _, kept in learn])
        centred = x - x.mean(0)
        own = centred.T @ centred
        weight = np.linalg.solve(own + RIDGE * np.trace(own) / len(own) * np.eye(len(own)), centred.T @ goal)
        hits: list[list[bool]] = []
        for rows, ids, kept in ask:
            inputs = rows[to]
            for place in np.flatnonzero(kept):
                state = rows[layer][place]
                mapped = (state, (state - x.mean(0)) @ weight + goal.mean(0))
                hit: list[bool] = []
                for one in mapped:
                    cosine = inputs @ one / np.linalg.norm(inputs, axis=1) / np.linalg.norm(one)
                    hit += [ids[cosine.argmax()] == ids[place]]
                    hit += [ids[np.linalg.norm(inputs - one, axis=1).argmin()] == ids[place]]
                hits.append(hit)
                chances.append(float((ids == ids[place]).mean()))
        rates.append(np.mean(hits, axis=0))
    return np.stack(rates, axis=1), float(np.mean(chances))


def test_rates_are_those_of_a_plain_loop(model, found):
    rates, chance = plain_rates(model)
    np.testing.assert_allclose(found.values, rates, atol=0.011)  # one token of a hundred may be as near to two
    np.testing.assert_allclose(found.null, chance, atol=1e-9)
    assert found.axes["measure"] == ("identity cosine", "identity l2", "linear cosine", "linear l2")
    assert found.low is not None
    assert found.low.min() >= 0
    assert found.high.max() <= 1


def test_a_turned_space_needs_a_map(bert_folder):
    """States that are a turned copy of the input: not found as they are, and found by a linear map."""
    model = Model.load(bert_folder)
    network = model.hf
    width = network.config.hidden_size
    turn = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(0)))[0]

    class Turned(torch.nn.Module):
        def forward(self, stream, *_args, **_options):
            return stream @ turn

    for place in range(len(network.bert.encoder.layer)):
        layer = network.bert.encoder.layer[place]
        layer.output.LayerNorm = torch.nn.Identity()
        layer.attention.output.LayerNorm = torch.nn.Identity()
        for linear in (layer.attention.output.dense, layer.output.dense):
            torch.nn.init.zeros_(linear.weight)
            torch.nn.init.zeros_(linear.bias)
        layer.output.LayerNorm = Turned()
    turned = Model.load(network, tokenizer=model.tokenizer)
    found = tokens(turned, Corpus.of(texts()), maps=("identity", "linear", "mlp"), random=False)
    assert found.measure("identity cosine").max() < 0.6
    assert found.measure("linear cosine").min() == found.measure("linear l2").min() == 1
    assert found.measure("mlp cosine").min() > found.measure("identity cosine").max()


def test_classes_of_tokens_add_up(found):
    table = found.table("frequencies")
    count = table.columns["tokens"][:, 0, 0]
    whole = (table.columns["rate"] * count[:, None, None]).sum(0) / count.sum()
    np.testing.assert_allclose(whole, found.values, atol=1e-12)


def labelled(documents: int, sentences: int) -> Corpus:
    """Sentences with a label at every word; the first word of all is said once, in the very last sentence."""
    dice = np.random.default_rng(3)
    made = []
    for number in range(documents * sentences):
        words = [*dice.choice(WORDS[2:], size=7), WORDS[1]]
        words += [WORDS[0]] if number == documents * sentences - 1 else []
        labels = {"upos": ["NOUN" if WORDS.index(word) % 2 else "VERB" for word in words]}
        document = f"document {number // sentences}"
        made.append(Sentence.of_words(words, id=str(number), document=document, labels=labels))
    return Corpus.of(made)


def test_rates_by_label_and_frequency_are_those_of_a_loop(bert_folder):
    model, corpus = Model.load(bert_folder), labelled(10, 4)
    found = tokens(model, corpus, maps=("identity",), random=False)
    counts = Counter(word for sentence in corpus for word in sentence.words)
    hits: dict[str, list[list[bool]]] = {}
    for sentence in corpus:
        if int(sentence.document.split()[1]) % SHARE != SHARE - 1:
            continue
        rows, ids, kept = states(model, sentence.text)
        places = np.flatnonzero(kept)
        for place, word in zip(places, sentence.words, strict=True):
            inputs, own = (rows[layer] / np.linalg.norm(rows[layer], axis=1, keepdims=True) for layer in (0, 3))
            hit = [ids[(inputs @ own[place]).argmax()] == ids[place]]
            often = "once" if counts[word] == 1 else "2–9" if counts[word] <= 9 else "10–99"
            for name in ("NOUN" if WORDS.index(word) % 2 else "VERB", often):
                hits.setdefault(name, []).append(hit)
    assert counts[WORDS[1]] == 40  # more than the asked fifth alone has
    classes_of = {"label": ("NOUN", "VERB"), "frequency": ("10–99", "2–9", "once")}
    for name, axis in (("labels", "label"), ("frequencies", "frequency")):
        classes = classes_of[axis]
        table = found.table(name)
        assert table.axes[axis] == classes
        for row, value in enumerate(classes):
            assert int(table.columns["tokens"][row, 0, -1]) == len(hits[value])
            np.testing.assert_allclose(table.columns["rate"][row, 0, -1], np.mean(hits[value]), atol=0.02)


def test_classes_have_intervals_where_several_documents_have_them(bert_folder):
    found = tokens(Model.load(bert_folder), labelled(40, 2), maps=("identity",), random=False)
    table = found.table("frequencies")
    groups = dict(zip(table.axes["frequency"], table.columns["groups"][:, 0, 0].tolist(), strict=True))
    assert groups["once"] == 1
    assert groups["10–99"] > 1
    ends = found.table("frequency intervals")
    assert ends.axes["frequency"] == ("10–99",)
    rates = table.columns["rate"][[list(groups).index("10–99")]]
    assert (ends.columns["low"] <= rates).all()
    assert (rates <= ends.columns["high"]).all()
    assert (ends.columns["high"] - ends.columns["low"]).max() > 0.01
    labels = found.table("label intervals")
    assert labels.axes["label"] == ("NOUN", "VERB")


def test_words_beyond_those_that_were_kept_are_not_said_to_be_there_once():
    assert Frequencies({"a": 120, "b": 9}).name_of("z") == "once"
    assert Frequencies({"a": 120, "b": 9}, most=3).name_of("z") == "once"  # all words were kept
    few = Frequencies({"a": 120, "b": 9}, most=2)
    assert [few.name_of(word) for word in "abz"] == ["100 and more", "2–9", "9 or fewer"]


def test_with_few_documents_sentences_are_split(bert_folder):
    """Two documents of 20 sentences: the same numbers as of 40 documents, and it is said."""
    model = Model.load(bert_folder)
    found = tokens(model, labelled(2, 20), maps=("identity", "linear"), random=False)
    apart = tokens(model, Corpus.of([sentence.text for sentence in labelled(2, 20)]), maps=("identity", "linear"))
    np.testing.assert_allclose(found.values, apart.values, atol=1e-6)
    assert found.provenance.arguments["split"] == "sentences"
    assert apart.provenance.arguments["split"] == "documents"
    assert "four fifths of the sentences" in notes_of(found)[0]
    assert "sentences of one stand on both sides" in notes_of(found)[0]
    assert "four fifths of the documents" in notes_of(apart)[0]


def test_maps_of_few_tokens_are_warned_of(bert_folder):
    model = Model.load(bert_folder)
    width = model.size("resid.1")[-1]
    with pytest.warns(
        IdentifiabilityWarning, match=rf"The linear map was fitted on \d+ tokens for states {width} wide"
    ):
        found = tokens(model, Corpus.of(texts(10)), maps=("linear",), random=False)
    assert any(f"states {width} wide" in line for line in notes_of(found))
    with pytest.raises(ResultError, match="perceptron on has 8 tokens in 4 sentences, too few"):
        tokens(model, Corpus.of(["a cat"] * 5), maps=("mlp",), random=False)
    assert few_tokens("A map", 500, 100) is None
    assert "499 tokens for states 100 wide" in str(few_tokens("A map", 499, 100))
    assert "it takes no more" in str(few_tokens("A map", 499, 100, most=499))


def test_whole_sentences_are_held_out_from_training():
    sentence = np.repeat(np.arange(40), 7)
    out = held_out(sentence, 0)
    assert 28 <= out.sum() < 28 + 7
    inside = [set(out[sentence == number].tolist()) for number in range(40)]
    assert all(len(each) == 1 for each in inside)
    assert not np.array_equal(out, held_out(sentence, 1))
    two = held_out(np.array([0] * 30 + [1] * 5), 0)  # one of two is always left to train on
    assert 0 < two.sum() < 35


def test_perceptrons_of_one_seed_are_the_same(model):
    once, again = (
        tokens(model, Corpus.of(texts(30)), maps=("mlp",), layers=[3], random=False, seed=4) for _ in range(2)
    )
    assert once.same(again)


@pytest.mark.parametrize("maps", [("identity",), ("linear",)])
def test_a_layer_of_nan_is_named(maps):
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    with torch.no_grad():
        model.hf.transformer.h[1].mlp.c_proj.bias[0] = torch.nan
    with pytest.raises(SweepError, match=r"'?resid\.2'? (is|are) NaN or infinite"):
        tokens(model, Corpus.of(texts()), maps=maps, random=False)


def test_long_texts_are_cut_and_told(tmp_path):
    model = Model.load(save(tmp_path / "gpt2", "gpt2"))
    long = " ".join(WORDS * 6)
    found = tokens(model, Corpus.of([*texts(9), long]), maps=("identity",), random=False)
    assert any(line.startswith("Asked about: 1 sentences are cut at the model's limit") for line in notes_of(found))


@pytest.mark.parametrize("to", [1, 2, 3])
def test_between_two_layers(model, to):
    """Also to the last layer, whose states come after all those that are compared with them."""
    found = tokens(model, Corpus.of(texts()), maps=("identity", "linear"), to=to, random=False)
    assert found.axes["layer"] == tuple(layer for layer in range(4) if layer != to)
    rates, chance = plain_rates(model, to)
    np.testing.assert_allclose(found.values, rates, atol=0.011)
    np.testing.assert_allclose(found.null, chance, atol=1e-9)
    some = tokens(model, Corpus.of(texts()), maps=("identity",), to=3, layers=[1], random=False)
    np.testing.assert_allclose(some.values[:, 0], plain_rates(model, 3)[0][:2, 1], atol=0.011)


def test_every_batch_is_compared_with_its_own_states(model):
    """Many small batches, of which each must wait for its own last layer."""
    corpus = Corpus.of(texts())
    rates = [
        sweep(model, corpus, NearestTokens(to="resid.3"), pooling="all", token_budget=budget, progress=False)[
            NearestTokens
        ].rates
        for budget in (8, 4096)
    ]
    np.testing.assert_allclose(rates[0], rates[1], atol=0.005)


def test_shards_merge_to_the_same_counts(model):
    corpus = Corpus.of(texts())
    ways = [
        sweep(model, corpus, NearestTokens(), pooling="all", progress=False, **options)[NearestTokens]
        for options in ({}, {"shard_tokens": 50, "token_budget": 64})
    ]
    assert ways[0].n == ways[1].n == sum(len(text.split()) for text in texts())
    np.testing.assert_allclose(ways[0].rates, ways[1].rates, atol=0.005)


def test_a_result_is_saved_drawn_and_read_again(found, tmp_path):
    found.save(tmp_path / "kept")
    assert Result.load(tmp_path / "kept").same(found)
    found.plot().savefig(tmp_path / "figure.png")


def test_what_cannot_be_asked_is_refused(model):
    with pytest.raises(SweepError, match="no map 'cubic' of states; there are identity, linear, mlp"):
        tokens(model, Corpus.of(texts()), maps=("cubic",))
    with pytest.raises(ResultError, match="3 sentences in 3 documents, too few"):
        tokens(model, Corpus.of(texts(3)))
    with pytest.raises(ResultError, match="no layer 9 to map states to"):
        tokens(model, Corpus.of(texts()), to=9)
