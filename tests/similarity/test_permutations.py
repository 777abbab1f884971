"""Shuffled documents: the scores of every permutation against the rows themselves, and what cannot be tested."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from pellucid import similarity
from pellucid.collect.documents import DocumentSample
from pellucid.errors import PellucidError
from pellucid.similarity.permutations import FORMS, shuffled
from tests.similarity.test_grid import MODEL, found
from tests.similarity.test_scores import scored

Array = np.ndarray[Any, Any]
DOCUMENTS, WORDS = 6, 3


def blocks(*, seed: int = 0) -> dict[str, Array]:
    """Two left and three right sites, of which one shares something with the left."""
    generator = np.random.default_rng(seed)
    made = {name: generator.normal(size=(DOCUMENTS, WORDS, 4)) for name in "abcde"}
    made["c"] = made["a"] + generator.normal(size=made["a"].shape)
    return made


def rows(block: Array) -> Array:
    return block.reshape(DOCUMENTS * WORDS, -1)


@pytest.mark.parametrize("score", sorted(FORMS))
def test_every_shuffle_is_the_score_of_shuffled_rows(score: str) -> None:
    """Whole documents of the right side in the order of the same generator; words keep their places within them."""
    made, sides = blocks(), (("a", "b"), ("c", "d", "e"))
    result = shuffled(made, sides, score, 99, 3)
    generator = np.random.default_rng(3)
    orders = [generator.permutation(DOCUMENTS) for _ in range(99)]
    for i, left in enumerate(sides[0]):
        for j, right in enumerate(sides[1]):
            value = scored(score, rows(made[left]), rows(made[right]))
            drawn = np.array([scored(score, rows(made[left]), rows(made[right][order])) for order in orders])
            assert result.value[i, j] == pytest.approx(value, abs=1e-5)
            assert result.mean[i, j] == pytest.approx(drawn.mean(), abs=1e-5)
            assert result.sd[i, j] == pytest.approx(drawn.std(ddof=1), abs=1e-5)
            assert result.p[i, j] == pytest.approx((1 + (drawn >= value - 1e-6).sum()) / 100)


def test_p_is_that_of_all_orders() -> None:
    made = blocks()
    value = scored("cka", rows(made["a"]), rows(made["d"]))
    every = [scored("cka", rows(made["a"]), rows(made["d"][list(o)])) for o in permutations(range(DOCUMENTS))]
    expected = np.mean(np.array(every) >= value - 1e-9)
    result = shuffled(made, (("a",), ("d",)), "cka", 3000, 0)
    assert result.p[0, 0] == pytest.approx(expected, abs=0.04)
    assert result.low[0, 0] < expected < result.high[0, 0]


def test_the_interval_holds_what_so_many_draws_can_tell() -> None:
    """Clopper and Pearson: an end is the share at which so few (or so many) draws would be seen once in 40 times."""
    from scipy.stats import binom

    made = blocks()
    result = shuffled(made, (("a",), ("c", "d")), "cka", 200, 0)
    for place in range(2):
        count = round(float(result.p[0, place]) * 201 - 1)
        low, high = float(result.low[0, place]), float(result.high[0, place])
        assert binom.cdf(count, 200, high) == pytest.approx(0.025, abs=1e-6)
        assert low == 0.0 if count == 0 else binom.sf(count - 1, 200, low) == pytest.approx(0.025, abs=1e-6)


@pytest.mark.parametrize("score", sorted(FORMS))
@pytest.mark.parametrize("constant", [0.1, 3.0])
def test_a_side_without_spread_is_like_nothing(score: str, constant: float) -> None:
    made = {"a": np.random.default_rng(0).normal(size=(12, 5, 4)), "e": np.full((12, 5, 2), constant, np.float32)}
    for sides in ((("a",), ("e",)), (("e",), ("e",))):
        result = shuffled(made, sides, score, 99, 0)
        assert result.value[0, 0] == 0
        assert result.p[0, 0] == 1


def test_too_few_documents_and_numbers_that_are_none_are_refused() -> None:
    made = {name: block[:4] for name, block in blocks().items()}
    with pytest.raises(PellucidError, match="4 documents have 3 words or more, and a test needs at least 5"):
        shuffled(made, (("a",), ("c",)), "cka", 99, 0)
    swept = found((MODEL,), DocumentSample("resid.*", words=WORDS))
    swept.states["0-document-sample"].arrays["rows/1"][2, 1, 3] = np.inf
    with pytest.raises(
        PellucidError, match=r"'resid.1' is NaN or infinite for word \d+ of the corpus; leave that site out"
    ):
        similarity.significance(swept)
