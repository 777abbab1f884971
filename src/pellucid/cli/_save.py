"""Saving what `pellucid run` read: a folder with `result.json` and `arrays.safetensors`, written whole or not."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid import __version__
from pellucid.errors import PellucidError

if TYPE_CHECKING:
    from pellucid.model import Model, Run


def check_free(folder: Path) -> None:
    """Raises where a folder cannot be written without touching something that is there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PellucidError(f"{str(folder)!r} exists and is not empty; choose another folder with --out.")
    parent = folder.absolute().parent
    if not parent.is_dir():
        raise PellucidError(f"There is no folder {str(parent)!r} to write {folder.name!r} in; create it first.")


def save_run(folder: Path, model: Model, text: str, run: Run, edits: list[Any]) -> None:
    """Writes the run's tensors and where they come from, to a temporary folder first, then under its name."""
    import torch
    import transformers
    from safetensors.torch import save_file

    assert run.batch is not None
    work = folder.absolute().with_name(f".{folder.name}.{os.getpid()}.part")
    work.mkdir()
    arrays = {str(site): value.detach().cpu().contiguous().clone() for site, value in run.items()}
    save_file({**arrays, "ids": run.batch.ids.cpu(), "mask": run.batch.mask.cpu()}, work / "arrays.safetensors")
    axes = {name: _axes(name, value.dim()) for name, value in arrays.items()}
    about = {
        "format": 1,
        "kind": "run",
        "axes": axes,
        "provenance": {
            "command": shlex.join(["pellucid", *sys.argv[1:]]),
            "model": model.name,
            "attention": model.attention,
            "text": text,
            "edits": [str(edit) for edit in edits],
            "versions": {
                "pellucid": __version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        },
    }
    (work / "result.json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if folder.is_dir():
        folder.rmdir()
    work.rename(folder.absolute())


def _axes(site: str, count: int) -> list[str]:
    """Names of a recorded tensor's axes."""
    if "pattern" in site.split("."):
        return ["sequence", "head", "token", "attended token"]
    return ["sequence", *(["head"] if count == 4 else []), *(["token"] if count > 2 else []), "unit"]
