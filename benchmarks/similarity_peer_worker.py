"""Runs one package that compares layers in its own environment: a line `go` times one comparison of all layers.

    .bench-venv/bin/python -m benchmarks.similarity_peer_worker PACKAGE ROWS

Rows of 13 × 13 layers of 768 features are ready in memory, so that no model is in the time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any, TextIO

from benchmarks.timing import timer

SITES, WIDTH, BATCH = 13, 768, 256


def torch_cka(rows: int) -> Callable[[], Any]:
    """Its comparison of two models whose layers give out rows that were made before, batch by batch."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    compared = import_module("torch_cka").CKA
    made = [torch.randn(rows, SITES, WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]

    class Layers(torch.nn.Module):
        def __init__(self, data: torch.Tensor) -> None:
            super().__init__()
            self.data = data
            self.layers = torch.nn.ModuleList(torch.nn.Identity() for _ in range(SITES))

        def forward(self, numbers: torch.Tensor) -> None:
            for place, layer in enumerate(self.layers):
                layer(self.data[numbers, place])

    names = [f"layers.{place}" for place in range(SITES)]
    comparison = compared(*(Layers(data) for data in made), "one", "two", names, names)
    loader = DataLoader(TensorDataset(torch.arange(rows)), batch_size=BATCH)

    def run() -> Any:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            comparison.compare(loader, loader)
        return comparison.export()["CKA"]

    return run


def netrep(rows: int) -> Callable[[], Any]:
    """Its linear metric (α = 0 is CCA), fitted to every pair of layers."""
    import numpy as np

    metric = import_module("netrep.metrics").LinearMetric
    made = [np.random.default_rng(seed).normal(size=(SITES, rows, WIDTH)) for seed in (0, 1)]

    def run() -> Any:
        return [metric(alpha=0.0).fit(x, y).score(x, y) for x in made[0] for y in made[1]]

    return run


PACKAGES: dict[str, Callable[[int], Callable[[], Any]]] = {"torch_cka": torch_cka, "netrep": netrep}


def serve(package: str, rows: int, answers: TextIO) -> None:
    """Announce the package's version, then time one comparison for every line that comes in."""
    timed = timer(PACKAGES[package](rows))
    print(json.dumps({"version": metadata.version(package)}), file=answers, flush=True)
    for _ in sys.stdin:
        sample = timed()
        print(json.dumps({"wall": sample.wall, "cpu": sample.cpu}), file=answers, flush=True)


def main(arguments: list[str]) -> int:
    """Serve; what goes wrong is told in the same JSON lines, and the packages' chatter is kept out of them."""
    package, rows = arguments
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    with contextlib.redirect_stdout(sys.stderr):
        try:
            serve(package, int(rows), answers)
        except Exception as error:  # whatever a package raises is its reason for not being measured
            text = (str(error).splitlines() or [""])[0]
            print(json.dumps({"error": f"{type(error).__name__}: {text}"}), file=answers, flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
