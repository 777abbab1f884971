"""The report's part on identifiability: attention, tokens and mixing beside the control, or why there are none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pellucid.corpus import Corpus, Sentence
from pellucid.identifiability import attention, mixing
from pellucid.model import Model
from pellucid.report.sections import identifiability as section
from pellucid.report.sheet import Sheet
from pellucid.results import Result
from tests.tiny_models import WORDS, network, word_tokenizer

DICE = np.random.default_rng(2)
TEXTS = [" ".join(DICE.choice(WORDS, size)) for size in (9, 6, 12, 4, 8, 10, 7, 11)]


def subject(model: Any, texts: list[str] = TEXTS, *, twin: Any = None) -> Any:
    return SimpleNamespace(model=model, corpus=Corpus.of(texts), twin=twin, seed=0)


def rendered(place: Path, given: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Sheet, "figure", lambda *_, **__: None)
    sheet = Sheet(place)
    section.render(sheet, given, SimpleNamespace())  # type: ignore[arg-type]
    return "".join(sheet.parts)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(network("gpt2"), tokenizer=word_tokenizer())


def test_numbers_are_those_of_the_analyses(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = subject(model, twin=Model.random_like(model, 0))
    written = rendered(tmp_path, given, monkeypatch)
    for text in ("control model", "random model", "pellucid identifiability MODEL"):
        assert text in written, text
    lines = (tmp_path / "tables" / "identifiability-attention.csv").read_text(encoding="utf-8").splitlines()[1:]
    told = attention(model, given.corpus)
    layers = len(told.axes["layer"])
    moved = [float(line.split(",")[2]) for line in lines if line.startswith("moved")]
    np.testing.assert_allclose(moved, told.measure("moved").mean(1), atol=1e-9)
    assert len(lines) == len(section.MEASURES) * layers
    short = given.corpus.filter(lambda sentence: len(sentence.words) <= section.LONGEST)
    wanted = mixing(model, short, sentences=section.MIXED, probes=section.PROBES, progress=False)
    np.testing.assert_allclose(Result.load(tmp_path / "results" / "mixing").values, wanted.values)


def test_sentences_are_taken_from_every_document_in_turn() -> None:
    made = [Sentence.of_text(f"word {n}", id=str(n), document="abbbc"[n % 5]) for n in range(20)]
    chosen = [sentence.document for sentence in section._spread(Corpus.of(made), 8)]
    assert chosen == ["a", "a", "a", "b", "b", "b", "c", "c"]
    words = section._spread(Corpus.of(made), 7, weight=lambda sentence: len(sentence.words))
    assert [sentence.id for sentence in words] == ["0", "5", "1", "4"]


def test_linear_maps_need_text_and_time(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = rendered(tmp_path, subject(model), monkeypatch)
    assert "Linear maps are left out: states are" in written
    assert Result.load(tmp_path / "results" / "tokens").axes["measure"] == ("identity cosine", "identity l2")
    monkeypatch.setattr(section, "ENOUGH", 1)
    (tmp_path / "more").mkdir()
    rendered(tmp_path / "more", subject(model), monkeypatch)
    assert "linear cosine" in Result.load(tmp_path / "more" / "results" / "tokens").axes["measure"]
    monkeypatch.setattr(section, "WORK", 1)
    (tmp_path / "large").mkdir()
    assert "takes longer than a report" in rendered(tmp_path / "large", subject(model), monkeypatch)


def test_what_cannot_be_told_says_why(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = rendered(tmp_path, subject(model, ["dog"]), monkeypatch)
    assert written.count("This could not be told") >= 2
    assert "nothing can mix" in written
    assert section.absent(subject(model)) is None
    assert "no tokenizer" in str(section.absent(SimpleNamespace(model=SimpleNamespace(tokenizer=None, sites=()))))
