"""The command line: what it prints, what it saves, and one sentence with exit code 2 for bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification

import pellucid
from pellucid.model import Edit, Model
from tests.tiny_models import network, save, word_tokenizer

COMMANDS = [
    "sites",
    "families",
    "run",
    "demo",
    "report",
    "sweep",
    "show",
    "zoo",
    "corpus info",
    "store build",
    "store info",
    "store export",
]
TEXT = "the old dog"


def process(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed command as a process of its own."""
    script = Path(sys.executable).with_name("pellucid")
    return subprocess.run(
        [str(script), *map(str, words)], capture_output=True, text=True, env={**os.environ, **variables}
    )


# -- the shell's view ------------------------------------------------------------------------------------------


def test_version_and_exit_codes_of_the_installed_command(tmp_path):
    done = process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"pellucid {pellucid.__version__}\n", "")
    bad = process("sites", tmp_path / "nowhere")
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert len(bad.stderr.splitlines()) == 1


def test_debug_shows_where_it_happened(tmp_path):
    done = process("sites", tmp_path / "nowhere", PELLUCID_DEBUG="1")
    assert done.returncode not in (0, 2)
    assert "Traceback" in done.stderr
    assert "ModelError" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(cli, command):
    code, out, _ = cli(*command.split(), "--help")
    assert code == 0
    assert f"pellucid {command}" in out.partition("Example")[2]


def test_top_help_lists_every_command(cli):
    code, out, _ = cli("--help")
    assert code == 0
    assert all(f"\n  {command.split()[0]} " in out for command in COMMANDS)


# -- sites -----------------------------------------------------------------------------------------------------


def test_sites_prints_a_table(cli, gpt2_folder):
    code, out, err = cli("sites", gpt2_folder)
    assert (code, err) == (0, "")
    for part in (
        "GPT2LMHeadModel",
        "pre-norm blocks",
        "fused attention",
        "resid.0-3",
        "heads.0-2",
        "[B, 4, T, 10]",
        "[B, T, 56]",
    ):
        assert part in out


def test_sites_as_json_are_those_of_the_model(cli, gpt2_folder):
    code, out, _ = cli("sites", gpt2_folder, "--json", "--attention", "eager")
    assert code == 0
    report, model = json.loads(out), Model.load(gpt2_folder)
    assert [row["site"] for row in report["sites"]] == [str(site) for site in model.sites]
    assert {row["site"]: tuple(row["size"]) for row in report["sites"]} == {str(s): model.size(s) for s in model.sites}
    assert report["attention"] == "eager"
    assert report["missing"] == {}


def test_sites_of_an_encoder_decoder_show_its_stacks(cli, t5_folder):
    code, out, _ = cli("sites", t5_folder)
    assert code == 0
    for part in ("encoder.resid.0-3", "decoder.resid.0-4", "cross.pattern.0-3", "[B, 4, T, S]"):
        assert part in out


def test_a_folder_name_with_brackets_is_printed_as_it_is(cli, tmp_path):
    folder = save(tmp_path / "[red] [/x] model", "gpt2")
    code, out, err = cli("sites", folder)
    assert (code, err) == (0, "")
    assert "[red] [/x] model" in out.replace("\n", "")


# -- run -------------------------------------------------------------------------------------------------------


def test_run_shows_predictions_before_and_after_an_edit(cli, gpt2_folder):
    code, out, err = cli(
        "run", gpt2_folder, TEXT, "--sites", "resid.*,heads.1", "--edit", "heads.1:2=zero", "--generate", 3
    )
    assert (code, err) == (0, "")
    for part in (
        "resid.3",
        "[1, 4, 3, 10]",
        "before and after heads.1:2=zero",
        "continues without edits:",
        "continues with edits:",
    ):
        assert part in " ".join(out.split())


def test_run_as_json_says_what_the_api_says(cli, gpt2_folder):
    words = (
        "run",
        gpt2_folder,
        TEXT,
        "--sites",
        "heads.1",
        "--edit",
        "heads.1:2=zero",
        "--edit",
        "resid.0@-1=add:1",
        "--generate",
        4,
    )
    code, out, err = cli(*words, "--json", "--top", 3)
    assert (code, err) == (0, "")
    report, model = json.loads(out), Model.load(gpt2_folder)
    edits = [Edit.zero("heads.1", heads=2), Edit.add("resid.0", 1.0, positions=-1)]
    assert report["edits"] == ["heads.1:2=zero", "resid.0@-1=add:1"]
    for name, run in (("before", model.run(TEXT)), ("after", model.run(TEXT, "heads.1", edits))):
        chances = run.logits[0, -1].softmax(-1)
        best = chances.topk(3)
        assert [round(float(x), 4) for x in best.values] == [row[1] for row in report[name]["next token"]]
        assert [model.tokenizer.decode([int(i)]) for i in best.indices] == [
            row[0] for row in report[name]["next token"]
        ]
    heads = run["heads.1"]
    assert report["sites"]["heads.1"]["shape"] == [1, 4, 3, 10]
    assert report["sites"]["heads.1"]["mean"] == pytest.approx(float(heads.mean()), abs=1e-5)
    assert report["sites"]["heads.1"]["sd"] == pytest.approx(float(heads.std(correction=0)), abs=1e-5)
    assert report["generated"]["continues with edits"] == model.generate(TEXT, max_new_tokens=4, edits=edits).texts[0]


def test_run_saves_the_tensors_it_read(cli, gpt2_folder, tmp_path):
    out_folder = tmp_path / "saved"
    code, out, _ = cli(
        "run",
        gpt2_folder,
        TEXT,
        "--sites",
        "heads.1",
        "--sites",
        "logits",
        "--edit",
        "heads.0=zero",
        "--out",
        out_folder,
    )
    assert code == 0
    assert str(out_folder) in out.replace("\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved"]
    arrays = load_file(out_folder / "arrays.safetensors")
    model = Model.load(gpt2_folder)
    run = model.run(TEXT, ["heads.1", "logits"], Edit.zero("heads.0"))
    assert torch.equal(arrays["heads.1"], run["heads.1"])
    assert torch.equal(arrays["logits"], run["logits"])
    assert torch.equal(arrays["ids"], run.batch.ids)
    about = json.loads((out_folder / "result.json").read_text())
    assert about["axes"]["heads.1"] == ["sequence", "head", "token", "unit"]
    assert about["provenance"]["edits"] == ["heads.0=zero"]
    assert about["provenance"]["text"] == TEXT


def classifier(kind, folder):
    torch.manual_seed(0)
    kind(network("bert").config).save_pretrained(folder)
    word_tokenizer(closing=True).save_pretrained(folder)
    return folder


def test_saved_axes_fit_the_shape_of_every_array(cli, tmp_path):
    folder = classifier(BertForSequenceClassification, tmp_path / "model")
    code, _, _ = cli("run", folder, TEXT, "--sites", "logits,pattern.0,resid.1", "--out", tmp_path / "saved")
    assert code == 0
    arrays = load_file(tmp_path / "saved" / "arrays.safetensors")
    axes = json.loads((tmp_path / "saved" / "result.json").read_text())["axes"]
    assert {name: len(names) for name, names in axes.items()} == {name: arrays[name].dim() for name in axes}
    assert len(set(axes["pattern.0"])) == 4


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        (BertForSequenceClassification, ["class"]),
        (BertForTokenClassification, ["1 the", "2 old", "3 dog"]),
        (BertForQuestionAnswering, None),
    ],
)
def test_predictions_of_every_head(cli, tmp_path, kind, places):
    folder = classifier(kind, tmp_path / "model")
    code, out, _ = cli("run", folder, TEXT, "--json")
    assert code == 0
    found = json.loads(out)["before"]
    assert found, "a model with a head predicts something"
    if places is not None:
        assert list(found) == places


def test_masked_words_are_predicted_at_their_place(cli, bert_folder):
    code, out, _ = cli("run", bert_folder, "the <mask> dog <mask>", "--json")
    assert code == 0
    assert list(json.loads(out)["before"]) == ["position 2", "position 4"]


def test_run_of_an_encoder_decoder_takes_a_target(cli, t5_folder):
    code, out, _ = cli("run", t5_folder, TEXT, "--target", "red cat", "--sites", "cross.pattern.0", "--json")
    assert code == 0
    assert json.loads(out)["sites"]["cross.pattern.0"]["shape"] == [1, 4, 4, 5]


# -- families --------------------------------------------------------------------------------------------------


def test_families_as_json(cli):
    code, out, err = cli("families", "gpt2", "--json")
    assert (code, err.strip()) == (0, "")
    (row,) = json.loads(out)["families"]
    assert (row["name"], row["status"], row["missing"]) == ("gpt2", "full", [])
    assert row["checks"] > 500
