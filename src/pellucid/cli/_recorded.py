"""Printing what `pellucid run --out` saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.cli._print import console, print_json, print_table
from pellucid.results import ARRAYS, ResultError

if TYPE_CHECKING:
    from torch import Tensor


def show_recorded(folder: Path, about: Mapping[str, Any], *, json: bool) -> None:
    """The tensors of a recorded run with their axes, and where they come from."""
    tensors = _tensors(folder)
    if json:
        print_json({**about, "arrays": {name: value.tolist() for name, value in tensors.items()}})
        return
    origin = about["provenance"]
    console().print(f"A run of {origin['model']} on {origin['text']!r}")
    axes = about["axes"]
    rows = [(name, str(list(value.shape)), " × ".join(axes.get(name, ()))) for name, value in sorted(tensors.items())]
    print_table(["array", "shape", "axes"], rows)
    for edit in origin["edits"]:
        console().print(f"edit: {edit}")
    console().print(f"command: {origin['command']}")


def _tensors(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file  # NumPy has no bfloat16

    try:
        found = load_file(folder / ARRAYS)
    except (OSError, SafetensorError) as error:
        raise ResultError(
            f"{str(folder / ARRAYS)!r} is damaged or missing ({error}); run the command again."
        ) from error
    return {name: value.float() if value.is_floating_point() else value for name, value in found.items()}
