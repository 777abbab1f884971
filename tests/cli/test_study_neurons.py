"""`pellucid study neurons`: what it writes and prints, and what it refuses."""

from __future__ import annotations

import json

import pytest

from pellucid.studies.neurons.tables import write
from tests.studies.neurons_numbers import case


def test_one_model_from_nothing_to_a_page(cli, tmp_path):
    out = tmp_path / "out"
    code, told, said = cli("study", "neurons", "--smoke", "--model", "zoo:mlm", "-o", out, "--json")
    assert code == 0, said
    assert "zoo-mlm: finished in" in said
    assert (out / "neurons.html").is_file()
    assert (tmp_path / "out-runs" / "zoo-mlm.json").read_bytes() == (out / "zoo-mlm.json").read_bytes()
    answer = json.loads(told)
    assert list(answer["models"]) == ["zoo-mlm"]
    assert {each["verdict"] for each in answer["claims"]} <= {"stands", "does not stand", "cannot be told"}
    assert all(each["rule"] and each["published"] for each in answer["claims"])


def test_drawn_from_models_alone(cli, tmp_path):
    write(case("first", causal=True), tmp_path)
    write(case("second"), tmp_path)
    code, told, _ = cli("study", "neurons", "--from", tmp_path, "-o", tmp_path / "page")
    assert code == 0
    assert "What stands" in told
    assert "neurons.html" in told
    assert "all models" in told
    code, _, said = cli("study", "neurons", "--from", tmp_path, "-o", tmp_path / "page")
    assert code == 2
    assert "not empty" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--quick", "--smoke"), "give one of them"),
        ((), "--data"),
        (("--quick",), "ud_english_ewt/en_ewt-ud-dev.conllu"),
        (("--data", "nowhere"), "is not in 'nowhere'"),
        (("--from", "nowhere"), "no NAME.json in 'nowhere'"),
        (("--smoke", "--model", "zoo:lm", "--model", "zoo:lm"), "the same file as 'zoo:lm'"),
        (("--smoke", "--model", "zoo:translate"), "has several stacks"),
        (("--smoke", "--model", "no-such-folder"), "no-such-folder"),
    ],
)
def test_refusals(cli, tmp_path, monkeypatch, words, told):
    monkeypatch.delenv("PELLUCID_DATA", raising=False)
    code, _, said = cli("study", "neurons", *words, "-o", tmp_path / "out")
    assert code == 2, said
    assert told in said
    assert said.count("\n") <= 4
    assert not (tmp_path / "out").exists()
