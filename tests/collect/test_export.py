"""Exports: the same numbers in NumPy's and in zarr's files, all of them or nothing."""

from __future__ import annotations

import errno

import numpy as np
import pandas
import pytest
import torch

from pellucid.collect.build import build_store
from pellucid.collect.export import export_npy, export_zarr
from pellucid.errors import PellucidError, SweepError
from tests.collect.sweeping import reader, stories

SMALL = {"token_budget": 150, "shard_tokens": 200, "threads": 1}
EXPORTS = (export_npy, export_zarr)


@pytest.fixture(scope="module", params=["float32", "float16", "bfloat16"])
def store(request, tmp_path_factory):
    models = [reader("gpt2"), reader("bert")]
    return build_store(
        models, stories(15), tmp_path_factory.mktemp("s") / "s", ("resid.1", "0:heads.0"), dtype=request.param, **SMALL
    )


def expected(store, key):
    rows = store.layer(key)
    return (rows.float() if rows.dtype == torch.bfloat16 else rows).numpy()


def test_npy_files_hold_the_rows(store, tmp_path):
    folder = export_npy(store, tmp_path / "out")
    assert sorted(file.name for file in folder.iterdir()) == [
        "0-heads.0.npy",
        "0-resid.1.npy",
        "1-resid.1.npy",
        "words.csv",
    ]
    for key in store.keys:
        found = np.load(folder / f"{key.replace(':', '-')}.npy")
        assert found.dtype == expected(store, key).dtype
        np.testing.assert_array_equal(found, expected(store, key))


def test_zarr_arrays_hold_the_rows(store, tmp_path):
    import zarr

    folder = export_zarr(store, tmp_path / "out")
    group = zarr.open_group(str(folder / "activations.zarr"), mode="r")
    for key in store.keys:
        assert group[key].dtype == expected(store, key).dtype
        np.testing.assert_array_equal(group[key][:], expected(store, key))


@pytest.mark.parametrize("export", EXPORTS)
def test_the_words_stand_beside_them(store, tmp_path, export):
    words = pandas.read_csv(export(store, tmp_path / "out") / "words.csv", keep_default_na=False)
    assert words["word"].tolist() == [word for sentence in stories(15) for word in sentence.words]
    assert words["upos"].tolist() == [tag for sentence in stories(15) for tag in sentence.labels["upos"]]


@pytest.mark.parametrize("export", EXPORTS)
def test_a_full_disk_leaves_nothing(store, tmp_path, monkeypatch, export):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pellucid.collect.export._fill", full)
    with pytest.raises(SweepError, match=r"could not be written \(No space left on device\); make room"):
        export(store, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_overwritten_and_parts_are_not_exported(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    whole = build_store(reader("gpt2"), stories(8), tmp_path / "whole", "resid.0", **SMALL)
    with pytest.raises(PellucidError, match="exists and is not empty"):
        export_npy(whole, tmp_path / "out")
    part = build_store(reader("gpt2"), stories(8), tmp_path / "part", "resid.0", part=(0, 2), **SMALL)
    with pytest.raises(SweepError, match="The store is not complete"):
        export_npy(part, tmp_path / "other")
    assert not (tmp_path / "other").exists()
