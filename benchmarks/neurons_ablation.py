"""All neurons of one layer ablated, many to a pass that starts at the layer, beside one full forward per neuron."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.heads_ablation import Shape, opened
from benchmarks.report import Measure, against_floor
from benchmarks.timing import compare, interleave, timer

FULL = Shape("BERT of MiniLM's shape, a classifier", "classify", 6, 12, 384, 8)
QUICK = Shape("BERT, 6 small layers, a classifier", "classify", 6, 12, 96, 8, 300)


def ablation(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Operations and seconds for neurons of a middle and of the last layer, over a full forward for every neuron."""
    from torch.utils.flop_counter import FlopCounterMode

    from pellucid.model.sites import Site
    from pellucid.neurons.judging.ablating import sweep_neurons

    shape = QUICK if quick else FULL
    found = opened(shape)
    for layer in (shape.layers // 2, shape.layers - 1):
        units = range(24 if quick else 192)

        def ours(layer: int = layer, units: range = units) -> Any:
            return sweep_neurons(found, Site("neurons", layer), units)

        def plain(layer: int = layer, units: range = units) -> list[float]:
            return one_by_one(found, layer, units)

        swept, losses = ours(), plain()  # which also tries once whether passes can start late
        mine = (swept.losses.sum(axis=(1, 2)) / swept.counts.sum()).tolist()
        apart = max(abs(one - other) for one, other in zip(mine, losses, strict=True))
        flops: list[int] = []
        for way in (ours, plain):
            with FlopCounterMode(display=False) as counter:
                way()
            flops.append(counter.get_total_flops())
        share = flops[0] / flops[1]
        allowed = (shape.layers - layer) / shape.layers + 2 / len(units)
        note = (
            f"{len(units)} neurons, {found.examples.tokens} tokens; {flops[0] / 1e9:.1f} and {flops[1] / 1e9:.1f} "
            f"GFLOP (torch.utils.flop_counter); the loss differs by {apart:.1e} nats at most; target: the layers "
            "that are left, and two plain passes"
        )
        what = f"neurons of layer {layer} of {shape.layers}, operations: {shape.name}"
        yield Measure(what, None, None, None, share, allowed, share <= allowed and apart <= 1e-5, note=note)
        samples = interleave({"ours": timer(ours), "plain": timer(plain)}, rounds=2 if quick else 3)
        told = f"over one full forward pass per neuron with a plain hook, in the same run, {threads} threads; under 1"
        result = compare(samples["ours"], samples["plain"])
        yield against_floor(f"neurons of layer {layer}, time: {shape.name}", result, target=1.0, note=told)


def one_by_one(found: Any, layer: int, units: range) -> list[float]:
    """The change of the loss without each neuron, by one full pass each: plain PyTorch, and a hook that sets a 0."""
    import torch

    from pellucid.train.tasks.base import cross_entropy

    network, batch = found.model.hf, found.batch(0)
    module = next(part for name, part in network.named_modules() if name.endswith(f"layer.{layer}.output.dense"))

    def loss() -> float:
        return float(cross_entropy(found.task.logits(network, batch), batch["goals"]))

    changes: list[float] = []
    with torch.no_grad():
        whole = loss()
        for unit in units:

            def hook(_: Any, given: tuple[Any, ...], unit: int = unit) -> Any:
                parts = given[0].clone()
                parts[..., unit] = 0.0
                return (parts,)

            handle = module.register_forward_pre_hook(hook)
            try:
                changes.append(loss() - whole)
            finally:
                handle.remove()
    return changes
