"""A model whose every score is linear in its embeddings, so that attributions have an exact answer."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from pellucid.model import Model
from tests.tiny_models import word_tokenizer

WIDTH = 8


@cache
def bag() -> Model:
    """GPT-2 without norms, feed-forward layers and positions, attending evenly: last embedding + mean embedding."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=24,
        n_positions=32,
        n_embd=WIDTH,
        n_layer=1,
        n_head=1,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    hf = GPT2LMHeadModel._from_config(config, dtype=torch.float64).eval()
    block = hf.transformer.h[0]
    block.ln_1, block.ln_2, hf.transformer.ln_f = nn.Identity(), nn.Identity(), nn.Identity()
    with torch.no_grad():
        for weight in [*block.mlp.parameters(), *block.attn.parameters(), hf.transformer.wpe.weight]:
            weight.zero_()
        block.attn.c_attn.weight[:, 2 * WIDTH :] = torch.eye(WIDTH)  # values are the embeddings themselves
        block.attn.c_proj.weight.copy_(torch.eye(WIDTH))
        hf.transformer.wte.weight.normal_()
        hf.lm_head.weight.normal_()
    return Model.load(hf, tokenizer=word_tokenizer())


def contributions(text: str, token: str, *, baseline: str = "zero") -> Tensor:
    """What each token adds to the logit of a token beyond what the baseline would, [T], by hand."""
    model = bag()
    ids = model.tokenizer(text)["input_ids"]
    table = model.hf.transformer.wte.weight.detach()
    reader = model.hf.lm_head.weight.detach()[model.tokenizer(token)["input_ids"][0]]
    empty = table.mean(dim=0) if baseline == "mean" else torch.zeros(WIDTH, dtype=torch.float64)
    weights = torch.full((len(ids),), 1 / len(ids), dtype=torch.float64)
    weights[-1] += 1
    return weights * ((table[ids] - empty) @ reader)
