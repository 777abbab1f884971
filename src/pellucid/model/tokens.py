"""Text to batches: tokenizing, padding on either side, and the model's length limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn

from pellucid.errors import TextError
from pellucid.model.batch import Batch

if TYPE_CHECKING:
    from pellucid.model.model import Model

_NO_LIMIT = 1_000_000  # tokenizers say "no limit" with an absurd number


def is_text(value: Any) -> TypeGuard[str | Sequence[str]]:
    """Whether a value is a text or several."""
    return isinstance(value, str) or (isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value))


def length_limit(module: Any, tokenizer: Any) -> int | None:
    """Most tokens of a sequence: the position table's rows that text can use, or what the configuration says."""
    config = getattr(module, "config", None)
    limits = [getattr(tokenizer, "model_max_length", None)]
    if getattr(config, "model_type", "") not in (
        "t5",
        "mt5",
        "xlnet",
    ):  # relative positions: no limit of their own
        limits += [
            getattr(config, name, None)
            for name in ("max_position_embeddings", "n_positions", "max_encoder_position_embeddings")
        ]
    tables = [part for name, part in module.named_modules() if isinstance(part, nn.Embedding) and "position" in name]
    limits += [table.num_embeddings - table.padding_idx - 1 for table in tables if table.padding_idx is not None]
    usable = [limit for limit in limits if isinstance(limit, int) and 0 < limit < _NO_LIMIT]
    return min(usable) if usable else None


def tokenize(
    model: Model,
    texts: str | Sequence[str],
    pair: str | Sequence[str] | None,
    *,
    target: str | Sequence[str] | None,
    padding_side: str | None,
    truncate: bool,
) -> Batch:
    """Text as a batch, padded to its longest sequence."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        why = next((f" ({note})" for note in model.notes if "tokenizer" in note), "")
        raise TextError(
            f"{model.name!r} has no tokenizer beside it{why}; pass one with Model.load(…, tokenizer=…), or give ready "
            "ids with Batch.of_ids."
        )
    first, second = _list(texts, "text"), None if pair is None else _list(pair, "second text")
    if second is not None and len(second) != len(first):
        raise TextError(f"There are {len(first)} texts and {len(second)} second texts; give one for each.")
    side = padding_side or getattr(tokenizer, "padding_side", "right")
    if side not in ("left", "right"):
        raise TextError(f"padding_side is {side!r}; use 'left' or 'right'.")
    encoded = tokenizer(
        first,
        second,
        add_special_tokens=True,
        return_special_tokens_mask=True,
        truncation=False,
        verbose=False,
    )
    rows = [dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)]
    if model.limit is not None:
        rows = [_fitted(model, row, truncate=truncate) for row in rows]
    ids = padded([row["input_ids"] for row in rows], side, pad_id(tokenizer))
    mask = padded([[1] * len(row["input_ids"]) for row in rows], side, 0)
    special = padded([row["special_tokens_mask"] for row in rows], side, 1)
    types = padded([row["token_type_ids"] for row in rows], side, 0) if "token_type_ids" in encoded else None
    target_ids, target_mask = targets(model, target, len(first))
    return Batch.of_ids(ids, mask, special=special, types=types, target_ids=target_ids, target_mask=target_mask)


def _list(texts: str | Sequence[str], noun: str) -> list[str]:
    items = [texts] if isinstance(texts, str) else list(texts)
    if not items or any(not isinstance(item, str) or not item.strip() for item in items):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TextError(f"Each {noun} must hold at least one word; an empty one was given.")
    return items


def _fitted(model: Model, row: dict[str, list[int]], *, truncate: bool) -> dict[str, list[int]]:
    """A row within the model's limit: refused where too long, or cut at the end keeping its closing special token."""
    limit, length = model.limit, len(row["input_ids"])
    assert limit is not None
    if length <= limit:
        return row
    if not truncate:
        raise TextError(
            f"A text has {length} tokens and {model.name!r} takes at most {limit}; shorten it, or cut it with "
            "truncate=True (--truncate)."
        )
    closing = 1 if row["special_tokens_mask"][-1] else 0
    return {name: [*values[: limit - closing], *values[length - closing :]] for name, values in row.items()}


def targets(model: Model, target: str | Sequence[str] | None, count: int) -> tuple[Tensor | None, Tensor | None]:
    """What the decoder of an encoder–decoder reads: its start token, then the target without its last token."""
    config: Any = getattr(model.hf, "config", None)
    if not getattr(config, "is_encoder_decoder", False):
        if target is not None:
            raise TextError("Only encoder–decoder models take target=; give the text itself to this one.")
        return None, None
    pad = pad_id(model.tokenizer)
    if target is None:
        start = next(x for x in (config.decoder_start_token_id, config.pad_token_id, pad) if x is not None)
        return torch.full((count, 1), start), torch.ones(count, 1, dtype=torch.long)
    texts = _list(target, "target")
    if len(texts) != count:
        raise TextError(f"There are {count} texts and {len(texts)} targets; give one for each.")
    rows = model.tokenizer(text_target=texts, verbose=False)["input_ids"]
    labels, mask = padded(rows, "right", pad), padded([[1] * len(row) for row in rows], "right", 0)
    shift: Any = getattr(model.hf, "prepare_decoder_input_ids_from_labels", None)
    if shift is not None:  # each family's own rule: some begin with a start token, some with the language
        return shift(labels=labels.to(model.device)).cpu().masked_fill(mask == 0, pad), mask
    start = torch.full((count, 1), config.decoder_start_token_id)
    return torch.cat([start, labels[:, :-1]], dim=1).masked_fill(mask == 0, pad), mask


def pad_id(tokenizer: Any) -> int:
    """The id that padding is filled with."""
    found = (getattr(tokenizer, name, None) for name in ("pad_token_id", "eos_token_id", "unk_token_id"))
    return next((value for value in found if value is not None), 0)


def padded(rows: Sequence[Sequence[int]], side: str, fill: int, width: int | None = None) -> Tensor:
    """Rows of numbers as a matrix, filled up on one side to the longest row (or to `width`)."""
    width = width or max(len(row) for row in rows)
    gaps = [[fill] * (width - len(row)) for row in rows]
    return torch.tensor(
        [[*row, *gap] if side == "right" else [*gap, *row] for row, gap in zip(rows, gaps, strict=True)]
    )
