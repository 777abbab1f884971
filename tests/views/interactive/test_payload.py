"""Codes, strips and tiles, undone by hand."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch

from pellucid.errors import PellucidError
from pellucid.views.interactive.payload import code, codes, numbers, strip_rows, strips, tiles
from pellucid.views.interactive.weights import check_quality, coded


def random_rows(heads: int = 2, queries: int = 7, keys: int = 7, *, causal: bool = False, seed: int = 0):
    scores = torch.randn(heads, queries, keys, generator=torch.Generator().manual_seed(seed)) * 3
    if causal:
        scores = scores.masked_fill(torch.ones(queries, keys).triu(1).bool(), -torch.inf)
    return scores.softmax(-1)


def test_every_code_is_within_half_a_step_of_the_root():
    weights = torch.linspace(0, 1, 100_001)
    found = codes(weights)
    assert found.dtype == torch.uint8
    assert (found.double() / 255 - weights.double().sqrt()).abs().max() <= 0.5 / 255 + 1e-7
    assert (codes((torch.arange(256) / 255) ** 2) == torch.arange(256)).all()
    assert codes(torch.tensor([-0.1, 1.0001])).tolist() == [0, 255]
    assert [code(0.0), code(0.25), code(1.0)] == [0, 128, 255]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rows", [2, 3, 7])
def test_strips_are_rows_less_the_row_above(causal, rows):
    generator = np.random.default_rng(1)
    coded_ = generator.integers(0, 256, (7, 7), dtype=np.uint8)
    coded_ = np.tril(coded_) if causal else coded_
    lost = generator.integers(0, 256, 7, dtype=np.uint8)
    chunks = strips(coded_, lost, causal=causal, rows=rows)
    assert len(chunks) == -(-7 // rows)
    for number, chunk in enumerate(chunks):
        raw = zlib.decompress(chunk.stored)
        assert chunk.raw == len(raw)
        start, expected = number * rows, []
        for row in range(start, min(7, start + rows)):
            for key in range(row + 1 if causal else 7):
                above = 0 if row == start else int(coded_[row - 1, key])
                expected.append((int(coded_[row, key]) - above) % 256)
        assert raw == bytes([*expected, *lost[start : start + rows]])


def test_cross_attention_has_rows_of_another_length():
    coded_ = np.arange(15, dtype=np.uint8).reshape(3, 5)
    [chunk] = strips(coded_, np.zeros(3, np.uint8), causal=False, rows=3)
    assert zlib.decompress(chunk.stored) == bytes([*range(5), *[5] * 10, 0, 0, 0])


def test_strips_hold_all_rows_of_short_texts_and_about_a_million_weights_of_long_ones():
    assert strip_rows(20, 20) == 20
    assert strip_rows(1024, 1024) == 1024
    assert strip_rows(8192, 8192) == 128
    assert strip_rows(100_000, 100_000) == 32


@pytest.mark.parametrize(("queries", "keys", "side"), [(7, 7, 3), (5, 9, 4), (3, 8, 8), (6, 6, 6), (10, 2, 7)])
def test_a_tile_holds_the_largest_code_of_its_rows_and_columns(queries, keys, side):
    made = np.random.default_rng(2).integers(0, 256, (2, queries, keys), dtype=np.uint8)
    found = tiles(made, side)
    assert found.shape == (2, side, side)

    def span(place: int, count: int) -> range:
        start = place * count // side
        return range(start, max(start + 1, (place + 1) * count // side))

    for head in range(2):
        for row in range(side):
            for column in range(side):
                inside = [made[head, i, j] for i in span(row, queries) for j in span(column, keys)]
                assert found[head, row, column] == max(inside)


def test_quality_drops_the_smallest_weights_and_keeps_their_mass():
    weights = random_rows(3, 9, 40)
    whole = coded(weights)
    assert not whole.dropped.any()
    for quality in (0.99, 0.9, 0.5):
        found = coded(weights, quality)
        for head in range(3):
            for row in range(9):
                exact, kept = weights[head, row].double().numpy(), found.weights[head, row]
                plain = whole.weights[head, row]
                gone = (kept == 0) & (plain > 0)
                assert (kept[~gone] == plain[~gone]).all()
                lost = exact[kept == 0].sum()  # also what is too small for the code
                assert lost <= (1 - quality) * exact.sum() + 1e-12
                assert abs(found.dropped[head, row] / 255 - np.sqrt(lost)) <= 0.5 / 255 + 1e-9
                if gone.any():
                    assert plain[gone].max() < kept[kept > 0].min()
                following = plain[kept > 0].min()  # one more code would have been too much
                assert lost + exact[plain == following].sum() > (1 - quality) * exact.sum()


def test_quality_of_rows_that_do_not_sum_to_one_is_a_share_of_their_own_total():
    weights = torch.tensor([[[0.04, 0.46, 0.0, 0.0]]])
    found = coded(weights, 0.9)
    assert found.weights[0, 0].tolist() == [0, code(0.46), 0, 0]
    assert found.dropped[0, 0] == code(0.04)
    assert coded(weights, 0.95).weights[0, 0].tolist() == [code(0.04), code(0.46), 0, 0]


@pytest.mark.parametrize("quality", [0, -0.1, 1.5, float("nan"), True, "high"])
def test_quality_must_be_a_share(quality):
    with pytest.raises(PellucidError, match="share of each row"):
        check_quality(quality)


def test_numbers_have_their_lowest_byte_first():
    assert zlib.decompress(numbers(np.array([1.0], ">f4"), "<f4").stored) == bytes([0, 0, 0x80, 0x3F])
    assert zlib.decompress(numbers(np.array([258]), "<u4").stored) == bytes([2, 1, 0, 0])
