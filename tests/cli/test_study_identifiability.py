"""`pellucid study identifiability`: what it writes and prints, and what it refuses."""

from __future__ import annotations

import json

import pytest

from pellucid.studies.identifiability.tables import write
from tests.studies.identifiability_numbers import case


def test_one_model_from_nothing_to_a_page(cli, tmp_path):
    out = tmp_path / "out"
    code, told, said = cli("study", "identifiability", "--smoke", "--models", "small=zoo:tagger", "-o", out, "--json")
    assert code == 0, said
    assert "small: finished in" in said
    assert (out / "identifiability.html").is_file()
    assert (tmp_path / "out-runs" / "small.json").read_bytes() == (out / "small.json").read_bytes()
    answer = json.loads(told)
    assert answer["models"]["small"]["asked"] == {"scale": "smoke", "seed": 0, "model": "zoo:tagger"}
    assert len(answer["claims"]) == 16
    assert {each["verdict"] for each in answer["claims"]} <= {"stands", "does not stand", "cannot be told"}
    assert all(each["rule"] and each["published"] for each in answer["claims"])


def test_drawn_from_numbers_alone(cli, tmp_path):
    write(case("one"), tmp_path)
    code, told, _ = cli("study", "identifiability", "--from", tmp_path, "-o", tmp_path / "page")
    assert code == 0
    assert "What stands" in told
    assert "identifiability.html" in told
    code, _, said = cli("study", "identifiability", "--from", tmp_path, "-o", tmp_path / "page")
    assert code == 2
    assert "not empty" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--quick", "--smoke"), "give one of them"),
        (("--smoke", "--models", ","), "No model was asked for"),
        (("--smoke", "--models", "a=zoo:lm,a=zoo:mlm"), "called 'a'"),
        (("--smoke", "--models", "no-such-folder"), "no-such-folder"),
        ((), "--data"),
        (("--quick", "--data", "nowhere"), "is not in 'nowhere'"),
        (("--from", "nowhere"), "no numbers of a model"),
    ],
)
def test_refusals(cli, tmp_path, monkeypatch, words, told):
    monkeypatch.delenv("PELLUCID_DATA", raising=False)
    code, _, said = cli("study", "identifiability", *words, "-o", tmp_path / "out")
    assert code == 2, said
    assert told in said
    assert said.count("\n") <= 4
    assert not (tmp_path / "out").exists()
