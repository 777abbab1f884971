"""`pellucid neurons survey`, sentence rows and effects on the command line: what is printed and written."""

from __future__ import annotations

import json

from pellucid.results import Result
from tests.neurons import planted


def test_a_survey_prints_counts_and_saves(cli, tagger, tmp_path):
    line = ["neurons", "survey", tagger, "--corpus", "grammar:60:3", "--sites", "neurons.*", "--no-control"]
    code, printed, told = cli(*line, "-o", tmp_path / "s")
    assert code == 0, told
    assert "mostly silent" in printed
    assert "neurons.0" in printed
    saved = Result.load(tmp_path / "s" / "survey")
    page = (tmp_path / "s" / "neurons.html").read_text(encoding="utf-8")
    assert "mostly silent" in page
    assert "<title>tagger – Pellucid" in page, "the folder of the model, without those above it"
    assert "those that follow place or frequency, over grammar:60:3." in page
    assert planted.names()["NOUN"] in saved.of_kind("mostly silent")
    assert saved.provenance.command.startswith("pellucid neurons survey")
    code, printed, _ = cli(*line, "--json")
    assert json.loads(printed)["survey"]["kind"] == "neurons.survey"


def test_a_neurons_page_has_its_group_and_its_effect(cli, tagger, tmp_path):
    line = ["neurons", "show", tagger, "--corpus", "grammar:60:3", "--neuron", planted.names()["NOUN"], "--cut", "0.3"]
    code, printed, told = cli(*line, "--effects", "15", "-o", tmp_path / "page")
    assert code == 0, told
    assert "without it (zero)" in printed
    page = (tmp_path / "page" / "neurons.html").read_text(encoding="utf-8")
    assert "Without it" in page
    assert "Its group" in page
    saved = Result.load(tmp_path / "page" / "results" / "neuron_reading")
    assert set(saved.table("effects").columns["replacement"].tolist()) == {"zero", "mean"}


def test_sentence_rows_are_ranked_and_words_refused(cli, tagger):
    line = ["neurons", "rank", tagger, "--corpus", "grammar:40:3", "--sites", "neurons.0", "--no-control"]
    code, printed, told = cli(*line, "--concept", "sentence:tense", "--pooling", "sentence-max", "--json")
    assert code == 0, told
    assert set(json.loads(printed)["probeless"]["classes"]) >= {"past", "present"}
    code, printed, told = cli(*line, "--concept", "upos", "--pooling", "sentence-mean")
    assert code == 2
    assert "'upos' is a label of words, and --pooling sentence-mean reads whole sentences" in told
