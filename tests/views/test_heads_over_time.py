"""Heads over time: every head at every step in its place, and nothing that overlaps."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.results import ResultError
from pellucid.views.heads_over_time import heads_over_time
from tests.overlaps import faults

TOKENS = ["<s>", "The", "$farmer_1$", "asked", "\n", "", "designer"]


def weights(heads: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(len(TOKENS)), size=(heads, len(TOKENS)))


@pytest.mark.parametrize("width", [7.2, 9.2])
@pytest.mark.parametrize(("heads", "steps"), [(1, 1), (2, 4), (12, 3), (33, 2)])
def test_labels_do_not_overlap(heads, steps, width):
    figure = heads_over_time({step * 1000: weights(heads) for step in range(steps)}, TOKENS, name="p.0", width=width)
    assert not faults(figure)
    assert figure.get_figwidth() <= width


def test_every_picture_is_in_its_place():
    given = {step: weights(3, seed=step) for step in (0, 5)}
    figure = heads_over_time(given, TOKENS)
    canvas = figure.axes[0].images[0].get_array()
    size = len(TOKENS)
    pitch = size + 1
    for row, step in enumerate(given):
        for head in range(3):
            cell = canvas[row * pitch : row * pitch + size, head * pitch : head * pitch + size]
            np.testing.assert_array_equal(np.asarray(cell), given[step][head])
    assert np.ma.getmaskarray(canvas)[size].all(), "there is a gap between rows"
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["0", "5"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0", "1", "2"]
    assert figure.axes[0].images[0].get_clim() == (0, 1)
    told = figure._supxlabel.get_text()
    for text in ("1 <s>", "3 $farmer_1$", "5 ⏎", "6 ␣", "7 designer"):
        assert text in told


def test_what_does_not_fit_is_refused():
    with pytest.raises(ResultError, match="of one shape at every step"):
        heads_over_time({0: weights(2), 1: weights(3)}, TOKENS)
    with pytest.raises(ResultError, match="There are 2 tokens, and weights of 7"):
        heads_over_time({0: weights(2)}, TOKENS[:2])
