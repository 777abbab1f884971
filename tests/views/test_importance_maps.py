"""Maps of importance: every head in its cell, gaps where a layer has fewer, ranks on the right heads."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.heads.weighing.importance import HeadImportance
from pellucid.results import Provenance, ResultError
from pellucid.views import figure_svg
from pellucid.views.importance_maps import importance_maps
from tests.results_by_hand import norms_by_hand

HEADS = ("encoder.0.0", "encoder.0.1", "encoder.1.0", "decoder.0.0", "decoder.0.1", "cross.0.0", "cross.0.1")


def made(values, measures):
    return HeadImportance(
        axes={"measure": measures, "head": HEADS},
        values=values,
        null=np.zeros(values.shape),
        low=None,
        high=None,
        resampled="no interval",
        provenance=Provenance("heads.importance"),
    )


def test_cells_and_ranks():
    values = np.array([[1.0, 2.0, 9.0, 4.0, 5.0, 6.0, 7.0], [-1.0, 2.0, 3.0, -4.0, 0.0, 0.5, 0.1]])
    figure = importance_maps(made(values, ("gradient", "zero")))
    first, second = figure.axes[:2]
    drawn = np.ma.filled(first.images[0].get_array().astype(float), np.nan)
    assert drawn.shape == (4, 2)
    assert drawn[0].tolist() == [1.0, 2.0]
    assert drawn[1, 0] == 9.0
    assert np.isnan(drawn[1, 1])  # this layer has one head
    assert [label.get_text() for label in first.get_yticklabels()] == ["encoder.0", "encoder.1", "decoder.0", "cross.0"]
    ranks = {text.get_text(): text.get_position() for text in first.texts}
    assert ranks == {"1": (0, 1), "2": (1, 3), "3": (0, 3)}  # column, row
    low, high = second.images[0].get_clim()
    assert (low, high) == (-4.0, 4.0)  # changes are centred on zero


def test_equal_values_and_one_method_are_drawn():
    assert "<svg" in figure_svg(importance_maps(made(np.zeros((1, 7)), ("confidence",))))


def test_other_results_are_refused():
    with pytest.raises(ResultError, match="need an axis 'head'"):
        importance_maps(norms_by_hand())
