"""`pellucid importance`: a table, a page, JSON, and refusals in one sentence."""

from __future__ import annotations

import json

import pytest

from pellucid.results import Result
from tests.heads.measuring_models import model_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model") / "classifier"
    model = model_for("classify")
    model.hf.save_pretrained(place)
    model.tokenizer.save_pretrained(place)
    return place


def test_a_table_and_a_page(cli, folder, tmp_path):
    out = tmp_path / "weighed"
    line = ["importance", str(folder), "--corpus", "grammar:24", "--methods", "gradient,zero", "--batch", "8"]
    code, printed, told = cli(*line, "-o", out)
    assert code == 0, told
    said = " ".join(printed.split())
    assert "the first 6 of 6 by zero (rank in brackets)" in said
    assert "Agreement of ranks (chance: 0)" in said
    assert "classify: accuracy" in said
    assert "interval: " in said
    page = (out / "importance.html").read_text(encoding="utf-8")
    assert "change of accuracy" in page
    assert "<svg" in page
    result = Result.load(out / "results" / "importance")
    assert result.kind == "heads.importance"
    assert result.axes["measure"] == ("gradient", "zero")
    assert result.provenance.command.startswith("pellucid")
    for name in ("importance", "importance-first", "importance-agreement", "importance-changes"):
        assert (out / "tables" / f"{name}.csv").is_file()
    assert cli(*line, "-o", out)[0] == 2  # not over something


def test_json(cli, folder):
    line = ["importance", str(folder), "--corpus", "grammar:12", "--methods", "zero", "--no-random", "--json"]
    code, printed, _ = cli(*line)
    assert code == 0
    told = json.loads(printed)
    assert told["axes"]["head"] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert len(told["value"][0]) == 6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--corpus", "grammar:4", "--methods", "magic"], "no method 'magic'"),
        (["--corpus", "grammar:4", "--task", "lm"], "cannot be measured by 'lm'"),
        (["--corpus", "grammar:4", "--label", "mood"], "no label 'mood'"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(cli, folder, tmp_path, options, said):
    out = tmp_path / "weighed"
    code, _, error = cli("importance", folder, *options, "-o", out)
    assert code == 2
    assert said in error
    assert "Traceback" not in error
    assert not out.exists()
