"""`pellucid report` and `pellucid demo`: the folders they write, and one sentence where they cannot."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

import pellucid.report.build as build
from pellucid.cli import demo
from pellucid.model import Model
from pellucid.report import all_sections
from tests.report.test_html import Reader
from tests.report.test_pruning import pruning

TEXT = """the old dog runs
a red cat sleeps near the cabinet

the keys are old
the dog and the cat
"""


@pytest.fixture
def notes(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text(TEXT * 6, encoding="utf-8")
    return path


@pytest.fixture
def few(monkeypatch):
    """Only the sections that are quickest to make."""
    chosen = tuple(section for section in all_sections() if section.title.startswith(("The ", "How")))
    monkeypatch.setattr(build, "all_sections", lambda: chosen)


def text_of(folder) -> str:
    return " ".join(Reader((folder / "report.html").read_text(encoding="utf-8")).text.split())


def files(folder) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_report_from_a_text_file(cli, gpt2_folder, notes, tmp_path):
    out = tmp_path / "out"
    words = ("report", gpt2_folder, "--corpus", notes, "-o", out, "--seed", 4)
    code, said, err = cli(*words)
    assert (code, err) == (0, "")
    assert said.strip() == f"The report is in {out / 'report.html'}"
    assert (out / "command.txt").read_text().strip() == shlex.join(["pellucid", *map(str, words)])
    about = json.loads((out / "result.json").read_text())
    assert about["made by"] is None
    assert about["provenance"]["seed"] == 4
    assert [model["name"] for model in about["provenance"]["models"]] == [
        str(gpt2_folder),
        f"{gpt2_folder} (random, seed 4)",
    ]
    linked = {name for section in about["sections"] for name in section["files"]}
    there = files(out)
    assert all(name in there or f"{name}result.json" in there for name in linked)
    assert there - {"report.html", "result.json", "command.txt"} == {
        name for name in there if name in linked or name.startswith(tuple(x for x in linked if x.endswith("/")))
    }
    for name in sorted(there):
        if name.startswith("results/") and name.endswith("result.json"):
            assert json.loads((out / name).read_text())["provenance"]["command"].startswith("pellucid report")
    code, shown, _ = cli("show", out / "results" / "heads")
    assert code == 0
    assert "uniform attention" in shown


def test_options_reach_the_report(cli, few, gpt2_folder, notes, tmp_path):
    code, _, err = cli("report", gpt2_folder, "--corpus", notes, "-o", tmp_path / "out", "--no-control", "--take", 5)
    assert (code, err) == (0, "")
    about = json.loads((tmp_path / "out" / "result.json").read_text())
    assert about["provenance"]["corpus"]["sentences"] == 5
    assert len(about["provenance"]["models"]) == 1
    assert "no randomly initialised control model" in text_of(tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--corpus", "nowhere.txt"], "nowhere.txt"),
        (["--corpus", "NOTES", "--long", "shorten"], "There is no long='shorten'"),
        (["--corpus", "NOTES", "--dtype", "int3"], "There is no dtype 'int3'"),
        (["--corpus", "NOTES", "-o", "missing/out"], "There is no folder"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(cli, gpt2_folder, notes, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    given = [str(notes) if word == "NOTES" else word for word in words]
    code, said, err = cli("report", gpt2_folder, "-o", "out", *given)
    assert (code, said) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_holds_something_is_left_alone(cli, gpt2_folder, notes, tmp_path):
    code, _, err = cli("report", gpt2_folder, "--corpus", notes, "-o", tmp_path)
    assert code == 2
    assert "exists and is not empty" in err
    assert files(tmp_path) == {"notes.txt"}


def test_an_interrupted_pass_is_kept_where_asked(cli, few, gpt2_folder, notes, tmp_path):
    words = ("report", gpt2_folder, "--corpus", notes, "--no-control", "--sweep", tmp_path / "pass")
    assert cli(*words, "-o", tmp_path / "one")[0] == 0
    assert (tmp_path / "pass" / "states.safetensors").is_file()
    assert cli(*words, "-o", tmp_path / "two")[0] == 0
    one, two = ((tmp_path / name / "results" / "norms" / "arrays.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


# -- the demo ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_demo(monkeypatch, few, gpt2_folder, tmp_path):
    """The demo on a tiny model and little text, in a folder of its own."""
    monkeypatch.setattr(demo, "MODEL", str(gpt2_folder))
    monkeypatch.setattr(demo, "SENTENCES", 30)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_demo_writes_a_report_and_says_where_it_is_and_how_to_go_on(cli, small_demo):
    code, said, err = cli("demo", "--quick")
    assert (code, err) == (0, "")
    place = small_demo / "pellucid-demo" / "report.html"
    assert place.is_file()
    first, second = said.strip().splitlines()
    assert first == f"Open this file in a browser: {place}"
    assert "pellucid report ./my-model --corpus notes.txt" in second


def test_an_earlier_demo_is_replaced_and_nothing_else(cli, small_demo):
    assert cli("demo")[0] == 0
    (small_demo / "pellucid-demo" / "stale.txt").write_text("old")
    assert cli("demo")[0] == 0
    assert not (small_demo / "pellucid-demo" / "stale.txt").exists()
    assert [path.name for path in small_demo.iterdir()] == ["pellucid-demo"]
    about = json.loads((small_demo / "pellucid-demo" / "result.json").read_text())
    assert about["made by"] == "pellucid demo"


@pytest.mark.parametrize("content", ["{", "[]", '{"made by": null}', None])
def test_a_folder_of_something_else_is_refused(cli, small_demo, content):
    folder = small_demo / "pellucid-demo"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    if content is not None:
        (folder / "result.json").write_text(content)
    before = files(folder)
    code, said, err = cli("demo")
    assert (code, said) == (2, "")
    assert "is not an earlier demo's folder" in err
    assert files(folder) == before


def test_a_demo_that_fails_keeps_the_earlier_one(cli, small_demo, monkeypatch):
    assert cli("demo")[0] == 0
    before = files(small_demo / "pellucid-demo")
    monkeypatch.setattr(demo, "MODEL", "./nowhere")
    assert cli("demo")[0] == 2
    assert files(small_demo / "pellucid-demo") == before
    assert [path.name for path in small_demo.iterdir()] == ["pellucid-demo"]


def test_a_folder_of_a_pruning_is_shown_or_refused(cli, gpt2_folder, notes, few, tmp_path):
    made, fingerprint = pruning(), Model.load(gpt2_folder).fingerprint
    told = {"name": "some texts", "sentences": 40}
    origin = replace(made.provenance, models=({"name": "a model", "fingerprint": fingerprint},), corpus=told)
    (tmp_path / "pruned").mkdir()
    replace(made, provenance=origin).save(tmp_path / "pruned" / "result")
    words = ("report", gpt2_folder, "--corpus", notes, "--no-control", "--pruning")
    code, _, told = cli(*words, tmp_path / "pruned", "-o", tmp_path / "out")
    assert code == 0, told
    assert "How few heads are needed" in text_of(tmp_path / "out")
    code, _, told = cli(*words, tmp_path / "nothing", "-o", tmp_path / "other")
    assert code == 2
    assert "nothing" in told
    assert not (tmp_path / "other").exists()
