"""Sentences to token rows: tokenized, aligned with their words, cut into windows where they are too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pellucid.collect.sentence_rows import WHOLE, is_whole, whole_sentence
from pellucid.corpus.align import POOLINGS, Window, truncated, windows, word_index
from pellucid.errors import SweepError, TextError, listing
from pellucid.model.batch import Batch
from pellucid.model.tokens import pad_id, padded, targets

if TYPE_CHECKING:
    from pellucid.corpus import Sentence
    from pellucid.model import Model

LONG = ("refuse", "truncate", "window")
"""What to do with a sentence over the model's limit."""
SIDES = ("source", "target")


@dataclass(frozen=True)
class Reading:
    """How sentences are turned into token rows and words."""

    pooling: str = "mean"
    special: bool = False
    long: str = "refuse"
    overlap: int | None = None
    side: str = "source"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("pooling", self.pooling, (*POOLINGS, *WHOLE)),
            ("long", self.long, LONG),
            ("side", self.side, SIDES),
        ):
            if value not in known:
                raise SweepError(f"There is no {name}={value!r}; use one of {listing(known)}.")
        if self.special and (self.pooling not in ("all", *WHOLE) or self.side == "target"):
            raise SweepError(
                "Special tokens are no words: special=True needs pooling='all' or of sentences, and side='source'."
            )
        if is_whole(self.pooling) and self.side == "target":
            raise SweepError(f"pooling={self.pooling!r} reads the text itself: use side='source'.")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of token ids: a sentence, or a window of it; `offset` tokens have counted in earlier windows."""

    ids: list[int]
    special: list[int]
    types: list[int]
    word_index: list[int]
    counted: list[bool]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Encoded:
    """A sentence as one model reads it."""

    rows: list[Row]
    words: int  # that it has
    missing: int  # that no token stands for
    lost: int  # cut off with the end of a long sentence
    target: str | None = None  # what a decoder reads, where that is what is looked at

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return sum(len(row.ids) for row in self.rows)

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(len(row.ids) for row in self.rows)

    @property
    def counting(self) -> int:
        """Tokens that count."""
        return sum(sum(row.counted) for row in self.rows)


class Encoder:
    """Encodes sentences for one model."""

    def __init__(self, model: Model, reading: Reading) -> None:
        self.model, self.reading, self.tokenizer = model, reading, model.tokenizer
        config: Any = getattr(model.hf, "config", None)
        self.paired = bool(getattr(config, "is_encoder_decoder", False))
        self.typed = "token_type_ids" in getattr(self.tokenizer, "model_input_names", ())  # GPT-2 would embed them
        if self.tokenizer is None or not getattr(self.tokenizer, "is_fast", False):
            raise TextError(
                f"{model.name!r} has no tokenizer that tells where its tokens stand in the text, which a sweep needs; "
                "give a fast one with Model.load(…, tokenizer=…)."
            )
        if reading.side == "target" and not self.paired:
            raise SweepError(f"side='target' looks at a decoder's text, and {model.name!r} is no encoder–decoder.")

    def encode(self, sentences: Sequence[Sentence]) -> list[Encoded]:
        """Every sentence as token rows."""
        if self.reading.side == "target":
            return [self._target(sentence) for sentence in sentences]
        joined = [sentence.second if sentence.joint else None for sentence in sentences]
        found: list[Encoded | None] = [None] * len(sentences)
        for pair in (False, True):
            places = [place for place, second in enumerate(joined) if (second is not None) == pair]
            if not places:
                continue
            second = [joined[place].text for place in places] if pair else None  # pyright: ignore[reportOptionalMemberAccess]
            encoded = self.tokenizer([sentences[place].text for place in places], second, verbose=False)
            for place, encoding in zip(places, encoded.encodings, strict=True):
                found[place] = self._encoded(sentences[place], joined[place], encoding)
        return [each for each in found if each is not None]

    def _encoded(self, sentence: Sentence, second: Sentence | None, encoding: Any) -> Encoded:
        index = word_index(encoding.offsets, sentence.spans)
        count = len(sentence.spans)
        if second is not None:
            others = word_index(encoding.offsets, second.spans)
            parts = encoding.sequence_ids
            index = [
                other + count if part == 1 and other >= 0 else own if part == 0 else -1
                for own, other, part in zip(index, others, parts, strict=True)
            ]
            count += len(second.spans)
        special = encoding.special_tokens_mask
        index = [-1 if mark else word for word, mark in zip(index, special, strict=True)]
        row = Row(encoding.ids, special, encoding.type_ids, index, self._counting(index, special))
        missing = count - len({word for word in index if word >= 0})
        if self.model.limit is None or len(row.ids) <= self.model.limit:
            return Encoded([row], count, missing, 0)
        rows, lost = self._cut(row, sentence)
        return Encoded(rows, count, missing, lost)

    def _counting(self, index: list[int], special: list[int]) -> list[bool]:
        if is_whole(self.reading.pooling):
            return [self.reading.special or not mark for mark in special]
        if self.reading.special:
            return [word >= 0 or bool(mark) for word, mark in zip(index, special, strict=True)]
        return [word >= 0 for word in index]

    def _cut(self, row: Row, sentence: Sentence) -> tuple[list[Row], int]:
        """Rows within the model's limit, and how many words were lost."""
        limit, special = self.model.limit, row.special
        assert limit is not None
        if self.reading.long == "refuse":
            raise SweepError(
                f"Sentence {sentence.id!r} has {len(row.ids)} tokens and {self.model.name!r} takes at most {limit}; "
                "cut such sentences with long='truncate' (--long truncate), or read them in overlapping parts with "
                "long='window' (--long window)."
            )
        if is_whole(self.reading.pooling) and self.reading.long == "window":
            raise SweepError(
                f"Sentence {sentence.id!r} has {len(row.ids)} tokens and {self.model.name!r} takes at most {limit}; a "
                "row of a whole sentence cannot be put together of windows: use long='truncate' (--long truncate)."
            )
        opening = next((place for place, mark in enumerate(special) if not mark), 0)
        stop = len(special) - next((place for place, mark in enumerate(reversed(special)) if not mark), 0)
        around = {"opening": opening, "closing": len(special) - stop}
        inner = row.word_index[opening:stop]
        if self.reading.long == "truncate":
            cut = truncated(inner, limit=limit, **around)
            return [_part(row, opening, stop, Window(0, cut.stop, 0))], cut.words_lost
        room = limit - sum(around.values())
        overlap = min(room - 1, room // 4 if self.reading.overlap is None else self.reading.overlap)
        parts = windows(inner, limit=limit, overlap=overlap, **around)
        rows: list[Row] = []
        offset = 0
        for part in parts:
            rows.append(_part(row, opening, stop, part, offset=offset, last=part is parts[-1]))
            offset += sum(rows[-1].counted)
        return rows, 0

    def _target(self, sentence: Sentence) -> Encoded:
        """The words of a translation, as the decoder reads them: one step later than they are written."""
        second = sentence.second
        if second is None:
            raise SweepError(f"Sentence {sentence.id!r} has no translation, which side='target' looks at.")
        source = self.tokenizer(sentence.text, verbose=False).encodings[0]
        written = self.tokenizer(text_target=second.text, verbose=False).encodings[0]
        limit = self.model.limit
        if limit is not None and max(len(source.ids), len(written.ids)) > limit:
            raise SweepError(
                f"Sentence {sentence.id!r} or its translation has more than the {limit} tokens that "
                f"{self.model.name!r} takes; leave it out with Corpus.filter."
            )
        index = word_index(written.offsets, second.spans)
        index = [-1 if mark else word for word, mark in zip(index, written.special_tokens_mask, strict=True)]
        shifted = [-1, *index[:-1]]
        row = Row(
            source.ids,
            source.special_tokens_mask,
            source.type_ids,
            shifted,
            [word >= 0 for word in shifted],
        )
        missing = len(second.spans) - len({word for word in shifted if word >= 0})
        return Encoded([row], len(second.spans), missing, 0, second.text)

    def batch(self, rows: Sequence[Row], texts: Sequence[str | None], length: int) -> Batch:
        """Rows as a batch padded on the right to `length` tokens; `texts` are what a decoder reads."""
        fill = pad_id(self.tokenizer)
        target_ids, target_mask = None, None
        if self.paired:
            given = [text for text in texts if text is not None]
            target_ids, target_mask = targets(self.model, given if len(given) == len(rows) else None, len(rows))
        own = target_ids.shape[1] if self.reading.side == "target" and target_ids is not None else length
        return Batch(
            padded([row.ids for row in rows], "right", fill, length),
            padded([[1] * len(row.ids) for row in rows], "right", 0, length),
            padded([row.special for row in rows], "right", 1, length).bool(),
            padded([row.types for row in rows], "right", 0, length) if self.typed else None,
            target_ids,
            target_mask,
            padded([row.word_index for row in rows], "right", -1, own),
            _marks([row.counted for row in rows], own),
        )


def looked_at(sentence: Sentence, side: str, pooling: str = "mean") -> Sentence:
    """The sentence whose words are rows: itself, or its translation, which goes by the sentence's own name.

    Where a row is a whole sentence, it counts as a single word.
    """
    if is_whole(pooling):
        return whole_sentence(sentence)
    second = sentence.second
    if side == "source" or second is None:
        return sentence
    facts = {**sentence.facts, **second.facts}
    return replace(second, id=sentence.id, document=sentence.document, facts=facts)


def _part(row: Row, opening: int, stop: int, part: Window, *, offset: int = 0, last: bool = True) -> Row:
    """A part of a row between its opening and closing special tokens, which count with the first and last part."""

    def cut(values: list[Any]) -> list[Any]:
        return [*values[:opening], *values[opening + part.start : opening + part.stop], *values[stop:]]

    counted = [
        *(mark and part.start == 0 for mark in row.counted[:opening]),
        *(mark and place >= part.counted_from for place, mark in enumerate(row.counted[opening:stop])),
        *(mark and last for mark in row.counted[stop:]),
    ]
    return Row(cut(row.ids), cut(row.special), cut(row.types), cut(row.word_index), cut(counted), offset)


def _marks(rows: Sequence[Sequence[bool]], length: int) -> Tensor:
    return torch.tensor([[*row, *[False] * (length - len(row))] for row in rows])
