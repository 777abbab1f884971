"""The section on single neurons: a survey of all hidden units, and a few told in full, with their group and effect."""

from __future__ import annotations

import time
from collections import Counter

import pellucid.report.build as build
from pellucid import neurons
from pellucid.corpus import Corpus
from pellucid.report import report
from pellucid.report.section import Subject
from pellucid.report.sections import card, concepts, corpus, made, single_neurons
from pellucid.results import Result
from tests.neurons import planted


def made_report(tmp_path, monkeypatch, text, model=None, **options) -> str:
    every = (card.SECTION, corpus.SECTION, single_neurons.SECTION, made.SECTION)
    monkeypatch.setattr(build, "all_sections", lambda: every)
    return report(model or planted.model(), text, tmp_path / "out", **options).read_text(encoding="utf-8")


def neurons_by_words(text) -> tuple[list[str], list[int]]:
    """Classes, and how many words they have."""
    tags = Counter(tag for sentence in text for tag in sentence.label("upos") if tag)
    return list(tags), list(tags.values())


def test_neurons_of_different_classes_with_their_group_and_effect(tmp_path, monkeypatch):
    text = planted.corpus().take(60)
    page = made_report(tmp_path, monkeypatch, text)
    reading = Result.load(tmp_path / "out" / "results" / "single_neurons")
    assert set(reading.neurons) <= set(planted.names().values())
    assert len(reading.neurons) == single_neurons.SHOWN == 3
    assert "3 neurons in full" in page
    for part in ("Its group", "Without it", "Its place in the rankings", "Words", "Its mean in every class"):
        assert page.count(part) >= single_neurons.SHOWN
    lost = [row["lost"] for row in reading.rows_of("effects", reading.neurons[0]) if row["replacement"] == "mean"]
    assert lost[0] > 0
    assert f"without it answers lose {lost[0]:.2%}" in page
    counts = dict(zip(*neurons_by_words(text), strict=True))
    best = [max(reading.rows_of("classes", name), key=lambda row: abs(row["d′"]))["class"] for name in reading.neurons]
    assert len(set(best)) == len(best)
    assert min(counts[cls] for cls in best) >= single_neurons.FEWEST
    survey = Result.load(tmp_path / "out" / "results" / "neuron_survey")
    alone = neurons.survey(planted.model(), text, sites="neurons.*", long="window")
    assert survey.of_kind("mostly silent") == alone.of_kind("mostly silent") != []
    assert (survey.table("sites").columns["random model"] >= 0).all()


def test_without_labels_or_task_it_says_so(tmp_path, monkeypatch):
    from pellucid.model import Model

    bare = Model.load(planted.network().transformer, tokenizer=planted.tokenizer())
    text = Corpus.of([sentence.text for sentence in planted.corpus().take(40)])
    page = made_report(tmp_path, monkeypatch, text, bare, control=False)
    assert "that one word moves most" in page
    assert "it has no task of its own" in page
    assert "Without it" not in page


def test_it_says_why_it_is_not_there(monkeypatch):
    subject = Subject(planted.model(), None, planted.corpus(), 0, "command", (), time.perf_counter())
    assert single_neurons.absent(subject) is None
    monkeypatch.setattr(concepts, "MOST", 10)
    assert "128 hidden units are many" in str(single_neurons.absent(subject))
