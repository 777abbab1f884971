"""`pellucid zoo`: the list, the card, the check of hashes, and zoo:NAME wherever a command takes a model."""

from __future__ import annotations

import json
import shutil

import pytest

from pellucid import zoo
from pellucid.zoo import cards


@pytest.fixture
def damaged(tmp_path, monkeypatch):
    """A copy of the zoo whose weights lack their last byte."""
    folder = tmp_path / "zoo"
    shutil.copytree(cards.FOLDER, folder)
    monkeypatch.setattr(cards, "FOLDER", folder)
    weights = folder / "lm" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    return folder


def test_the_list_shows_every_model(cli):
    code, out, err = cli("zoo")
    card = zoo.card("lm")
    assert (code, err) == (0, "")
    for part in (
        "zoo:lm",
        "causal language model",
        f"{card.parameters:,}",
        f"{card.size / 1e6:.1f} MB",
        f"perplexity per token {card.scores['test']['perplexity_per_token']:.1f}",
        f"{card.scores['unigram']['test']['perplexity_per_token']:.1f}",
        "CC BY-SA 3.0",
    ):
        assert part in out
    assert all(f"zoo:{each.name}" in out and str(each.main) in out for each in zoo.models())


def test_the_list_as_json(cli):
    code, out, _ = cli("zoo", "--json")
    assert code == 0
    card = zoo.card("lm")
    rows = {row["name"]: row for row in json.loads(out)["models"]}
    assert list(rows) == [each.name for each in zoo.models()]
    assert (rows["lm"]["parameters"], rows["lm"]["size"]) == (card.parameters, card.size)
    assert rows["lm"]["metric"] == "perplexity_per_token"
    assert rows["lm"]["score"] == card.scores["test"]["perplexity_per_token"]
    assert rows["lm"]["chance"] == card.scores["unigram"]["test"]["perplexity_per_token"]


@pytest.mark.parametrize("name", ["lm", "zoo:lm"])
def test_the_card_of_one_model(cli, name):
    code, out, err = cli("zoo", name)
    assert (code, err) == (0, "")
    assert "# zoo:lm" in out
    assert zoo.card("lm").sha256["model.safetensors"] in out
    code, out, _ = cli("zoo", name, "--json")
    assert code == 0
    report = json.loads(out)
    assert {key: report[key] for key in zoo.card("lm").facts} == zoo.card("lm").facts
    assert report["path"] == str(zoo.path("lm"))
    assert "verified" not in report


def test_verify_says_what_it_checked(cli):
    code, out, err = cli("zoo", "lm", "--verify")
    assert (code, err) == (0, "")
    assert all(name in out for name in zoo.verify("lm"))
    code, out, _ = cli("zoo", "lm", "--verify", "--json")
    assert json.loads(out)["verified"] == list(zoo.verify("lm"))


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_damaged_file_is_one_sentence(cli, damaged, more):
    code, out, err = cli("zoo", "lm", "--verify", *more)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "model.safetensors of zoo:lm is damaged" in err


@pytest.mark.parametrize("words", [["zoo", "nothing"], ["zoo", "nothing", "--verify"], ["sites", "zoo:nothing"]])
def test_an_unknown_name_is_one_sentence_that_lists_the_zoo(cli, words):
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    names = ", ".join(card.name for card in zoo.models())
    assert err == f"pellucid: There is no zoo model called 'nothing'; the zoo has {names}.\n"


def test_verify_without_a_name_is_refused(cli):
    code, _, err = cli("zoo", "--verify")
    assert code == 2
    assert "--verify needs a model's name" in err


def test_commands_take_the_zoo_by_name(cli):
    code, out, err = cli("run", "zoo:lm", "The city of", "--sites", "heads.0", "--generate", 5, "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["model"] == "zoo:lm"
    assert report["generated"]["continues"].strip()
    shape = zoo.card("lm").facts["architecture"]
    assert report["sites"]["heads.0"]["shape"][1] == shape["heads"]


def test_help_has_an_example(cli):
    code, out, _ = cli("zoo", "--help")
    assert code == 0
    assert "pellucid zoo lm --verify" in out.partition("Example")[2]
