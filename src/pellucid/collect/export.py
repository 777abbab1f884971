"""Exporting a store: one `.npy` file per site, or a zarr group, with the words as a table beside them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pellucid.collect.store import Store
from pellucid.errors import SweepError
from pellucid.saving import whole_folder


def export_npy(store: Store, folder: str | Path) -> Path:
    """Every site as `SITE.npy` [rows, width], written shard by shard, and the words as `words.csv`.

    NumPy has no bfloat16: a store of that type is exported as float32.
    """
    return _whole(store, Path(folder), _npy)


def export_zarr(store: Store, folder: str | Path) -> Path:
    """Every site as an array of a zarr group, made at its full size first, and the words as `words.csv`."""
    if find_spec("zarr") is None:
        raise SweepError("Exporting to zarr needs the zarr package: pip install 'pellucid[zarr]'.")
    return _whole(store, Path(folder), _zarr)


def _whole(store: Store, folder: Path, write: Any) -> Path:
    """Writes into a temporary folder and renames it: all of it or nothing."""
    if store.missing:
        raise SweepError(
            f"The store is not complete: {len(store.missing)} shards are missing. Build it to the end first."
        )
    with whole_folder(folder) as work:
        try:
            write(store, work)
            store.words().to_csv(work / "words.csv", index=False)
        except OSError as error:
            raise SweepError(
                f"{str(folder)!r} could not be written ({error.strerror}); make room and try again."
            ) from error
    return folder


def _dtype(store: Store) -> Any:
    return np.float32 if store.dtype == torch.bfloat16 else np.dtype(str(store.dtype).removeprefix("torch."))


def _npy(store: Store, folder: Path) -> None:
    for key in store.keys:
        target = np.lib.format.open_memmap(
            folder / f"{key.replace(':', '-')}.npy", "w+", dtype=_dtype(store), shape=(store.rows, store.width(key))
        )
        _fill(store, key, target)
        target.flush()


def _zarr(store: Store, folder: Path) -> None:
    import zarr

    library: Any = zarr
    group = library.open_group(str(folder / "activations.zarr"), mode="w")
    largest = max((entry.rows for entry in store.entries), default=1)
    for key in store.keys:
        shape = (store.rows, store.width(key))
        array = group.create_array(key, shape=shape, chunks=(largest, shape[1]), dtype=np.dtype(_dtype(store)))
        _fill(store, key, array)


def _fill(store: Store, key: str, target: Any) -> None:
    place = 0
    for entry in store.entries:
        rows = store.shard(entry, key)
        values = (rows.float() if store.dtype == torch.bfloat16 else rows).numpy()
        target[place : place + entry.rows] = values
        place += entry.rows
