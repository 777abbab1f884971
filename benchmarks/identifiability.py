"""Identifiability: effective attention beside a decomposition per head, derivatives carried forwards beside a loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.parts import in_parts
from benchmarks.report import Measure, Report
from benchmarks.timing import compare, interleave, timer

if TYPE_CHECKING:
    from torch import Tensor

PARTS = ("effective", "reactions", "maps", "memory")
TOKENS, HEADS, WIDTH, MODEL = 512, 12, 64, 768


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device; all of them run on a CPU."""
    return PARTS if device == "cpu" else ()


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part, or one; `quick` takes small inputs, which say little of speed."""
    from benchmarks.identifiability_maps import maps, memory

    ways = {
        "effective": lambda: effective_attention(quick=quick),
        "reactions": lambda: carried(quick=quick),
        "maps": lambda: maps(threads=threads, quick=quick),
        "memory": lambda: memory(quick=quick),
    }
    return in_parts("identifiability", ways, device=device, threads=threads, only=only)


def effective_attention(*, quick: bool) -> Iterator[Measure]:
    """All heads of a layer of BERT-base's shape: by the Gram matrix, and by a full SVD of T = V·W_H for each head."""
    import torch

    from pellucid.collect.null_space import effective

    tokens, rounds = (128, 1) if quick else (TOKENS, 5)
    dice = torch.Generator().manual_seed(0)
    scores = torch.randn(HEADS, tokens, tokens, generator=dice)
    values = torch.randn(HEADS, tokens, WIDTH, generator=dice)
    output = torch.randn(HEADS, WIDTH, MODEL, generator=dice) / WIDTH**0.5
    for name, mask in (("both ways", None), ("causal", torch.ones(tokens, tokens, dtype=torch.bool).tril())):
        pattern = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)
        if mask is None:
            found, other = effective(pattern, values), _by_svd(pattern, values, output)
            error = float((found - other).abs().max() / other.abs().max())
            timers = {
                "ours": timer(lambda pattern=pattern: effective(pattern, values)),
                "svd": timer(lambda pattern=pattern: _by_svd(pattern, values, output)),
            }
            samples = interleave(timers, rounds=rounds)
            result = compare(samples["svd"], samples["ours"])
            told = f"times as fast, at least the target; {HEADS} heads, {tokens} tokens"
            yield Measure(
                f"effective attention, {name}, over an SVD per head",
                result.other,
                result.ours,
                None,
                result.ratio,
                20.0,
                result.ratio >= 20,
                result.interval,
                result.cpu_ratio,
                result.rounds,
                told,
            )
            yield Measure(
                "effective attention: numbers", None, None, None, error, 1e-6, error <= 1e-6, note="largest difference"
            )
        else:
            taken = interleave({"ours": timer(lambda pattern=pattern: effective(pattern, values))}, rounds=rounds)
            seconds = sorted(sample.wall for sample in taken["ours"])[rounds // 2]
            told = "prefix by prefix; an SVD for every query would be another few hundred times the work"
            yield Measure(
                f"effective attention, {name}", seconds, None, None, None, None, None, rounds=rounds, note=told
            )


def _by_svd(pattern: Tensor, values: Tensor, output: Tensor) -> Tensor:
    """The pattern less its part in the left null space of T = V·W_H, head by head, as the paper describes it."""
    import torch

    made: list[Tensor] = []
    for weights, v, w in zip(pattern.double(), values.double(), output.double(), strict=True):
        left, sizes, _ = torch.linalg.svd(v @ w)
        null = left[:, int((sizes > 1e-7 * sizes[0]).sum()) :]
        made.append(weights - weights @ null @ null.T)
    return torch.stack(made)


def carried(*, quick: bool) -> Iterator[Measure]:
    """Operations of all Jacobian norms of a text, beside two loops over layers, tokens and features: one that runs
    forward again for each, and one that keeps its graph and goes forward once for every layer and token."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import BertConfig, BertModel

    from pellucid.identifiability import reactions
    from pellucid.model import Batch, Edit, Model

    tokens, width, layers = (8, 32, 2) if quick else (64, 64, 12)
    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * width,
        vocab_size=500,
    )
    torch.manual_seed(0)
    model = Model.load(BertModel(config).eval())
    batch = Batch.of_ids([list(range(5, 5 + tokens))])
    with FlopCounterMode(display=False) as ours:
        found = reactions(model, batch)
    start = model.run(batch, sites=["resid.0"])["resid.0"].detach()
    forward = back = 0
    for layer in range(1, layers + 1):  # one token and one feature of every layer stand for all
        with FlopCounterMode(display=False) as counter:
            given = start.clone().requires_grad_()
            state = model.run(batch, sites=[f"resid.{layer}"], edits=[Edit.patch("resid.0", given)], gradients=True)[
                f"resid.{layer}"
            ]
        forward += counter.get_total_flops()
        with FlopCounterMode(display=False) as counter:
            torch.autograd.grad(state[0, 0, 0], given)
        back += counter.get_total_flops()
    own, size = ours.get_total_flops(), f"{tokens} tokens, {layers} layers × {width}"
    loops = {
        "a loop that runs forward for every feature": ((forward + back) * tokens * width, 10.0),
        "a loop that keeps its graph": ((forward + back * width) * tokens, None),
    }
    for name, (loop, target) in loops.items():
        ratio = loop / own
        told = (
            f"times fewer operations{', at least the target' if target else ''}; {size}; {own / 1e9:.1f} and "
            f"{loop / 1e9:.1f} GFLOP, counted for one token and feature of every layer and multiplied; "
            f"{len(found.norms) - 1} layers at once"
        )
        met = None if target is None else ratio >= target
        yield Measure(
            f"hidden token attribution: operations, beside {name}", None, None, None, ratio, target, met, note=told
        )
