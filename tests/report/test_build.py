"""Building a report: one pass for all sections, one folder, whole or not at all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import pellucid.report.build as build
from pellucid.collect.moments import Moments
from pellucid.corpus import Corpus
from pellucid.errors import PellucidError
from pellucid.heads import Pruning
from pellucid.model import Model
from pellucid.report import Section, report
from pellucid.report.sections import card, corpus, made
from tests.report.test_html import Reader
from tests.report.test_pruning import pruning

TEXTS = ["the old dog runs", "a red cat sleeps near the cabinet", "the keys are old", "the dog and the cat"] * 5
MOMENTS = Moments("resid.*", pairs="units", groups=True)


@pytest.fixture
def model(gpt2_folder) -> Model:
    return Model.load(gpt2_folder)


@pytest.fixture
def texts() -> Corpus:
    return Corpus.of(TEXTS, name="some texts")


def section(title="Mine", order=500, render=lambda *_: None, **options) -> Section:
    return Section(title, order, "Says one thing.", render, collectors=lambda _: (MOMENTS,), **options)


@pytest.fixture
def only(monkeypatch):
    """Leaves the given sections, between those that need no analysis."""

    def choose(*chosen: Section) -> None:
        every = (card.SECTION, corpus.SECTION, *chosen, made.SECTION)
        monkeypatch.setattr(build, "all_sections", lambda: every)

    return choose


def names(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_report_is_a_folder_that_explains_itself(model, texts, only, tmp_path):
    only(section(), section("Other", 501, absent=lambda _: "this is a test"))
    page = report(model, texts, tmp_path / "out", command="pellucid report x", marker="tests")
    assert page == tmp_path / "out" / "report.html"
    assert names(tmp_path / "out") == [
        "command.txt",
        "report.html",
        "result.json",
        "tables/fingerprints.csv",
        "tables/frequent_words.csv",
        "tables/sites.csv",
    ]
    assert (tmp_path / "out" / "command.txt").read_text() == "pellucid report x\n"
    about = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (about["format"], about["kind"], about["made by"]) == (1, "report", "tests")
    assert [each["absent"] for each in about["sections"]] == [None, None, None, "this is a test", None]
    assert about["provenance"]["command"] == "pellucid report x"
    assert about["provenance"]["models"][0] == {"name": model.name, "fingerprint": model.fingerprint}
    assert about["provenance"]["corpus"]["fingerprint"] == texts.fingerprint
    text = Reader(page.read_text(encoding="utf-8")).text
    assert "Not in this report: this is a test" in text
    for part in (
        model.fingerprint,
        texts.fingerprint,
        "pellucid report x",
        model.name,
        "some texts",
        "GPT2LMHeadModel",
    ):
        assert part in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_both_models_are_read_in_one_pass(model, texts, only, tmp_path):
    seen = []
    only(section(render=lambda sheet, subject, found: seen.append((subject, found))))
    report(model, texts, tmp_path / "out", seed=3)
    report(model, texts, tmp_path / "alone", control=False)
    (subject, found), (alone, single) = seen
    assert [facts.name for facts in found.models] == [model.name, f"{model.name} (random, seed 3)"]
    assert found.models[1].fingerprint == Model.random_like(model, 3).fingerprint != model.fingerprint
    assert set(found[Moments].keys) == {f"{place}:resid.{layer}" for place in (0, 1) for layer in range(4)}
    assert subject.twin is not None
    assert alone.twin is None
    assert len(single.models) == 1
    words = " ".join(Reader((tmp_path / "alone" / "report.html").read_text(encoding="utf-8")).text.split())
    assert "no randomly initialised control model in this report" in words


def test_quick_reads_less_and_says_so(model, only, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(build, "QUICK", 3)
    only(section(render=lambda sheet, subject, found: seen.append(found.counts.sentences)))
    page = report(model, Corpus.of(TEXTS), tmp_path / "out", quick=True)
    assert seen == [3]
    assert "at most the first 3 sentences" in page.read_text(encoding="utf-8")


def test_a_folder_that_holds_something_is_refused_before_any_work(model, texts, only, tmp_path):
    only(section(render=lambda *_: pytest.fail("nothing must run")))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    with pytest.raises(PellucidError, match=r"'.*out' exists and is not empty"):
        report(model, texts, tmp_path / "out")
    assert names(tmp_path) == ["out/mine.txt"]


def test_an_empty_folder_is_used(model, texts, only, tmp_path):
    only(section())
    (tmp_path / "out").mkdir()
    assert report(model, texts, tmp_path / "out").is_file()


@pytest.mark.parametrize("error", [PellucidError("no"), KeyboardInterrupt(), RuntimeError("bug")])
def test_nothing_half_written_stays(model, texts, only, tmp_path, error):
    def fail(sheet, subject, found):
        sheet.table(["a"], [("1",)], caption="c", name="early")
        assert [path.name.startswith(".out.") for path in tmp_path.iterdir()] == [True]
        raise error

    only(section(render=fail))
    with pytest.raises(type(error)):
        report(model, texts, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_is_done_is_told(model, texts, only, tmp_path):
    told: list[str] = []
    only(section("Mine"), section("Other", 501, absent=lambda _: "a test"))
    report(model, texts, tmp_path / "out", say=told.append)
    assert told == ["The model", "The text", "Mine", "How this was made"]


def test_text_and_names_that_look_like_markup(model, only, tmp_path):
    only(section())
    model.name = "<script>alert('model')</script>"
    evil = Corpus.of(
        ["the <script>alert(1)</script> dog", "שלום לכלב הישן", "我 我 我"], name="<img src=x onerror=alert(2)>"
    )
    page = report(model, evil, tmp_path / "out").read_text(encoding="utf-8")
    seen = Reader(page)
    assert [tag for tag, _ in seen.tags].count("script") == 1
    assert "img" not in {tag for tag, _ in seen.tags}
    for part in ("<script>alert('model')</script>", "<img src=x onerror=alert(2)>", "שלום", "我"):
        assert part in seen.text


def test_words_that_were_cut_or_windowed_are_told(model, only, tmp_path):
    only(section())
    long = Corpus.of([" ".join(["the dog"] * 60), "the cat"])
    windowed = report(model, long, tmp_path / "windowed").read_text(encoding="utf-8")
    assert "(1 of them) were read in overlapping windows" in windowed
    cut = report(model, long, tmp_path / "cut", long="truncate").read_text(encoding="utf-8")
    assert f"(1 of them) were cut, with a loss of {120 - model.limit} words" in cut
    with pytest.raises(PellucidError, match="takes at most"):
        report(model, long, tmp_path / "refused", long="refuse")
    assert not (tmp_path / "refused").exists()


def test_a_given_pruning_is_shown_among_the_sections(model, texts, only, tmp_path):
    only(section("Mine", 52), section("Later", 54))
    made = pruning()
    told = replace(
        made.provenance,
        models=({"name": model.name, "fingerprint": model.fingerprint},),
        corpus={"name": "other texts", "sentences": 1234},
    )
    mine = replace(made, provenance=told)
    page = report(model, texts, tmp_path / "out", control=False, pruning=mine)
    about = json.loads((tmp_path / "out" / "result.json").read_text())
    titles = [each["title"] for each in about["sections"]]
    assert titles[titles.index("Mine") + 1] == "How few heads are needed"
    assert titles.index("Later") > titles.index("How few heads are needed")
    text = Reader(page.read_text(encoding="utf-8")).text
    assert "With 3 (50%) it has 0.840" in text
    assert "on 1,234 sentences of other texts" in text
    assert Pruning.load(tmp_path / "out" / "results" / "pruning").axes == mine.axes
    other = replace(mine, provenance=replace(told, models=({"name": "another", "fingerprint": "x"},)))
    with pytest.raises(PellucidError, match="made with 'another', and this report is on"):
        report(model, texts, tmp_path / "refused", control=False, pruning=other)
    assert not (tmp_path / "refused").exists()
