"""Tiny models with heads, and batches for them, that the tests of the attribution engine share."""

from __future__ import annotations

from functools import cache

import torch
from transformers import BertConfig, BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification

from pellucid.attribution.computing import Settings, compute
from pellucid.attribution.methods import chosen
from pellucid.attribution.sweep import Swept
from pellucid.attribution.targets import Target
from pellucid.model import Batch, Model
from pellucid.model.sites import expand
from tests.tiny_models import opened, word_tokenizer

SIZES = {
    "vocab_size": 97,
    "hidden_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 56,
    "max_position_embeddings": 70,
}
HEADS = {
    "classifier": BertForSequenceClassification,
    "qa": BertForQuestionAnswering,
    "tagger": BertForTokenClassification,
}


@cache
def headed(head: str, attention: str = "eager", dtype: torch.dtype = torch.float64) -> Model:
    """A tiny random BERT with a head, with weights large enough to bend its answers."""
    labels = ["bad", "fair", "good"][: 2 if head == "qa" else 3]
    config = BertConfig(**SIZES, id2label=dict(enumerate(labels)), attn_implementation=attention)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = HEADS[head](config)
        with torch.no_grad():
            for weight in network.parameters():
                if weight.dim() > 1:
                    weight.mul_(6.0)
    return Model.load(network.to(dtype).eval(), tokenizer=word_tokenizer(closing=True))


def model(name: str, dtype: torch.dtype = torch.float64) -> Model:
    """A model by the name of its head (a BERT) or of its family."""
    return headed(name, dtype=dtype) if name in HEADS else opened(name, "eager", dtype)


def ids(rows: int = 1, length: int = 7, seed: int = 0) -> Batch:
    """Random tokens without padding."""
    generator = torch.Generator().manual_seed(seed)
    return Batch.of_ids(torch.randint(6, 97, (rows, length), generator=generator))


def ragged(side: str = "right") -> Batch:
    """Two texts of 7 and 4 tokens, padded on a side."""
    batch = ids(2)
    mask = torch.ones_like(batch.ids)
    hidden = slice(4, None) if side == "right" else slice(0, 3)
    mask[1, hidden] = 0
    return Batch.of_ids(torch.where(mask.bool(), batch.ids, 0), mask)


def one(batch: Batch, row: int) -> Batch:
    """One text of a batch, without its padding."""
    kept = batch.mask[row].bool()
    return Batch.of_ids(batch.ids[row : row + 1, kept])


def swept(
    model: Model,
    batch: Batch,
    targets: Target | list[Target],
    methods: str,
    sites: str | list[str],
    **settings: object,
) -> Swept:
    """What the engine computes, with zeros for a baseline unless another is named."""
    wanted = [targets] if isinstance(targets, Target) else targets
    given = Settings(**{"baseline": "zero", **settings})
    return compute(model, batch, wanted, chosen(methods), expand(sites, model.sites), given)[0]
