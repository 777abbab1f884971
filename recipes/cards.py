"""Cards of the zoo: what every model's card.json and README.md have in common, and how they are written."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

UNHASHED = ("card.json", "README.md")
"""What is written after the hashes, of every other file, are known."""

Facts = dict[str, Any]


def machine(device: str) -> str:
    """The processor that a model was trained on, in words."""
    return torch.cuda.get_device_name() if device.startswith("cuda") else f"{platform.machine()} processor"


def versions() -> dict[str, str]:
    """The libraries that decide what a run gives."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
    }


def write(folder: Path, card: Facts, readme: Callable[[Facts], str]) -> None:
    """Writes card.json, with the hashes of what lies in the folder, and README.md made from it."""
    files = sorted(item for item in folder.iterdir() if item.is_file() and item.name not in UNHASHED)
    hashes = {item.name: hashlib.sha256(item.read_bytes()).hexdigest() for item in files}
    full = {**card, "sha256": hashes}
    (folder / "card.json").write_text(json.dumps(full, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(readme(full), encoding="utf-8")


def page(card: Facts, *, facts: dict[str, str], scores: str, text: str, made: str) -> str:
    """The page that every card has: a table of facts, the scores, the text, how it was made, and the files' hashes."""
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    hashes = "\n".join(f"- `{name}`: `{digest}`" for name, digest in card["sha256"].items())
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in card["settings"].items())
    versions = ", ".join(f"{name} {number}" for name, number in card["versions"].items())
    return f"""# zoo:{card["name"]}

{card["summary"]}

| | |
|---|---|
{rows}

## Scores

{scores}

## Text

{text}

## How it was made

`{card["recipe"]}`

Settings: {settings}. Machine: {card["machine"]}; {versions}.

{made}

## Files

{hashes}
"""


def parameters(card: Facts) -> str:
    """How many numbers a model has learned, and how they are stored."""
    return f"{card['parameters']:,}, stored as float16"


def licence(card: Facts) -> str:
    """Under which licence the weights are, and why."""
    return f"{card['licence']}, {card['licence_reason']}"
