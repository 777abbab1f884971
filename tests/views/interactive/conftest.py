"""A stand-in for the built script, so that pages can be written without building it."""

from __future__ import annotations

import pytest

from pellucid.views.interactive import page
from tests.views.interactive.decoding import STAND_IN


@pytest.fixture(autouse=True)
def stand_in(tmp_path_factory, monkeypatch):
    place = tmp_path_factory.mktemp("built") / "bundle.js"
    place.write_bytes(STAND_IN)
    monkeypatch.setattr(page, "BUNDLE", place)
    return place
