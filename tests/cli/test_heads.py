"""`pellucid heads`: what it prints, the folder it writes, and what it refuses."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote

import pytest

from pellucid.results import Result
from tests.heads.built_models import network, tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("built")
    network().save_pretrained(place)
    tokenizer().save_pretrained(place)
    return place


def test_a_page_with_the_planted_heads(cli, folder, tmp_path):
    out = tmp_path / "out"
    code, said, told = cli("heads", folder, "--corpus", "grammar:150:3", "-o", out)
    assert code == 0, told
    for text in (
        "0.0",
        "positional",
        "-1",
        "nsubj to dependent",
        "rare words",
        "induction",
        "corrected p",
        "heads.html",
    ):
        assert text in said, text
    result = Result.load(out / "results" / "head_functions")
    assert result.kind == "heads.functions"
    assert result.provenance.command.startswith("pellucid heads")
    page = (out / "heads.html").read_text(encoding="utf-8")
    for text in ("heads have a function", "example 3", "Attention by layer: parts of speech", "Shapes", "Holm"):
        assert text in page, text
    views = sorted(path.name for path in (out / "views").iterdir())
    assert "sentence-1.html" in views
    assert all(f'href="views/{name}#state=' in page for name in views)
    cells = re.findall(r'<a href="(views/[^"#]*)#state=([^"]*)" aria-label="head (\d)\.(\d), ([^"]*)">', page)
    assert len(cells) == 8  # every cell of the map leads to its own head
    for file, state, layer, head, _ in cells:
        assert (out / file).is_file()
        assert json.loads(unquote(state)) == {"layer": int(layer), "heads": [int(head)]}
    assert {(layer, head): told for _, _, layer, head, told in cells}["0", "2"] == "rare words"
    drawn = (out / "figures" / "head_functions.svg").read_text(encoding="utf-8")
    assert drawn.count('xlink:href="../views/sentence-') == 8  # seen from the folder of the figure
    for name in ("head_shapes", "head_tags", "head_relations"):
        assert Result.load(out / "results" / name).kind in ("heads.shapes", "heads.alignment")
    statistics, clusters = (Result.load(out / "results" / f"head_{name}") for name in ("statistics", "clusters"))
    assert {"confidence", "rare words", "same word", "followed before"} <= set(statistics.axes["measure"])
    assert sum(map(len, clusters.members.values())) == 8
    for text in ("How sharply, how far, at what", "Heads that look alike", "Jensen–Shannon"):
        assert text in page, text


def test_text_without_arcs_says_what_was_not_tried(cli, folder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("the old man and the old man saw the river\n" * 12, encoding="utf-8")
    code, said, told = cli("heads", folder, "--corpus", texts, "-o", tmp_path / "out")
    assert code == 0, told
    assert "not tried: syntactic, because the corpus has no dependency arcs" in said
    page = (tmp_path / "out" / "heads.html").read_text(encoding="utf-8")
    assert "Not tried: syntactic, because the corpus has no dependency arcs." in page
    assert "Attention by layer" not in page
    assert "parts of speech is not shown: No word of the corpus has the label &#x27;upos&#x27;" in page
    assert "syntactic neighbours is not shown" in page
    assert "Not tried: block, because the text has no pairs of sentences" in page


def test_json_and_thresholds(cli, folder):
    code, said, told = cli(
        "heads", folder, "--corpus", "grammar:60:3", "--json", "--positional", "1", "--rare-times", "50"
    )
    assert code == 0, told
    result = json.loads(said)
    assert result["kind"] == "heads.functions"
    assert result["provenance"]["arguments"]["rare_times"] == 50
    assert "rare words" not in [name for row in result["tables"]["labels"]["columns"]["main"] for name in row]


def test_what_is_refused(cli, folder, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x", encoding="utf-8")
    code, _, told = cli("heads", folder, "--corpus", "grammar:20", "-o", tmp_path / "full")
    assert (code, "not empty" in told) == (2, True), told
    code, _, told = cli("heads", folder, "--corpus", "grammar:20", "--positional", "7")
    assert code == 2
    assert "positional=7.0 is a share" in told
    assert "Traceback" not in told


def test_effective_weights_are_told_in_the_page(cli, folder, tmp_path):
    code, said, told = cli(
        "heads", folder, "--corpus", "grammar:40:3", "--weights", "effective", "-o", tmp_path / "out"
    )
    assert code == 0, told
    assert "Weights: effective attention" in " ".join(said.split())
    page = (tmp_path / "out" / "heads.html").read_text(encoding="utf-8")
    assert "Weights: effective attention" in page
    assert "by its signed numbers" in page
    result = Result.load(tmp_path / "out" / "results" / "head_functions")
    assert result.provenance.arguments["weights"] == "effective"
    assert "0.1" not in result.labels  # the subject head finds subjects, and passes nothing on
    for kept in (tmp_path / "out" / "views").iterdir():
        assert "negative" in kept.read_text(encoding="utf-8")
        break
    code, _, told = cli("heads", folder, "--corpus", "grammar:20", "--weights", "sharp")
    assert (code, "no 'sharp' weights of heads; there are raw, effective" in told) == (2, True), told
