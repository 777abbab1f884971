"""Language models: the next token from those before it (lm), or hidden tokens from those around them (mlm)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pellucid.corpus.align import word_index
from pellucid.errors import TrainError
from pellucid.model.tokens import pad_id
from pellucid.train.tasks.base import Examples, Task
from pellucid.train.tasks.encode import alone, cut, encoded, frame, own
from pellucid.train.tasks.rows import IGNORED, Around, Batch, Ids, Padded, Split, Stream, owners_of
from pellucid.train.tasks.scores import counted, guessing_loss, perplexity, tallied

if TYPE_CHECKING:
    from pellucid.corpus import Corpus
    from pellucid.train.settings import Settings

HIDDEN, REPLACED = 0.8, 0.1
"""Of the tokens that mlm asks for, the shares that <mask> and a random token stand for; the rest stays as it is."""


def running(corpus: Corpus, engine: Any) -> tuple[Ids, Ids, int]:
    """The tokens [N] of all sentences one behind the other, with special tokens; the sentence [N] of each; how many."""
    parts: list[Ids] = []
    for _, encoding in encoded(engine, corpus, alone, placed=False):
        parts.append(np.array(encoding.ids, np.int32))
    return np.concatenate(parts), owners_of(parts), len(parts)


class LanguageModelling(Task):
    """The next token from those before it."""

    name, best, larger_is_better = "lm", "perplexity", False

    def texts(self, corpus: Corpus, settings: Settings) -> Iterator[str]:
        """The text of every sentence."""
        return (sentence.text for sentence in corpus)

    def labels(self, corpus: Corpus, settings: Settings) -> None:
        """None: the goals are tokens."""

    def examples(
        self, corpus: Corpus, tokenizer: Any, settings: Settings, labels: tuple[str, ...] | None, *, shuffled: bool
    ) -> Examples:
        """Windows of the running text, or sentences; the goal of each token is the one behind it."""
        engine = own(tokenizer)
        if settings.rows == "stream":
            ids, owners, sentences = running(corpus, engine)
            split = _split(corpus, tokenizer, sentences, shuffled)
            return Stream.of(ids[:-1], ids[1:], split, settings, owners=owners[:-1])
        inputs: list[list[int]] = []
        goals: list[list[int]] = []
        held_by: list[int] = []
        sentences = 0
        for _, encoding in encoded(engine, corpus, alone, placed=False):
            ids, sentences = encoding.ids, sentences + 1
            for first in range(0, len(ids) - 1, settings.length):
                last = min(first + settings.length, len(ids) - 1)
                inputs.append(ids[first:last])
                goals.append(ids[first + 1 : last + 1])
                held_by.append(sentences - 1)
        return Padded.of(inputs, goals, _split(corpus, tokenizer, sentences, shuffled), settings, owners=held_by)

    def evaluate(self, network: Any, examples: Examples, device: Any, settings: Settings) -> dict[str, float]:
        """Loss and perplexity per token."""
        tally = tallied(network, examples, device)
        return {"loss": tally.loss(), "perplexity": perplexity(tally.loss())}

    def chance(self, examples: Examples, training: Examples, settings: Settings) -> dict[str, float]:
        """The perplexity of a unigram model: every token by its frequency in training, one added to each count."""
        loss = guessing_loss(counted(examples), counted(training))
        return {"loss": loss, "perplexity": perplexity(loss)}


class MaskedLanguageModelling(LanguageModelling):
    """Hidden tokens from those around them; special tokens are never asked for, unknown words are."""

    name = "mlm"

    def examples(
        self, corpus: Corpus, tokenizer: Any, settings: Settings, labels: tuple[str, ...] | None, *, shuffled: bool
    ) -> Examples:
        """Windows of the running text, or sentences; which tokens are hidden is drawn anew for every step."""
        engine = own(tokenizer)
        never = np.array(sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}), np.int32)
        if settings.rows == "stream":
            ids, owners, sentences = running(corpus, engine)
            goals = np.where(np.isin(ids, never), np.int32(IGNORED), ids)
            split = _split(corpus, tokenizer, sentences, shuffled)
            held: Stream | Padded = Stream.of(ids, goals, split, settings, owners=owners)
        else:
            rows: list[Ids] = []
            held_by: list[int] = []
            sentences = 0
            for sentence, encoding in encoded(engine, corpus, alone):
                sentences += 1
                index = word_index(encoding.offsets, sentence.spans)
                opening, closing = frame(encoding.special_tokens_mask)
                ids = np.array(encoding.ids, np.int32)
                parts = cut(index, opening, closing, length=settings.length, name=sentence.id)
                rows.extend([ids[part] for part in parts])
                held_by.extend([sentences - 1] * len(parts))
            asked = [np.where(np.isin(row, never), np.int32(IGNORED), row) for row in rows]
            split = _split(corpus, tokenizer, sentences, shuffled)
            held = Padded.of(rows, asked, split, settings, owners=held_by)
        return Masked.of(held, tokenizer, settings)

    def evaluate(self, network: Any, examples: Examples, device: Any, settings: Settings) -> dict[str, float]:
        """Loss, perplexity and accuracy of the hidden tokens; the same ones are hidden at every evaluation."""
        tally = tallied(network, examples, device)
        return {"loss": tally.loss(), "perplexity": perplexity(tally.loss()), "accuracy": tally.accuracy()}

    def chance(self, examples: Examples, training: Examples, settings: Settings) -> dict[str, float]:
        """A unigram model, which takes every hidden token for the most frequent one."""
        counts, known = counted(examples), counted(training)
        accuracy = float(counts[known.argmax()] / counts.sum())
        return {**super().chance(examples, training, settings), "accuracy": accuracy}


@dataclass(frozen=True, eq=False)
class Masked(Around):
    """Examples some of whose tokens are hidden, drawn from the seed, the epoch and the step.

    A share of the tokens that may be asked for is chosen, at least one of each batch; 80% of them become <mask>, 10%
    another token, and 10% stay (Devlin et al. 2019, section 3.1).
    """

    share: float
    seed: int
    mask: int
    others: Tensor  # the tokens that may stand for another

    @staticmethod
    def of(held: Stream | Padded, tokenizer: Any, settings: Settings) -> Masked:
        if tokenizer.mask_token_id is None:
            raise TrainError("The vocabulary has no mask token, which mlm needs: choose another model to start from.")
        if settings.masked <= 0:
            raise TrainError(f"masked={settings.masked} hides no token, so mlm would learn nothing; give more than 0.")
        if not bool((held.goals != IGNORED).any()):
            raise TrainError("There is no token that could be hidden: the text holds special tokens alone.")
        special = set(tokenizer.all_special_ids)
        others = torch.tensor([number for number in range(len(tokenizer)) if number not in special])
        return Masked(held, settings.masked, settings.seed, tokenizer.mask_token_id, others)

    def batch(self, epoch: int, step: int) -> Batch:
        """A batch with hidden tokens; its goals are those tokens, and IGNORED everywhere else."""
        found = self.held.batch(epoch, step)
        goals = found["goals"]
        dice = np.random.default_rng((self.seed, epoch, step))
        drawn, fate = (torch.from_numpy(dice.random(tuple(goals.shape))) for _ in range(2))
        random = self.others[torch.from_numpy(dice.integers(len(self.others), size=tuple(goals.shape)))]
        drawn = torch.where(goals == IGNORED, 2.0, drawn)
        asked = (drawn < self.share) | ((drawn == drawn.min()) & (drawn < 1))
        ids = torch.where(asked & (fate < HIDDEN), self.mask, found["input_ids"])
        ids = torch.where(asked & (fate >= HIDDEN) & (fate < HIDDEN + REPLACED), random, ids)
        return {**found, "input_ids": ids, "goals": torch.where(asked, goals, IGNORED)}


def _split(corpus: Corpus, tokenizer: Any, sentences: int, shuffled: bool) -> Split:
    return Split(corpus.name, sentences, len(tokenizer), pad_id(tokenizer), shuffled)
