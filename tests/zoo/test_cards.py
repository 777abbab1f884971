"""The zoo's cards: what is listed, what is refused, and files that differ from their card."""

from __future__ import annotations

import json
import shutil

import pytest

from pellucid import zoo
from pellucid.errors import ModelError
from pellucid.model import Model
from pellucid.zoo import Score, cards


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the zoo that a test may damage."""
    folder = tmp_path / "zoo"
    shutil.copytree(cards.FOLDER, folder)
    monkeypatch.setattr(cards, "FOLDER", folder)
    return folder


def test_every_folder_with_a_card_is_listed(copied):
    (copied / "half").mkdir()  # a folder without a card is no model
    before = [card.name for card in zoo.models()]
    shutil.copytree(copied / "lm", copied / "another")
    assert [card.facts["name"] for card in zoo.models()] == ["lm", *before]
    assert zoo.path("another") == copied / "another"
    with pytest.raises(ModelError, match=rf"called 'half'; the zoo has another, {', '.join(before)}\.$"):
        zoo.path("half")


def test_a_card_says_what_its_file_says():
    found = zoo.card("lm")
    facts = json.loads((zoo.path("lm") / "card.json").read_text(encoding="utf-8"))
    assert found.facts == facts
    assert (found.name, found.kind, found.parameters) == ("lm", "causal language model", facts["parameters"])
    assert found.licence.startswith("CC BY-SA 3.0")
    assert found.size == sum(item.stat().st_size for item in zoo.path("lm").iterdir())
    with pytest.raises(AttributeError):
        found.name = "other"


@pytest.mark.parametrize("open_it", [zoo.card, zoo.path, zoo.verify, lambda name: Model.load(f"zoo:{name}")])
@pytest.mark.parametrize("name", ["nothing", "", "..", "lm/..", "lm/"])
def test_an_unknown_name_raises_and_lists_what_exists(open_it, name):
    with pytest.raises(ModelError, match=r"no zoo model called .*; the zoo has (\w+, )*lm(, \w+)*\.$") as caught:
        open_it(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_one_changed_byte_or_a_missing_file_is_found(copied, file):
    assert file in zoo.verify("lm")
    path = copied / "lm" / file
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=rf"{file} of zoo:lm is damaged"):
        zoo.verify("lm")
    path.unlink()
    with pytest.raises(ModelError, match=rf"{file} of zoo:lm is missing"):
        zoo.verify("lm")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": "x"}'])
def test_a_damaged_card_is_one_sentence(copied, content):
    (copied / "lm" / "card.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=r"card\.json of zoo:lm is damaged; install Pellucid again\.$"):
        zoo.card("lm")


def test_a_card_of_a_newer_form_is_refused(copied):
    path = copied / "lm" / "card.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**facts, "format": cards.FORMAT + 1}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"format 3, and this Pellucid reads up to 2"):
        zoo.card("lm")


def test_the_main_score_of_either_form_of_card(copied):
    scores = zoo.card("lm").scores
    assert zoo.card("lm").main == Score(
        "perplexity_per_token",
        scores["test"]["perplexity_per_token"],
        scores["unigram"]["test"]["perplexity_per_token"],
    )
    path = copied / "lm" / "card.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    new = {"test": {"loss": 0.5, "accuracy": 0.75}, "chance": {"test": {"loss": 1.0, "accuracy": 0.25}}}
    path.write_text(json.dumps({**facts, "format": 2, "main": "accuracy", "scores": new}), encoding="utf-8")
    assert zoo.card("lm").main == Score("accuracy", 0.75, 0.25)
    assert str(zoo.card("lm").main) == "accuracy 75.0%"
    path.write_text(json.dumps({**facts, "format": 2, "main": "bleu", "scores": new}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"card\.json of zoo:lm is damaged"):
        zoo.card("lm")


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("accuracy", 0.9314, "accuracy 93.1%"),
        ("f1", 1.0, "F1 100.0%"),
        ("bleu", 33.333, "BLEU 33.3"),
        ("perplexity", 1234.5, "perplexity 1,234"),
        ("loss", 0.123, "loss 0.12"),
    ],
)
def test_scores_as_people_read_them(metric, value, text):
    assert str(Score(metric, value, 0.0)) == text
