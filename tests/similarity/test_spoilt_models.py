"""Models whose weights or outputs are NaN are refused when they are opened, by the name of what is spoilt."""

from __future__ import annotations

import sys
from shutil import copytree

import pytest
import torch
from safetensors.torch import load_file, save_file

from pellucid.cli import main
from pellucid.errors import ModelError
from pellucid.model import Model
from tests.tiny_models import network

SPOILT = "transformer.h.1.mlp.c_fc.weight"


def test_the_first_spoilt_parameter_is_named():
    spoilt = network("gpt2")
    with torch.no_grad():
        spoilt.get_parameter("transformer.h.1.mlp.c_proj.bias")[0] = float("inf")
        spoilt.get_parameter(SPOILT)[2, 3] = float("nan")
    with pytest.raises(ModelError, match=rf"contain NaN or infinity, first in {SPOILT!r} \(2 in all\)"):
        Model.load(spoilt)


def test_nan_from_sound_weights_is_told_apart():
    """Weights that are finite, but so large that their products are not."""
    spoilt = network("gpt2")
    with torch.no_grad():
        spoilt.get_parameter(SPOILT).fill_(3e38)
    with pytest.raises(ModelError, match=r"though its weights are finite; open it with dtype=torch\.float32"):
        Model.load(spoilt)


def test_the_command_line_names_it_and_leaves_nothing(gpt2_folder, tmp_path, capsys, monkeypatch):
    folder = copytree(gpt2_folder, tmp_path / "spoilt")
    weights = load_file(folder / "model.safetensors")
    weights[SPOILT][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "text.txt").write_text("the old dog sleeps\na red cat runs\n")
    out = tmp_path / "out"
    words = ["pellucid", "similarity", folder, "--corpus", tmp_path / "text.txt", "-o", out]
    monkeypatch.setattr(sys, "argv", [str(word) for word in words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.count("\n") == 1
    assert f"contain NaN or infinity, first in {SPOILT!r} (1 in all)" in said
    assert not out.exists()
