"""`pellucid flow`: what it prints, the folders it writes, and what it refuses."""

from __future__ import annotations

import json

import pytest

from pellucid.results import Result

TEXT = "the old red dog runs to the cat"


def test_a_page_on_one_text(cli, bert_folder, tmp_path):
    out = tmp_path / "out"
    methods = "attention,rollout,flow,norms_layernorm,hidden"
    code, said, told = cli("flow", bert_folder, TEXT, "--method", methods, "-o", out)
    assert code == 0, told
    for text in ("rollout: attention followed down", "strongest sources", "hidden: norms are exact", "flow.html"):
        assert text in said, text
    page = (out / "flow.html").read_text(encoding="utf-8")
    for text in ("What tokens draw on", TEXT, "equal shares", "rounding moves a flow"):
        assert text in page, text
    found = Result.load(out / "results" / "flow")
    assert found.axes["measure"] == tuple(methods.split(","))
    assert found.provenance.command.startswith("pellucid flow")


def test_one_position_by_gradients_as_json(cli, gpt2_folder):
    words = (
        "--method",
        "attribution",
        "--method",
        "hidden",
        "--position",
        "-1",
        "--target",
        "token:dog",
        "--steps",
        "3",
    )
    code, said, told = cli("flow", gpt2_folder, TEXT, *words, "--json")
    assert code == 0, told
    result = json.loads(said)
    assert result["kind"] == "heads.information_flow"
    assert result["axes"]["token"] == ["7 cat"]
    assert result["axes"]["measure"] == ["attribution", "hidden"]


def test_one_position_shows_every_layer(cli, gpt2_folder):
    code, said, told = cli("flow", gpt2_folder, TEXT, "--method", "rollout,flow", "--position", "3", "--heads")
    assert code == 0, told
    assert [line.split()[:3] for line in said.splitlines() if " 3 dog " in line[:20]] == [
        [str(layer), "3", "dog"] for _ in range(2) for layer in range(3)
    ]


def test_the_methods_compared_over_a_corpus(cli, gpt2_folder, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("the old dog runs\na cat sleeps near the keys\nkeys of the dog are old\n", encoding="utf-8")
    out = tmp_path / "out"
    code, said, told = cli("flow", gpt2_folder, "--corpus", texts, "--method", "rollout,norms", "-o", out)
    assert code == 0, told
    for text in ("Rank correlation", "nearness", "own token", "chance"):
        assert text in said, text
    page = (out / "flow.html").read_text(encoding="utf-8")
    for text in ("Do the maps agree?", "random model", "Maps that look at no weights"):
        assert text in page, text
    assert Result.load(out / "results" / "agreement").axes["measure"] == ("rollout", "norms")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), "Give one text to follow, or --corpus FILE"),
        ((TEXT, "--corpus", "grammar:3"), "not both"),
        ((TEXT, "--method", "rollout,souls"), "no method 'souls' to follow information by; there are attention"),
        ((TEXT, "--position", "9"), "Position 9 was asked for, and the text has 8 tokens"),
        (("dog",), "has one token"),
        (("--corpus", "grammar:3", "--method", "hidden"), "hidden is what the methods are compared with"),
        ((TEXT, "--stack", "decoder"), "no stack 'decoder'"),
    ],
)
def test_bad_input_is_told_in_a_sentence_and_nothing_is_written(cli, gpt2_folder, tmp_path, words, wanted):
    out = tmp_path / "out"
    code, _, told = cli("flow", gpt2_folder, *words, "-o", out)
    assert code == 2
    assert wanted in told
    assert not out.exists()
