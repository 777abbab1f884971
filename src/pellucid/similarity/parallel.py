"""What threads share: properties that one of them works out for all."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
_LOCK = "_kept lock"


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
