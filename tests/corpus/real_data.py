"""Where the real data is: beside the project, or where PELLUCID_DATA points."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("PELLUCID_DATA") or Path(__file__).parents[3] / "shared" / "data")


def real(*names: str) -> list[Path]:
    """The paths of data files; the test is skipped where one is absent."""
    paths = [DATA / name for name in names]
    absent = [path for path in paths if not path.is_file()]
    if absent:
        pytest.skip(f"{absent[0]} is absent: set PELLUCID_DATA to the folder of the real data")
    return paths
