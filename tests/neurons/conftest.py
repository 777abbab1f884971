"""What several files of tests on neurons read, made once."""

from __future__ import annotations

import pytest

from pellucid.collect.build import build_store
from pellucid.collect.store import Store
from pellucid.model import Model
from tests.neurons import planted


@pytest.fixture(scope="session")
def both(tmp_path_factory) -> Store:
    """A store of the planted model and its random twin."""
    models = [planted.model(), Model.random_like(planted.model(), 4)]
    folder = tmp_path_factory.mktemp("stores") / "both"
    return build_store(models, planted.corpus(), folder, "neurons.*", dtype="float32", progress=False)
