"""`pellucid similarity`: the folder it writes, what it prints, and what it refuses."""

from __future__ import annotations

import json

import pytest

from pellucid.results import Result
from tests.tiny_models import save


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("similarity")
    save(place / "one", "gpt2")
    save(place / "two", "bert")
    return place


def test_a_folder_that_explains_itself(cli, folder, tmp_path):
    out = tmp_path / "out"
    code, said, told = cli(
        "similarity", folder / "one", "--corpus", "grammar:40", "--metrics", "cka,svcca:5", "--p-values", "-o", out
    )
    assert code == 0
    assert "Method" in told
    assert "comparison.html" in said
    assert {each.name for each in (out / "results").iterdir()} == {"cka", "svcca-5", "p-values"}
    grid = Result.load(out / "results" / "cka")
    assert grid.kind == "similarity.grid"
    assert grid.provenance.command is not None
    assert grid.provenance.command.startswith("pellucid similarity")
    page = (out / "comparison.html").read_text(encoding="utf-8")
    for text in ("svcca:5", "p-values", "right model random", "results/cka/"):
        assert text in page
    assert (out / "command.txt").read_text(encoding="utf-8").startswith("pellucid similarity")


def test_two_models_as_json(cli, folder, tmp_path):
    code, said, _ = cli(
        "similarity", folder / "one", folder / "two", "--corpus", "grammar:40", "--no-control", "--json", "-o",
        tmp_path / "out",
    )  # fmt: skip
    assert code == 0
    told = json.loads(said)["cka"]
    assert told["kind"] == "similarity.grid"
    assert "random left" not in told["tables"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--metrics", "ckaa"], "There is no score 'ckaa'"),
        (["--method", "best"], "There is no method 'best'"),
        (["--sites", "nowhere.*"], "nowhere"),
        (["--precision", "half"], "precision='half'"),
        (["--metrics", "svcca", "--method", "gram"], "use method='moments'"),
    ],
)
def test_refusals_write_nothing(cli, folder, tmp_path, arguments, sentence):
    out = tmp_path / "refused"
    code, _, told = cli("similarity", folder / "one", "--corpus", "grammar:5", "-o", out, *arguments)
    assert code == 2
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
    assert not out.exists()


def test_three_models_are_too_many(cli, folder, tmp_path):
    one = folder / "one"
    code, _, told = cli("similarity", one, one, one, "--corpus", "grammar:5", "-o", tmp_path / "three")
    assert code == 2
    assert "3 models were given" in told
