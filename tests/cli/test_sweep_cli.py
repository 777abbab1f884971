"""`pellucid sweep` and `pellucid store`: what they write, what they say, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pellucid import Corpus, Found, HeadCounts, Model, Moments, Store, TopContexts, sweep
from pellucid.cli._sweeping import collector_from
from pellucid.errors import PellucidError
from tests.tiny_models import save


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("cli")
    save(place / "model", "gpt2")
    lines = [
        "the keys near cabinet are old",
        "a dog runs and a cat sleeps",
        "",
        "the red dog is old",
        "keys are in a cabinet",
    ]
    (place / "notes.txt").write_text("\n".join(lines * 3), encoding="utf-8")
    return place


def test_a_sweep_is_saved_and_equals_the_librarys(cli, folder, tmp_path):
    wanted = ["--collect", "moments resid.* pairs=diagonal", "--collect", "top-contexts neurons.1 k=3"]
    code, out, _ = cli("sweep", folder / "model", "--corpus", folder / "notes.txt", "-o", tmp_path / "s", *wanted)
    assert code == 0
    assert "Saved to" in out
    assert "top-contexts" not in out  # collectors are told by their names
    assert "TopContexts(sites=('neurons.1',), k=3)" in out
    found = Found.load(tmp_path / "s")
    model = Model.load(folder / "model")
    again = sweep(
        model, Corpus.text(folder / "notes.txt"), [Moments("resid.*", pairs="diagonal"), TopContexts("neurons.1", k=3)]
    )
    np.testing.assert_array_equal(found[Moments].mean("resid.1"), again[Moments].mean("resid.1"))
    largest = found[TopContexts].largest("neurons.1")
    np.testing.assert_array_equal(largest.ordinal, again[TopContexts].largest("neurons.1").ordinal)
    sentence = found.sentence(int(largest.sentence[0, 0]))
    assert sentence.text in (folder / "notes.txt").read_text(encoding="utf-8")


def test_the_same_command_again_reads_what_is_there(cli, folder, tmp_path):
    command = ("sweep", folder / "model", "--corpus", folder / "notes.txt", "-o", tmp_path / "s", "--json")
    code, first, _ = cli(*command)
    assert code == 0
    before = (tmp_path / "s" / "states.safetensors").stat().st_mtime_ns
    code, second, told = cli(*command)
    assert code == 0
    assert json.loads(first) == json.loads(second)
    assert json.loads(first)["counts"]["words"] == 3 * (6 + 7 + 5 + 5)
    assert "finished" in told
    assert (tmp_path / "s" / "states.safetensors").stat().st_mtime_ns == before


def test_show_prints_a_sweep(cli, folder, tmp_path):
    cli("sweep", folder / "model", "--corpus", folder / "notes.txt", "-o", tmp_path / "s")
    code, out, _ = cli("show", tmp_path / "s")
    assert code == 0
    assert "HeadCounts" in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--collect", "momens resid.*"], "no collector called 'momens'; there are attention-freedom, class-"),
        (["--collect", "moments resid.9"], "No site matches 'resid.9'"),
        (["--collect", "moments resid.* pair=all"], "has no option pair; it has"),
        (["--collect", "class-moments resid.*"], "also needs label"),
        (["--collect", "class-moments resid.* label=upos"], "no label 'upos' in the corpus, which ClassMoments reads"),
        (["--collect", "moments resid.* groups=no"], "groups of 'moments' takes true or false, not 'no'"),
        (["--collect", "top-contexts resid.* k=ten"], "k of 'top-contexts' takes a whole number, not 'ten'"),
        (["--collect", ""], "no collector called ''"),
        (["--collect", "head-counts offsets=0"], "offsets=0"),
        (["--collect", "moments pattern.*"], "pattern.0 holds attention weights, which are a matrix for a whole text"),
        (["--engine", "spark"], "no engine 'spark'; use inline, processes, ray"),
        (["--pooling", "median"], "no pooling='median'; use one of first, last, mean, all"),
        (["--long", "cut"], "no long='cut'"),
        (["--engine", "inline", "--workers", "3"], "inline engine is one worker"),
    ],
)  # fmt: skip
def test_what_a_sweep_refuses(cli, folder, tmp_path, words, complaint):
    code, out, err = cli("sweep", folder / "model", "--corpus", folder / "notes.txt", "-o", tmp_path / "s", *words)
    assert (code, out) == (2, "")
    assert complaint in err.splitlines()[-1]
    assert not (tmp_path / "s" / "states.safetensors").exists()


def test_another_model_in_the_same_folder_is_refused(cli, folder, tmp_path):
    save(tmp_path / "other", "gpt2", seed=1)
    for name, expected in ((folder / "model", 0), (tmp_path / "other", 2)):
        code, _, err = cli("sweep", name, "--corpus", folder / "notes.txt", "-o", tmp_path / "s")
        assert code == expected
    assert "holds a sweep with another model" in err


def test_collectors_are_written_as_words():
    assert collector_from("head-counts") == HeadCounts()
    assert collector_from("moments resid.* mlp.* groups=true pairs=units") == Moments(
        ("resid.*", "mlp.*"), groups=True, pairs="units"
    )
    with pytest.raises(PellucidError, match="There is no collector called 'unknown'"):
        collector_from("unknown resid.*")


# -- the store -----------------------------------------------------------------------------------------------------


def test_a_store_is_built_told_and_exported(cli, folder, tmp_path):
    code, out, _ = cli("store", "build", folder / "model", "--corpus", folder / "notes.txt", "-o", tmp_path / "k",
                       "--sites", "resid.*", "--keep", "float32")  # fmt: skip
    assert code == 0
    assert "all there" in out
    code, out, _ = cli("store", "info", tmp_path / "k", "--verify", "--json")
    about = json.loads(out)
    assert code == 0
    assert about["rows"] == 3 * (6 + 7 + 5 + 5)
    assert about["missing"] == []
    assert about["verified"]
    assert list(about["widths"]) == ["resid.0", "resid.1", "resid.2", "resid.3"]
    for to, name in (("npy", "resid.1.npy"), ("zarr", "activations.zarr")):
        code, _, _ = cli("store", "export", tmp_path / "k", "-o", tmp_path / to, "--to", to)
        assert code == 0
        assert (tmp_path / to / name).exists()
    np.testing.assert_array_equal(
        np.load(tmp_path / "npy" / "resid.1.npy"), Store.open(tmp_path / "k").layer("resid.1")
    )


def test_a_store_may_hold_the_randomly_initialised_model_too(cli, folder, tmp_path):
    base = ("store", "build", folder / "model", "--corpus", folder / "notes.txt", "--keep", "float32")
    code, out, err = cli(*base, "-o", tmp_path / "both", "--control", "--seed", "3", "--json")
    assert code == 0, err
    assert json.loads(out)["models"] == [str(folder / "model"), f"{folder / 'model'} (random, seed 3)"]
    assert cli(*base, "-o", tmp_path / "one")[0] == 0
    found, alone = Store.open(tmp_path / "both"), Store.open(tmp_path / "one")
    np.testing.assert_array_equal(found.layer("0:resid.2"), alone.layer("resid.2"))
    model = Model.load(folder / "model")
    twins = [Model.random_like(model, seed) for seed in (0, 3)]
    assert [twin.fingerprint == found.models[1].fingerprint for twin in twins] == [False, True]
    assert abs(found.layer("0:resid.2") - found.layer("1:resid.2")).max() > 0.01
    code, _, err = cli(*base, "-o", tmp_path / "one", "--control")
    assert code == 2
    assert "holds a store with another setting (models, sites)" in err
    code, out, err = cli(*base, "-o", tmp_path / "new", "--seed", "3")
    assert (code, out) == (2, "")
    assert "--seed 3 is that of the control model; add --control" in err
    assert not (tmp_path / "new").exists()


def test_parts_fill_one_store(cli, folder, tmp_path):
    base = ("store", "build", folder / "model", "--corpus", folder / "notes.txt", "-o", tmp_path / "k")
    code, out, _ = cli(*base, "--part", "1/2")
    assert code == 0
    assert "missing: build it again to finish" in out
    code, out, _ = cli(*base, "--part", "2/2")
    assert code == 0
    assert "all there" in out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["store", "info", "nowhere"], "There is no store in"),
        (["store", "export", "nowhere", "-o", "x"], "There is no store in"),
    ],
)
def test_what_a_store_refuses(cli, words, complaint):
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert complaint in err


def test_bad_options_of_a_store_are_refused(cli, folder, tmp_path):
    base = ("store", "build", folder / "model", "--corpus", folder / "notes.txt", "-o", tmp_path / "k")
    for words, complaint in (
        (("--keep", "int8"), "A store cannot hold 'int8'; use one of float16"),
        (("--part", "5/4"), "--part '5/4' means nothing"),
        (("--sites", "resid.7"), "No site matches 'resid.7'"),
    ):
        code, _, err = cli(*base, *words)
        assert code == 2
        assert complaint in err
        assert not (tmp_path / "k").exists()
    assert cli(*base)[0] == 0
    code, _, err = cli(*base, "--keep", "float32")
    assert code == 2
    assert "holds a store with another setting (precision)" in err
    code, _, err = cli("store", "export", tmp_path / "k", "-o", tmp_path / "x", "--to", "hdf5")
    assert code == 2
    assert "no export to 'hdf5'; use npy or zarr" in err


def test_a_refusal_leaves_no_folder_behind(cli, folder, tmp_path):
    (tmp_path / "x.in").write_text("the keys\na dog\n", encoding="utf-8")
    (tmp_path / "x.label").write_text("D N\nD\n", encoding="utf-8")
    given = ["--corpus", tmp_path / "x.in", "--label-file", tmp_path / "x.label"]
    for command in (["sweep"], ["store", "build"]):
        code, _, err = cli(*command, folder / "model", *given, "-o", tmp_path / "new")
        assert code == 2
        assert "each word needs one label" in err
        assert not (tmp_path / "new").exists()
    (tmp_path / "there").mkdir()
    assert cli("sweep", folder / "model", *given, "-o", tmp_path / "there")[0] == 2
    assert (tmp_path / "there").is_dir()  # it was not ours
