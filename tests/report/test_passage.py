"""The shaded passage: each word's surprise is the model's own, and no text is lost or changed."""

from __future__ import annotations

import re

import pytest
import torch

from pellucid.corpus import Sentence
from pellucid.model import Model
from pellucid.report.passage import SENTENCES, WORDS, opening, shaded, word_surprise
from tests.report.test_html import Reader
from tests.tiny_models import network, word_tokenizer


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(network("gpt2"), tokenizer=word_tokenizer())


@pytest.fixture(scope="module")
def opening_model() -> Model:
    """Reads every text after <s>, and </s> after it."""
    return Model.load(network("gpt2"), tokenizer=word_tokenizer(closing=True))


def nats(model: Model, ids: list[int]) -> list[float]:
    """−log p of every token but the first, by the network alone; segment ids only where the tokenizer gives them."""
    given = {"input_ids": torch.tensor([ids])}
    if "token_type_ids" in model.tokenizer.model_input_names:
        given["token_type_ids"] = torch.zeros_like(given["input_ids"])
    with torch.no_grad():
        scores = model.hf(**given).logits[0].log_softmax(-1)
    return [-float(scores[place, token]) for place, token in enumerate(ids[1:])]


def ids_of(text: str) -> list[int]:
    return word_tokenizer()(text)["input_ids"]


def test_every_word_but_an_unpreceded_first_one_has_its_surprise(model):
    text = "the old dog runs"
    found = word_surprise(model, Sentence.of_text(text))
    assert found[0] is None
    assert found[1:] == pytest.approx(nats(model, ids_of(text)), rel=1e-5)


def test_after_an_opening_token_the_first_word_counts_too(opening_model):
    text = "the old dog"
    found = word_surprise(opening_model, Sentence.of_text(text))
    assert found == pytest.approx(nats(opening_model, [1, *ids_of(text), 2])[:3], rel=1e-5)


def test_tokens_of_one_word_add_up(model):
    text = "the old dog runs"
    sentence = Sentence("1", "1", text, ((0, 3), (4, 11), (12, 16)))
    one, two, three = nats(model, ids_of(text))
    assert word_surprise(model, sentence)[1:] == pytest.approx([one + two, three], rel=1e-5)


def test_a_word_without_tokens_and_one_that_opens_the_text_are_not_predicted(model):
    sentence = Sentence("1", "1", "the dog  ", ((0, 7), (7, 7)))
    assert word_surprise(model, sentence) == [None, None]


def test_long_sentences_are_read_in_windows(model):
    assert model.limit is not None
    text = " ".join(["the dog runs and a cat sleeps"] * 15)
    found = word_surprise(model, Sentence.of_text(text))
    assert len(found) == 105 > model.limit
    assert [place for place, value in enumerate(found) if value is None] == [0]
    assert found[1:60] == pytest.approx(nats(model, ids_of(text)[: model.limit])[:59], rel=1e-4)


def test_shading_keeps_the_text_and_grows_with_surprise():
    sentence = Sentence.of_text("Ein <b>Hund</b>  läuft.")
    values = [None, 0.0, 1.0, 2.0, 4.0, 9.0, 0.5, 0.25, 2.0, 1.0, 0.0][: len(sentence.spans)]
    drawn = shaded([(sentence, values)], scale=4.0)
    text, legend = Reader(drawn).text.split("0 nats", 1)
    assert text == sentence.text
    assert "4.00 nats or more, which is chance" in legend
    shades = [float(shade) for shade in re.findall(r"--s:([\d.]+)", drawn)]
    assert shades == [round(0.75 * min(1.0, value / 4), 2) for value in values if value is not None]
    assert drawn.count('class="unread"') == 1
    assert "<b>" not in drawn


def sentences(lengths: list[int], documents: list[str]) -> list[Sentence]:
    return [
        Sentence.of_words(["w"] * length, id=str(place), document=document)
        for place, (length, document) in enumerate(zip(lengths, documents, strict=True))
    ]


def test_a_passage_ends_with_its_document_where_that_is_long_enough():
    found = opening(sentences([30, 30, 30, 30], ["a", "a", "b", "b"]))
    assert [sentence.document for sentence in found] == ["a", "a"]


def test_short_documents_are_read_on():
    found = opening(sentences([5] * 30, [str(number) for number in range(30)]))
    assert len(found) == WORDS // 2 // 5
    assert len(opening(sentences([1] * 30, ["a"] * 30))) == SENTENCES
    assert len(opening(sentences([500, 5], ["a", "a"]))) == 1
