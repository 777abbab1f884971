"""`pellucid prune`: the folder it writes, what it prints, going on, and what it refuses."""

from __future__ import annotations

import json

import pytest

from pellucid.heads import Pruning
from pellucid.model import Model
from tests.heads.measuring_models import CORPORA, model_for

QUICK = ("--epochs", 6, "--batch", 8, "--rate", 0.25, "--strength", 0.3, "--points", 5, "--draws", 2)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A saved classifier and a table of sentences with their labels."""
    folder = tmp_path_factory.mktemp("classifier")
    model, (corpus, changes) = model_for("classify"), CORPORA["classify"]
    model.hf.save_pretrained(folder / "model")
    model.tokenizer.save_pretrained(folder / "model")
    lines = [f"{sentence.text}\t{sentence.facts[changes['label']]}" for sentence in corpus]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    return folder


def test_a_folder_with_a_smaller_model(cli, classifier, tmp_path):
    out = tmp_path / "smaller"
    asked = ("prune", classifier / "model", "--corpus", classifier / "train.tsv", *QUICK, "--heads", 4, "-o", out)
    code, said, told = cli(*asked)
    assert code == 0, told
    for text in ("heads left", "chance", "gates", "importance", "random", "The smaller model has", "pruning.html"):
        assert text in said, text
    result = Pruning.load(out / "result")
    assert result.provenance.command is not None
    assert result.provenance.command.startswith("pellucid prune")
    less = Model.load(out / "model")
    assert sum(less.size(site)[0] for site in less.sites if site.kind == "heads") == result.chosen <= 4
    page = (out / "page" / "pruning.html").read_text(encoding="utf-8")
    for text in (
        "How few heads are needed",
        "heads left",
        "learned gates",
        "The smaller model has",
        "1: most important",
    ):
        assert text in page, text
    assert (out / "page" / "figures" / "pruning.png").read_bytes().startswith(b"\x89PNG")
    code, said, _ = cli(*asked, "--json")  # finished: told again at once
    assert code == 0
    told = json.loads(said)
    assert told["model"]["hugging_face"] is False
    assert told["model"]["flops"] < told["model"]["whole_flops"]
    code, said, _ = cli("show", out / "result")
    assert code == 0
    assert "survivors" in said
    assert "guessing by one who knows" in said


def test_an_order_and_functions(cli, classifier, tmp_path):
    names = "1.2,1.1,1.0,0.2,0.1,0.0"
    given = ("--corpus", classifier / "train.tsv", *QUICK, "--order", names, "-o", tmp_path / "smaller")
    code, _, told = cli("prune", classifier / "model", *given)
    assert code == 0, told
    assert Pruning.load(tmp_path / "smaller" / "result").provenance.arguments["order"] == "given"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--order", "0.0,9.9"), "no head '9.9'"),
        (("--task", "lm"), "cannot be measured by 'lm'"),
        (("--schedule", "up"), "no schedule 'up'"),
        (("--keep", "2"), "no share"),
        (("--tune", "--heads", "3"), "heads=3 has no other point to choose"),
        (("--test", "nowhere.tsv"), "nowhere.tsv"),
        (("--functions", "nowhere"), "no saved result"),
        (("--rate", "0.001"), "closing takes 5.4"),
    ],
)
def test_refusals_leave_nothing_behind(cli, classifier, tmp_path, given, words):
    out = tmp_path / "smaller"
    asked = ("prune", classifier / "model", "--corpus", classifier / "train.tsv", *QUICK, *given, "-o", out)
    code, _, told = cli(*asked)
    assert code == 2
    assert words in told
    assert not out.exists()


def test_a_folder_that_exists_and_a_model_without_a_loss(cli, classifier, gpt2_folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note.txt").write_text("mine")
    code, _, told = cli(
        "prune", classifier / "model", "--corpus", classifier / "train.tsv", *QUICK, "-o", tmp_path / "mine"
    )
    assert code == 2
    assert "exists and is not the folder of a pruning" in told
    code, _, told = cli(
        "prune", gpt2_folder, "--head", "none", "--corpus", "grammar:100", *QUICK, "-o", tmp_path / "none"
    )
    assert code == 2
    assert "no head with a loss" in told
