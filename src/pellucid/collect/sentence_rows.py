"""Sentence rows: one row for a whole sentence (or pair) instead of one for every word."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from pellucid.collect.state import Array
from pellucid.collect.words import Words
from pellucid.corpus.sentence import Sentence

WHOLE = ("sentence-first", "sentence-last", "sentence-mean", "sentence-max")
"""Poolings of a whole sentence: its first token ([CLS] where there is one), its last, the mean or largest of all.

Special tokens count among the last three only where they are asked for; padding never does.
"""


def is_whole(pooling: str) -> bool:
    """Whether rows are whole sentences."""
    return pooling in WHOLE


def whole_sentence(sentence: Sentence) -> Sentence:
    """A sentence, with a second one read with it, as a single unit of text: what is known of all of it stays, labels of
    single words do not."""
    joined = sentence.second.text if sentence.second is not None and sentence.joint else None
    text = sentence.text if joined is None else f"{sentence.text} {joined}"
    return Sentence(sentence.id, sentence.document, text, ((0, len(text)),), facts=sentence.facts)


class SentenceWords(Words):
    """The sentences of one batch in the place of words: W is 1, and the row of a sentence is pooled from its tokens."""

    @cached_property
    def chosen(self) -> Tensor:
        """The tokens that a sentence's row is made of, [B, T] on the CPU."""
        real, counting = self.mask.cpu().bool(), self.batch.counted
        assert counting is not None
        counting = counting.cpu() & real
        if self.pooling == "sentence-first":
            return real & (real.cumsum(1) == 1)
        if self.pooling == "sentence-last":
            return counting & (counting.flip(1).cumsum(1).flip(1) == 1)
        return counting

    @cached_property
    def index(self) -> Tensor:
        return torch.where(self.chosen, 0, -1)

    @cached_property
    def base(self) -> Tensor:
        return torch.zeros(len(self.chosen), dtype=torch.long)

    @cached_property
    def width(self) -> int:
        return 1

    @cached_property
    def pieces(self) -> Tensor:
        return self.chosen.sum(1, keepdim=True)

    @cached_property
    def counted(self) -> Tensor:
        return self.pieces > 0

    @cached_property
    def positions(self) -> Array:
        return torch.zeros(int(self.counted.sum()), dtype=torch.long).numpy()

    def rows(self, tensor: Tensor, room: Tensor | None = None) -> Tensor:
        """Rows [N, width] in float32 of a tensor [B, T, d] or [B, H, T, d], one for each sentence that has tokens."""
        if tensor.dim() == 4:
            tensor = tensor.transpose(1, 2)
        kept = self.counted[:, 0]
        some, mask = tensor.flatten(2)[kept.to(tensor.device)].float(), self.chosen[kept].to(tensor.device)
        if self.pooling == "sentence-max":
            result = some.masked_fill(~mask[:, :, None], -torch.inf).amax(1)
        else:
            result = some.masked_fill(~mask[:, :, None], 0.0).sum(1) / mask.sum(1, keepdim=True)
        return result if room is None else room.copy_(result)
