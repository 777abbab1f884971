"""The report's part on the importance of heads: a small measurement, and why there is none for some models."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pellucid.corpus import Corpus
from pellucid.model import Model
from pellucid.report import Sheet
from pellucid.report.sections import importance
from pellucid.results import Result
from tests.heads.measuring_models import GRAMMAR, model_for
from tests.report.test_html import Reader
from tests.tiny_models import network, word_tokenizer


def subject(model: Model, corpus: Corpus) -> SimpleNamespace:
    return SimpleNamespace(model=model, twin=model, corpus=corpus, seed=3)


def told(sheet: Sheet) -> str:
    return " ".join(Reader("".join(sheet.parts)).text.split())


@pytest.mark.parametrize(("task", "score"), [("lm", "perplexity"), ("classify", "accuracy")])
def test_a_small_measurement(task, score, tmp_path, monkeypatch):
    monkeypatch.setattr(Sheet, "figure", lambda *_, **__: None)
    given, sheet = subject(model_for(task), GRAMMAR.take(12)), Sheet(tmp_path, "the command")
    assert importance.absent(given) is None
    importance.render(sheet, given, None)
    result = Result.load(tmp_path / "results" / "importance")
    assert result.axes["measure"] == ("confidence", "gradient", "zero")
    assert result.provenance.seed == 3
    text = told(sheet)
    assert f"{score} " in text
    assert "zero: " in text
    assert "beyond their 95% interval" in text


def test_large_models_are_not_ablated_and_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(Sheet, "figure", lambda *_, **__: None)
    monkeypatch.setattr(importance, "WORK", 1.0)
    sheet = Sheet(tmp_path)
    importance.render(sheet, subject(model_for("lm"), GRAMMAR.take(12)), None)
    assert Result.load(tmp_path / "results" / "importance").axes["measure"] == ("confidence", "gradient")
    assert "takes too long for a report" in told(sheet)


def test_a_text_that_cannot_be_used_is_said(tmp_path):
    sheet = Sheet(tmp_path)
    importance.render(sheet, subject(model_for("classify"), Corpus.of(["a b"])), None)
    assert "could not be weighed on this text: The sentences of" in told(sheet)
    assert not sheet.files


def test_models_that_cannot_be_measured():
    headless = Model.load(network("gpt2").transformer, tokenizer=word_tokenizer())
    assert "no head" in importance.absent(subject(headless, GRAMMAR))
    assert "no tokenizer" in importance.absent(subject(Model.load(network("gpt2")), GRAMMAR))
    wrapped = Model.wrap(torch.nn.Linear(2, 2), sites={"out": ""}, tokenize=lambda text: torch.zeros(1, 2))
    assert importance.absent(subject(wrapped, GRAMMAR)) is not None
