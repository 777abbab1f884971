"""Names of models, as studies show them."""

from __future__ import annotations


def short_name(model: str) -> str:
    """A model's name without the folders that it lies in."""
    return model.rstrip("/").rpartition("/")[2].removesuffix(".gguf")
