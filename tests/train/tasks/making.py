"""Vocabularies, settings and networks with known answers for the tests of tasks."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from pellucid.corpus import Corpus, Sentence
from pellucid.train.settings import Settings
from pellucid.train.vocabulary import bpe_vocabulary, word_vocabulary

PAD, UNK, START, END, MASK = range(5)


def words(texts, *, task="lm", frame="end", length=32):
    """A vocabulary of every word in some texts."""
    return word_vocabulary(texts, least=1, task=task, length=length, frame=frame)


def pieces(texts, *, task="tagger", frame="both", size=261, length=32):
    """A vocabulary of byte pairs; with 261 tokens, of single bytes."""
    return bpe_vocabulary(texts, size=size, task=task, length=length, frame=frame)


def settings(task, **changes) -> Settings:
    """Settings with small batches of short rows."""
    return Settings(task, **{"batch": 2, "length": 4, "rows": "sentences", "masked": 0.15, **changes})


class Known(nn.Module):
    """A network that gives each token the logits of its row in a table [V, C], wherever it stands.

    It remembers what it was called with, in `seen`.
    """

    def __init__(self, table: Tensor, *, whole_rows: bool = False, cached: bool = False) -> None:
        super().__init__()
        self.table = nn.Parameter(table.float())
        self.whole_rows = whole_rows  # one answer for a row: that of its second token, behind <s>
        self.config = SimpleNamespace(use_cache=cached)
        self.seen = []

    def forward(self, input_ids, **others):
        self.seen.append({"input_ids": input_ids, "training": self.training, **others})
        found = self.table[input_ids]
        return SimpleNamespace(logits=found[:, 1] if self.whole_rows else found)


def random_table(tokens: int, classes: int, seed: int = 0) -> Tensor:
    """A table of logits."""
    return torch.randn(tokens, classes, generator=torch.Generator().manual_seed(seed))


def tagged(*sentences: tuple[str, str], name: str = "tagged") -> Corpus:
    """A corpus of words with tags, both given as text; `_` stands for no tag."""
    return Corpus.of(
        [
            Sentence.of_words(
                text.split(), id=str(number), labels={"pos": [None if tag == "_" else tag for tag in tags.split()]}
            )
            for number, (text, tags) in enumerate(sentences, start=1)
        ],
        name=name,
    )


def all_batches(examples, epoch: int = 0):
    """The batches of an epoch."""
    return [examples.batch(epoch, step) for step in range(examples.steps())]
