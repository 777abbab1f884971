"""Work on parts side by side: many small tensor operations share threads badly, so each part gets one of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

P = TypeVar("P")


def side_by_side(work: Callable[[P], None], parts: Sequence[P]) -> None:
    """Does the work of every part, as many at a time as torch has threads, each with one thread of its own.

    What each gives does not depend on how many run, as long as no two write to the same place. The first error is
    raised.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(parts) < 2:
        for part in parts:
            work(part)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(work, parts):
                pass
    finally:
        torch.set_num_threads(threads)
