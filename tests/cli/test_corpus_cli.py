"""`pellucid corpus info`: tables, JSON, options, and one sentence for what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PELLUCID = str(Path(sys.executable).parent / "pellucid")


def pellucid(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PELLUCID, "corpus", "info", *map(str, arguments)], cwd=cwd, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "x.in").write_text("the dog\n\nthe cat sat\n", encoding="utf-8")
    (tmp_path / "x.label").write_text("D N\n\nD N V\n", encoding="utf-8")
    (tmp_path / "t.tsv").write_text("good film\t1\nbad film\t0\n", encoding="utf-8")
    (tmp_path / "a.en").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("eins\nzwei\n", encoding="utf-8")
    return tmp_path


def test_json_tells_everything(folder):
    done = pellucid("x.in", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["sentences"], found["documents"], found["words"], found["distinct_words"]) == (2, 2, 5, 4)
    assert found["labels"][0]["values"] == [["D", 2], ["N", 2], ["V", 1]]
    assert len(found["fingerprint"]) == 32
    assert found["longest"] == ["3", 3]


def test_tables_show_counts_and_labels(folder):
    done = pellucid("t.tsv", "--columns", "text,label", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["words", "4"] in lines
    assert ["film", "2"] in lines
    assert ["label", "sentence", "2", "2", "0", "1,", "1", "1"] in lines


@pytest.mark.parametrize(
    ("arguments", "sentences", "words"),
    [
        (["grammar:20", "--take", "5"], 5, None),
        (["x.in", "--format", "text"], 2, 5),
        (["x.in", "--label-file", "x.label"], 2, 5),
        (["x.in", "--unit", "document", "--format", "text"], 1, 5),
        (["a.en", "--format", "parallel", "--second-file", "a.de"], 2, 4),
        (["t.tsv", "--columns", "body, y", "--text", "body"], 2, 4),
    ],
)
def test_options(folder, arguments, sentences, words):
    done = pellucid(*arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["sentences"] == sentences
    assert words is None or found["words"] == words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.txt"], "There is no file absent.txt"),
        (["t.tsv"], "no field 'text'"),
        (["a.en"], "tells no format"),
        (["x.in", "--format", "xml"], "There is no format 'xml'; the formats are auto, text, conllu"),
        (["a.en", "--format", "parallel"], "needs a second file"),
        (["grammar:x"], "write grammar, grammar:COUNT"),
    ],
)
def test_bad_input_is_one_sentence(folder, arguments, message):
    done = pellucid(*arguments, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_all_values_of_a_label_of_twenty_are_listed(cli):
    code, out, _ = cli("corpus", "info", "grammar:300")
    assert code == 0
    said = " ".join(out.split())
    assert "NUM 38" in said, "the rarest of 14 parts of speech"
