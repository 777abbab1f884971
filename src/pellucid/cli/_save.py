"""Saving what `pellucid run` read: a folder with `result.json` and `arrays.safetensors`, written whole or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid import __version__
from pellucid.cli._command import command_line
from pellucid.saving import check_free, write_folder

if TYPE_CHECKING:
    from pellucid.model import Model, Run

__all__ = ["check_free", "save_run"]


def save_run(folder: Path, model: Model, text: str, run: Run, edits: list[Any]) -> None:
    """Writes the run's tensors and where they come from."""
    import torch
    import transformers
    from safetensors.torch import save

    assert run.batch is not None
    arrays = {str(site): value.detach().cpu().contiguous().clone() for site, value in run.items()}
    content = save({**arrays, "ids": run.batch.ids.cpu(), "mask": run.batch.mask.cpu()})
    about = {
        "format": 1,
        "kind": "run",
        "axes": {name: _axes(name, value.dim()) for name, value in arrays.items()},
        "provenance": {
            "command": command_line(),
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
    told = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    write_folder(folder, {"result.json": told.encode(), "arrays.safetensors": content})


def _axes(site: str, count: int) -> list[str]:
    """Names of a recorded tensor's axes."""
    if "pattern" in site.split("."):
        return ["sequence", "head", "token", "attended token"]
    return ["sequence", *(["head"] if count == 4 else []), *(["token"] if count > 2 else []), "unit"]
