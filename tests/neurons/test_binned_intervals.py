"""Intervals of IoU and average precision from histograms whose document groups were kept apart."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.neurons import iou, precision
from tests.neurons import planted


@pytest.mark.parametrize("ranked", [iou, precision])
def test_many_classes_have_nearly_the_interval_of_each_alone(ranked):
    """The groups' few bins give nearly the width that all bins give, class by class, where it is not tiny."""
    source = planted.model(), planted.corpus().take(150)
    whole = ranked(*source, concept="upos", sites="neurons.0", control=False)
    alone = ranked(*source, concept="upos=NOUN", sites="neurons.0", control=False)
    at = whole.place("class", "NOUN")
    assert whole.values[at] == pytest.approx(alone.values[0], abs=1e-9)
    width, expected = (whole.high - whole.low)[at], (alone.high - alone.low)[0]
    real = (expected > 0.02) & (expected < 0.5)  # of wider ones the sign is in doubt, which is only told there
    assert real.sum() > 10
    assert np.median(np.abs(width[real] / expected[real] - 1)) < 0.25
    assert (whole.low <= whole.values + 1e-12).all()
    assert (whole.values <= whole.high + 1e-12).all()


@pytest.mark.parametrize("ranked", [iou, precision])
def test_intervals_end_where_shares_do(ranked):
    found = ranked(planted.model(), planted.corpus().take(12), concept="upos", sites="neurons.0", control=False)
    fires, overall = found.values >= 0, found.table("overall").columns
    for size, low, high in (
        (found.values[fires], found.low[fires], found.high[fires]),
        (-found.values[~fires], -found.high[~fires], -found.low[~fires]),
        (overall["score"], overall["low"], overall["high"]),
    ):
        assert ((low >= 0) & (low <= size) & (size <= high) & (high <= 1)).all()
        assert (low == 0).any(), "of so few words, wider intervals leave the range"
