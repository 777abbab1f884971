"""The all-heads ablation sweep beside one full forward pass per head by plain PyTorch: operations, and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.report import Measure, against_floor
from benchmarks.timing import compare, interleave, timer

TARGET = 0.6


@dataclass(frozen=True)
class Shape:
    """A network to take heads from, and how much text it reads."""

    name: str
    task: str
    layers: int
    heads: int
    width: int
    sentences: int
    vocabulary: int = 2000


FULL = (
    Shape("BERT of MiniLM's shape, a classifier", "classify", 6, 12, 384, 32),
    Shape("GPT-2 of 12 layers, a language model", "lm", 12, 12, 192, 8),
)
QUICK = (Shape("BERT, 6 small layers, a classifier", "classify", 6, 12, 96, 16, 300),)


def ablation(*, threads: int, quick: bool) -> Iterator[Measure]:
    """Operations and seconds of a sweep over one batch, over those of a full forward pass for every head."""
    from torch.utils.flop_counter import FlopCounterMode

    from pellucid.heads.weighing.ablating import sweep_heads

    for shape in QUICK if quick else FULL:
        found = opened(shape)
        count = shape.layers * shape.heads

        def ours(found: Any = found) -> Any:
            return sweep_heads(found, ["zero"])

        def plain(found: Any = found) -> list[float]:
            return one_by_one(found)

        swept, losses = ours(), plain()  # which also tries once whether passes can start late
        apart = max(abs(one - other) for one, other in zip(swept.ablated.loss()[0].tolist(), losses, strict=True))
        flops: list[int] = []
        for way in (ours, plain):
            with FlopCounterMode(display=False) as counter:
                way()
            flops.append(counter.get_total_flops())
        ratio = flops[0] / flops[1]
        note = (
            f"{count} heads, {found.examples.tokens} tokens; {flops[0] / 1e9:.1f} and {flops[1] / 1e9:.1f} GFLOP "
            f"(torch.utils.flop_counter); losses differ by {apart:.1e} nats at most"
        )
        what = f"all heads, operations: {shape.name}"
        yield Measure(what, None, None, None, ratio, TARGET, ratio <= TARGET and apart <= 1e-5, note=note)
        samples = interleave({"ours": timer(ours), "plain": timer(plain)}, rounds=2 if quick else 3)
        found_ratio = compare(samples["ours"], samples["plain"])
        told = f"over one full forward pass per head with a plain hook, in the same run, {threads} threads; under 1"
        yield against_floor(f"all heads, time: {shape.name}", found_ratio, target=1.0, note=told)


def opened(shape: Shape) -> Any:
    """A random network of a shape, measured on generated English in one batch."""
    import torch

    from pellucid import Corpus, Model
    from pellucid.heads import measured
    from pellucid.train.architectures import build
    from pellucid.train.settings import settings_for
    from pellucid.train.tasks import TASKS
    from pellucid.train.vocabulary import vocabulary_for

    corpus = Corpus.grammar(400)
    label = {"label": "tense"} if shape.task == "classify" else {}
    settings = settings_for(
        shape.task,
        layers=shape.layers,
        heads=shape.heads,
        width=shape.width,
        feed_forward=4 * shape.width,
        length=128,
        vocabulary_size=shape.vocabulary,
        **label,
    )
    task = TASKS[shape.task]
    tokenizer = vocabulary_for(task.texts(corpus, settings), settings)
    torch.manual_seed(0)
    network = build(settings, tokenizer, task.labels(corpus, settings)).eval()
    return measured(Model.load(network, tokenizer=tokenizer), corpus.take(shape.sentences), batch=shape.sentences)


def one_by_one(found: Any) -> list[float]:
    """The loss without each head, by one full pass each: plain PyTorch, and a hook that sets a slice to zero."""
    import torch

    from pellucid.train.tasks.base import cross_entropy

    network, batch = found.model.hf, found.batch(0)
    losses: list[float] = []
    with torch.no_grad():
        for module, heads in _projections(found.model):
            for head in range(heads):

                def hook(_: Any, given: tuple[Any, ...], heads: int = heads, head: int = head) -> Any:
                    parts = given[0].clone()
                    width = parts.shape[-1] // heads
                    parts[..., head * width : (head + 1) * width] = 0.0
                    return (parts,)

                handle = module.register_forward_pre_hook(hook)
                try:
                    losses.append(float(cross_entropy(found.task.logits(network, batch), batch["goals"])))
                finally:
                    handle.remove()
    return losses


def _projections(model: Any) -> Iterator[tuple[Any, int]]:
    """The output projection of every attention layer, and how many heads it reads."""
    endings = ("attention.output.dense", "attn.c_proj")
    for name, module in model.hf.named_modules():
        if name.endswith(endings):
            yield module, model.hf.config.num_attention_heads
