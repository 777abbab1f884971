"""Random networks and texts for the benchmark `attribution`, the same in our process and in the peers'.

Nothing of Pellucid is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PROMPT, WRITTEN = 20, 20


@dataclass(frozen=True)
class Size:
    """A shape, how many tokens a text has, and how many steps a path."""

    layers: int
    width: int
    tokens: int
    steps: int

    @property
    def called(self) -> str:
        return f"{self.layers} layers × {self.width}, {self.tokens} tokens, {self.steps} steps"


FULL, QUICK = Size(12, 768, 64, 50), Size(4, 256, 24, 16)
"""BERT-base and GPT-2 small, and something for a first look."""
NAMED = {"full": FULL, "quick": QUICK}


def bert(size: Size, head: str) -> Any:
    """A BERT with random weights, for classes (`classifier`) or answers (`qa`)."""
    import torch
    from transformers import BertConfig, BertForQuestionAnswering, BertForSequenceClassification

    config = BertConfig(
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.width // 64,
        intermediate_size=4 * size.width,
    )
    torch.manual_seed(0)
    made: Any = {"classifier": BertForSequenceClassification, "qa": BertForQuestionAnswering}[head]
    return made._from_config(config, attn_implementation="sdpa").eval()


def gpt2(size: Size) -> Any:
    """A GPT-2 with random weights."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=size.width, n_layer=size.layers, n_head=size.width // 64)
    torch.manual_seed(0)
    made: Any = GPT2LMHeadModel
    return made._from_config(config, attn_implementation="sdpa").eval()


def text(length: int) -> torch.Tensor:
    """Random ids [1, length], well above the families' special tokens."""
    import torch

    return torch.randint(1000, 20_000, (1, length), generator=torch.Generator().manual_seed(0))


def tokenizer(size: int) -> Any:
    """A tokenizer whose word `w17` has the id 17."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(size)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    special = {f"{name}_token": "w0" for name in ("unk", "pad", "bos", "eos")}
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)
