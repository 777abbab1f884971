"""`pellucid dynamics`: the folder it writes of one or two trainings, what it prints, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

from pellucid.corpus import Corpus
from pellucid.results import Result
from pellucid.train import settings_for, train
from pellucid.train.dynamics import Dynamics

VALID = "grammar:40:5"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two real trainings of a few seconds, with every checkpoint."""
    place = tmp_path_factory.mktemp("trained")
    for name, seed in (("one", 1), ("two", 2)):
        settings = settings_for(
            "lm", layers=2, width=16, heads=2, feed_forward=32, length=24, batch=4, epochs=2, seed=seed
        )
        train(
            Corpus.open("grammar:120"),
            settings,
            place / name,
            valid=Corpus.open(VALID),
            checkpoints="all",
            device="cpu",
            progress=False,
        )
    return place


def test_a_page_of_one_run(cli, runs, tmp_path):
    out = tmp_path / "out"
    code, said, _ = cli("dynamics", runs / "one", "--metrics", "cka,rbf-cka", "-o", out)
    assert code == 0
    assert "How alike each layer is to epoch 2" in said
    assert "dynamics.html" in said
    names = {each.name for each in (out / "results").iterdir()}
    assert names == {"convergence-cka", "convergence-rbf-cka", "epoch-0000", "epoch-0001", "epoch-0002"}
    curve = Result.load(out / "results/convergence-cka")
    assert np.array_equal(curve.values, Dynamics.open(runs / "one").convergence().values)
    assert curve.provenance.command is not None
    assert curve.provenance.command.startswith("pellucid dynamics")
    assert {each.name for each in (out / "figures").glob("heads-*")} == {"heads-pattern-0.svg", "heads-pattern-1.svg"}
    page = (out / "dynamics.html").read_text(encoding="utf-8")
    for text in ("Heads over time", "Layers of epoch 2", "could be frozen from epoch", "convergence-cka-freezing.csv"):
        assert text in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_two_runs_as_json(cli, runs, tmp_path):
    out = tmp_path / "out"
    code, said, _ = cli("dynamics", runs / "one", runs / "two", "--no-heads", "--epochs", "2", "--json", "-o", out)
    assert code == 0
    told = json.loads(said)
    assert told["between"]["cka"]["kind"] == "similarity.epoch_by_epoch"
    assert list(told["grids"]) == ["2"]
    assert told["last"]["axes"]["left"] == ["resid.0", "resid.1", "resid.2"]
    assert not list((out / "figures").glob("heads-*"))
    assert "Two runs: every pair of layers" in (out / "dynamics.html").read_text(encoding="utf-8")


def test_exactly_from_checkpoints(cli, runs, tmp_path):
    out = tmp_path / "out"
    code, _, _ = cli(
        "dynamics", runs / "one", runs / "two", "--exact", "--corpus", VALID, "--sentence", "The dog sleeps", "-o", out
    )  # fmt: skip
    assert code == 0
    one, two = (Dynamics.open(runs / name) for name in ("one", "two"))
    curve, beside = (Result.load(out / "results" / name) for name in ("convergence-cka", "between-cka"))
    assert curve.axes["step"] == (0, 1, 2)  # all words are among those sampled, so only float16 lies between the two
    np.testing.assert_allclose(curve.values[..., 1:], one.convergence().values, atol=2e-3)
    assert (curve.values[..., -1] == 1).all()
    np.testing.assert_allclose(beside.values, one.between(two).values, atol=2e-3)
    page = (out / "dynamics.html").read_text(encoding="utf-8")
    assert "over all words" in page
    code, _, _ = cli(
        "dynamics", runs / "one", "--exact", "--corpus", VALID, "--epochs", "0,2", "--no-heads", "-o", tmp_path / "two"
    )  # fmt: skip
    assert code == 0
    assert Result.load(tmp_path / "two/results/convergence-cka").axes["step"] == (0, 2)
    assert "The dog sl" in page.rpartition("The sentence: ")[2][:60]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--metrics", "ckaa"], "There is no score 'ckaa'"),
        (["--epochs", "7"], "Epoch 7 was not looked at"),
        (["--epochs", "first"], "are no epochs"),
        (["--exact"], "together with --corpus"),
        (["--corpus", VALID], "together with --corpus"),
        (["--exact", "--corpus", "grammar:40:6"], "not the text on which the run"),
    ],
)
def test_refusals_write_nothing(cli, runs, tmp_path, arguments, sentence):
    out = tmp_path / "refused"
    code, _, told = cli("dynamics", runs / "one", "-o", out, *arguments)
    assert code == 2
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
    assert not out.exists()


def test_a_sentence_needs_checkpoints(cli, runs, tmp_path):
    """Without --epochs the pictures are of epochs that were saved; without any, or of others, one sentence says so."""
    run = tmp_path / "run"
    shutil.copytree(runs / "one", run)
    (tmp_path / ".out.0123abcd.part").mkdir()  # of one that was killed
    shutil.rmtree(run / "checkpoints/epoch-0000")
    words = ["--sentence", "The dog sleeps", "-o", tmp_path / "out"]
    code, _, _ = cli("dynamics", run, *words)
    assert code == 0
    assert {item.name for item in tmp_path.iterdir()} == {"run", "out"}
    drawn = (tmp_path / "out/figures/heads-pattern-0.svg").read_text(encoding="utf-8")
    assert re.findall(r">([^<]*)</text>", drawn)[:6] == ["0", "1", "head", "1", "2", "epoch"]
    words[-1] = tmp_path / "refused"
    code, _, told = cli("dynamics", run, *words, "--epochs", "0,1")
    assert code == 2
    assert "has those of epochs 1, 2 alone; leave --sentence out" in " ".join(told.split())
    shutil.rmtree(run / "checkpoints")
    code, _, told = cli("dynamics", run, *words)
    assert code == 2
    assert "has none; leave --sentence out" in " ".join(told.split())
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "refused").exists()
    assert cli("dynamics", run, *words, "--no-heads")[0] == 0  # no pictures, no checkpoints


def test_other_folders_and_too_many_runs_are_refused(cli, runs, tmp_path):
    one = runs / "one"
    code, _, told = cli("dynamics", tmp_path, "-o", tmp_path / "out")
    assert code == 2
    assert "holds nothing of how a network learned" in told
    code, _, told = cli("dynamics", one, one, one, "-o", tmp_path / "out")
    assert code == 2
    assert "3 runs were given" in told
