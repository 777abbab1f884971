"""What a model reads for a view: the batch, its tokens as the page shows them, and notes on what was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pellucid.errors import TextError
from pellucid.views.interactive.tokens import Spelling, TokenList, token_list

if TYPE_CHECKING:
    from pellucid.model import Batch, Model

_UNREADABLE = "\ufffd"


@dataclass(frozen=True)
class Reading:
    """One batch of one text, and its token lists by name: `text`, or `source` and `target`."""

    batch: Batch
    tokens: dict[str, TokenList]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Row:
    """Tokens of a text before they are made readable."""

    ids: list[int]
    marked: list[bool]
    offsets: list[tuple[int, int]]
    segment: list[int]

    def cut(self, limit: int) -> _Row:
        """At most `limit` tokens: the end goes, a closing special token stays (as `Model.tokenize` cuts)."""
        closing = 1 if self.marked[-1] else 0
        kept = [*range(limit - closing), *range(len(self.ids) - closing, len(self.ids))]
        return _Row(
            [self.ids[place] for place in kept],
            [self.marked[place] for place in kept],
            [self.offsets[place] for place in kept],
            [self.segment[place] for place in kept],
        )


def read(model: Model, text: str, *, pair: str | None = None, target: str | None = None, generate: int = 0) -> Reading:
    """Tokenizes one text (or a pair), and continues it by `generate` tokens, greedily."""
    for noun, each in (("text", text), ("pair", pair), ("target", target)):
        _check(noun, each)
    if generate < 0:
        raise TextError(f"generate={generate} asks for fewer than no tokens; use 0 or more.")
    batch: Any = model.tokenize(text, pair, target=target, truncate=True)
    row = _row(model.tokenizer, text, pair)
    notes: list[str] = []
    if len(row.ids) > batch.ids.shape[1]:
        lost = len(row.ids) - batch.ids.shape[1]
        row = row.cut(batch.ids.shape[1])
        notes.append(
            f"The text has {lost + len(row.ids):,} tokens and {model.name} takes at most {model.limit:,}: "
            f"the last {lost:,} were cut."
        )
    if row.ids != batch.ids[0].tolist():
        raise TextError(f"The tokenizer of {model.name!r} reads the text one way by itself and another in a batch.")
    segments = ("text",) if pair is None else ("first", "second")
    texts = [text] if pair is None else [text, pair]
    spelled = Spelling(row.ids, row.marked, row.offsets, row.segment, texts, segments)
    if batch.target_ids is None:
        if generate:
            batch, spelled = _continued(model, batch, spelled, generate)
        return Reading(batch, {"text": token_list(model.tokenizer, spelled)}, tuple(notes))
    batch, decoded, told = _decoder(model, batch, target, generate)
    tokens = {"source": token_list(model.tokenizer, spelled), "target": token_list(model.tokenizer, decoded)}
    return Reading(batch, tokens, (*notes, *told))


def _check(noun: str, text: Any) -> None:
    """Raises for what is no text: another type, or half of a surrogate pair."""
    if text is None and noun != "text":
        return
    if not isinstance(text, str):
        raise TextError(f"A view shows one {noun}, given as a string, not a {type(text).__name__}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"The {noun} holds {text[error.start]!r} at character {error.start}, half of a letter, which no Unicode "
            "text may hold; read the file again with its right encoding."
        ) from None


def _row(tokenizer: Any, text: str, pair: str | None) -> _Row:
    """A text (or a pair) as the tokenizer writes it, with places in the text."""
    fast = bool(getattr(tokenizer, "is_fast", False))
    found = tokenizer(text, pair, return_special_tokens_mask=True, return_offsets_mapping=fast, verbose=False)
    ids, marked = list(found["input_ids"]), [bool(mark) for mark in found["special_tokens_mask"]]
    if fast:
        parts = found.sequence_ids(0)
        offsets = [(start, stop) for start, stop in found["offset_mapping"]]
        return _Row(ids, marked, offsets, _filled(parts))
    offsets = _decoded_offsets(tokenizer, ids, 0)[1]
    return _Row(ids, marked, offsets, [0] * len(ids))


def _filled(parts: Sequence[int | None]) -> list[int]:
    """The segment of every token; special tokens between two texts belong to the one before them."""
    found: list[int] = []
    for part in parts:
        found.append(part if part is not None else found[-1] if found else 0)
    return found


def _decoded_offsets(tokenizer: Any, ids: Sequence[int], start: int) -> tuple[str, list[tuple[int, int]]]:
    """The text that tokens `start`… add, and the place of each in it, from decoding ever longer beginnings.

    A token that holds only part of a letter gets the place of that letter.
    """

    def decoded(stop: int) -> str:
        return str(tokenizer.decode(ids[:stop], skip_special_tokens=False, clean_up_tokenization_spaces=False))

    before = len(decoded(start)) if start else 0
    ends = [len(decoded(stop).rstrip(_UNREADABLE)) - before for stop in range(start + 1, len(ids) + 1)]
    text = decoded(len(ids))[before:]
    starts = [0, *ends[:-1]]
    return text, [
        (min(first, len(text)), min(max(last, first + 1), len(text))) for first, last in zip(starts, ends, strict=True)
    ]


def _continued(model: Model, batch: Batch, spelled: Spelling, count: int) -> tuple[Batch, Spelling]:
    """The prompt with what the model adds, as one batch: segments `prompt` and `generated`."""
    from pellucid.model import Batch as Rows

    made = model.generate(batch, max_new_tokens=count)
    ids = made.ids[:1].cpu()
    prompt = made.prompt_length
    new = ids.shape[1] - prompt
    text, offsets = _decoded_offsets(model.tokenizer, ids[0].tolist(), prompt)
    marked = [*spelled.marked, *[False] * new]
    types = None
    if batch.types is not None:
        import torch

        types = torch.cat([batch.types.cpu(), batch.types.cpu()[:, -1:].expand(1, new)], dim=1)
    whole = Spelling(
        ids[0].tolist(),
        marked,
        [*spelled.offsets, *offsets],
        [*spelled.segment, *[len(spelled.segments)] * new],
        [*spelled.texts, text],
        [*(("prompt",) if len(spelled.segments) == 1 else spelled.segments), "generated"],
    )
    return Rows.of_ids(ids, types=types), whole


def _decoder(model: Model, batch: Batch, target: str | None, count: int) -> tuple[Batch, Spelling, tuple[str, ...]]:
    """What the decoder reads: the target one step late, or its start token and what it writes after it."""
    from pellucid.model import Batch as Rows

    notes: tuple[str, ...] = ()
    assert batch.target_ids is not None
    if count:
        made = model.generate(batch, max_new_tokens=count)
        ids = made.ids[:1].cpu()
        batch = Rows.of_ids(batch.ids, batch.mask, special=batch.special, types=batch.types, target_ids=ids)
        prompt = made.prompt_length
    else:
        ids, prompt = batch.target_ids, batch.target_ids.shape[1]
        if target is None:
            notes = ("The decoder reads its start token alone; target= gives it a text, generate= lets it write one.",)
    row = ids[0].tolist()
    if model.limit is not None and len(row) > model.limit:
        raise TextError(f"The target has {len(row)} tokens and {model.name!r} takes at most {model.limit}; shorten it.")
    given = _given(model.tokenizer, row[:prompt], target)
    written, offsets = _decoded_offsets(model.tokenizer, row, prompt) if count else ("", [])
    new = len(row) - prompt
    return (
        batch,
        Spelling(
            row,
            [*given.marked, *[False] * new],
            [*given.offsets, *offsets],
            [*given.segment, *[1] * new],
            [*given.texts, written],
            ["prompt", "generated"] if count else ["target"],
        ),
        notes,
    )


def _given(tokenizer: Any, ids: list[int], target: str | None) -> Spelling:
    """The decoder's tokens that were given: a start token, then the target without its last token."""
    if target is not None and getattr(tokenizer, "is_fast", False):
        found = tokenizer(
            text_target=target, return_special_tokens_mask=True, return_offsets_mapping=True, verbose=False
        )
        if list(found["input_ids"])[: len(ids) - 1] == ids[1:]:
            shifted = [(0, 0), *found["offset_mapping"][: len(ids) - 1]]
            marked = [True, *map(bool, found["special_tokens_mask"][: len(ids) - 1])]
            return Spelling(ids, marked, shifted, [0] * len(ids), [target], ["target"])
    text, offsets = _decoded_offsets(tokenizer, ids, 0)
    marked = [True, *[False] * (len(ids) - 1)]
    return Spelling(ids, marked, offsets, [0] * len(ids), [text], ["target"])
