"""`pellucid ablate`: tables, files and bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pellucid.attribution import Ablations, ablations
from pellucid.model import Model

TEXT = "the old dog sleeps"


def test_heads_are_printed_saved_and_told_as_json(cli, gpt2_folder, tmp_path):
    wanted = ablations(Model.load(gpt2_folder), TEXT)
    code, told, err = cli("ablate", gpt2_folder, TEXT, "--top", "3", "-o", tmp_path / "out")
    assert (code, err) == (0, "")
    saved = Ablations.load(tmp_path / "out")
    assert np.allclose(saved.values, wanted.values)
    assert saved.provenance.command.startswith("pellucid ablate")
    order = np.argsort(-np.abs(wanted.values[0]))
    rows = [line.split()[0] for line in told.splitlines() if line.strip().startswith("heads.")]
    assert rows == [wanted.axes["place"][at] for at in order[:3]]
    code, told, err = cli("ablate", gpt2_folder, TEXT, "--json")
    assert (code, err) == (0, "")
    assert np.allclose(json.loads(told)["value"], wanted.values)


def test_options_reach_the_analysis(cli, gpt2_folder):
    words = ("--sites", "neurons.1", "--by", "unit", "--units", "5,2", "--span", "1-3", "--baseline", "mean")
    code, told, err = cli("ablate", gpt2_folder, TEXT, *words, "--target", "token:dog@2", "--json")
    assert (code, err) == (0, "")
    options = {"by": "unit", "units": [5, 2], "span": (1, 3), "baseline": "mean"}
    wanted = ablations(Model.load(gpt2_folder), TEXT, "token:dog@2", "neurons.1", **options)
    found = json.loads(told)
    assert found["axes"]["place"] == ["neurons.1:5", "neurons.1:2"]
    assert np.allclose(found["value"], wanted.values)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--units", "one"], "The units 'one' cannot be read"),
        (["--units", "99"], "head 99 does not exist"),
        (["--span", "2"], "The span '2' cannot be read"),
        (["--span", "2-9"], "does not lie within the text's 4 tokens"),
        (["--sites", "mlp.0"], "mlp.0 has no heads"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(cli, gpt2_folder, tmp_path, words, sentence):
    code, out, err = cli("ablate", gpt2_folder, TEXT, *words, "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
