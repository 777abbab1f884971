"""`pellucid show`: results as tables, JSON, CSV and figures; recorded runs and sweeps; bad input in one sentence."""

from __future__ import annotations

import csv
import json

import pytest
from safetensors.torch import load_file, save_file

from tests.results_by_hand import many_heads, norms_by_hand, statistics_by_hand, surprise_by_hand


@pytest.fixture
def saved(tmp_path):
    return norms_by_hand().save(tmp_path / "norms")


def test_a_small_result_prints_every_cell_beside_chance(cli, saved):
    code, out, err = cli("show", saved)
    assert (code, err) == (0, "")
    result = norms_by_hand()
    lines = [line.split() for line in out.splitlines()]
    for layer in range(3):
        cells = [result.values, result.null, result.low, result.high]
        row = ["mean", "norm", str(layer), *(f"{part[0, layer]:.4g}" for part in cells)]
        assert row in lines
    assert "interval: 10 document groups (jackknife, 95%)" in out
    assert "chance: a randomly initialised model of the same architecture" in out
    assert "made by overview.norms(threshold=6.0" in out
    assert "corpus: by hand (c0ffee)" in out
    assert "outliers" in out


def test_a_large_result_prints_means_and_extremes_with_their_places(cli, tmp_path):
    result = many_heads(12, 12)
    code, out, _ = cli("show", result.save(tmp_path / "heads"))
    assert code == 0
    entropy = result.measure("entropy")
    layer, head = divmod(int(entropy.argmax()), 12)
    line = next(line for line in out.splitlines() if line.split()[:1] == ["entropy"] and "layer" in line)
    assert f"{entropy.mean():.4g}" in line
    low, low_head = divmod(int(entropy.argmin()), 12)
    smallest = f"{entropy.min():.4g} (layer {low}, head {low_head})"
    assert line.rstrip().endswith(f"{entropy.max():.4g} (layer {layer}, head {head})")
    assert smallest in line
    assert "(first 10 of 2736 rows; --json prints all)" in out
    assert len(out.splitlines()) < 70


def test_words_with_markup_are_printed_as_they_are(cli, tmp_path):
    code, out, _ = cli("show", surprise_by_hand().save(tmp_path / "s"))
    assert code == 0
    assert "two$x$" in out


def test_csv_and_figure_are_written_and_named(cli, saved, tmp_path):
    for suffix, magic in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("PDF", b"%PDF")):
        table, figure = tmp_path / f"{suffix}.csv", tmp_path / f"figure.{suffix}"
        code, out, err = cli("show", saved, "--csv", table, "--plot", figure)
        assert (code, err) == (0, "")
        assert figure.read_bytes().startswith(magic)
        flat = out.replace("\n", "")
        assert str(table) in flat
        assert str(figure) in flat
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows] == norms_by_hand().values.ravel().tolist()


def test_json_is_the_only_output_also_beside_files(cli, saved, tmp_path):
    code, out, err = cli("show", saved, "--json", "--csv", tmp_path / "t.csv")
    assert (code, err) == (0, "")
    assert json.loads(out)["kind"] == "overview.norms"
    assert (tmp_path / "t.csv").is_file()


def test_a_recorded_run(cli, gpt2_folder, tmp_path):
    folder = tmp_path / "run"
    words = ["run", gpt2_folder, "the old dog", "--sites", "heads.1,resid.0", "--edit", "heads.0=zero", "--out", folder]
    assert cli(*words)[0] == 0
    code, out, err = cli("show", folder)
    assert (code, err) == (0, "")
    assert "'the old dog'" in out
    assert "sequence × head × token × unit" in out
    assert "edit: heads.0=zero" in out
    code, out, _ = cli("show", folder, "--json")
    told = json.loads(out)
    assert told["arrays"]["heads.1"] == load_file(folder / "arrays.safetensors")["heads.1"].tolist()


def test_a_recorded_run_in_bfloat16(cli, gpt2_folder, tmp_path):
    """NumPy has no such numbers, but a recorded run may."""
    folder = tmp_path / "run"
    assert cli("run", gpt2_folder, "the dog", "--sites", "embed", "--out", folder)[0] == 0
    arrays = load_file(folder / "arrays.safetensors")
    halved = {**arrays, "embed": arrays["embed"].bfloat16()}
    save_file(halved, folder / "arrays.safetensors")
    code, out, _ = cli("show", folder, "--json")
    assert code == 0
    assert json.loads(out)["arrays"]["embed"] == halved["embed"].float().tolist()


def test_a_sweep(cli, gpt2_folder, tmp_path):
    folder = tmp_path / "swept"
    assert cli("sweep", gpt2_folder, "--corpus", "grammar:20", "-o", folder)[0] == 0
    code, out, err = cli("show", folder)
    assert (code, err) == (0, "")
    assert "grammar:20" in out
    code, out, _ = cli("show", folder, "--json")
    assert code == 0
    assert json.loads(out)["counts"]["sentences"] == 20
    code, out, err = cli("show", folder, "--csv", tmp_path / "x.csv")
    assert code == 2
    assert "is a sweep" in err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--plot", "x.gif"], "ending in .svg, .png, .pdf"),
        (["--plot", "no/where.svg"], "There is no folder"),
        (["--csv", "no/where.csv"], "There is no folder"),
        (["--csv", "."], "is a folder"),
    ],
)
def test_files_that_cannot_be_written(cli, saved, tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("show", saved, *words)
    assert (code, out) == (2, "")
    assert complaint in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["norms"]


def test_folders_that_cannot_be_shown(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    folder = statistics_by_hand().save(tmp_path / "damaged")
    (folder / "arrays.safetensors").write_bytes(b"")
    for name, complaint in (
        ("empty", "no saved result"),
        ("nowhere", "no saved"),
        ("file", "no saved"),
        ("damaged", "damaged"),
    ):
        code, out, err = cli("show", tmp_path / name)
        assert (code, out) == (2, "")
        assert complaint in err
        assert len(err.splitlines()) == 1


def test_nothing_to_draw_from_a_recorded_run(cli, gpt2_folder, tmp_path):
    assert cli("run", gpt2_folder, "the dog", "--sites", "embed", "--out", tmp_path / "run")[0] == 0
    code, out, err = cli("show", tmp_path / "run", "--plot", tmp_path / "x.svg")
    assert (code, out) == (2, "")
    assert "is a recorded run" in err
    assert not (tmp_path / "x.svg").exists()


def test_help_has_an_example(cli):
    code, out, _ = cli("show", "--help")
    assert code == 0
    assert "pellucid show" in out.partition("Example")[2]
