"""The section on one sentence: which sentence, and the views that stand in the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pellucid.corpus import Corpus
from pellucid.model import Model
from pellucid.report.page import Written, page
from pellucid.report.section import Section
from pellucid.report.sections import sentence
from pellucid.report.sheet import Sheet
from tests.tiny_models import WORDS, network, word_tokenizer

GOOD = " ".join(WORDS[place % len(WORDS)] for place in range(9))


def subject(model: Any, *texts: str) -> Any:
    return SimpleNamespace(model=model, corpus=Corpus.of(texts or [GOOD]))


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(network("gpt2"), tokenizer=word_tokenizer())


def test_the_first_sentence_of_a_good_length_is_taken() -> None:
    short, long = " ".join(WORDS[:5]), " ".join([WORDS[0]] * 40)
    assert sentence.chosen(Corpus.of([WORDS[0], long, short, GOOD, f"{GOOD} again"])) == GOOD
    assert sentence.chosen(Corpus.of([WORDS[0], long, short, WORDS[1]])) == short
    assert sentence.chosen(Corpus.of([long])) is None


def test_views_stand_in_the_page_and_alone(model: Model, tmp_path: Path) -> None:
    sheet = Sheet(tmp_path)
    sentence.render(sheet, subject(model, GOOD), SimpleNamespace())
    assert sheet.views == ["sentence-heads", "sentence-tokens"]
    assert all((tmp_path / "views" / f"{name}.html").stat().st_size > 10_000 for name in sheet.views)
    written = page("title", "about", [], [Written(sentence.SECTION, sheet, None)])
    headers = [json.loads(text) for text in re.findall(r"data-header>(.*?)</script>", written)]
    assert [header["kind"] for header in headers] == ["attention", "text"]
    assert headers[0]["state"]["mode"] == "model"
    assert headers[0]["panels"][0]["tokens"]["text"]["text"][-1] == GOOD.split()[-1]
    assert written.count('id="pellucid-bundle"') == 1  # once for both
    for part in written.split('<div class="pellucid-embedded">')[1:]:
        names = re.findall(r'data-chunk="([^"]+)"', part[: part.index("</figure>")])
        assert len(names) == len(set(names)) > 2


def test_pages_without_views_hold_no_bundle(tmp_path: Path) -> None:
    section = Section("Words", 0, "About words.", render=lambda *_: None)
    assert "pellucid-bundle" not in page("title", "about", [], [Written(section, Sheet(tmp_path), None)])


def test_text_of_long_sentences_alone_says_so(model: Model, tmp_path: Path) -> None:
    sheet = Sheet(tmp_path)
    sentence.render(sheet, subject(model, " ".join([WORDS[0]] * 40)), SimpleNamespace())
    assert sheet.views == []
    assert "No sentence of this text" in "".join(sheet.parts)


def test_models_that_show_no_attention_go_without(model: Model) -> None:
    assert sentence.absent(subject(model)) is None
    blind = SimpleNamespace(tokenizer=object(), sites=[site for site in model.sites if site.kind != "pattern"])
    assert "no attention weights" in str(sentence.absent(subject(blind)))
    assert "no tokenizer" in str(sentence.absent(subject(SimpleNamespace(tokenizer=None, sites=model.sites))))
