"""Our side of the peers: starts their workers in the bench environment and asks for one pass at a time."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.shapes import Shape
from benchmarks.timing import Sample

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".bench-venv" / "bin" / "python"
PEERS = ("transformer-lens", "nnsight")
PATIENCE = 300.0  # seconds to wait for one answer


class PeerError(Exception):
    """A peer that cannot be measured; the message says why."""


class Peer:
    """One peer's worker process for one shape and length, used as a context manager."""

    patience = PATIENCE

    def __init__(self, name: str, shape: Shape, length: int, *, threads: int) -> None:
        if not PYTHON.exists():
            raise PeerError("no bench environment (make bench-venv)")
        command = [str(PYTHON), "-m", "benchmarks.peer_worker", name, shape.name, str(length), str(threads)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            ready = self._answer()
        except PeerError:
            self.close()
            raise
        self.label = f"{name} {ready['version']}, {ready['tensors']} tensors"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def time(self) -> Sample:
        """One pass of the peer, timed by its own process."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()
        answer = self._answer()
        return Sample(answer["wall"], answer["cpu"])

    def close(self) -> None:
        """End the worker: closing its input is the signal, killing it the last resort."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], self.patience)[0]:
            raise PeerError(f"no answer within {self.patience:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"its process ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer
