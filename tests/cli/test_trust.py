"""`pellucid trust`: the folder it writes, what it prints, and what it refuses."""

from __future__ import annotations

import json

import pytest

from pellucid.results import Result
from pellucid.views import figure_svg
from tests.overlaps import faults

QUICK = ("--steps", 4, "--draws", 4, "--perturbations", 1, "--cascade", 2)


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("the old dog runs\ndog\na red cat sleeps near the cabinet\nthe keys are old\n", encoding="utf-8")
    return path


def test_a_folder_that_explains_itself(cli, gpt2_folder, texts, tmp_path):
    out = tmp_path / "out"
    code, said, told = cli(
        "trust", gpt2_folder, "--corpus", texts, "--methods", "saliency,ablation", "--methods", "ig", *QUICK, "-o", out
    )
    assert code == 0, told
    for text in (
        "saliency",
        "integrated_gradients",
        "chance (mean)",
        "lower is better",
        "higher is better",
        "skipped: 1 sentence with fewer than two tokens",
        "ablation: its order of tokens is",
        "trust.html",
    ):
        assert text in said, text
    result = Result.load(out / "results" / "trust")
    assert result.kind == "attribution.trust"
    assert result.axes["method"] == ("saliency", "ablation", "integrated_gradients")
    assert result.provenance.command is not None
    assert result.provenance.command.startswith("pellucid trust")
    page = (out / "trust.html").read_text(encoding="utf-8")
    for text in ("Tried on 3 sentences", "1 more were skipped", "While weights become random", "results/trust/"):
        assert text in page, text
    assert (out / "figures" / "trust.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "tables" / "trust.csv").is_file()


def test_some_measures_as_json(cli, gpt2_folder, texts, tmp_path):
    code, said, _ = cli(
        "trust", gpt2_folder, "--corpus", texts, "--methods", "saliency", "--measures", "insertion,completeness",
        *QUICK,
        "--sentences", 2, "--json", "-o", tmp_path / "out",
    )  # fmt: skip
    assert code == 0
    told = json.loads(said)
    assert told["axes"] == {"measure": ["completeness", "insertion"], "method": ["saliency"]}
    assert told["provenance"]["corpus"]["sentences"] == 2
    figure = Result.load(tmp_path / "out" / "results" / "trust").plot()
    assert not faults(figure)
    assert "deletion" not in figure_svg(figure)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--methods", "salience"], "There is no method of attribution 'salience'"),
        (["--measures", "truth"], "There is no measure of trust 'truth'"),
        (["--target", "class:good"], "is a language model and has no classes"),
        (["--target", "nonsense"], "The target 'nonsense' cannot be read"),
        (["--baseline", "noise"], "There is no baseline 'noise'"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(cli, gpt2_folder, texts, tmp_path, arguments, sentence):
    code, _, told = cli("trust", gpt2_folder, "--corpus", texts, *arguments, "-o", tmp_path / "out")
    assert code == 2
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_corpus_without_a_usable_sentence(cli, gpt2_folder, tmp_path):
    (tmp_path / "short.txt").write_text("dog\ncat\n", encoding="utf-8")
    code, _, told = cli("trust", gpt2_folder, "--corpus", tmp_path / "short.txt", "-o", tmp_path / "out")
    assert code == 2
    assert "No sentence of short.txt can be used" in told
    assert "2 with fewer than two tokens" in told


def test_help_has_an_example(cli):
    code, said, _ = cli("trust", "--help")
    assert code == 0
    assert "pellucid trust zoo:sentiment" in " ".join(said.split())
