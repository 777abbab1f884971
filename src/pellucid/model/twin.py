"""The random twin: a model of the same shape that has learned nothing, where one can be built."""

from __future__ import annotations

from pellucid.errors import PellucidError
from pellucid.model.model import Model


def twin_of(model: Model, seed: int = 0) -> Model | None:
    """A randomly initialised model of the same shape; None where it cannot be built."""
    try:
        return Model.random_like(model, seed)
    except (PellucidError, TypeError, ValueError, AttributeError, NotImplementedError):
        return None
