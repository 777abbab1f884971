"""Neurons: rankings of all neurons beside a plain forward, memory; masks, Gaussian selection, probes, ablation."""

from __future__ import annotations

from benchmarks.parts import in_parts
from benchmarks.report import Report

PARTS = ("streaming", "memory", "overlap", "gaussian", "probe", "ablation")


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device; all of them run on a CPU."""
    return PARTS if device == "cpu" else ()


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part, or one; `quick` takes small inputs, which say little of speed."""
    from benchmarks.neurons_ablation import ablation
    from benchmarks.neurons_gaussian import gaussian
    from benchmarks.neurons_overlap import overlap
    from benchmarks.neurons_probe import probe
    from benchmarks.neurons_streaming import memory, streaming

    ways = {
        "streaming": lambda: streaming(threads=threads, quick=quick),
        "memory": lambda: memory(quick=quick),
        "overlap": lambda: overlap(threads=threads, quick=quick),
        "gaussian": lambda: gaussian(threads=threads, quick=quick),
        "probe": lambda: probe(threads=threads, quick=quick),
        "ablation": lambda: ablation(threads=threads, quick=quick),
    }
    return in_parts("neurons", ways, device=device, threads=threads, only=only)
