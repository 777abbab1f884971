"""How much faster a model is without some of its heads, beside how many operations it saves: both from one run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.report import Measure
from benchmarks.timing import compare, interleave, timer

if TYPE_CHECKING:
    from pellucid import Batch, Model

SHARES = (0.25, 0.5, 0.75)
"""Shares of the heads that are removed, the same in every layer as far as it goes."""
SLACK = 1.15
"""The smaller model's time, as a share of the whole one's, may pass its share of the operations by so much."""


def pruning(*, threads: int, quick: bool) -> Iterator[Measure]:
    """BERT and Llama shapes at random weights; `ours` is the smaller model, `floor` the whole one."""
    import torch

    torch.set_num_threads(threads)
    for name, model, batch in _cases(quick=quick):
        for share in SHARES[1:2] if quick else SHARES:
            yield _measure(name, model, batch, share, rounds=3 if quick else 9)


def _measure(name: str, model: Model, batch: Batch, share: float, *, rounds: int) -> Measure:
    from pellucid.heads import cost, smaller
    from pellucid.heads.naming import all_heads, head_name

    total = model.size("heads.0")[0]
    gone = [head_name(site, head) for site, head in all_heads(model) if head < round(share * total)]
    less = smaller(model, gone)
    work, whole = cost(less, batch), cost(model, batch)
    timers = {"smaller": timer(lambda: less.run(batch)), "whole": timer(lambda: model.run(batch))}
    samples = interleave(timers, rounds=rounds)
    found = compare(samples["smaller"], samples["whole"])
    flops = work.flops / whole.flops
    note = (
        f"time of the smaller model over that of the whole; it has {flops:.0%} of the operations and "
        f"{work.parameters / whole.parameters:.0%} of the weights; target: {SLACK} times that share of operations"
    )
    what = f"pruning: {name} without {share:.0%} of its heads"
    return Measure(
        what,
        found.ours,
        None,
        found.other,
        found.ratio,
        SLACK * flops,
        found.ratio <= SLACK * flops,
        interval=found.interval,
        cpu_ratio=found.cpu_ratio,
        rounds=found.rounds,
        note=note,
    )


def _cases(*, quick: bool) -> Iterator[tuple[str, Model, Batch]]:
    """Random networks of the shapes of MiniLM and SmolLM2, and a batch for each."""
    import torch
    from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

    from pellucid import Batch, Model

    torch.manual_seed(0)
    layers, rows, length = (2, 2, 64) if quick else (6, 8, 256)
    bert = BertConfig(
        hidden_size=384,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=1536,
        vocab_size=2000,
    )
    llama = LlamaConfig(
        hidden_size=576,
        num_hidden_layers=layers,
        num_attention_heads=12,
        num_key_value_heads=4,
        head_dim=48,
        intermediate_size=1536,
        vocab_size=2000,
    )
    ids = torch.randint(5, 2000, (rows, length), generator=torch.Generator().manual_seed(1))
    for name, network in (("BERT", BertModel(bert)), ("Llama", LlamaForCausalLM(llama))):
        yield name, Model.load(network.eval()), Batch.of_ids(ids)
