"""Question answering: the part of a text that answers a question, by its first and its last token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pellucid.corpus.align import word_index
from pellucid.errors import TrainError
from pellucid.model.tokens import pad_id
from pellucid.train.tasks.base import Examples, Task, cross_entropy, evaluating, moved, output
from pellucid.train.tasks.encode import cut, encoded, joined, own
from pellucid.train.tasks.rows import Around, Padded, Ragged, Split
from pellucid.train.tasks.scores import exact_match, words_f1

if TYPE_CHECKING:
    from pellucid.corpus import Corpus, Sentence
    from pellucid.train.settings import Settings

LONGEST = 30
"""The most tokens that an answer may have."""
OVERLAP = 64
"""The most tokens that two windows of a long text share."""
GUESSES = 10
"""How often an answer is guessed for each question."""


@dataclass(frozen=True)
class Question:
    """A question's text to look in, and the part of it [start, stop) that is the answer; None where there is none."""

    name: str
    context: str
    span: tuple[int, int] | None

    @property
    def answer(self) -> str:
        """The answer as it is written; empty where there is none."""
        return "" if self.span is None else self.context[self.span[0] : self.span[1]]


@dataclass(frozen=True, eq=False)
class Questions(Around):
    """Questions as rows: each with its text, or with a window of it where that is too long.

    `asked` [R] is the question of each row, `inside` [R, 2] the tokens of the text in it, `starts` and `stops` the
    characters of each token. Goals [R, 2] are the first and the last token of the answer; both are 0, the first token
    of the row, where it does not hold the answer.
    """

    held: Padded
    questions: tuple[Question, ...]
    asked: Tensor
    inside: Tensor
    starts: Ragged
    stops: Ragged

    @property
    def impossible(self) -> float:
        """The share of questions that have no answer."""
        return sum(question.span is None for question in self.questions) / len(self.questions)


class Answering(Task):
    """The answer to a question (the sentence) in a text (the second sentence), as in SQuAD."""

    name, best, larger_is_better = "qa", "f1", True

    def texts(self, corpus: Corpus, settings: Settings) -> Iterator[str]:
        """Every question, and every text once as long as its questions stand together."""
        before = None
        for sentence in corpus:
            yield sentence.text
            second = _second(sentence, corpus).text
            if second != before:
                yield second
            before = second

    def labels(self, corpus: Corpus, settings: Settings) -> None:
        """None: the goals are tokens of the text."""

    def examples(
        self, corpus: Corpus, tokenizer: Any, settings: Settings, labels: tuple[str, ...] | None, *, shuffled: bool
    ) -> Examples:
        """One row for each question, or one for each window of a text that is too long."""
        found = _Windows(settings.length)
        for sentence, encoding in encoded(own(tokenizer), _paired(corpus), joined):
            found.add(_question(sentence, corpus), _second(sentence, corpus).spans, encoding)
        split = Split(corpus.name, len(found.questions), max(map(len, found.ids)), pad_id(tokenizer), shuffled)
        typed = "token_type_ids" in tokenizer.model_input_names
        types = found.types if typed else None
        goals = torch.tensor(found.goals)
        held = Padded.of(found.ids, goals, split, settings, owners=found.asked, types=types)
        return Questions(
            held,
            tuple(found.questions),
            torch.tensor(found.asked),
            torch.tensor(found.inside),
            Ragged.of(found.starts),
            Ragged.of(found.stops),
        )

    def logits(self, network: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """How likely each token [B, 2, T] is the first and the last of the answer; padding is neither."""
        found = output(network, batch)
        logits = torch.stack([found.start_logits, found.end_logits], dim=1).float()
        return logits.masked_fill(batch["attention_mask"][:, None] == 0, -torch.inf)

    def loss(self, network: Any, batch: Mapping[str, Tensor], settings: Settings) -> Tensor:
        """The mean cross-entropy of first and last tokens; padding cannot be one."""
        return cross_entropy(self.logits(network, batch), batch["goals"])

    def evaluate(self, network: Any, examples: Examples, device: Any, settings: Settings) -> dict[str, float]:
        """Loss, and over questions exact match and F1 of words, as SQuAD counts them."""
        assert isinstance(examples, Questions)
        losses: list[Tensor] = []
        rows: list[Tensor] = []
        parts: list[Tensor] = []
        with evaluating(network):
            for step in range(examples.steps()):
                batch = moved(examples.batch(0, step), device)
                logits = self.logits(network, batch)
                losses.append(cross_entropy(logits, batch["goals"], total=True))
                rows.append(examples.held.order.rows(0, step))
                parts.append(best_spans(logits, examples.inside[rows[-1]].to(device)))
        loss = float(torch.stack(losses).double().cpu().sum()) / examples.goals.numel()
        found = chosen_answers(examples, torch.cat(rows), torch.cat(parts).cpu())
        return {"loss": loss, **_scored(found, examples)}

    def chance(self, examples: Examples, training: Examples, settings: Settings) -> dict[str, float]:
        """A random part of the text, with as many words as a random answer in training has."""
        assert isinstance(examples, Questions) and isinstance(training, Questions)
        dice = np.random.default_rng((settings.seed, 0))
        lengths = [len(question.answer.split()) for question in training.questions]
        scores = [
            _scored([_guess(question.context, dice, lengths) for question in examples.questions], examples)
            for _ in range(GUESSES)
        ]
        loss = float(examples.held.ids.lengths.double().log().mean())
        return {"loss": loss, **{name: float(np.mean([score[name] for score in scores])) for name in scores[0]}}


class _Windows:
    """Gathers the rows of questions."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.questions: list[Question] = []
        self.asked: list[int] = []
        self.ids: list[list[int]] = []
        self.types: list[list[int]] = []
        self.starts: list[list[int]] = []
        self.stops: list[list[int]] = []
        self.inside: list[tuple[int, int]] = []
        self.goals: list[tuple[int, int]] = []

    def add(self, question: Question, spans: Sequence[tuple[int, int]], encoding: Any) -> None:
        """Add the rows of one question, whose text has its words at `spans`."""
        ids, types, sides, offsets = encoding.ids, encoding.type_ids, encoding.sequence_ids, encoding.offsets
        own = [place for place, side in enumerate(sides) if side == 1]
        if not own:
            raise TrainError(f"The text of question {question.name!r} has no token in this vocabulary: leave it out.")
        opening, closing = own[0], len(sides) - own[-1] - 1
        first, last = _tokens(question.span, own, offsets)
        overlap = max(0, min(OVERLAP, (self.length - opening - closing) // 2))
        index = word_index(offsets, spans)
        for part in cut(index, opening, closing, length=self.length, overlap=overlap, name=question.name):
            self.asked.append(len(self.questions))
            self.ids.append([ids[place] for place in part])
            self.types.append([types[place] for place in part])
            self.starts.append([offsets[place][0] for place in part])
            self.stops.append([offsets[place][1] for place in part])
            self.inside.append((opening, len(part) - closing))
            self.goals.append((part.index(first), part.index(last)) if first in part and last in part else (0, 0))
        self.questions.append(question)


def _tokens(span: tuple[int, int] | None, own: list[int], offsets: list[tuple[int, int]]) -> tuple[int, int]:
    """The first and last of a text's tokens that share a character with a part of it; −1 twice for none."""
    if span is None:
        return -1, -1
    found = [place for place in own if offsets[place][0] < span[1] and offsets[place][1] > span[0]]
    return (found[0], found[-1]) if found else (-1, -1)


def best_spans(logits: Tensor, inside: Tensor) -> Tensor:
    """For each row the best answer within its text: [B, 4] its score, the score of no answer, first and last token.

    `inside` [B, 2] holds the tokens of the text. An answer is scored by the sum of the logits [B, 2, T] of its ends,
    and has at most LONGEST tokens; no answer is scored by the sum at the first token of the row.
    """
    across = torch.arange(logits.shape[2], device=logits.device)
    within = (across >= inside[:, :1]) & (across < inside[:, 1:])
    ends = logits.masked_fill(~within[:, None], -torch.inf)
    apart = across[None] - across[:, None]
    scores = ends[:, 0, :, None] + ends[:, 1, None, :]  # [B, first, last]
    scores = scores.masked_fill((apart < 0) | (apart >= LONGEST), -torch.inf).flatten(1)
    best, place = scores.max(dim=1)
    none = logits[:, :, 0].sum(dim=1)
    return torch.stack([best, none, place // logits.shape[2], place % logits.shape[2]], dim=1)


def chosen_answers(examples: Questions, rows: Tensor, parts: Tensor) -> list[str]:
    """The answer to each question, the best of its rows; empty where that is better and such questions occur."""
    best = [(-np.inf, "")] * examples.sentences
    none = [np.inf] * examples.sentences
    for row, (score, nothing, first, last) in zip(rows.tolist(), parts.tolist(), strict=True):
        asked, begin = int(examples.asked[row]), int(examples.starts.starts[row])
        start, stop = examples.starts.values[begin + int(first)], examples.stops.values[begin + int(last)]
        answer = examples.questions[asked].context[int(start) : int(stop)]
        best[asked] = max(best[asked], (score, answer))
        none[asked] = min(none[asked], nothing)
    able = examples.impossible > 0
    return ["" if able and none[asked] > score else answer for asked, (score, answer) in enumerate(best)]


def _scored(found: list[str], examples: Questions) -> dict[str, float]:
    right = [question.answer for question in examples.questions]
    pairs = list(zip(found, right, strict=True))
    return {
        "exact": float(np.mean([exact_match(*pair) for pair in pairs])),
        "f1": float(np.mean([words_f1(*pair) for pair in pairs])),
    }


def _guess(context: str, dice: np.random.Generator, lengths: list[int]) -> str:
    words, length = context.split(), int(dice.choice(lengths))
    first = int(dice.integers(max(1, len(words) - length + 1)))
    return " ".join(words[first : first + length])


def _paired(corpus: Corpus) -> Iterator[Sentence]:
    for sentence in corpus:
        _second(sentence, corpus)
        yield sentence


def _second(sentence: Sentence, corpus: Corpus) -> Sentence:
    if sentence.second is None or not sentence.joint:
        raise TrainError(
            f"Question {sentence.id!r} of {corpus.name} has no text to look in as its second sentence: open a corpus "
            "in the format squad."
        )
    return sentence.second


def _question(sentence: Sentence, corpus: Corpus) -> Question:
    context, facts = _second(sentence, corpus).text, sentence.facts
    if facts.get("impossible") == "true":
        return Question(sentence.id, context, None)
    answer, start = facts.get("answer"), facts.get("answer_start", "")
    if not answer or not start.isdecimal():
        raise TrainError(
            f"Question {sentence.id!r} of {corpus.name} has no facts 'answer' and 'answer_start', and 'impossible' "
            "does not say that it has none: mend it, or leave it out with Corpus.filter."
        )
    span = (int(start), int(start) + len(answer))
    if context[span[0] : span[1]] != answer:
        raise TrainError(
            f"Question {sentence.id!r} of {corpus.name} has the answer {answer!r}, but its text has "
            f"{context[span[0] : span[1]]!r} at character {start}: mend 'answer_start'."
        )
    return Question(sentence.id, context, span)
