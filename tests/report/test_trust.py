"""The report's part on trust: a small trial for models of every head, and why there is none for the others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pellucid.corpus import Corpus
from pellucid.model import Model
from pellucid.report import Sheet
from pellucid.report.sections import trust
from pellucid.results import Result
from tests.report.test_html import Reader
from tests.tiny_models import network, word_tokenizer

TEXTS = ["the old dog runs", "dog", "a red cat sleeps near the cabinet", "the keys are old"]


def subject(model: Model, texts: list[str]) -> SimpleNamespace:
    return SimpleNamespace(model=model, corpus=Corpus.of(texts, name="lines"), seed=3)


@pytest.mark.parametrize(("name", "told"), [("bert", "in the place of token 1"), ("gpt2", "what the model predicts")])
def test_a_small_trial(name, told, tmp_path, monkeypatch):
    monkeypatch.setattr(Sheet, "figure", lambda *_, **__: None)
    model = Model.load(network(name), tokenizer=word_tokenizer(closing=name == "bert"))
    given, sheet = subject(model, TEXTS), Sheet(tmp_path, "the command")
    assert trust.absent(given) is None
    trust.render(sheet, given, None)
    text = " ".join(Reader("".join(sheet.parts)).text.split())
    result = Result.load(tmp_path / "results" / "trust")
    assert (result.provenance.command, result.provenance.seed) == ("the command", 3)
    assert result.axes["method"] == trust.METHODS
    assert "Tried on 3 sentences" in text
    assert told in text
    for method in trust.METHODS:
        assert f"{method}: its order of tokens is" in text


def test_a_text_that_cannot_be_used_is_said(tmp_path):
    given = subject(Model.load(network("gpt2"), tokenizer=word_tokenizer()), ["dog", "cat"])
    sheet = Sheet(tmp_path)
    trust.render(sheet, given, None)
    assert "could not be tried on this text: No sentence of lines can be used" in Reader("".join(sheet.parts)).text
    assert not sheet.files


def test_models_that_predict_nothing():
    headless = Model.load(network("gpt2").transformer, tokenizer=word_tokenizer())
    assert "no head" in trust.absent(subject(headless, TEXTS))
    assert "no tokenizer" in trust.absent(subject(Model.load(network("gpt2")), TEXTS))
