"""Attribution over a corpus: shares by groups of tokens, as a plain loop over single texts gives them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid.attribution import attribute, over_corpus
from pellucid.attribution.over_corpus import spelled
from pellucid.attribution.targets import Target
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import AttributionError
from pellucid.model import Model
from pellucid.results import Result
from tests.attribution.small_corpus import PIECES, TEXTS, by_hand, classifier, pieces, tag, tagged
from tests.tiny_models import network, word_tokenizer


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(classifier(), tokenizer=pieces())


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return tagged()


# -- the same as a plain loop ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["integrated_gradients", "conductance", "gradient_x_activation"])
def test_equal_to_a_plain_loop(model, corpus, method):
    told = over_corpus(model, corpus, method=method, sites="embed,resid.1", group="upos", steps=10)
    for place, site in enumerate(("embed", "resid.1")):
        expected = by_hand(model, TEXTS, method, site, tag)
        assert set(told.axes["group"]) == set(expected)
        for number, name in enumerate(told.axes["group"]):
            share, signed, by_chance = expected[name]
            cell = (0, 0, place, number)
            assert told.measure("share")[cell] == pytest.approx(share, abs=1e-5)
            assert told.measure("signed")[cell] == pytest.approx(signed, abs=1e-5)
            assert told.measure("lift")[cell] == pytest.approx(share / by_chance, abs=1e-4)
            assert told.null[told.place("measure", "share")][cell] == pytest.approx(by_chance, abs=1e-12)


def test_the_interval_leaves_out_whole_documents(model, corpus):
    """Five documents are five groups; the interval follows from estimates without each, written out."""
    told = over_corpus(model, corpus, group="upos", steps=10)
    names = list(dict.fromkeys(document for _, document in TEXTS))
    whole = by_hand(model, TEXTS, "ig", "embed", tag)["NOUN"][0]
    n, pseudo, centre, ratios = len(TEXTS), [], len(names) * whole, []
    for name in names:
        rest = [text for text in TEXTS if text[1] != name]
        ratio = n / (n - len(rest))
        other = by_hand(model, rest, "ig", "embed", tag)["NOUN"][0]
        pseudo.append(ratio * whole - (ratio - 1) * other)
        centre -= (1 - 1 / ratio) * other
        ratios.append(ratio)
    variance = sum((p - centre) ** 2 / (r - 1) for p, r in zip(pseudo, ratios, strict=True)) / len(names)
    reach = 2.7764451 * variance**0.5  # Student's t, 4 degrees of freedom
    cell = (0, 0, 0, 0, told.place("group", "NOUN"))
    assert told.low[cell] == pytest.approx(whole - reach, abs=1e-4)
    assert told.high[cell] == pytest.approx(whole + reach, abs=1e-4)
    assert "5 document groups" in told.resampled


def test_by_token_position_and_special(model, corpus):
    ids = {text: model.tokenize(text).ids[0, 1:-1].tolist() for text, _ in TEXTS}
    told = over_corpus(model, corpus, group="token", steps=10)
    expected = by_hand(model, TEXTS, "ig", "embed", lambda text, token: PIECES[ids[text][token]])
    assert {name: told.measure("share")[0, 0, 0, place] for place, name in enumerate(told.axes["group"])} == {
        name: pytest.approx(share, abs=1e-5) for name, (share, _, _) in expected.items()
    }
    places = over_corpus(model, corpus, group="position", steps=10)
    assert places.axes["group"] == tuple(str(place) for place in range(1, 11))  # [CLS] stands at 0 and is left out
    expected = by_hand(model, TEXTS, "ig", "embed", lambda _, token: str(token + 1))
    assert places.measure("share")[0, 0, 0] == pytest.approx([expected[n][0] for n in places.axes["group"]], abs=1e-5)
    kinds = over_corpus(model, corpus, group="special", steps=10)
    assert set(kinds.axes["group"]) == {"special", "text"}
    frequency = np.mean([2 / (len(ids[text]) + 2) for text, _ in TEXTS])
    assert kinds.null[0, 0, 0, 0, kinds.place("group", "special")] == pytest.approx(frequency)


def test_rare_groups_are_one(model, corpus):
    every = over_corpus(model, corpus, group="token", steps=4)
    few = over_corpus(model, corpus, group="token", steps=4, most=3)
    assert few.axes["group"] == (*every.axes["group"][:3], "(other)")
    assert few.measure("share")[..., 3] == pytest.approx(every.measure("share")[..., 3:].sum(-1))
    assert few.measure("share").sum() == pytest.approx(1)
    assert over_corpus(model, corpus, group="token", steps=4, most=10).axes["group"][10:] == ("(other)",)
    assert few.table("groups").columns["tokens"].sum() == every.table("groups").columns["tokens"].sum() == 32


def test_heads_and_several_targets(model, corpus):
    told = over_corpus(
        model, corpus, ["class:0", "class:2"], "conductance", "heads.*", by="head", group="special", steps=6
    )
    assert told.axes["place"] == ("heads.0:0", "heads.0:1", "heads.1:0", "heads.1:1")
    assert told.axes["target"] == ("class:0", "class:2")
    text, held = TEXTS[0][0], np.zeros(4)
    for text, _ in TEXTS:
        one = attribute(model, text, "class:2", "conductance", "heads.*", by="head", steps=6).values[0, 0]
        sizes = np.abs(one).sum(axis=1)
        held += sizes / sizes.sum() / len(TEXTS)
    places = told.table("places").columns
    assert places["share"][0, 1] == pytest.approx(held, abs=1e-5)
    assert places["chance"] == pytest.approx(0.25)
    without = over_corpus(model, corpus, "class:2", "conductance", "heads.*", by="head", group="upos", steps=6)
    assert without.table("places").columns["share"][0, 0] == pytest.approx(held, abs=1e-5)  # special tokens as well
    assert (places["low"] <= places["share"]).all()


# -- planted answers -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted() -> Model:
    """Only `red` has an embedding, so that only it can do anything on the way from nothing."""
    hf = classifier(seed=3)
    table = hf.get_input_embeddings().weight
    with torch.no_grad():
        kept = table[PIECES.index("red")].clone()
        table.zero_()
        table[PIECES.index("red")] = kept
    return Model.load(hf, tokenizer=pieces())


def test_the_one_token_that_matters_gets_everything(planted, corpus):
    told = over_corpus(planted, corpus, group="token", steps=8)
    shares = dict(zip(told.axes["group"], told.measure("share")[0, 0, 0], strict=True))
    assert shares["red"] == pytest.approx(1)
    assert sum(shares.values()) == pytest.approx(1)  # sentences without it do not count
    tags = over_corpus(planted, corpus, group="upos", steps=8)
    assert tags.measure("share")[0, 0, 0, tags.place("group", "ADJ")] == pytest.approx(1)
    counts = {
        "the red dog runs": 4,
        "the old keys runs the red cabinet": 10,
        "red keys": 3,
        "a old red cabinet runs": 7,
    }
    frequency = np.mean([(text.count("red") + text.count("old")) / n for text, n in counts.items()])
    assert tags.null[0, 0, 0, 0, tags.place("group", "ADJ")] == pytest.approx(frequency)
    assert tags.null[0].sum() == pytest.approx(1)


def test_labels_of_the_second_text_of_a_pair(planted):
    """`red` stands in the second text; its label is found behind the words of the first."""
    pairs = [
        Sentence.of_words(
            ["the", "cabinet"],
            labels={"upos": ["A", "B"]},
            second=Sentence.of_words(["keys", "red", "runs"], labels={"upos": ["C", "D", "E"]}),
            joint=True,
        )
    ]
    told = over_corpus(planted, Corpus.of(pairs), group="upos", steps=8)
    assert told.measure("share")[0, 0, 0, told.place("group", "D")] == pytest.approx(1)
    assert told.low is None
    assert "no interval" in told.resampled


def test_both_texts_of_a_translation():
    model = Model.load(network("bart"), tokenizer=word_tokenizer(closing=True))
    pairs = [
        Sentence.of_words(
            words.split(),
            id=str(number),
            labels={"tag": [f"s{place}" for place, _ in enumerate(words.split())]},
            second=Sentence.of_words(
                second.split(), labels={"tag": [f"t{place}" for place, _ in enumerate(second.split())]}
            ),
        )
        for number, (words, second) in enumerate([("the keys are", "old red"), ("a dog", "cat runs and sleeps")])
    ]
    corpus = Corpus.of(pairs)
    source = over_corpus(model, corpus, group="tag", steps=6)
    assert set(source.axes["group"]) == {"s0", "s1", "s2"}
    assert source.axes["place"] == ("encoder.embed",)
    target = over_corpus(model, corpus, group="tag", steps=6, side="target")
    assert set(target.axes["group"]) == {"t0", "t1", "t2", "t3"}
    shares = np.zeros(4)
    for words, second in (("the keys are", "old red"), ("a dog", "cat runs and sleeps")):
        one = attribute(model, words, decoder=second, sites="*.embed", steps=6)
        own = np.abs(one.values[0, 0, 1][one.tokens.columns["side"] == "target"])
        count = len(second.split())
        own = own[2 : 2 + count]  # the decoder reads </s> <s> before the words
        shares[:count] += own / own.sum() / 2
    found = [target.measure("share")[0, 0, 0, target.place("group", f"t{place}")] for place in range(4)]
    assert found == pytest.approx(shares, abs=1e-5)
    with pytest.raises(AttributionError, match="other text"):
        over_corpus(model, corpus, sites="decoder.resid.1")


# -- what goes around it ---------------------------------------------------------------------------------------------


def test_saved_loaded_and_drawn(model, corpus, tmp_path):
    told = over_corpus(model, corpus, group="upos", sites="embed,resid.*", steps=4)
    told.save(tmp_path / "one")
    assert Result.load(tmp_path / "one").same(told)
    assert over_corpus(model, corpus, group="upos", sites="embed,resid.*", steps=4).same(told)
    assert told.plot().axes


def test_targets_are_spelled_as_they_are_asked_for():
    for text in (
        "class:positive",
        "class@3",
        "start:4",
        "start",
        "token: Paris@-1",
        "contrast:a|b@2",
        "unit:mlp.1:3@0",
    ):
        assert spelled(Target.parse(text)) == text
    assert spelled(Target.label()) == "predicted class"


def test_refusals(model, corpus):
    with pytest.raises(AttributionError, match=r"label 'xpos'; tokens can be grouped by token, .*upos, length"):
        over_corpus(model, corpus, group="xpos")
    with pytest.raises(AttributionError, match="refuse or truncate"):
        over_corpus(model, corpus, long="window")
    with pytest.raises(AttributionError, match="fewer sites"):
        over_corpus(model, corpus, sites="neurons.*", by="unit", memory_limit=1000)
    with pytest.raises(AttributionError, match="at least 1"):
        over_corpus(model, corpus, most=0)


def test_interrupting_leaves_the_model_as_it_was(model, corpus, monkeypatch):
    from pellucid.attribution import over_corpus as module

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = [weight.requires_grad for weight in model.hf.parameters()]
    import sys

    monkeypatch.setattr(sys.modules[module.__module__].Shares, "add", stop)
    with pytest.raises(KeyboardInterrupt):
        over_corpus(model, corpus, steps=4)
    assert [weight.requires_grad for weight in model.hf.parameters()] == before
