"""Processes of their own for the benchmark `sweep`: workers that time pass after pass, children that tell once."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers import PYTHON, ROOT, Peer, PeerError


def environment(threads: int) -> dict[str, str]:
    """What a child finds in its environment: this project's modules, so many threads, no model hub."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH"))))
    count = str(threads)
    return {
        **os.environ,
        "PYTHONPATH": path,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
    }


class Worker(Peer):
    """A worker process that answers `go` with the time of one pass: ours, or (`peer`) in the peers' environment.

    `ready` is what it said when it was ready.
    """

    def __init__(self, module: str, *arguments: str, peer: bool, threads: int) -> None:
        if peer and not PYTHON.exists():
            raise PeerError("no bench environment (make bench-venv)")
        self._process = subprocess.Popen(
            [str(PYTHON) if peer else sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment(threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            self.ready = self._answer()
        except PeerError:
            self.close()
            raise


def told_by(module: str, *arguments: str, threads: int) -> dict[str, Any]:
    """What a fresh process of one of our modules prints as its last line, an object of JSON."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment(threads),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def peak_memory() -> int:
    """The most bytes of memory that this process has held.

    On Linux `ru_maxrss` of a child begins with what its parent held when it was started, so the kernel's own mark of
    this program's memory is read instead where there is one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
