"""Scores beside answers worked out by hand."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
import torch

from pellucid.train.tasks import IGNORED
from pellucid.train.tasks.scores import (
    Tally,
    bleu,
    exact_match,
    guessing_classes,
    guessing_loss,
    macro_f1,
    perplexity,
    plain_words,
    words_f1,
)


def test_macro_f1_by_hand():
    # goals 0 0 0 1 1 2, taken for 0 0 1 1 1 1; class 3 never occurs and class 2 is never hit
    confusion = torch.tensor([[2, 1, 0, 0], [0, 2, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    first, second = 2 * 2 / (3 + 2), 2 * 2 / (2 + 4)
    assert macro_f1(confusion) == pytest.approx((first + second + 0) / 3)


def test_a_class_that_is_only_predicted_counts_as_missed():
    assert macro_f1(torch.tensor([[1, 1], [0, 0]])) == pytest.approx((2 / 3 + 0) / 2)


def test_a_tally_is_the_same_however_it_is_dealt_out():
    dice = torch.Generator().manual_seed(0)
    logits = torch.randn(60, 5, generator=dice)
    goals = torch.randint(5, (60,), generator=dice)
    goals[::7] = IGNORED
    counts = goals != IGNORED
    whole = Tally("cpu", classes=5)
    whole.add(logits, goals)
    parts = Tally("cpu", classes=5)
    for start, stop in ((0, 10), (10, 59), (59, 60)):
        parts.add(logits[None, start:stop], goals[None, start:stop])
    chances = logits.softmax(dim=-1)
    by_hand = -sum(math.log(chances[i, goals[i]]) for i in range(60) if counts[i]) / int(counts.sum())
    for tally in (whole, parts):
        assert tally.loss() == pytest.approx(by_hand, rel=1e-5)
        assert tally.count() == int(counts.sum())
        assert tally.accuracy() == pytest.approx(float((logits.argmax(-1) == goals)[counts].double().mean()))
    confusion = torch.zeros(5, 5, dtype=torch.long)
    for goal, row in zip(goals.tolist(), logits, strict=True):
        if goal != IGNORED:
            confusion[goal, int(row.argmax())] += 1
    assert torch.equal(whole.confusion(), confusion)
    assert torch.equal(parts.confusion(), confusion)


def test_perplexity_of_a_loss_beyond_all_numbers_is_infinite():
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(1e4) == math.inf
    assert math.isnan(perplexity(math.nan))


def test_guessing_knows_the_frequencies_of_training():
    known, counts = torch.tensor([6, 1, 0]), torch.tensor([1, 3, 1])
    loss = -(math.log(7 / 10) + 3 * math.log(2 / 10) + math.log(1 / 10)) / 5
    assert guessing_loss(counts, known) == pytest.approx(loss)
    scores = guessing_classes(counts, known)
    assert scores == pytest.approx({"loss": loss, "accuracy": 1 / 5, "f1": 2 / (1 + 5) / 3})


@pytest.mark.parametrize(
    ("found", "right", "exact", "f1"),
    [
        ("The Denver Broncos!", "denver broncos", 1, 1),
        ("Denver", "the Denver Broncos", 0, 2 / 3),
        ("a theatre", "theatre", 1, 1),
        ("their and another", "ir nd nother", 0, 0),  # articles are whole words
        ("dog dog", "dog cat", 0, 0.5),  # a word counts as often as both have it
        ("dog dog", "dog dog dog", 0, 4 / 5),
        ("Broncos Denver", "Denver Broncos", 0, 1),
        ("", "", 1, 1),
        ("", "Denver", 0, 0),
        ("the", "", 1, 1),
    ],
)
def test_answers_are_compared_by_their_plain_words(found, right, exact, f1):
    assert exact_match(found, right) == exact
    assert words_f1(found, right) == pytest.approx(f1)
    assert words_f1(right, found) == pytest.approx(f1)


def test_plain_words():
    assert plain_words("The U.S., an  'A-team'") == ["us", "ateam"]


def test_bleu_is_measured_by_sacrebleu_and_absent_without_it(monkeypatch):
    asked = []

    def corpus_bleu(found, right):
        asked.append((found, right))
        return SimpleNamespace(score=12.5)

    monkeypatch.setitem(sys.modules, "sacrebleu", SimpleNamespace(corpus_bleu=corpus_bleu))
    assert bleu(("a b", "c"), ("a d", "c")) == 12.5
    assert asked == [(["a b", "c"], [["a d", "c"]])]  # one reference for each, all in one list
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    assert bleu(["a"], ["a"]) is None


def test_bleu_of_equal_texts_is_a_hundred():
    pytest.importorskip("sacrebleu")
    texts = ["the dog sleeps on the mat", "a cat runs in the garden"]
    assert bleu(texts, texts) == pytest.approx(100)
    assert bleu(texts, texts[::-1]) < 20
