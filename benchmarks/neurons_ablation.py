"""All neurons of one layer ablated, many to a pass that starts at the layer, beside one full forward per neuron."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.heads_ablation import Shape, opened
from benchmarks.report import Measure, against_floor
from benchmarks.timing import compare, interleave, timer

FULL = Shape("BERT of MiniLM's shape, a classifier", "classify", 6, 12, 384, 8)
QUICK = Shape("BERT, 6 small layers, a classifier", "classify", 6, 12, 96, 8, 300)
PART = {False: 192, True: 24}
"""Neurons that are timed, and of which losses are compared; `quick` takes fewer."""


def ablation(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Operations for all neurons of a middle and of the last layer, over a full forward for every neuron; the time of a
    part of them."""
    from pellucid.model.sites import Site
    from pellucid.neurons.judging.ablating import site_width, sweep_neurons

    shape = QUICK if quick else FULL
    found = opened(shape)
    for layer in (shape.layers // 2, shape.layers - 1):
        site = Site("neurons", layer)
        every, units = range(site_width(found.model, site)), range(PART[quick])

        def ours(site: Site = site, units: range = units) -> Any:
            return sweep_neurons(found, site, units)

        def plain(layer: int = layer, units: range = units) -> list[float]:
            return one_by_one(found, layer, units)

        swept, losses = ours(), plain()  # which also tries once whether passes can start late
        mine = (swept.losses.sum(axis=(1, 2)) / swept.counts.sum()).tolist()
        apart = max(abs(one - other) for one, other in zip(mine, losses, strict=True))
        mine_of_all = operations(lambda site=site, every=every: sweep_neurons(found, site, every))
        one_pass, rest = divmod(operations(plain), len(units) + 1)  # the whole model's, and one for each neuron
        assert not rest, "plain passes all take as many operations"
        plain_of_all = one_pass * (len(every) + 1)
        share = mine_of_all / plain_of_all
        allowed = (shape.layers - layer) / shape.layers + 2 / len(every)
        note = (
            f"all {len(every):,} neurons, {found.examples.tokens} tokens; {mine_of_all / 1e9:.1f} and "
            f"{plain_of_all / 1e9:.1f} GFLOP (torch.utils.flop_counter; plain passes are all the same: one, times "
            f"their number); the loss differs by {apart:.1e} nats at most for {len(units)} of them; "
            "target: the layers that are left, and two plain passes"
        )
        what = f"all neurons of layer {layer} of {shape.layers}, operations: {shape.name}"
        yield Measure(what, None, None, None, share, allowed, share <= allowed and apart <= 1e-5, note=note)
        samples = interleave({"ours": timer(ours), "plain": timer(plain)}, rounds=2 if quick else 3)
        told = (
            f"{len(units)} of {len(every):,} neurons; over one full forward pass per neuron with a plain hook, in the "
            f"same run, {threads} threads; under 1"
        )
        result = compare(samples["ours"], samples["plain"])
        what = f"{len(units)} neurons of layer {layer}, time: {shape.name}"
        yield against_floor(what, result, target=1.0, note=told)


def operations(way: Callable[[], Any]) -> int:
    """Floating-point operations of a call."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        way()
    return counter.get_total_flops()


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
