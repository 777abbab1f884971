"""A BERT of two blocks whose attention is set by hand: in every block each position looks at one other alone."""

from __future__ import annotations

import torch
from transformers import BertConfig, BertForMaskedLM

from pellucid.model import Model
from tests.tiny_models import WORDS, word_tokenizer

SEEN = ((2, 0, 1, 3, 3, 5), (0, 1, 4, 3, 0, 5))
"""The position that each of six looks at, in both blocks."""
SIZE = 32
_HALF = SIZE // 2


def copying() -> Model:
    """Words in the first half of each vector, positions in the second; values read the first, and there is no MLP."""
    config = BertConfig(
        vocab_size=5 + len(WORDS),
        hidden_size=SIZE,
        num_hidden_layers=2,
        num_attention_heads=1,
        intermediate_size=4,
        max_position_embeddings=_HALF,
        attn_implementation="eager",
    )
    torch.manual_seed(1)
    hf = BertForMaskedLM(config).eval()
    with torch.no_grad():
        table = hf.bert.embeddings
        table.token_type_embeddings.weight.zero_()
        table.word_embeddings.weight[:, _HALF:] = 0
        table.word_embeddings.weight[:, :_HALF].normal_(0, 1)
        table.position_embeddings.weight.zero_()
        table.position_embeddings.weight[:, _HALF:] = 4 * torch.eye(_HALF)
        for block, seen in zip(hf.bert.encoder.layer, SEEN, strict=True):
            for linear in (block.intermediate.dense, block.output.dense, block.attention.output.dense):
                linear.weight.zero_()
                linear.bias.zero_()
            parts = block.attention.self
            for linear in (parts.query, parts.key, parts.value):
                linear.weight.zero_()
                linear.bias.zero_()
            for position, other in enumerate(seen):
                parts.query.weight[other, _HALF + position] = 60.0
            parts.key.weight[:_HALF, _HALF:] = torch.eye(_HALF)
            parts.value.weight[:_HALF, :_HALF] = torch.eye(_HALF)
            block.attention.output.dense.weight.copy_(torch.eye(SIZE))
    return Model.load(hf, tokenizer=word_tokenizer())
