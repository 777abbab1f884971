"""Many small problems at once, one thread for each: linear algebra of a few hundred rows shares threads badly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import RLock
from typing import Any, Generic, TypeVar, overload

import torch

T = TypeVar("T")
_LOCK = "_kept lock"


def at_once(work: Callable[[int, int], None], places: Sequence[tuple[int, int]]) -> None:
    """Does the work of every place, as many at a time as torch has threads, each with one thread of its own.

    What each gives does not depend on how many run. The first error is raised.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(lambda place: work(*place), places):
                pass
    finally:
        torch.set_num_threads(threads)


class kept(Generic[T]):
    """A property that is worked out once, by one thread; Python's own has one lock for all objects, or none."""

    def __init__(self, made: Callable[[Any], T]) -> None:
        self.made, self.__doc__ = made, made.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> kept[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> T | kept[T]:
        if instance is None:
            return self
        held = instance.__dict__
        with held.setdefault(_LOCK, RLock()):
            if self.name not in held:
                held[self.name] = self.made(instance)  # found before this the next time
        return held[self.name]
