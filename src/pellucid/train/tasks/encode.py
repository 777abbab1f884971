"""Sentences to token ids as a task needs them: many at once, whole or cut into windows between their special tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pellucid.corpus.align import windows
from pellucid.errors import CorpusError, TrainError

if TYPE_CHECKING:
    from pellucid.corpus import Sentence

Text = str | tuple[str, str]
TOGETHER = 1024
"""Sentences that are tokenized at once."""


def own(tokenizer: Any, *, limit: int | None = None) -> Any:
    """A copy of the tokenizer's engine that pads nothing, and cuts texts only where a `limit` of tokens is given."""
    engine = getattr(tokenizer, "backend_tokenizer", None)
    if engine is None or not hasattr(engine, "encode_batch"):
        raise TrainError(
            f"{type(tokenizer).__name__} does not tell where its tokens stand in a text, which training needs; give a "
            "model with a fast tokenizer."
        )
    copy: Any = type(engine).from_str(engine.to_str())
    copy.no_padding()
    if limit is None:
        copy.no_truncation()
    else:
        copy.enable_truncation(limit)
    return copy


def encoded(
    engine: Any, sentences: Iterable[Sentence], text: Callable[[Sentence], Text], *, placed: bool = True
) -> Iterator[tuple[Sentence, Any]]:
    """Every sentence with the encoding of its text, or of a pair of texts; `placed` tells where its tokens stand."""
    encode = engine.encode_batch if placed else engine.encode_batch_fast
    rest = iter(sentences)
    while part := list(islice(rest, TOGETHER)):
        yield from zip(part, encode([text(sentence) for sentence in part]), strict=True)


def alone(sentence: Sentence) -> str:
    """The text of a sentence."""
    return sentence.text


def joined(sentence: Sentence) -> Text:
    """The text of a sentence, with that of the second one where the two are read together."""
    second = sentence.second
    return (sentence.text, second.text) if second is not None and sentence.joint else sentence.text


def cut(
    index: Sequence[int], opening: int, closing: int, *, length: int, overlap: int = 0, name: str
) -> list[list[int]]:
    """The positions of each window of a row that is too long, its first and last special tokens included.

    `index` [T] holds the word of every token; the `opening` first and `closing` last tokens stand in every window.
    """
    total = len(index)
    if total <= length:
        return [list(range(total))]
    try:
        found = windows(
            index[opening : total - closing], limit=length, overlap=overlap, opening=opening, closing=closing
        )
    except CorpusError as error:
        raise TrainError(
            f"Sentence {name!r} has {opening + closing} tokens that must stand beside its text, and a row holds "
            f"{length}: choose a larger length, or leave the sentence out."
        ) from error
    start, stop = list(range(opening)), list(range(total - closing, total))
    return [[*start, *range(opening + part.start, opening + part.stop), *stop] for part in found]


def frame(special: Sequence[int]) -> tuple[int, int]:
    """How many special tokens open and close a row, of which `special` [T] marks those that were added to the text."""
    opening = next((place for place, mark in enumerate(special) if not mark), len(special))
    closing = next((place for place, mark in enumerate(reversed(special)) if not mark), 0)
    return opening, closing
