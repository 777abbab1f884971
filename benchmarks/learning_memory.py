"""Peak memory of a watched training as its epochs grow in number; each number in a fresh process.

    python -m benchmarks.learning_memory EPOCHS

prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import Measure
from benchmarks.sweep_children import peak_memory, told_by

MODULE = "benchmarks.learning_memory"
TARGET = 1.1
MB = 1 << 20


def memory(*, threads: int, quick: bool) -> Iterator[Measure]:
    """The peak of a long training over that of a short one, both with a look after every epoch.

    The short one is long enough to have done everything at least once; the same training differs by about 5% each time.
    """
    few, many = (told_by(MODULE, str(epochs), threads=threads) for epochs in ((5, 12) if quick else (5, 40)))
    ratio = many["peak"] / few["peak"]
    note = f"ratio of peak memory, at most the target; {_told(few)}; {_told(many)}"
    what = f"memory: {many['epochs']} over {few['epochs']} epochs"
    yield Measure(what, None, None, None, ratio, TARGET, ratio <= TARGET, rounds=1, note=note)


def _told(found: Mapping[str, Any]) -> str:
    return f"{found['epochs']} epochs: {found['peak'] / MB:.0f} MB"


def measured(epochs: int) -> dict[str, int]:
    """Trains a small network for so many epochs in this process; tells its peak."""
    from benchmarks.learning_inputs import small, trained

    with tempfile.TemporaryDirectory() as folder:
        run = trained(small(quick=True, epochs=epochs), Path(folder) / "run", device="cpu", save_every=1.0)
        assert len(run.log) == epochs + 1
    return {"epochs": epochs, "peak": peak_memory()}


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
