"""Results: axes and cells are checked, frames are tidy, folders are whole, and damage is named in one sentence."""

from __future__ import annotations

import csv
import json
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from pellucid import results
from pellucid.errors import PellucidError
from pellucid.results import Provenance, Result, ResultError, Table
from pellucid.saving import write_file, write_folder

SIZES = {"measure": ("up", "down"), "layer": (0, 1, 2), "head": (4, 7)}


@pytest.fixture(scope="module")
def kind():
    """A kind of its own, forgotten afterwards, so that it is no part of the registry that other tests walk."""

    @dataclass(frozen=True, eq=False)
    class Sample(Result):
        kind: ClassVar[str] = "test.sample"
        title: ClassVar[str] = "A sample"

    yield Sample
    Result._kinds.pop("test.sample")


def cells(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(2, 3, 2))


def made(kind, **changes):
    fields = {
        "axes": SIZES,
        "values": cells(),
        "null": cells(1),
        "low": cells() - 1,
        "high": cells() + 1,
        "resampled": "3 document groups (jackknife, 95%)",
        "provenance": Provenance(
            "test.sample", {"k": 3, "name": "é"}, ({"name": "m", "fingerprint": "f"},), {"name": "c"}, 7
        ),
        "tables": {
            "words": Table({"row": (1, 2)}, {"text": np.array(["ein, „Wort“", "日本\nx"]), "count": np.array([3, 4])}),
        },
    }
    return kind(**{**fields, **changes})


# -- making ----------------------------------------------------------------------------------------------------


def test_cells_cannot_be_changed_and_the_callers_arrays_stay_his(kind):
    given = cells()
    result = made(kind, values=given)
    given[:] = 0
    assert result.values[0, 0, 0] != 0
    assert given.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        result.values[0, 0, 0] = 1
    with pytest.raises(FrozenInstanceError):
        result.values = given


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"values": np.zeros((2, 2, 3))},
            r"'values' has the shape \[2, 2, 3\], but the axes are measure: 2, layer: 3, head: 2",
        ),
        ({"null": np.zeros((3, 2))}, "'null' has the shape"),
        ({"low": None}, "both ends"),
        ({"resampled": ""}, "why there is no interval"),
        (
            {"values": np.where(cells() == cells().max(), np.nan, cells())},
            "'values' is not a number in 1 of 12 cells, first at measure",
        ),
        ({"high": np.full((2, 3, 2), np.inf)}, "'high' is not a number in 12 of 12"),
    ],
)
def test_what_does_not_fit_is_refused(kind, changes, complaint):
    with pytest.raises(ResultError, match=complaint):
        made(kind, **changes)


def test_the_place_of_the_first_bad_cell_is_named(kind):
    values = cells()
    values[1, 2, 1] = np.nan
    with pytest.raises(ResultError, match="measure down, layer 2, head 7"):
        made(kind, values=values)


def test_a_table_checks_its_columns_too():
    with pytest.raises(ResultError, match="column 'a' has the shape"):
        Table({"row": (1, 2)}, {"a": np.zeros(3)})
    with pytest.raises(ResultError, match="column 'a' is not a number"):
        Table({"row": (1, 2)}, {"a": np.array([1, np.nan])})


def test_names_that_are_not_there_raise_and_list_what_is(kind):
    result = made(kind)
    assert np.array_equal(result.measure("down"), cells()[1])
    with pytest.raises(ResultError, match=r"no measure 'left' in this 'test.sample' result; it has up, down"):
        result.measure("left")
    with pytest.raises(ResultError, match=r"no axis 'neuron'.*measure, layer, head"):
        result.place("neuron", 0)
    with pytest.raises(ResultError, match=r"no table 'wrods'.*it has words"):
        result.table("wrods")


def test_a_result_travels_between_processes(kind):
    table = made(kind).table("words")
    assert pickle.loads(pickle.dumps(table)).columns["text"].tolist() == table.columns["text"].tolist()


# -- frames ----------------------------------------------------------------------------------------------------


def test_every_cell_is_one_row_with_its_own_coordinates(kind):
    result = made(kind)
    frame = result.to_frame()
    assert list(frame.columns) == ["measure", "layer", "head", "value", "null", "low", "high"]
    assert len(frame) == 12
    for row in frame.itertuples():
        at = (SIZES["measure"].index(row.measure), SIZES["layer"].index(row.layer), SIZES["head"].index(row.head))
        assert (row.value, row.null, row.low, row.high) == tuple(
            part[at] for part in (result.values, result.null, result.low, result.high)
        )
    assert frame["layer"].dtype == np.int64


def test_missing_chance_and_interval_are_missing_in_the_frame(kind):
    frame = made(kind, null=None, low=None, high=None, resampled="no interval: one document").to_frame()
    assert list(frame.columns) == ["measure", "layer", "head", "value", "null", "low", "high"]
    assert frame[["null", "low", "high"]].isna().all(axis=None)


def test_the_csv_holds_the_frame(kind, tmp_path):
    result = made(kind, low=None, high=None)
    path = result.save_table(tmp_path / "cells.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    frame = result.to_frame()
    assert [float(row["value"]) for row in rows] == frame["value"].tolist()
    assert [(row["measure"], int(row["layer"]), int(row["head"])) for row in rows] == list(
        frame[["measure", "layer", "head"]].itertuples(index=False, name=None)
    )
    assert {row["low"] for row in rows} == {""}


# -- saving ----------------------------------------------------------------------------------------------------


def test_what_is_loaded_is_what_was_saved(kind, tmp_path):
    result = made(kind)
    loaded = Result.load(result.save(tmp_path / "r"))
    assert type(loaded) is kind
    assert loaded.same(result)
    assert loaded.axes == result.axes
    assert [type(item) for item in loaded.axes["layer"]] == [int] * 3
    assert loaded.provenance == result.provenance
    assert loaded.table("words").columns["text"].tolist() == ["ein, „Wort“", "日本\nx"]
    assert loaded.table("words").columns["count"].dtype == np.int64
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["arrays.safetensors", "result.json"]


@pytest.mark.parametrize(
    "changes",
    [
        {"values": np.nextafter(cells(), 9)},
        {"null": None},
        {"resampled": "other"},
        {"provenance": Provenance("test.sample", seed=8)},
        {"tables": {}},
        {"axes": {**SIZES, "head": (4, 8)}},
    ],
)
def test_results_that_differ_are_not_the_same(kind, changes):
    assert made(kind).same(made(kind))
    assert not made(kind).same(made(kind, **changes))


def test_equal_results_are_equal_bytes_also_in_another_process(kind, tmp_path):
    made(kind).save(tmp_path / "one")
    script = (
        "from tests.test_results import *\n"
        "class Sample(Result):\n    kind = 'test.sample'\n    title = 'A sample'\n"
        f"made(Sample).save({str(tmp_path / 'two')!r})"
    )
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for name in (results.ABOUT, results.ARRAYS):
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        for path in (tmp_path / "two").iterdir():
            path.unlink()


def test_the_json_holds_every_number(kind):
    result = made(kind)
    told = json.loads(json.dumps(result.to_json()))
    assert np.array_equal(np.array(told["value"]), result.values)
    assert np.array_equal(np.array(told["high"]), result.high)
    assert told["tables"]["words"]["columns"] == {"text": ["ein, „Wort“", "日本\nx"], "count": [3, 4]}
    assert told["provenance"]["versions"].keys() == {"pellucid", "torch", "transformers", "numpy"}


def test_a_kind_opens_only_its_own(kind, tmp_path):
    made(kind).save(tmp_path / "r")

    @dataclass(frozen=True, eq=False)
    class Other(Result):
        kind: ClassVar[str] = "test.other"

    try:
        with pytest.raises(ResultError, match=r"holds a 'test.sample' result, not a 'test.other' one"):
            Other.load(tmp_path / "r")
    finally:
        Result._kinds.pop("test.other")


def test_nothing_that_is_there_is_overwritten(kind, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("keep")
    (tmp_path / "empty").mkdir()
    for taken, complaint in (("full", "not empty"), ("full/mine", "is a file"), ("no/parent", "There is no folder")):
        with pytest.raises(PellucidError, match=complaint):
            made(kind).save(tmp_path / taken)
    made(kind).save(tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"]
    assert (tmp_path / "full" / "mine").read_text() == "keep"


def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "old.csv").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PellucidError, match="No space left"):
        write_folder(tmp_path / "new", {"a": b"1", "b": b"2"})
    with pytest.raises(PellucidError, match="No space left"):
        write_file(tmp_path / "old.csv", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]
    assert (tmp_path / "old.csv").read_text() == "old"


def _edit(folder: Path, **changes: object) -> None:
    about = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**about, **changes}))


def _drop(folder: Path, name: str) -> None:
    about = json.loads((folder / "result.json").read_text())
    del about[name]
    (folder / "result.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda folder: (folder / "result.json").unlink(), "no saved result"),
        (lambda folder: (folder / "result.json").write_text("{"), "damaged"),
        (lambda folder: (folder / "result.json").write_text("[1]"), "damaged"),
        (lambda folder: (folder / "result.json").write_bytes(b"\xff\xfe"), "damaged"),
        (lambda folder: (folder / "arrays.safetensors").unlink(), "damaged"),
        (lambda folder: (folder / "arrays.safetensors").write_bytes(b"x" * 30), "damaged"),
        (lambda folder: _edit(folder, axes={"layer": [1]}), "damaged"),
        (lambda folder: _edit(folder, provenance={"function": "f"}), "damaged"),
        (lambda folder: _edit(folder, provenance=3), "damaged"),
        (lambda folder: _drop(folder, "tables"), "damaged"),
        (lambda folder: _edit(folder, format=results.FORMAT + 1), "newer Pellucid"),
        (lambda folder: _edit(folder, kind="heads.wishes"), "no kind of result; the kinds are"),
        (lambda folder: _edit(folder, kind="run"), "recorded run"),
    ],
)
def test_damage_is_one_sentence(kind, tmp_path, damage, complaint):
    made(kind).save(tmp_path / "r")
    damage(tmp_path / "r")
    with pytest.raises(ResultError, match=complaint) as caught:
        Result.load(tmp_path / "r")
    assert "\n" not in str(caught.value)


def test_a_provenance_holds_no_time_and_comes_back():
    told = Provenance("f", {"a": [1, 2]}, ({"name": "m", "fingerprint": "x"},), {"words": 3}, 1, command="pellucid x")
    assert Provenance.of_json(told.to_json()) == told
    assert set(told.to_json()) == {"function", "arguments", "models", "corpus", "seed", "versions", "command"}
    import torch

    assert told.versions["torch"] == torch.__version__
