"""Question answering: where an answer's tokens are, windows of long texts, the best span, and SQuAD's scores."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from pellucid.corpus import Corpus, Sentence
from pellucid.errors import TrainError
from pellucid.train.tasks import TASKS, answering
from pellucid.train.tasks.answering import best_spans
from tests.corpus.real_data import real
from tests.train.tasks.making import all_batches, pieces, settings, words

QA = TASKS["qa"]
TEXT = "the old dog sleeps in the red house near the sea"


def asked(question, context, answer=None, *, name="1", **facts):
    if answer is not None:
        facts = {"answer": answer, "answer_start": str(context.index(answer)), **facts}
    return Sentence.of_text(question, id=name, facts=facts, second=Sentence.of_text(context), joint=True)


CORPUS = Corpus.of(
    [
        asked("who sleeps", TEXT, "old dog", name="a"),
        asked("where", TEXT, "the red house", name="b"),
        asked("near what", TEXT, "sea", name="c"),
    ],
    name="asked",
)


def prepared(corpus=CORPUS, *, tokenizer=None, shuffled=False, **changes):
    chosen = settings("qa", **{"length": 32, **changes})
    tokenizer = tokenizer or words(QA.texts(corpus, chosen), task="qa", frame="both")
    return QA.examples(corpus, tokenizer, chosen, None, shuffled=shuffled), tokenizer, chosen


class Oracle(nn.Module):
    """A network that knows where the answers are: the goals of the batch whose ids it is given."""

    def __init__(self, examples, *, shift=0):
        super().__init__()
        self.config = SimpleNamespace()
        self.known = {}
        for batch in all_batches(examples):
            for ids, goals in zip(batch["input_ids"].tolist(), batch["goals"].tolist(), strict=True):
                self.known[tuple(token for token in ids if token)] = goals
        self.shift = shift

    def forward(self, input_ids, **others):
        logits = torch.zeros(2, *input_ids.shape)
        for row, ids in enumerate(input_ids.tolist()):
            goals = self.known[tuple(token for token in ids if token)]
            for side in range(2):
                logits[side, row, goals[side] + self.shift] = 9.0 if goals != [0, 0] else 1.0
        return SimpleNamespace(start_logits=logits[0], end_logits=logits[1])


@pytest.mark.parametrize("byte", [False, True])
def test_goals_are_the_first_and_last_token_of_the_answer(byte):
    tokenizer = pieces([TEXT], task="qa") if byte else None
    examples, tokenizer, _ = prepared(tokenizer=tokenizer, length=100, batch=1)
    found = set()
    for batch in all_batches(examples):
        ((first, last),) = batch["goals"].tolist()
        found.add(tokenizer.decode(batch["input_ids"][0, first : last + 1]).strip())
    assert found == {"old dog", "the red house", "sea"}


def test_an_answer_inside_a_word_takes_no_neighbour():
    corpus = Corpus.of([asked("what", "the doghouses burn", "house")])
    examples, tokenizer, _ = prepared(corpus, tokenizer=pieces([TEXT], task="qa"), length=64)
    ((first, last),) = examples.batch(0, 0)["goals"].tolist()
    assert tokenizer.decode(examples.batch(0, 0)["input_ids"][0, first : last + 1]) == "house"


def test_the_second_of_two_equal_words_is_told_by_its_place():
    corpus = Corpus.of([asked("which", "the dog and the dog", "dog", answer_start="16")])
    examples, tokenizer, _ = prepared(corpus)
    goals = examples.batch(0, 0)["goals"].tolist()
    assert goals == [[7, 7]]  # <s> which </s> the dog and the dog
    assert tokenizer.decode(examples.batch(0, 0)["input_ids"][0, 7]) == "dog"


@pytest.mark.parametrize("length", [9, 12, 15])
def test_long_texts_are_read_in_windows_that_hold_every_word(length):
    examples, tokenizer, _ = prepared(length=length, batch=1)
    held, answers = {}, set()
    for step, batch in enumerate(all_batches(examples)):
        (row,) = examples.held.order.rows(0, step).tolist()
        question = examples.questions[int(examples.asked[row])]
        (ids,) = batch["input_ids"].tolist()
        begin, end = examples.inside[row].tolist()
        assert len(ids) <= length
        assert tokenizer.decode(ids[:begin]).startswith("<s>")
        held.setdefault(question.name, set()).update(tokenizer.decode(ids[begin:end]).split())
        ((first, last),) = batch["goals"].tolist()
        if (first, last) != (0, 0):
            assert begin <= first <= last < end
            answers.add((question.name, tokenizer.decode(ids[first : last + 1])))
    assert held == {name: set(TEXT.split()) for name in "abc"}
    assert answers == {("a", "old dog"), ("b", "the red house"), ("c", "sea")}
    assert examples.sentences == 3
    assert len(examples.asked) > 3


def test_windows_overlap_so_that_every_short_answer_stands_in_one():
    words_of = TEXT.split()
    answers = [" ".join(words_of[place : place + 3]) for place in range(len(words_of) - 2)]
    corpus = Corpus.of([asked("where", TEXT, answer, name=str(n)) for n, answer in enumerate(answers)])
    examples, _, _ = prepared(corpus, length=10)  # six words of the text in each window, of which three are new
    found = {int(question) for question, goals in zip(examples.asked, examples.goals, strict=True) if goals.any()}
    assert found == set(range(len(answers)))


def by_trying(logits, inside):
    """The best span of one row, by trying all of them."""
    spans = [
        (float(logits[0, first] + logits[1, last]), first, last)
        for first in range(*inside)
        for last in range(first, min(inside[1], first + answering.LONGEST))
    ]
    return max(spans)


def test_the_best_span_is_that_of_trying_all():
    logits = torch.randn(6, 2, 50, generator=torch.Generator().manual_seed(1))
    logits[0, 0, 4] = logits[0, 1, 40] = 50  # too far apart for one answer
    logits[1, 0, 20] = logits[1, 1, 10] = 50  # in the wrong order
    logits[2, 0, 1] = logits[2, 1, 1] = 50  # not in the text
    logits[3, :, 45:] = -torch.inf
    inside = torch.tensor([[3, 50], [3, 48], [3, 30], [5, 45], [3, 4], [3, 50]])
    for row, found in enumerate(best_spans(logits, inside).tolist()):
        score, first, last = by_trying(logits[row], inside[row].tolist())
        assert found[0] == pytest.approx(score)
        assert found[1] == pytest.approx(float(logits[row, :, 0].sum()))
        assert (found[2], found[3]) == (first, last)


@pytest.mark.parametrize("length", [9, 32])
def test_a_network_that_knows_the_answers_is_right(length):
    examples, _, chosen = prepared(length=length)
    scores = QA.evaluate(Oracle(examples), examples, "cpu", chosen)
    assert (scores["exact"], scores["f1"]) == (1, 1)


def test_one_token_too_far_is_half_right():
    examples, _, chosen = prepared(
        Corpus.of([asked("who", TEXT, "old dog"), asked("what", TEXT, "dog sleeps", name="2")])
    )
    scores = QA.evaluate(Oracle(examples, shift=1), examples, "cpu", chosen)
    assert scores == pytest.approx({"loss": scores["loss"], "exact": 0, "f1": 0.5})


def test_the_loss_is_the_mean_of_both_ends_without_padding():
    """A network that knows nothing is as good as its rows are short: padding is no choice."""
    corpus = Corpus.of([asked("who", TEXT, "dog"), asked("who", "a dog", "dog", name="2")])
    examples, _, chosen = prepared(corpus)

    class Blank(Oracle):
        def forward(self, input_ids, **others):
            blank = torch.zeros(input_ids.shape)
            return SimpleNamespace(start_logits=blank, end_logits=blank)

    rows = [1 + 1 + 1 + 11 + 1, 1 + 1 + 1 + 2 + 1]
    wanted = sum(math.log(row) for row in rows) / 2
    network = Blank(examples)
    assert QA.evaluate(network, examples, "cpu", chosen)["loss"] == pytest.approx(wanted, rel=1e-5)
    assert QA.loss(network, examples.batch(0, 0), chosen).item() == pytest.approx(wanted, rel=1e-5)
    assert QA.chance(examples, examples, chosen)["loss"] == pytest.approx(wanted)


def test_questions_without_an_answer():
    text = TEXT.removeprefix("the ")  # an article alone would be as good as no answer
    corpus = Corpus.of([asked("who", text, "dog"), asked("why", text, name="2", impossible="true")])
    examples, _, chosen = prepared(corpus)
    assert examples.impossible == 0.5
    goals = torch.cat([batch["goals"] for batch in all_batches(examples)]).tolist()
    assert sorted(goals)[0] == [0, 0]
    assert QA.evaluate(Oracle(examples), examples, "cpu", chosen)["exact"] == 1
    silent = Oracle(examples)
    silent.known = {key: [0, 0] for key in silent.known}
    assert QA.evaluate(silent, examples, "cpu", chosen)["exact"] == 0.5
    able, _, _ = prepared(Corpus.of([asked("who", TEXT, "dog"), asked("why", TEXT, "sea", name="2")]))
    wordy = Oracle(able)
    wordy.known = {key: [0, 0] for key in wordy.known}  # where every question has an answer, one is always given
    assert QA.evaluate(wordy, able, "cpu", chosen)["f1"] == 0
    found = answering.chosen_answers(able, torch.tensor([0, 1]), torch.tensor([[0.0, 9, 4, 5], [0, 9, 5, 5]]))
    assert all(found)


def test_guessing_finds_a_short_answer_at_times():
    corpus = Corpus.of([asked("who", "red green blue black", "blue", name=str(n)) for n in range(50)])
    examples, _, chosen = prepared(corpus)
    found = QA.chance(examples, examples, chosen)
    assert found["exact"] == found["f1"] == pytest.approx(0.25, abs=0.08)  # 500 guesses of one word in four
    assert found == QA.chance(examples, examples, chosen)


def test_a_vocabulary_sees_a_text_once():
    assert list(QA.texts(CORPUS, settings("qa"))) == ["who sleeps", TEXT, "where", "near what"]


# Refusals


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        (Sentence.of_text("who", id="q"), "Question 'q' of given sentences has no text to look in"),
        (asked("who", TEXT, name="q"), "Question 'q' .* has no facts 'answer' and 'answer_start'"),
        (
            asked("who", TEXT, "dog", answer_start="3", name="q"),
            "has the answer 'dog', but its text has ' ol' at character 3",
        ),
        (
            asked("who " * 40, TEXT, "dog", name="q"),
            "'q' has 43 tokens that must stand beside its text, and a row holds 32",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(sentence, message):
    tokenizer = words([TEXT, "who"], task="qa", frame="both")
    with pytest.raises(TrainError, match=message):
        prepared(Corpus.of([sentence]), tokenizer=tokenizer)


def test_fewer_questions_than_a_batch_are_refused():
    with pytest.raises(TrainError, match="asked has 3 rows of use, and one batch takes 4"):
        prepared(shuffled=True, batch=4)


def test_real_questions_can_be_answered_with_the_tokens_at_hand():
    (path,) = real("xquad/xquad.de.json")
    corpus = Corpus.squad(path).take(150)
    examples, _, chosen = prepared(corpus, length=128, batch=16)
    scores = QA.evaluate(Oracle(examples), examples, "cpu", chosen)
    assert scores["f1"] > 0.9  # what is missing: words that carry more than the answer, and answers over 30 tokens
    assert scores["exact"] > 0.85
    assert QA.chance(examples, examples, chosen)["f1"] < 0.1
    assert all(batch["input_ids"].shape[1] <= 128 for batch in all_batches(examples))
