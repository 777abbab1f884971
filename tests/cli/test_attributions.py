"""`pellucid attributions`: what it prints and writes over a corpus, and what it refuses."""

from __future__ import annotations

import json

import pytest

from pellucid.attribution import CorpusAttribution


def test_a_corpus_by_parts_of_speech(cli, tmp_path):
    out = tmp_path / "drawn"
    asked = ("attributions", "zoo:sentiment", "--corpus", "grammar:12", "--group", "upos", "--steps", 4, "-o", out)
    code, said, told = cli(*asked)
    assert code == 0, told
    names = {item.name for item in out.iterdir()}
    wanted = {f"attributions.{kind}" for kind in ("csv", "svg", "pdf", "png")}
    assert names == wanted | {"result.json", "arrays.safetensors", "command.txt"}
    found = CorpusAttribution.load(out)
    assert "NOUN" in found.axes["group"]
    assert "NOUN" in said
    assert "times chance" in said
    shares = found.measure("share")[0, 0, 0]
    assert shares.sum() == pytest.approx(1)
    assert found.null is not None
    assert (out / "command.txt").read_text().strip() == found.provenance.command
    code, said, _ = cli("show", out, "--json")
    assert code == 0
    assert json.loads(said)["kind"] == "attribution.over_corpus"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--method", "magic"), "There is no method of attribution 'magic'"),
        (("--group", "mood"), "mood"),
        (("--sites", "resid.99"), "No site matches 'resid.99'"),
        (("--target", "class:furious"), "There is no class 'furious'"),
        (("--by", "word"), "not by 'word'"),
    ],
)
def test_what_it_refuses_leaves_nothing(cli, tmp_path, options, sentence):
    out = tmp_path / "drawn"
    code, said, told = cli("attributions", "zoo:sentiment", "--corpus", "grammar:4", "-o", out, *options)
    assert (code, said) == (2, "")
    assert sentence in told
    assert told.count("\n") == 1
    assert not out.exists()


def test_the_window_of_occlusion_is_passed_on(cli, tmp_path):
    asked = ("attributions", "zoo:sentiment", "--corpus", "grammar:4", "--group", "position", "--method", "occlusion")
    found = []
    for number, more in enumerate([(), ("--window", 1), ("--window", 1, "--stride", 1)]):
        out = tmp_path / str(number)
        code, _, told = cli(*asked, *more, "-o", out)
        assert code == 0, told
        found.append(CorpusAttribution.load(out).values)
    assert not (found[0] == found[1]).all()
    assert (found[1] == found[2]).all()
