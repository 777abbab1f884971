"""The section on neurons and parts of speech: its numbers are the ranking's, and it says why it is not there."""

from __future__ import annotations

import json
import time

import numpy as np

import pellucid.report.build as build
from pellucid.model import Model
from pellucid.report import report
from pellucid.report.html import share
from pellucid.report.section import Subject
from pellucid.report.sections import card, concepts, corpus, made
from pellucid.results import Result
from tests.neurons import planted


def subject(model: Model, text) -> Subject:
    return Subject(model, None, text, 0, "command", (), time.perf_counter())


def test_the_section_shows_the_ranking(tmp_path, monkeypatch):
    every = (card.SECTION, corpus.SECTION, concepts.SECTION, made.SECTION)
    monkeypatch.setattr(build, "all_sections", lambda: every)
    page = report(planted.model(), planted.corpus().take(60), tmp_path / "out").read_text(encoding="utf-8")
    result = Result.load(tmp_path / "out" / "results" / "concepts")
    assert result.top(1, "NOUN") == [planted.names()["NOUN"]]
    assert planted.names()["NOUN"] in page
    own = float((np.abs(result.values).max(0) >= 1).mean())
    assert share(own) in page
    told = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [each["absent"] for each in told["sections"] if each["title"] == concepts.SECTION.title] == [None]
    assert "NUM" not in result.classes
    assert "is one by luck: NUM (9)." in page


def test_it_says_why_it_is_not_there(monkeypatch):
    from pellucid.corpus import Corpus

    assert "no parts of speech" in concepts.absent(subject(planted.model(), Corpus.of(["the dog runs"])))
    monkeypatch.setattr(concepts, "MOST", 10)
    assert "128 hidden units are many" in concepts.absent(subject(planted.model(), planted.corpus()))
