"""Pellucid opens any Hugging Face transformer and shows what it has learned, where it keeps it and what it uses.

Names are loaded when first used, so that importing the package loads neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pellucid.errors import PellucidError
    from pellucid.model import Batch, Captured, Edit, Generation, Model, Run, Site

__version__ = "0.1.0"

_HOMES = {
    "Batch": "pellucid.model.batch",
    "Captured": "pellucid.model.run",
    "Edit": "pellucid.model.edits",
    "Generation": "pellucid.model.run",
    "Model": "pellucid.model.model",
    "PellucidError": "pellucid.errors",
    "Run": "pellucid.model.run",
    "Site": "pellucid.model.sites",
}

__all__ = ["Batch", "Captured", "Edit", "Generation", "Model", "PellucidError", "Run", "Site", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pellucid' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
