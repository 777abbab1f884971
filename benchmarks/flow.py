"""Information flow: maximum flows beside networkx, norms beside all vectors, and the operations of each method."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.parts import in_parts
from benchmarks.report import Measure, Report
from benchmarks.sweep_children import peak_memory, told_by
from benchmarks.timing import compare, interleave, timer

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.heads.flow.norms import Lengths, Mixing
    from pellucid.model import Batch, Model
    from pellucid.model.sites import Site

MODULE = "benchmarks.flow"
MB = 1 << 20
PARTS = ("flow", "norms", "comparison")
TOKENS, LAYERS, HEADS, WIDTH = 64, 12, 12, 768


def parts(device: str) -> tuple[str, ...]:
    """The parts that can be asked for on a device; all of them run on a CPU."""
    return PARTS if device == "cpu" else ()


def run(*, device: str, threads: int, quick: bool, only: str | None = None) -> Report:
    """Measure every part, or one; `quick` takes small inputs, which say little of speed."""
    ways = {
        "flow": lambda: maximum_flows(quick=quick),
        "norms": lambda: norm_lengths(quick=quick),
        "comparison": lambda: operations(quick=quick),
    }
    return in_parts("flow", ways, device=device, threads=threads, only=only)


def _patterns(layers: int, tokens: int) -> Any:
    import numpy as np

    scores = np.random.default_rng(0).normal(size=(layers, tokens, tokens)) * 2
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def maximum_flows(*, quick: bool) -> Iterator[Measure]:
    """One position of a long sentence; and, on a smaller one, the same flows of all layers pair by pair by networkx."""
    import numpy as np

    from pellucid.heads import attention_flow

    tokens, layers = (12, 4) if quick else (TOKENS, LAYERS)
    given = _patterns(layers, tokens)
    start = time.perf_counter()
    _, error = attention_flow(given, positions=[tokens - 1])
    seconds = time.perf_counter() - start
    told = f"{layers * tokens} flows of one position, {tokens} tokens, {layers} layers; rounding below {error:.0e}"
    yield Measure("attention flow, one position", seconds, None, None, None, None, None, note=told)
    if find_spec("networkx") is None:
        yield Measure("attention flow over networkx", None, None, None, None, None, None, note="networkx is missing")
        return
    tokens, layers, rounds = (8, 2, 1) if quick else (20, 5, 3)
    given = _patterns(layers, tokens)
    off = float(np.abs(attention_flow(given, positions=[tokens - 1])[0][:, 0] - _by_networkx(given)).max())
    timers = {
        "ours": timer(lambda: attention_flow(given, positions=[tokens - 1])),
        "networkx": timer(lambda: _by_networkx(given)),
    }
    samples = interleave(timers, rounds=rounds)
    result = compare(samples["networkx"], samples["ours"])
    yield Measure(
        "attention flow over networkx",
        result.other,
        result.ours,
        None,
        result.ratio,
        10.0,
        result.ratio >= 10,
        result.interval,
        result.cpu_ratio,
        result.rounds,
        f"times as fast, at least the target; the same {layers * tokens} flows, {tokens} tokens, {layers} layers",
    )
    yield Measure("attention flow: numbers", None, None, None, off, 1e-6, off <= 1e-6, note="largest difference")


def _by_networkx(patterns: Any) -> Any:
    """Flows from the last token after every layer to each input token, pair by pair, [layers, tokens]."""
    import networkx
    import numpy as np

    layers, tokens, _ = patterns.shape
    graph = networkx.DiGraph()
    for layer, pattern in enumerate(0.5 * (patterns + np.eye(tokens))):
        for i, row in enumerate(pattern):
            for j, capacity in enumerate(row):
                graph.add_edge((layer + 1, i), (layer, j), capacity=float(capacity))
    return np.array(
        [
            [networkx.maximum_flow_value(graph, (depth, tokens - 1), (0, source)) for source in range(tokens)]
            for depth in range(1, layers + 1)
        ]
    )


def _layer(tokens: int, *, seed: int = 0) -> Mixing:
    """Attention of one layer of BERT-base's shape."""
    import torch

    from pellucid.heads.flow.norms import Mixing, NormSplit

    dice = torch.Generator().manual_seed(seed)
    weights = torch.randn(HEADS, tokens, tokens, generator=dice).double().softmax(-1)
    vectors = torch.randn(HEADS, tokens, WIDTH, generator=dice).double()
    stream = torch.randn(tokens, WIDTH, generator=dice).double()
    ones = torch.ones(WIDTH).double()
    norm = NormSplit(ones, torch.zeros(WIDTH).double(), torch.ones(tokens).double(), centred=True)
    return Mixing(weights, vectors, stream, norm=norm)


def norm_lengths(*, quick: bool) -> Iterator[Measure]:
    """All lengths of a layer from products of heads, and from the vectors of all pairs of tokens: time and memory."""
    from pellucid.heads.flow.norms import lengths

    tokens, rounds = (32, 1) if quick else (96, 5)
    layer = _layer(tokens)
    ours, theirs = _four(lengths(layer)), _by_vectors(layer)
    off = max(float((one - other).abs().max() / other.abs().max()) for one, other in zip(ours, theirs, strict=True))
    samples = interleave(
        {"ours": timer(lambda: lengths(layer)), "vectors": timer(lambda: _by_vectors(layer))}, rounds=rounds
    )
    result = compare(samples["vectors"], samples["ours"])
    yield Measure(
        "norms over all vectors",
        result.other,
        result.ours,
        None,
        result.ratio,
        5.0,
        result.ratio >= 5,
        result.interval,
        result.cpu_ratio,
        result.rounds,
        f"times as fast, at least the target; {tokens} tokens, {HEADS} heads, {WIDTH} wide",
    )
    added = {way: told_by(MODULE, way, str(tokens), threads=1)["added"] for way in ("ours", "vectors")}
    ratio = added["vectors"] / max(added["ours"], 1 << 20)
    told = f"times less memory, at least the target; {added['ours'] / MB:.0f} and {added['vectors'] / MB:.0f} MB added"
    yield Measure("norms: memory", None, None, None, ratio, 5.0, ratio >= 5, note=told)
    yield Measure("norms: numbers", None, None, None, off, 1e-9, off <= 1e-9, note="largest relative difference")


def _four(found: Lengths) -> tuple[Tensor, ...]:
    return found.heads, found.attention, found.residual, found.layernorm


def _by_vectors(layer: Mixing) -> tuple[Tensor, ...]:
    """The same lengths from the vectors of all heads and pairs of tokens, [H, T, T, d]."""
    import torch

    assert layer.norm is not None
    every = layer.weights[..., None] * layer.vectors[:, None]
    summed = every.sum(0)
    added = summed + torch.eye(len(summed), dtype=summed.dtype)[..., None] * layer.stream[:, None]
    after = layer.norm.turned(added) / layer.norm.deviation[:, None, None]
    return tuple(each.norm(dim=-1) for each in (every, summed, added, after))


def operations(*, quick: bool) -> Iterator[Measure]:
    """Operations of every method on one text: attribution beside whole passes, hidden states beside a forward pass."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import BertConfig, BertForSequenceClassification

    from pellucid.heads import information_flow
    from pellucid.identifiability import hidden_flow
    from pellucid.model import Batch, Model

    tokens, width, layers = (8, 32, 2) if quick else (32, 64, 12)
    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * width,
        vocab_size=500,
    )
    torch.manual_seed(0)
    network: Any = BertForSequenceClassification(config)
    network.set_attn_implementation("eager")
    model = Model.load(network.eval())
    batch = Batch.of_ids([list(range(5, 5 + tokens))])
    information_flow(model, batch, "attribution", target="class:1", steps=1)  # where passes can start is found once

    def counted(work: Callable[[], object]) -> int:
        with FlopCounterMode(display=False) as counter:
            work()
        return counter.get_total_flops()

    forward = counted(lambda: model.run(batch))
    whole = counted(lambda: _whole_passes(model, batch))
    ours = counted(lambda: information_flow(model, batch, "attribution", target="class:1"))
    told = (
        f"times fewer operations than passes from the input, at least the target; {ours / forward:.0f} forward passes"
    )
    yield Measure("attribution: operations", None, None, None, whole / ours, 1.3, whole / ours >= 1.3, note=told)
    names = ["attention", "rollout", "norms", "norms_residual", "norms_layernorm"]
    cheap = counted(lambda: information_flow(model, batch, names)) / forward
    told = f"over a forward pass, at most the target; {', '.join(names)} of one text at once"
    yield Measure("weights and norms: operations", None, None, None, cheap, 2.0, cheap <= 2, note=told)
    hidden = counted(lambda: hidden_flow(model, batch, probes=16)) / forward
    told = f"over a forward pass; 16 directions for each of {tokens} tokens, which dominates a comparison over a corpus"
    yield Measure("hidden states: operations", None, None, None, hidden, None, None, note=told)


def _whole_passes(model: Model, batch: Batch) -> None:
    """The gradients of self-attention attribution, 20 steps and both ends of every layer's path, from the input on."""
    import torch

    from pellucid.attribution import Target
    from pellucid.attribution.passes import passes

    target = Target.label(1).resolve(model, batch)
    sites = [site for site in model.sites if site.kind == "pattern"]
    run = model.run(batch, sites)
    scales = torch.linspace(0, 1, 22)
    for site in sites:

        def at(where: slice, site: Site = site) -> dict[Site, Tensor]:
            return {site: scales[where].reshape(-1, 1, 1, 1, 1) * run[site]}

        for _ in passes(model, batch, at=at, count=len(scales), sites=(site,), targets=(target,)):
            pass


def added(way: str, tokens: int) -> dict[str, float]:
    """What one layer's lengths add to this process's peak, after a small one that has loaded everything."""
    from pellucid.heads.flow.norms import lengths

    work: dict[str, Callable[[Mixing], object]] = {"ours": lengths, "vectors": _by_vectors}
    work[way](_layer(4))
    layer = _layer(tokens)
    before = peak_memory()
    work[way](layer)
    return {"added": peak_memory() - before}


if __name__ == "__main__":
    print(json.dumps(added(sys.argv[1], int(sys.argv[2]))))
