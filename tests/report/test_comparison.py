"""What a page on similarity says of a map, in words."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pellucid import similarity
from pellucid.report.comparison import show_grid
from pellucid.report.sheet import Sheet
from pellucid.similarity import SimilarityGrid
from tests.similarity.test_grid import MODEL, MOMENTS, OTHER, found

SAME = replace(MODEL, name="two")


def told(result: SimilarityGrid, values: list[list[float]], folder: Path) -> str:
    """The text of a sheet on a map with other numbers."""
    folder.mkdir(exist_ok=True)
    sheet = Sheet(folder, "command")
    show_grid(sheet, replace(result, values=np.array([values]), low=None, high=None), name="map")
    return re.sub(r"<[^>]*>", "", "".join(sheet.parts))


def test_layers_of_one_model(tmp_path: Path) -> None:
    result = similarity.grid(found((MODEL,), MOMENTS), "cka")
    text = told(result, [[1, 0.9, 0.3], [0.9, 1, 0.5], [0.3, 0.5, 1]], tmp_path)
    assert "Neighbouring layers score 0.500 to 0.900; the largest step is from resid.1 to resid.2." in text
    assert "First and last score 0.300." in text


def test_same_layers_of_two_models(tmp_path: Path) -> None:
    result = similarity.grid(found((MODEL, SAME), MOMENTS), "cka")
    text = told(result, [[1, 0.9, 0.3], [0.9, 0.95, 0.5], [0.3, 0.5, 0.2]], tmp_path)
    assert "The same layer of both models scores from 1.00 (resid.0) down to 0.200 (resid.2)." in text
    assert "The largest fall is from resid.1 to resid.2." in text
    assert "Neighbouring" not in text
    rising = told(result, [[0.2, 0, 0], [0, 0.5, 0], [0, 0, 0.9]], tmp_path / "rising")
    assert "from 0.900 (resid.2) down to 0.200 (resid.0)" in rising
    assert "largest fall" not in rising


@pytest.mark.filterwarnings("ignore::pellucid.similarity.SimilarityWarning")
def test_models_with_other_sites(tmp_path: Path) -> None:
    result = similarity.grid(found((MODEL, OTHER), MOMENTS), "cka")
    text = told(result, [[0.1, 0.2], [0.3, 0.7], [0.5, 0.4]], tmp_path)
    assert "Most alike are resid.1 and resid.1 (0.700); the best partner of a left site scores 0.200 to 0.700." in text
