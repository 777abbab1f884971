"""Tiles of all pairs of words: medians, ranks and neighbours as NumPy and SciPy give them from whole matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from pellucid.similarity import tiles

Array = np.ndarray[Any, Any]


def kinds() -> dict[str, Array]:
    generator = np.random.default_rng(0)
    plain = generator.normal(size=(61, 5))
    far = plain.copy()
    far[7] *= 1e5  # so far away that all other distances fall into one bin
    return {
        "plain": plain,
        "one far away": far,
        "many the same": np.repeat(plain[:6], 10, axis=0),
        "nearly all the same": np.concatenate([np.zeros((50, 5)), plain[:3]]),
        "on a lattice": np.round(generator.normal(size=(60, 2))),
        "all the same": np.zeros((20, 3)),
    }


def squares(rows: Array) -> Array:
    return ((rows[:, None] - rows) ** 2).sum(-1)


@pytest.mark.parametrize("name", kinds())
@pytest.mark.parametrize(("band", "bins"), [(1 << 21, 1 << 16), (150, 1 << 16), (150, 4), (1, 5)])
def test_medians(name: str, band: int, bins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no more than 150 numbers, or a row, may be held, so that bins are narrowed again and again."""
    monkeypatch.setattr(tiles, "BAND", band)
    monkeypatch.setattr(tiles, "_BINS", bins)
    rows = kinds()[name]
    found = tiles.median(tiles.squared_distances(rows), len(rows))
    assert found == pytest.approx(np.median(squares(rows)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["plain", "one far away", "on a lattice"])
@pytest.mark.parametrize("band", [1 << 21, 150])
def test_ranks(name: str, band: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "BAND", band)
    rows = kinds()[name]
    n = len(rows)
    above = np.triu_indices(n, 1)
    expected = np.zeros((n, n))
    expected[above] = rankdata(np.round(squares(rows)[above], 6 if name != "one far away" else 12))
    made = tiles.distance_ranks(rows)
    found = np.concatenate([made(start, stop) for start, stop in tiles.steps(n)])
    np.testing.assert_array_equal(found, expected + expected.T)


@pytest.mark.parametrize("name", ["plain", "on a lattice", "all the same"])
@pytest.mark.parametrize("k", [1, 7])
def test_neighbours_and_of_equals_the_earlier_ones(name: str, k: int) -> None:
    rows = kinds()[name]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    expected = np.sort(np.argsort(-cosine, axis=1, kind="stable")[:, :k], axis=1)
    np.testing.assert_array_equal(tiles.neighbours(rows, k), expected)
