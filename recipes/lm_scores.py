"""What a language model is worth: loss on articles, the losses of chance, and whether it continues repetitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100  # what cross_entropy leaves out


@dataclass(frozen=True)
class Score:
    """Nats that a model needs for a text, and over how many tokens."""

    nats: float
    tokens: int

    @property
    def per_token(self) -> float:
        return self.nats / self.tokens

    def perplexity(self, units: int | None = None) -> float:
        """exp(nats / units): per token, or per word where the number of words is given."""
        return math.exp(min(self.nats / (units or self.tokens), 700.0))


def windows(articles: Sequence[Sequence[int]], context: int) -> tuple[Tensor, Tensor]:
    """Articles as rows that a model of limited length can read: ids and targets, both [R, context].

    An article is [start, tokens…, start], its end included. A row is the start token and `context` − 1 tokens; the next
    begins half a row later and is scored on its new tokens alone, so each is predicted once, with half a row or more
    before it unless the article begins there.
    """
    ids: list[list[int]] = []
    targets: list[list[int]] = []
    half = context // 2
    for article in articles:
        start, text = article[0], list(article[1:])
        done = 0  # tokens of the text that have been scored
        while done < len(text):
            begin = 0 if done == 0 else done - half
            piece = text[begin : begin + context]  # predicted by the start token and all of it but its last
            goals = [IGNORED] * (done - begin) + piece[done - begin :]
            gap = context - len(piece)
            ids.append([start, *piece[:-1], *[start] * gap])
            targets.append(goals + [IGNORED] * gap)
            done = begin + len(piece)
    return torch.tensor(ids), torch.tensor(targets)


def score(model: Any, articles: Sequence[Sequence[int]], *, rows: int = 128) -> Score:
    """The loss of a causal language model on whole articles, in float32 and without dropout."""
    was_training = model.training
    model.eval()
    ids, targets = windows(articles, model.config.n_positions)
    nats = 0.0
    with torch.no_grad():
        for some, goals in zip(ids.split(rows), targets.split(rows), strict=True):
            logits = model(input_ids=some.to(model.device), use_cache=False).logits.float()
            goal = goals.to(model.device).flatten()
            nats += float(functional.cross_entropy(logits.flatten(0, 1), goal, ignore_index=IGNORED, reduction="sum"))
    model.train(was_training)
    return Score(nats, int((targets != IGNORED).sum()))


def unigram(train: Tensor, articles: Sequence[Sequence[int]], vocabulary: int) -> Score:
    """The loss of guessing each token by its share of the training tokens, with one added to every count."""
    counts = torch.bincount(train, minlength=vocabulary).double() + 1
    surprise = -(counts / counts.sum()).log()
    text = torch.tensor([token for article in articles for token in article[1:]])
    return Score(float(surprise[text].sum()), len(text))


@dataclass(frozen=True)
class Induction:
    """How a model takes random tokens that are said twice: the loss of each time, and the head that looks back best.

    `attention` is that head's mean weight, the second time, on the token that followed the present one the first time.
    """

    first: float
    second: float
    layer: int
    head: int
    attention: float


def repeated_tokens(vocabulary: int, start: int, *, length: int = 64, rows: int = 32, seed: int = 0) -> Tensor:
    """Random tokens said twice after the start token: ids [rows, 1 + 2 · length]; ids 0 and 1 are special, not used."""
    random = torch.Generator().manual_seed(seed)
    once = torch.randint(2, vocabulary, (rows, length), generator=random)
    return functional.pad(torch.cat([once, once], dim=1), (1, 0), value=start)


def induction(model: Any, ids: Tensor) -> Induction:
    """Measures on ids [rows, 1 + 2n] from `repeated_tokens`; the model must have eager attention (Olsson et al. 2022).

    The second loss leaves out the first token of the repetition, which nothing announces.
    """
    length = (ids.shape[1] - 1) // 2
    model.eval()
    with torch.no_grad():
        out = model(input_ids=ids.to(model.device), use_cache=False, output_attentions=True)
    logits, goals = out.logits[:, :-1].float(), ids[:, 1:].to(model.device)
    surprise = functional.cross_entropy(logits.flatten(0, 1), goals.flatten(), reduction="none").view_as(goals)
    asking = torch.arange(length + 1, 2 * length)  # places of the second time, but for the last
    weights = torch.stack(
        [pattern[:, :, asking, asking - length + 1].mean((0, 2)) for pattern in out.attentions]
    )  # [layer, head]
    layer, head = divmod(int(weights.argmax()), weights.shape[1])
    return Induction(
        first=float(surprise[:, :length].mean()),
        second=float(surprise[:, length + 1 :].mean()),
        layer=layer,
        head=head,
        attention=float(weights[layer, head]),
    )
