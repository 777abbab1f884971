"""`pellucid study heads`: what it writes and prints, and what it refuses."""

from __future__ import annotations

import json

import pytest

from pellucid.studies.heads.tables import write
from tests.studies.heads_numbers import case


def test_one_case_from_nothing_to_a_page(cli, tmp_path):
    out = tmp_path / "out"
    code, told, said = cli("study", "heads", "--smoke", "--only", "lm", "-o", out, "--json")
    assert code == 0, said
    assert "lm: finished in" in said
    assert (out / "heads.html").is_file()
    assert (tmp_path / "out-runs" / "lm.json").read_bytes() == (out / "lm.json").read_bytes()
    answer = json.loads(told)
    assert list(answer["cases"]) == ["lm"]
    assert {each["verdict"] for each in answer["claims"]} <= {"stands", "does not stand", "cannot be told"}
    assert all(each["rule"] and each["published"] for each in answer["claims"])


def test_drawn_from_cases_alone(cli, tmp_path):
    write(case("classify"), tmp_path)
    code, told, _ = cli("study", "heads", "--from", tmp_path, "-o", tmp_path / "page")
    assert code == 0
    assert "What stands" in told
    assert "heads.html" in told
    page = (tmp_path / "page" / "heads.html").read_text(encoding="utf-8")
    assert "Not in this page: translate (a translator), lm (a language model)." in page
    code, _, said = cli("study", "heads", "--from", tmp_path, "-o", tmp_path / "page")
    assert code == 2
    assert "not empty" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--quick", "--smoke"), "give one of them"),
        (("--smoke", "--only", "translate,speech"), "no case 'speech'"),
        (("--smoke", "--only", ","), "no case asked for"),
        ((), "--data"),
        (("--quick", "--only", "classify"), "reads sst2/train.tsv"),
        (("--data", "nowhere"), "is not in 'nowhere'"),
        (("--from", "nowhere"), "none of translate.json"),
        (("--smoke", "--only", "lm", "--lm", "zoo:mlm"), "does not predict the next word"),
        (("--smoke", "--only", "classify", "--encoder", "zoo:lm"), "is no encoder"),
        (("--smoke", "--only", "lm", "--lm", "no-such-folder"), "no-such-folder"),
    ],
)
def test_refusals(cli, tmp_path, monkeypatch, words, told):
    monkeypatch.delenv("PELLUCID_DATA", raising=False)
    code, _, said = cli("study", "heads", *words, "-o", tmp_path / "out")
    assert code == 2, said
    assert told in said
    assert said.count("\n") <= 4
    assert not (tmp_path / "out").exists()
