"""Token ids held ready for batches: windows of a running text, or rows of sentences that are padded when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pellucid.errors import TrainError

if TYPE_CHECKING:
    from pellucid.train.settings import Settings

IGNORED = -100
"""The goal of a token that has none: it adds nothing to a loss or a score."""
Batch = dict[str, Tensor]
Ids = np.ndarray[tuple[int], np.dtype[np.int32]]
POOL = 64
"""Batches whose sentences are sorted by length together: the more, the less padding and the less chance."""


@dataclass(frozen=True)
class Split:
    """What is known of a split beside its tokens: its corpus, its size, the goals there are, and what it is for."""

    name: str
    sentences: int
    classes: int
    fill: int  # the id of padding
    shuffled: bool  # to learn from; else to be evaluated on


@dataclass(frozen=True, eq=False)
class Stream:
    """A running text in windows [steps, B, L] with a goal per token; padding stands at the end of the last step."""

    inputs: Tensor
    goals: Tensor
    begun: Tensor  # [steps, B], the sentence that each window begins in
    sentences: int
    tokens: int
    classes: int
    fixed: bool = True

    @staticmethod
    def of(ids: Ids, goals: Ids, split: Split, settings: Settings, *, owners: Ids | None = None) -> Stream:
        """The windows of a text [N] with goals [N]; `owners` [N] are the sentences of its tokens, one for all if None.

        To learn from, the text is laid in B columns of equal length, one beside the other, and every step reads the
        next L tokens of each; what fills no step is left out. To be evaluated on, all of it is kept: windows stand in
        the order of the text, and the last step is filled up with padding.
        """
        batch, length, whole = settings.batch, settings.length, not split.shuffled
        taken = batch * length
        if len(ids) < (1 if whole else taken):
            raise TrainError(
                f"{split.name} has {len(ids)} tokens to read, and one batch takes {taken} ({batch} rows of {length}): "
                "give more text, or choose a smaller batch or length."
            )
        steps = -(-len(ids) // taken) if whole else len(ids) // taken
        used = min(len(ids), steps * taken)
        owners = np.zeros(len(ids), np.int32) if owners is None else owners
        parts: list[Tensor] = []
        for values, empty in ((ids, split.fill), (goals, IGNORED), (owners, int(owners[-1]))):
            flat = np.full(steps * taken, empty, np.int32)
            flat[:used] = values[:used]
            laid = flat.reshape(steps, batch, length) if whole else flat.reshape(batch, steps, length).swapaxes(0, 1)
            parts.append(torch.from_numpy(np.ascontiguousarray(laid)))
        return Stream(parts[0], parts[1], parts[2][..., 0].long(), split.sentences, used, split.classes)

    def steps(self) -> int:
        """Batches in one epoch."""
        return self.inputs.shape[0]

    def batch(self, epoch: int, step: int) -> Batch:
        """One window of every column; the same in every epoch. Only a step with padding has an attention mask."""
        found = {"input_ids": self.inputs[step].long(), "goals": self.goals[step].long()}
        place = step * self.inputs[0].numel()
        if self.tokens < place + self.inputs[0].numel():
            real = torch.arange(self.inputs[0].numel()).view(self.inputs.shape[1:]) < self.tokens - place
            real[:, 0] = True  # a row of padding alone must look at something
            found["attention_mask"] = real.long()
        return found

    def owners(self, epoch: int, step: int) -> Tensor:
        """The sentence [B] that each window of a step begins in."""
        return self.begun[step]


class Order:
    """Which rows stand in which batch: shuffled anew in every epoch, yet with others of about the same length."""

    def __init__(self, lengths: Tensor, *, batch: int, seed: int, shuffled: bool) -> None:
        self._lengths, self._batch, self._seed, self._shuffled = lengths.numpy(), batch, seed, shuffled
        self._epoch, self._laid = -1, np.argsort(self._lengths, kind="stable")
        self._steps = np.arange(self.steps())

    def steps(self) -> int:
        """Batches in one epoch; the last one may be short."""
        return -(-len(self._lengths) // self._batch)

    def rows(self, epoch: int, step: int) -> Tensor:
        """The numbers [≤ B] of the rows in one batch."""
        if self._shuffled and epoch != self._epoch:
            self._shuffle(epoch)
        first = int(self._steps[step]) * self._batch
        return torch.from_numpy(self._laid[first : first + self._batch])

    def _shuffle(self, epoch: int) -> None:
        dice = np.random.default_rng((self._seed, epoch))
        laid = dice.permutation(len(self._lengths))
        pool = POOL * self._batch
        parts = [laid[first : first + pool] for first in range(0, len(laid), pool)]
        self._laid = np.concatenate([part[np.argsort(self._lengths[part], kind="stable")] for part in parts])
        self._steps = dice.permutation(self.steps())
        self._epoch = epoch


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths, one behind the other: row r is `values[starts[r]:starts[r + 1]]`."""

    values: Tensor  # [N] int32
    starts: Tensor  # [R + 1] int64

    @staticmethod
    def of(rows: Sequence[Sequence[int] | Ids]) -> Ragged:
        lengths = torch.tensor([0, *map(len, rows)])
        flat = np.concatenate([np.asarray(row, np.int32) for row in rows]) if rows else np.zeros(0, np.int32)
        return Ragged(torch.from_numpy(flat), lengths.cumsum(0))

    @property
    def lengths(self) -> Tensor:
        """The number of values [R] of each row."""
        return self.starts.diff()

    def padded(self, rows: Tensor, fill: int) -> tuple[Tensor, Tensor]:
        """Some rows as a matrix filled up on the right, and which of its entries [B, T] are real."""
        lengths = self.starts[rows + 1] - self.starts[rows]
        across = torch.arange(int(lengths.max()))
        real = across < lengths[:, None]
        places = torch.where(real, self.starts[rows, None] + across, 0)
        return torch.where(real, self.values[places].long(), fill), real


@dataclass(frozen=True, eq=False)
class Padded:
    """Rows of token ids with goals: one for each token (ragged, as the ids are), or one or more for a row [R, …]."""

    ids: Ragged
    answers: Ragged | Tensor
    types: Ragged | None
    held_by: Tensor  # [R], the sentence of each row
    order: Order
    fill: int
    sentences: int
    classes: int
    fixed: bool = False

    @staticmethod
    def of(
        ids: Sequence[Sequence[int] | Ids],
        answers: Sequence[Sequence[int] | Ids] | Tensor,
        split: Split,
        settings: Settings,
        *,
        owners: Sequence[int] | None = None,
        types: Sequence[Sequence[int]] | None = None,
    ) -> Padded:
        """Rows of ids with their goals, in the order that the settings' seed gives.

        `owners` [R] are the sentences that the rows come from; without them each row is a sentence.
        """
        enough(len(ids), split, settings)
        rows = Ragged.of(ids)
        return Padded(
            rows,
            answers if isinstance(answers, Tensor) else Ragged.of(answers),
            None if types is None else Ragged.of(types),
            torch.tensor(range(len(ids)) if owners is None else owners),
            Order(rows.lengths, batch=settings.batch, seed=settings.seed, shuffled=split.shuffled),
            split.fill,
            split.sentences,
            split.classes,
        )

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return self.ids.values.numel()

    @property
    def goals(self) -> Tensor:
        """All goals."""
        return self.answers.values if isinstance(self.answers, Ragged) else self.answers

    def steps(self) -> int:
        """Batches in one epoch."""
        return self.order.steps()

    def batch(self, epoch: int, step: int) -> Batch:
        """Some rows, padded on the right to the longest of them."""
        rows = self.order.rows(epoch, step)
        ids, real = self.ids.padded(rows, self.fill)
        found = {"input_ids": ids, "attention_mask": real.long()}
        if self.types is not None:
            found["token_type_ids"] = self.types.padded(rows, 0)[0]
        if isinstance(self.answers, Ragged):
            found["goals"] = self.answers.padded(rows, IGNORED)[0]
        else:
            found["goals"] = self.answers[rows].long()
        return found

    def owners(self, epoch: int, step: int) -> Tensor:
        """The sentence [B] of each row of a batch."""
        return self.held_by[self.order.rows(epoch, step)]


@dataclass(frozen=True, eq=False)
class Around:
    """Examples that add something to those they hold, and are otherwise the same."""

    held: Stream | Padded

    @property
    def sentences(self) -> int:
        """Sentences of the split."""
        return self.held.sentences

    @property
    def tokens(self) -> int:
        """Tokens that an epoch reads."""
        return self.held.tokens

    @property
    def classes(self) -> int:
        """Goals there are to choose from."""
        return self.held.classes

    @property
    def fixed(self) -> bool:
        """Whether every batch has the same shapes."""
        return self.held.fixed

    @property
    def goals(self) -> Tensor:
        """Every goal that may be asked for."""
        return self.held.goals

    def steps(self) -> int:
        """Batches in one epoch."""
        return self.held.steps()

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of one step of one epoch."""
        return self.held.batch(epoch, step)

    def owners(self, epoch: int, step: int) -> Tensor:
        """The sentence [B] of each row of a batch."""
        return self.held.owners(epoch, step)


def owners_of(rows: Sequence[Ids]) -> Ids:
    """The number [N] of the row that each of their values comes from, all rows one behind the other."""
    return np.repeat(np.arange(len(rows), dtype=np.int32), [len(row) for row in rows])


def enough(rows: int, split: Split, settings: Settings) -> None:
    """Refuses a split to learn from that does not fill one batch, and one to be evaluated on that is empty."""
    if rows < (settings.batch if split.shuffled else 1):
        raise TrainError(
            f"{split.name} has {rows} rows of use, and one batch takes {settings.batch}: give more sentences, or "
            "choose a smaller batch."
        )
