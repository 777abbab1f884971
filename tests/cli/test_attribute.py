"""`pellucid attribute`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import numpy as np
import pytest

from pellucid.attribution.computing import Settings
from pellucid.attribution.methods import ALIASES, METHODS
from pellucid.cli._attribution import bars
from pellucid.cli.attribute import Computing, Removing
from pellucid.results import Result
from tests.tiny_models import save

TEXT = "the old dog sleeps"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A saved BERT that tells two classes apart."""
    from transformers import BertForSequenceClassification

    from tests.tiny_models import network

    folder = save(tmp_path_factory.mktemp("models") / "classifier", "bert")
    config = network("bert").config
    config.num_labels, config.id2label, config.label2id = 2, {0: "bad", 1: "good"}, {"bad": 0, "good": 1}
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def test_tokens_are_printed_with_their_signs_and_how_it_was_computed(cli, classifier):
    code, said, told = cli("attribute", classifier, TEXT, "--target", "class:good", "--steps", 8)
    assert (code, told) == (0, "")
    code, printed, _ = cli("attribute", classifier, TEXT, "--target", "class:good", "--steps", 8, "--json")
    result = json.loads(printed)
    values = np.array(result["value"])[0, 0, 0]
    rows = [line for line in said.splitlines() if re.match(r"\s*\d+ ", line)]
    assert len(rows) == len(values)
    for line, value in zip(rows, values, strict=True):
        assert f"{value:+.4f}" in line
        left, _, right = line.partition("│")
        assert bool(right.strip()) == (value > 0)
        assert bool(re.search("[█▐▕]", left)) == (value < 0)
    assert "integrated gradients of good (score" in said
    assert "Baseline: zero; 8 steps (gauss); completeness error" in said
    assert "precision: float32" in said


def test_bars_have_one_zero_and_lengths_in_proportion():
    drawn = bars(np.array([2.0, -2.0, 1.0, 0.0, -1e-9]))
    assert {line.index("│") for line in drawn} == {14}
    assert drawn[0].split("│") == [" " * 14, "█" * 14]
    assert drawn[1].split("│") == ["█" * 14, ""]
    assert drawn[2].split("│")[1] == "█" * 7
    assert drawn[3].split("│") == [" " * 14, ""]
    assert drawn[4].split("│")[0].strip() == "▕", "what is not nothing is seen"
    assert bars(np.zeros(2), both=False) == ["", ""]


def test_a_folder_that_explains_itself(cli, classifier, tmp_path):
    out = tmp_path / "out"
    code, said, _ = cli(
        "attribute", classifier, TEXT, "--method", "conductance,saliency", "--sites", "resid.*", "-o", out
    )
    assert code == 0
    assert str(out / "attribution.html") in said
    assert "places" in said
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert files >= {
        "attribution.html",
        "result.json",
        "arrays.safetensors",
        "command.txt",
        "figures/attribution.svg",
        "figures/attribution.pdf",
        "figures/attribution.png",
        "tables/attribution.csv",
        "tables/completeness.csv",
        "tables/targets.csv",
        "views/attribution.html",
    }
    command = (out / "command.txt").read_text(encoding="utf-8").strip()
    assert command.startswith("pellucid attribute")
    result = Result.load(out)
    assert result.kind == "attribution"
    assert result.provenance.command == command
    assert result.axes["measure"] == ("conductance", "saliency")
    page = (out / "attribution.html").read_text(encoding="utf-8")
    for part in ("What made the prediction", "data-header", "pellucid-bundle", TEXT, 'href="result.json"'):
        assert part in page
    assert not re.search(r'(?:src|href)="https?:', page)
    assert cli("show", out)[0] == 0
    code, _, told = cli("attribute", classifier, TEXT, "-o", out)
    assert code == 2
    assert "exists and is not empty" in told


def test_methods_are_listed_from_the_registry(cli):
    code, said, _ = cli("attribute", "--methods")
    assert code == 0
    for name in (*METHODS, *ALIASES):
        assert name in said


def test_many_targets_are_told_in_one_table(cli, gpt2_folder):
    targets = [word for at in range(5) for word in ("--target", f"token@{at}")]
    code, said, _ = cli("attribute", gpt2_folder, f"{TEXT} {TEXT}", *targets, "--steps", 4)
    assert code == 0
    assert "strongest tokens" in said
    assert len(re.findall(r"after token \d", said)) == 5


def test_what_a_model_writes_is_explained_token_by_token(cli, gpt2_folder, tmp_path):
    code, said, _ = cli("attribute", gpt2_folder, TEXT, "--generate", 5, "--steps", 4, "--json", "-o", tmp_path / "w")
    assert code == 0
    told = json.loads(said)
    assert told["kind"] == "attribution.generation"
    assert len(told["axes"]["target"]) == 5
    assert Result.load(tmp_path / "w").kind == "attribution.generation"
    code, _, told = cli("attribute", gpt2_folder, TEXT, "--generate", 2, "--target", "token")
    assert code == 2
    assert "leave out --target" in told


def test_a_given_continuation_is_explained_as_log_probabilities(cli, gpt2_folder):
    asked = ("attribute", gpt2_folder, TEXT, "--continuation", " and eats", "--method", "saliency", "--json")
    told = [json.loads(cli(*asked, *more)[1]) for more in ((), ("--log",))]
    for each, log in zip(told, (False, True), strict=True):
        assert each["axes"]["target"] == each["axes"]["token"][-len(each["axes"]["target"]) :]
        assert (each["provenance"]["arguments"]["written"], each["provenance"]["arguments"]["log"]) == ("given", log)
    scores = [np.array(each["tables"]["targets"]["columns"]["score"]) for each in told]
    assert (scores[1] < 0).all()
    assert not np.allclose(*scores)
    code, said, _ = cli(*asked[:-1], "--log")
    assert code == 0
    assert "log-probabilities" in said


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--log"], "--log is for --generate and --continuation"),
        (["--generate", 2, "--continuation", " and"], "give one of them"),
        (["--continuation", " and", "--pair", "x"], "leave out --target, --pair and --decoder"),
    ],
)
def test_options_of_written_text_that_do_not_go_together(cli, gpt2_folder, given, sentence):
    code, _, told = cli("attribute", gpt2_folder, TEXT, *given)
    assert code == 2
    assert sentence in told


def test_the_command_has_the_defaults_of_the_library():
    named = {each.name: each.default for group in (Computing, Removing) for each in fields(group)}
    assert named == {name: getattr(Settings, name) for name in named}


def test_draws_at_random_are_told_with_their_width(cli, gpt2_folder):
    words = " ".join([TEXT] * 5)
    code, said, _ = cli("attribute", gpt2_folder, words, "--method", "shapley", "--samples", 6, "--seed", 3)
    assert code == 0
    assert "95%" in said
    assert "± " in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--method", "integrated_gradient"], "There is no method of attribution 'integrated_gradient'"),
        (["--method", "saliency,"], "There is no method of attribution ''"),
        (["--target", "class:7"], "no number 7 among 2 classes"),
        (["--target", "class:great"], "There is no class 'great'"),
        (["--target", "class:good@2"], "has no position"),
        (["--target", "start"], "needs a model that marks answers"),
        (["--target", "token: dog"], "needs a language model"),
        (["--target", "something"], "cannot be read"),
        (["--target", "unit:neurons.0:9999@1"], "unit 9999 does not exist"),
        (["--target", "unit:neurons.0:1@99"], "Position 99"),
        (["--head", "none"], "has no head"),
        (["--baseline", "text:the dog"], "they must be of the same length"),
        (["--baseline", "nothing"], "There is no baseline 'nothing'"),
        (["--sites", "nowhere.*"], "nowhere"),
        (["--sites", "heads.99"], "heads.99"),
        (["--by", "layer"], "not by 'layer'"),
        (["--rule", "simpson"], "There is no rule 'simpson'"),
        (["--groups", "letters"], "no groups called 'letters'"),
        (["--groups", "words", "--generate", "2"], "words of a text that is given whole"),
        (["--decoder", "a cat"], "encoder–decoder"),
        (["--method", "smoothgrad", "--samples", "1"], "at least two samples"),
    ],
)
def test_refusals_are_one_sentence_and_write_nothing(cli, classifier, tmp_path, arguments, sentence):
    out = tmp_path / "refused"
    code, said, told = cli("attribute", classifier, TEXT, "-o", out, *arguments)
    assert (code, said) == (2, "")
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_an_unknown_method_is_told_before_a_model_is_opened(cli, tmp_path):
    code, _, told = cli("attribute", tmp_path / "no-model", TEXT, "--method", "magic")
    assert code == 2
    assert "There is no method of attribution 'magic'" in told


def test_a_tagger_must_be_told_which_word(cli):
    code, _, told = cli("attribute", "zoo:tagger", "The old dog sleeps.")
    assert code == 2
    assert "--target class@3" in told


def test_the_predicted_class_and_its_name_are_one_target(cli, classifier):
    code, said, _ = cli(
        "attribute", classifier, TEXT, "--target", "predicted", "--target", "class:good", "--target", "class:bad",
        "--method", "saliency", "--json",
    )  # fmt: skip
    assert code == 0
    assert sorted(json.loads(said)["axes"]["target"]) == ["bad", "good"]


def test_a_page_that_cannot_be_drawn_leaves_nothing(cli, classifier, tmp_path, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ValueError("no ink")

    monkeypatch.setattr("pellucid.views.attribution_view", broken)
    code, _, told = cli("attribute", classifier, TEXT, "-o", tmp_path / "out")
    assert code == 1
    assert "no ink" in told
    assert not list(tmp_path.iterdir())


def test_the_window_of_occlusion_reaches_written_text(cli, gpt2_folder):
    asked = ("attribute", gpt2_folder, TEXT, "--generate", 2, "--method", "occlusion", "--baseline", "zero", "--json")
    found = [json.loads(cli(*asked, *more)[1])["value"] for more in ((), ("--window", 1), ("--window", 1))]
    assert found[0] != found[1]
    assert found[1] == found[2]
