"""Bad input on the command line: one sentence, exit code 2, nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pellucid.model import Model
from tests.tiny_models import network, save

TEXT = "the old dog"


def truncated(folder: Path) -> Path:
    save(folder, "gpt2")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    return folder


def pickle_only(folder: Path) -> Path:
    save(folder, "gpt2")
    (folder / "model.safetensors").unlink()
    torch.save(network("gpt2").state_dict(), folder / "pytorch_model.bin")
    return folder


def remote(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": {"AutoConfig": "c.C"}}))
    return folder


def without_tokenizer(folder: Path) -> Path:
    return save(folder, "gpt2", tokenizer=False)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda folder: folder, "There is no folder"),
        (lambda folder: folder.mkdir() or folder, "no config.json"),
        (truncated, "half copied"),
        (pickle_only, "--allow-pickle"),
        (remote, "never runs such code"),
        (without_tokenizer, "no tokenizer"),
    ],
)
def test_models_that_cannot_be_opened(cli, tmp_path, make, complaint):
    folder = make(tmp_path / "model")
    code, out, err = cli("run", folder, TEXT, "--sites", "heads.0", "--out", tmp_path / "saved")
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("pellucid: ")
    assert complaint in err
    assert not [path for path in tmp_path.iterdir() if path.name != "model"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--head", "classifier"], "no weights for the head 'classifier'"),
        (["--head", "seq2seq"], "which has no 'seq2seq' head"),
        (["--head", "hat"], "no head called 'hat'"),
        (["--attention", "flash"], "no attention setting 'flash'"),
        (["--dtype", "int3"], "no dtype 'int3'"),
        (["--device", "moon"], "device 'moon' cannot be used here"),
        (["--device", "cuda:77"], "device 'cuda:77' cannot be used here"),
        (["--sites", "haeds.1"], "Did you mean 'heads.1'"),
        (["--sites", "heads.9"], "No site matches 'heads.9'"),
        (["--edit", "heads.1:9=zero"], "heads.1 has 4 heads"),
        (["--edit", "neurons.1:56=zero"], "neurons.1 has 56 units"),
        (["--edit", "heads.1@3=zero"], "heads.1 has 3 positions"),
        (["--edit", "heads.1"], "cannot be read"),
        (["--edit", "heads.1=melt"], "asks for 'melt'"),
        (["--edit", "pattern.1=zero"], "needs eager attention"),
        (["--target", "cat"], "Only encoder–decoder models take target"),
        (["--generate", "5000"], "takes at most 70"),
    ],
)
def test_options_that_cannot_be(cli, gpt2_folder, tmp_path, words, complaint):
    code, out, err = cli("run", gpt2_folder, TEXT, *words, "--out", tmp_path / "saved")
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert complaint in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "   ", " ".join(["dog"] * 71)])
def test_text_that_cannot_be(cli, gpt2_folder, text):
    code, out, err = cli("run", gpt2_folder, text)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_long_text_is_cut_when_asked(cli, gpt2_folder):
    code, out, _ = cli("run", gpt2_folder, " ".join(["dog"] * 71), "--truncate", "--sites", "embed", "--json")
    assert code == 0
    assert json.loads(out)["sites"]["embed"]["shape"] == [1, 70, 40]


@pytest.mark.parametrize("words", [["--top", "0"], ["--top", "-3"], ["--generate", "-1"], ["--sites", ""]])
def test_counts_and_names_that_mean_nothing_are_refused(cli, gpt2_folder, words):
    code, _, err = cli("run", gpt2_folder, TEXT, *words)
    assert code == 2
    assert err


def test_nothing_that_is_there_is_overwritten(cli, gpt2_folder, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    for taken in ("full", "file", "no/parent"):
        code, _, err = cli("run", gpt2_folder, TEXT, "--sites", "embed", "--out", tmp_path / taken)
        assert code == 2
        assert len(err.splitlines()) == 1
    assert (tmp_path / "full" / "mine.txt").read_text() == "keep"
    assert (tmp_path / "file").read_text() == "keep"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "mine.txt"]


def test_an_unknown_family_is_refused(cli):
    code, out, err = cli("families", "gpt22")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_an_unexpected_fault_is_one_line_and_exit_code_one(cli, gpt2_folder, monkeypatch):
    monkeypatch.setattr(Model, "run", lambda *args, **kwargs: 1 / 0)
    code, _, err = cli("run", gpt2_folder, TEXT)
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "ZeroDivisionError" in err
    assert "PELLUCID_DEBUG" in err


def test_running_out_of_memory_is_bad_input(cli, gpt2_folder, monkeypatch):
    def exhausted(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(Model, "_forward", exhausted)
    code, out, err = cli("run", gpt2_folder, TEXT)
    assert (code, out) == (2, "")
    assert "ran out of memory on a batch of 1 × 3 tokens" in err


def test_ctrl_c_says_once_what_is_left(cli, monkeypatch, tmp_path):
    from pellucid.cli import _options as options
    from pellucid.corpus import Corpus

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Corpus, "open", stopped)
    code, out, err = cli("corpus", "info", "grammar")
    assert (code, out) == (130, "")
    assert err == "pellucid: stopped; nothing was written. Run the same command to start again.\n"
    (tmp_path / "plan.json").write_text("{}")

    def begun(*_, **__):
        with options.resumable(tmp_path):
            raise KeyboardInterrupt

    monkeypatch.setattr(Corpus, "open", begun)
    code, out, err = cli("corpus", "info", "grammar")
    assert code == 130
    assert err.count("stopped") == 1
    assert "run the same command again to go on" in err
