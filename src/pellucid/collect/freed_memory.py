"""Freed memory stays with the process for some batches: the C library would give it back after every one."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache

_TRIM, _MAPPED = -1, -3  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_OWN = 32 << 20
"""Blocks from this size on are mapped apart: the largest that glibc takes, and where its own rule ends up."""
_KEPT = (1 << 31) - 1
_SLACK = 64 << 20
"""Bytes by which the process may grow before freed memory is given back: batches differ in length, so what one leaves
has gaps too small for the next."""
_CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


@contextmanager
def kept_freed_memory() -> Generator[Callable[[], None]]:
    """What is freed within it is used again for what comes next, and given back to the system at its end.

    It gives a function to call after each batch, which gives back what has no use where the process has grown.

    Every batch makes and drops the rows of all sites, some tens of megabytes; to get them again page by page costs a
    tenth of a sweep's time, and far more on some virtual machines. Afterwards glibc gives back what its own rule would
    in a process that has used blocks of `_OWN` bytes. Other C libraries are left alone, and settings of the user's own.
    """
    library = _glibc()
    if library is None:
        yield give_back
        return
    least: int | None = None

    def after_batch() -> None:
        nonlocal least
        now = _resident()
        if least is None or now < least:
            least = now
        elif now > least + _SLACK:
            give_back()
            least = None

    library.mallopt(_MAPPED, _OWN)
    library.mallopt(_TRIM, _KEPT)
    try:
        yield after_batch
    finally:
        library.mallopt(_TRIM, 2 * _OWN)
        give_back()


def give_back() -> None:
    """Gives freed memory back to the system, where the C library is glibc and left to us."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library of this process, where it is glibc and nobody has set how it keeps memory."""
    if any(name in os.environ for name in _CHOSEN) or platform.libc_ver()[0] != "glibc":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
