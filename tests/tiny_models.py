"""Tiny models, batches and tokenizers that the tests share; every model is opened once and never changed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from pellucid.families import configs
from pellucid.families.configs import FAMILIES
from pellucid.model import Batch, Model

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
MIXTURES = ("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3")
TEXT = "the keys near cabinet are is old red a dog cat runs sleeps and of to in"
WORDS = TEXT.split()


def network(name: str, attention: str = "eager", dtype: torch.dtype | None = None, seed: int = 0):
    """A fresh tiny network of a family, whose weights are all random."""
    hf = configs.build(FAMILIES[name], attention=attention, dtype=dtype, seed=seed)
    if dtype == torch.float64 and name in MIXTURES:
        hf.set_experts_implementation("eager")  # the grouped kernel has no float64
    return hf


@cache
def opened(name: str, attention: str = "eager", dtype: torch.dtype | None = None) -> Model:
    """The same network, opened; shared by all tests."""
    return Model.load(network(name, attention, dtype))


def padded(name: str, side: str = "right", seed: int = 0) -> Batch:
    """Three rows of 11, 7 and 4 tokens (the decoder's: 5, 9 and 6)."""
    given = configs.inputs(FAMILIES[name], side=side, seed=seed)
    return Batch.of_ids(
        given["input_ids"],
        given["attention_mask"],
        target_ids=given.get("decoder_input_ids"),
        target_mask=given.get("decoder_attention_mask"),
    )


def plain_output(model: Model, batch: Batch) -> Tensor:
    """The logits of the network itself, called without Pellucid."""
    arguments, _ = model._arguments(batch)
    with torch.no_grad():
        return model.hf(**arguments).logits


def hook_count(module: nn.Module) -> int:
    """Every hook on every part of a network."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(part, kind)) for part in module.modules() for kind in kinds)


def error(one: Tensor, other: Tensor) -> float:
    """The largest difference, relative to the largest value of the second."""
    assert one.shape == other.shape, (one.shape, other.shape)
    one, other = one.detach().double(), other.detach().double()
    return float((one - other).abs().max() / other.abs().max())


def word_tokenizer(*, closing: bool = False) -> PreTrainedTokenizerFast:
    """One id per word; with `closing`, every text ends in </s> (and a pair is joined by one)."""
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *WORDS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if closing:
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    names = dict(zip(("pad", "bos", "eos", "unk", "mask"), SPECIAL, strict=True))
    inputs = ["input_ids", *(["token_type_ids"] if closing else []), "attention_mask"]
    tokens = {f"{name}_token": text for name, text in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_input_names=inputs, **tokens)


def save(folder: Path, name: str, *, tokenizer: bool = True, seed: int = 0, **options: object) -> Path:
    """A family's tiny model (and a tokenizer for it) as transformers saves it to a folder."""
    network(name, seed=seed).save_pretrained(folder, **options)
    if tokenizer:
        word_tokenizer(closing=name != "gpt2").save_pretrained(folder)
    return folder
