"""Known answers of similarity on real models."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import Corpus, Model, similarity
from tests.real.packaged import defender, minilm

pytestmark = pytest.mark.real


def test_frozen_layers_are_the_same_and_tuned_ones_are_not() -> None:
    """The classifier kept blocks 0 to 3 of MiniLM (int8: equal up to rounding) and tuned blocks 4 and 5."""
    found = similarity.compare(minilm(), defender(), Corpus.grammar(150), scores="cka,svcca", random=False)
    same = np.diagonal(found.grid("cka").values[0])
    assert (same[:5] > 0.995).all()
    assert 0.9 < same[5] < 0.98
    assert same[6] < 0.6
    by_directions = np.diagonal(found.grid("svcca").values[0])
    assert (by_directions[:5] > 0.98).all()
    assert by_directions[6] < by_directions[5] < 0.97


def test_random_embedding_tables_look_alike_on_text() -> None:
    trained = minilm()
    one, other = (Model.random_like(trained, seed) for seed in (0, 1))
    grid = similarity.compare(one, other, Corpus.grammar(150), sites="embed", random=False).grid("cka")
    assert grid.values.item() > 0.7
    assert grid.low is not None
    assert grid.low.item() > 0.6
