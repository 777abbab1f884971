"""Infidelity in its own unit, and as a share at the best scale, where the right answer is known."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from pellucid.attribution import trust
from pellucid.attribution.sweep import Asked
from tests.attribution.bag_of_embeddings import bag, contributions
from tests.attribution.test_trust import FIVE, cell


def test_infidelity_asks_for_amounts_and_unexplained_for_shares():
    """Twice the exact contributions: at their best scale nothing is left, as they stand all of it is missed again."""
    parts = contributions(FIVE, "cat")

    def twice(asked: Asked):
        return 2 * parts[None, None]

    names = ["infidelity", "unexplained"]
    found = trust(bag(), [FIVE], [], "token:cat", own={"twice": twice}, baseline="zero", measures=names, draws=400)
    assert cell(found, "unexplained", "twice") == pytest.approx(0, abs=1e-9)
    numbers = parts.numpy()
    sets = [[at in chosen for at in range(5)] for size in range(1, 5) for chosen in combinations(range(5), size)]
    sizes = np.array([sum(each) for each in sets])
    changes = (np.array(sets) @ numbers) ** 2
    expected = np.mean([changes[sizes == size].mean() for size in range(1, 5)])  # every size is as frequent
    assert cell(found, "infidelity", "twice") == pytest.approx(expected, rel=0.1)
