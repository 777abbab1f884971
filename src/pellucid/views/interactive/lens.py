"""The logit lens: what a language model would predict if it stopped after each layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pellucid.views.interactive.payload import Chunk, codes, deflated, numbers
from pellucid.views.interactive.tokens import readable, special_ids

if TYPE_CHECKING:
    from torch import Tensor

    from pellucid.model import Model

MOST = 5
ABOUT = (
    "What the model would predict next if it stopped there: its own last norm and output layer applied to the stream "
    "after each layer. The last row is the model's own prediction."
)
_TRIED = 8
_AT_ONCE = 2**24
"""Logits held at a time."""

Readout = Callable[["Tensor"], "Tensor"]


@dataclass(frozen=True)
class Lens:
    """The likeliest tokens [rows, tokens, most] as numbers of `words`, and the codes of their probabilities."""

    words: tuple[str, ...]
    ids: NDArray[np.uint32]
    probabilities: NDArray[np.uint8]

    def chunks(self, panel: int) -> dict[str, Chunk]:
        """Its three chunks."""
        stem = f"text/{panel}/lens"
        return {
            f"{stem}/words": deflated("\n".join(self.words).encode()),
            f"{stem}/ids": numbers(self.ids, "<u4"),
            f"{stem}/probs": deflated(self.probabilities.tobytes()),
        }


def readout(model: Model, last: Tensor, logits: Tensor) -> Readout | None:
    """The function from the stream [tokens, d] to logits, found by trying; None where none gives the model's own.

    `last` [tokens, d] is the stream after the last block and `logits` [tokens, V] what the model made of it.
    """
    import torch

    hf: Any = model.hf
    head = hf.get_output_embeddings()
    if head is None:
        return None
    config = hf.config.get_text_config() if hasattr(hf.config, "get_text_config") else hf.config
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)
    norms = [
        part
        for name, part in hf.named_modules()
        if "norm" in type(part).__name__.lower() and not any(step.isdigit() for step in name.split("."))
    ]

    def through(norm: Any) -> Readout:
        def read(stream: Tensor) -> Tensor:
            found = head(stream if norm is None else norm(stream)).float() * scale
            return found if cap is None else torch.tanh(found / cap) * cap

        return read

    wanted = logits[:_TRIED].float()
    for norm in (*reversed(norms), None):
        with torch.no_grad():
            try:
                found = through(norm)(last[:_TRIED])
            except (RuntimeError, TypeError, ValueError):  # a norm of another width, or with more inputs
                continue
        if found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-3, atol=1e-3):
            return through(norm)
    return None


def look(model: Model, streams: Sequence[Tensor], logits: Tensor, read: Readout) -> Lens:
    """The likeliest tokens after every layer but the last from `read(stream [tokens, d])`, and the model's own."""
    import torch

    rows: list[tuple[Tensor, Tensor]] = []
    step = max(1, _AT_ONCE // logits.shape[-1])
    for stream in (*streams[:-1], None):
        parts: list[tuple[Tensor, Tensor]] = []
        for start in range(0, len(logits), step):
            chosen = slice(start, start + step)
            with torch.no_grad():
                found = logits[chosen].float() if stream is None else read(stream[chosen])
            best = torch.softmax(found, -1).topk(min(MOST, found.shape[-1]), dim=-1)
            parts.append((best.indices.cpu(), best.values.cpu()))
        rows.append((torch.cat([part for part, _ in parts]), torch.cat([part for _, part in parts])))
    ids = torch.stack([row for row, _ in rows])  # [rows, tokens, most]
    kinds, places = torch.unique(ids, return_inverse=True)
    special = special_ids(model.tokenizer)
    words = [readable(model.tokenizer, each, special=each in special) for each in kinds.tolist()]
    return Lens(
        tuple(" ".join(word.splitlines()) or "␣" for word in words),
        places.numpy().astype(np.uint32),
        codes(torch.stack([row for _, row in rows])).numpy(),
    )
