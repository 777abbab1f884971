"""Pairs: what is worked out once, in whichever precision, and by how many threads."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread

import numpy as np
import pytest
import torch

from pellucid import similarity
from pellucid.collect.side_by_side import side_by_side
from pellucid.similarity import pair_of_rows
from pellucid.similarity.cca import pwcca, pwcca_back
from pellucid.similarity.cka import debiased_cka
from pellucid.similarity.pair import Pair
from pellucid.similarity.parallel import kept
from tests.similarity.test_grid import found
from tests.similarity.test_scores import made


@pytest.mark.parametrize("sizes", [(500, 12, 9), (500, 6, 14)])
def test_canonical_directions_put_the_whole_together(sizes: tuple[int, int, int]) -> None:
    pair = pair_of_rows(*made(*sizes))
    left, rho, right = pair.canonical
    whole = pair.whitened(pair.left.rank, pair.right.rank)
    assert np.allclose(left @ np.diag(rho) @ right.T, whole, atol=1e-9)
    assert np.allclose(left.T @ left, np.eye(len(rho)), atol=1e-9)


def test_float32_directions_give_pwcca_within_their_rounding() -> None:
    exact = pair_of_rows(*made(2000, 30, 25))
    sides = [replace(side, precision="float32") for side in (exact.left, exact.right)]
    rounded = Pair(*sides, exact.cross, exact.norm_products)
    assert rounded.canonical[0].dtype == np.float32
    for score in (pwcca, pwcca_back):
        assert score(rounded) == pytest.approx(score(exact), abs=1e-5)


def test_directions_without_any_correlation() -> None:
    """A correlation of exactly 0 leaves nothing of its direction on the other side."""
    generator = np.random.default_rng(0)
    basis, _ = np.linalg.qr(generator.normal(size=(60, 9)) - 0)
    basis -= basis.mean(0)
    basis, _ = np.linalg.qr(basis)
    x, y = basis[:, :4], np.concatenate([basis[:, :2], basis[:, 5:8]], axis=1)
    pair = pair_of_rows(x, y)
    assert np.allclose(np.sort(pair.canonical[1]), [0, 0, 1, 1], atol=1e-7)
    assert np.isfinite(pwcca_back(pair))


def test_results_do_not_depend_on_threads() -> None:
    threads = torch.get_num_threads()
    try:
        by_threads: list[similarity.SimilarityGrid] = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            by_threads.append(similarity.grid(found(), "cka,svcca,pwcca,rbf-cka"))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    assert by_threads[0].same(by_threads[1])
    assert by_threads[0].same(by_threads[2])


def test_errors_come_through_and_threads_come_back() -> None:
    before = torch.get_num_threads()

    def fail(place: tuple[int, int]) -> None:
        raise ValueError(f"{place}")

    try:
        torch.set_num_threads(2)
        with pytest.raises(ValueError, match="0, 1"):
            side_by_side(fail, [(0, 1), (2, 3)])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_kept_is_worked_out_once_by_many_threads() -> None:
    calls: list[int] = []

    class Slow:
        @kept
        def value(self) -> int:
            """A number."""
            import time

            calls.append(1)
            time.sleep(0.05)
            return 7

    slow = Slow()
    threads = [Thread(target=lambda: slow.value) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert slow.value == 7
    assert len(calls) == 1
    assert Slow.value.__doc__ == "A number."


def test_constant_features_have_no_spread() -> None:
    rows = np.full((50, 3), 0.1)
    pair = pair_of_rows(rows, rows)
    assert pair.left.power == 0.0
    assert debiased_cka(pair) == 0.0
    rows[:, 0] = np.random.default_rng(0).normal(size=50)
    assert pair_of_rows(rows, rows).left.rank == 1
