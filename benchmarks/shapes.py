"""The model shapes that are measured, with random weights made from their configs.

Read by our process and by the peers' workers alike, so it imports nothing of Pellucid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Shape:
    """A transformers family, what differs from its config's defaults, and the inputs to measure with."""

    name: str
    family: str
    batch: int
    lengths: tuple[int, ...]
    config: Mapping[str, int] = field(default_factory=dict[str, int])


# The defaults of transformers' BertConfig and GPT2Config are BERT-base and GPT-2 small.
CPU_SHAPES = (
    Shape("BERT-base", "bert", batch=8, lengths=(128, 512)),
    Shape("GPT-2 small", "gpt2", batch=8, lengths=(128, 512)),
)
CUDA_SHAPES = (
    Shape(
        "GPT-2 large",
        "gpt2",
        batch=8,
        lengths=(512, 1024),
        config={"n_layer": 36, "n_embd": 1280, "n_head": 20},
    ),
    Shape(
        "GPT-2 large",
        "gpt2",
        batch=16,
        lengths=(512, 1024),
        config={"n_layer": 36, "n_embd": 1280, "n_head": 20},
    ),
    Shape(
        "Llama 8B",
        "llama",
        batch=8,
        lengths=(512, 1024),
        config={
            "vocab_size": 128_256,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
        },
    ),
)


def build(
    shape: Shape,
    *,
    head: bool,
    attention: str = "sdpa",
    device: str = "cpu",
    dtype: torch.dtype | None = None,
) -> PreTrainedModel:
    """The shape with random weights, made on the device itself; `head` adds the language-model head.

    `attention` is transformers' own name for what the model runs when it is called plainly.
    """
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    config = AutoConfig.for_model(shape.family, **shape.config)
    with_head = AutoModelForMaskedLM if shape.family == "bert" else AutoModelForCausalLM
    torch.manual_seed(0)
    with torch.device(device):
        model = (with_head if head else AutoModel).from_config(
            config, dtype=dtype or torch.float32, attn_implementation=attention
        )
    return model.eval()


def token_ids(shape: Shape, length: int, *, device: str = "cpu") -> torch.Tensor:
    """Random ids [batch, length] without padding; they start well above the families' special tokens."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return torch.randint(1000, 20_000, (shape.batch, length), generator=generator).to(device)
