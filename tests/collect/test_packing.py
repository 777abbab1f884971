"""Packing: of all ways to cut sentences into batches, the one with the least padding and the fewest batches."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.collect.packing import packed


def cost(cuts: list[slice], rows: list[int], lengths: list[int], budget: int) -> float:
    """Padded tokens, and a sixteenth of the budget for every batch."""
    return sum(sum(rows[cut]) * max(lengths[cut]) + budget / 16 for cut in cuts)


def least(rows: list[int], lengths: list[int], budget: int) -> float:
    """The least cost of all ways to cut, each tried."""
    found = []
    for count in range(len(rows)):
        for inner in combinations(range(1, len(rows)), count):
            ends = [0, *inner, len(rows)]
            cuts = [slice(*pair) for pair in pairwise(ends)]
            large = [cut for cut in cuts if cut.stop - cut.start > 1 and sum(rows[cut]) * max(lengths[cut]) > budget]
            if not large:
                found.append(cost(cuts, rows, lengths, budget))
    return min(found)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 40)), min_size=1, max_size=9), st.sampled_from([16, 50, 160])
)
def test_no_other_way_to_cut_costs_less(sentences, budget):
    lengths, rows = sorted(length for _, length in sentences), [count for count, _ in sentences]
    cuts = packed(rows, lengths, budget)
    assert [place for cut in cuts for place in range(cut.start, cut.stop)] == list(range(len(rows)))
    assert all(cut.stop - cut.start == 1 or sum(rows[cut]) * lengths[cut.stop - 1] <= budget for cut in cuts)
    assert cost(cuts, rows, lengths, budget) == pytest.approx(least(rows, lengths, budget))


def test_few_long_sentences_do_not_lengthen_the_short_ones():
    """All 12 would fit together, with 12 × 100 tokens; apart they are 10 × 5 and 2 × 100."""
    assert packed([1] * 12, [5] * 10 + [100] * 2, 1600) == [slice(0, 10), slice(10, 12)]
    assert packed([1] * 12, [95] * 10 + [100] * 2, 1600) == [slice(0, 12)], "a batch more would cost 100 tokens"


def test_a_sentence_over_the_budget_is_alone():
    assert packed([1, 4, 1], [10, 20, 30], 40) == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert packed([], [], 40) == []
