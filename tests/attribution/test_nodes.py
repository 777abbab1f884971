"""Nodes of a path: weights that integrate polynomials, ends that are there or not."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.attribution import nodes
from pellucid.errors import AttributionError


@pytest.mark.parametrize("steps", [2, 3, 8, 50])
def test_weights_integrate_polynomials_exactly(steps):
    """n Gauss–Legendre nodes are exact up to degree 2n − 1."""
    for rule, inner in ((nodes.gauss(steps), steps - 1), (nodes.captum(steps), steps)):
        for degree in range(2 * inner):
            assert rule.weights @ rule.points**degree == pytest.approx(1 / (degree + 1), rel=1e-12)
        assert rule.weights @ rule.points ** (2 * inner) != pytest.approx(1 / (2 * inner + 1), rel=1e-14) or inner > 8


def test_both_ends_are_walked_and_weigh_nothing():
    rule = nodes.gauss(50)
    assert len(rule.points) == 51
    assert (rule.points[0], rule.points[-1]) == (0, 1)
    assert (rule.weights[0], rule.weights[-1]) == (0, 0)
    assert np.all(np.diff(rule.points) > 0)
    assert rule.ends
    assert rule.trapezoid
    plain = nodes.captum(50)
    assert len(plain.points) == 50
    assert not plain.ends
    assert not plain.trapezoid
    assert nodes.END.points.tolist() == [1.0]


def test_bad_input_is_a_sentence():
    with pytest.raises(AttributionError, match=r"given 1 steps; it needs at least 2"):
        nodes.gauss(1)
    with pytest.raises(AttributionError, match=r"no rule 'simpson' .*; the rules are gauss, captum"):
        nodes.check_rule("simpson")
