"""Freed memory stays with the process for some batches of a shard, and goes back afterwards."""

import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
from pellucid.collect.freed_memory import kept_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20

def made_and_dropped():
    held = [np.ones(8 << 20, np.uint8) for _ in range(32)]
    del held

made_and_dropped()
before = resident()
with kept_freed_memory() as after_batch:
    after_batch()
    made_and_dropped()
    within = resident()
    after_batch()
    grown = resident()
after = resident()
made_and_dropped()
print(within - before, grown - before, after - before, resident() - before)
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not os.path.exists("/proc/self/statm"),
    reason="only glibc is told to keep memory, and only Linux tells how much a process has",
)
@pytest.mark.parametrize(("chosen", "kept"), [({}, True), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False)])
def test_freed_memory_is_kept_within_and_given_back_after(chosen: dict[str, str], kept: bool) -> None:
    """256 MB stay until a batch has ended, unless the user has set what the C library keeps; none of it stays after."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**clean, **chosen}, capture_output=True, text=True, check=True
    )
    within, grown, after, later = (int(number) for number in told.stdout.split())
    assert (within > 200) == kept
    assert grown < 32
    assert after < 32
    assert later < 100  # what glibc keeps by itself
