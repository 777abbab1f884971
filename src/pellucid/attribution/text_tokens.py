"""The tokens of one text as results name them: without padding, with their facts, and where each stack's stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pellucid.model import Batch
from pellucid.results import Array

if TYPE_CHECKING:
    from pellucid.model import Model


def unpadded(batch: Batch) -> Batch:
    """One text without its padding."""
    if batch.size != 1 or bool(batch.mask.all() and (batch.target_mask is None or batch.target_mask.all())):
        return batch
    made: dict[str, Tensor] = {}
    for name, value in vars(batch).items():
        mask = batch.target_mask if name.startswith("target") else batch.mask
        if value is not None and mask is not None:
            made[name] = value[:, mask[0].bool()]
    return replace(batch, **made)


def text_tokens(model: Model, batch: Batch) -> tuple[dict[str, Array], dict[str | None, slice]]:
    """Real tokens of a text with their facts, and where those of each stack stand among them."""
    rows: list[tuple[str, bool, bool, str]] = []
    spans: dict[str | None, slice] = {}
    sides = [("source" if batch.target_ids is not None else "text", batch.ids, batch.special)]
    if batch.target_ids is not None:
        sides.append(("target", batch.target_ids, torch.zeros_like(batch.target_ids, dtype=torch.bool)))
    for side, ids, special in sides:
        begin = len(rows)
        numbers: list[int] = ids[0].tolist()
        for place, (token, flag) in enumerate(zip(numbers, special[0].tolist(), strict=True)):
            shown = str(token) if model.tokenizer is None else model.tokenizer.decode([token])
            rows.append((shown, bool(flag), _apart(model, numbers[max(0, place - 1) : place], token), side))
        for stack in {"text": (None,), "source": ("encoder",), "target": ("decoder",)}[side]:
            spans[stack] = slice(begin, len(rows))
    texts, flags, apart, which = map(np.array, zip(*rows, strict=True))
    return {"token": texts, "special": flags, "space": apart, "side": which}, spans


def _apart(model: Model, before: Sequence[int], token: int) -> bool:
    """Whether a space stands between a token and the one before it."""
    if not before or model.tokenizer is None:
        return bool(before)
    left, both = model.tokenizer.decode(before), model.tokenizer.decode([*before, token])
    return both[len(left) :][:1].isspace()
