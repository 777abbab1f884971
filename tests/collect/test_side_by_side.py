"""Parts side by side: all are done, each with one thread; after an error nothing goes on."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from pellucid.collect.side_by_side import side_by_side


@pytest.fixture(autouse=True, params=[1, 2, 4])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_every_part_is_done_once_with_one_thread(threads):
    seen: list[tuple[int, int]] = []
    for _ in range(20):
        seen.clear()
        side_by_side(lambda part: seen.append((part, torch.get_num_threads())), range(7))
        assert sorted(seen) == [(part, 1) for part in range(7)]
        assert torch.get_num_threads() == threads


def test_parts_run_at_the_same_time(threads):
    meeting = threading.Barrier(threads, timeout=20)
    side_by_side(lambda _: meeting.wait(), range(threads))
    assert not meeting.broken


def test_an_error_is_raised_when_nothing_runs_any_more():
    begun: list[int] = []
    ended: list[int] = []

    def work(part: int) -> None:
        begun.append(part)
        if part == 1:
            raise ValueError("part 1")
        time.sleep(0.02)
        ended.append(part)

    with pytest.raises(ValueError, match="part 1"):
        side_by_side(work, range(100))
    after = list(begun)
    assert sorted(ended) == [part for part in sorted(after) if part != 1]
    assert len(after) < 20
    time.sleep(0.05)
    assert begun == after


def test_parts_may_have_parts(threads):
    seen: list[tuple[int, int]] = []
    side_by_side(lambda part: side_by_side(lambda inner: seen.append((part, inner)), range(3)), range(5))
    assert sorted(seen) == [(part, inner) for part in range(5) for inner in range(3)]


def test_two_callers_share_the_threads():
    done: list[int] = []

    def call() -> None:
        side_by_side(done.append, range(50))

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=20)
    assert sorted(done) == sorted([*range(50)] * 3)
