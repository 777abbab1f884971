"""The floor of a sweep: the same planned batches through the transformers model alone, and nothing kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid import Corpus, Model

    See = Callable[[tuple[Tensor, ...], dict[str, Any]], None]


def plain_forward(
    model: Model, corpus: Corpus, *, budget: int, shard_tokens: int, long: str = "refuse", see: See | None = None
) -> tuple[Callable[[], None], int]:
    """A function that makes one plain pass over the batches that a sweep would plan, and how many tokens they have.

    Tokenizing and padding are done beforehand; `budget`, `shard_tokens` and `long` are the sweep's own. The batches are
    those of a sweep that keeps no document groups apart: they have the least padding. With `see`, the states of all
    layers are asked for and shown to it, with what went in.
    """
    import torch

    from pellucid.collect.encode import Encoder, Reading
    from pellucid.collect.plan import make_plan, read_shards

    encoder = Encoder(model, Reading(long=long))
    plan = make_plan([encoder], corpus, budget=budget, shard_tokens=shard_tokens, groups=1)
    accepted = frozenset(inspect.signature(model.hf.forward).parameters)
    passes: list[dict[str, Any]] = []
    for shard, sentences in read_shards(plan, corpus, range(len(plan.shards))):
        encoded = encoder.encode(sentences)
        for planned in shard.batches:
            rows = [row for member in planned.members for row in encoded[member].rows]
            batch = encoder.batch(rows, [None] * len(rows), planned.lengths[0])
            inputs: dict[str, Any] = dict(batch.inputs(accepted, causal=model.causal))
            if "use_cache" in accepted:
                inputs["use_cache"] = False
            passes.append(inputs)

    def forward() -> None:
        with torch.no_grad():
            for inputs in passes:
                moved = {
                    name: value.to(model.device) if name != "use_cache" else value for name, value in inputs.items()
                }
                if see is None:
                    model.hf(**moved)
                else:
                    see(model.hf(**moved, output_hidden_states=True).hidden_states, moved)

    return forward, plan.counts.tokens[0]
