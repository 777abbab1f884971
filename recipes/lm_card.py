"""The card of a language model: what it is, what it was made from and what it scores, as card.json and README.md."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

HASHED = ("model.safetensors", "tokenizer.json")


def machine(device: str) -> str:
    """The processor that a model was trained on, in words."""
    return torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} processor"


def versions() -> dict[str, str]:
    """The libraries that decide what a run gives."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
    }


def write(folder: Path, card: dict[str, Any]) -> None:
    """Writes card.json, with the hashes of what lies in the folder, and README.md made from it."""
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in HASHED}
    full = {**card, "sha256": hashes}
    (folder / "card.json").write_text(json.dumps(full, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(readme(full), encoding="utf-8")


def readme(card: dict[str, Any]) -> str:
    """The card as a page to read."""
    scores, shape = card["scores"], card["architecture"]
    rows = [
        ("this model", scores["valid"], scores["test"]),
        ("guessing by frequency (unigram)", scores["unigram"]["valid"], scores["unigram"]["test"]),
        ("the same network, untrained", scores["untrained"]["valid"], scores["untrained"]["test"]),
    ]
    table = "\n".join(
        f"| {name} | " + " | ".join(_figures(split) for split in (valid, test)) + " |" for name, valid, test in rows
    )
    again = scores["induction"]
    hashes = "\n".join(f"- `{name}`: `{digest}`" for name, digest in card["sha256"].items())
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in card["settings"].items())
    made = ", ".join(f"{name} {number}" for name, number in card["versions"].items())
    return f"""# zoo:{card["name"]}

{card["summary"]}

| | |
|---|---|
| architecture | {_shape(shape)} |
| parameters | {card["parameters"]:,}, stored as float16 |
| text | {card["data"]["name"]}: {card["data"]["words"]["train"]:,} words for training |
| licence of the weights | {card["licence"]}, {card["licence_reason"]} |

## Scores

Perplexity, per token and per word (lower is better).

| | valid: per token | valid: per word | test: per token | test: per word |
|---|---|---|---|---|
{table}

{card["data"]["counting"]}

Random tokens said twice: {again["first"]:.2f} nats per token the first time, {again["second"]:.2f} the second (chance:
{again["chance"]:.2f}). Head {again["head"]} of layer {again["layer"]} then puts {again["attention"]:.0%} of its
attention on the token that came next the first time (both counted from 0).

## Text

{card["data"]["normalisation"]}

{card["note"]}

## How it was made

`{card["recipe"]}`

Settings: {settings}. Machine: {card["machine"]}; {made}.

{card["selection"]}

## Files

{hashes}
"""


def _shape(shape: dict[str, Any]) -> str:
    return (
        f"{shape['family']}: {shape['layers']} layers × {shape['width']} wide × {shape['heads']} heads, context "
        f"{shape['context']}, {shape['vocabulary']:,} byte-level BPE tokens, tied embeddings"
    )


def _figures(score: dict[str, float]) -> str:
    return f"{_number(score['perplexity_per_token'])} | {_number(score['perplexity_per_word'])}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"
