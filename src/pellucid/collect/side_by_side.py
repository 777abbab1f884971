"""Work on parts side by side: many small tensor operations share threads badly, so each part gets one of its own."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

P = TypeVar("P")


def side_by_side(work: Callable[[P], None], parts: Sequence[P]) -> None:
    """Does the work of every part, as many at a time as torch has threads, each with one thread of its own.

    What each gives does not depend on how many run, as long as no two write to the same place. After an error no part
    is begun any more; once those under way have ended, the error of the first of them is raised.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(parts) < 2:
        for part in parts:
            work(part)
        return
    waiting, errors = deque(enumerate(parts)), list[tuple[int, Exception]]()

    def go_on() -> None:
        while waiting:
            try:
                number, part = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                work(part)
            except Exception as error:
                errors.append((number, error))
                waiting.clear()

    torch.set_num_threads(1)
    try:
        helpers = [_helpers(threads - 1, os.getpid()).submit(go_on) for _ in range(min(threads, len(parts)) - 1)]
        try:
            go_on()
        finally:
            waiting.clear()
            wait(helpers)
    finally:
        torch.set_num_threads(threads)
    if errors:
        raise min(errors, key=lambda each: each[0])[1]


@cache
def _helpers(count: int, process: int) -> ThreadPoolExecutor:
    """Threads that help this one, kept as they take long to start; a forked process has none of its parent's."""
    return ThreadPoolExecutor(count)
