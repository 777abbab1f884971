"""What holds for every task: names, scores beside chance, and batches that a real network takes and learns from."""

from __future__ import annotations

import pytest
import torch

from pellucid.corpus import Corpus, Sentence
from pellucid.train.architectures import build
from pellucid.train.settings import TASK_NAMES, settings_for
from pellucid.train.tasks import TASKS
from pellucid.train.vocabulary import vocabulary_for

GRAMMAR = Corpus.grammar(120)


def with_second(sentence, *, joint=True):
    """A short question with a sentence of the grammar as the second one, and its third word as the answer."""
    start, stop = sentence.spans[2]
    facts = {**sentence.facts, "answer": sentence.text[start:stop], "answer_start": str(start)}
    second = Sentence.of_text(sentence.text)
    return Sentence.of_text(" ".join(sentence.words[:2]), id=sentence.id, facts=facts, second=second, joint=joint)


CORPORA = {
    "lm": (GRAMMAR, {}),
    "mlm": (GRAMMAR, {}),
    "tagger": (GRAMMAR, {"label": "upos"}),
    "translate": (Corpus.of([with_second(sentence, joint=False) for sentence in GRAMMAR]), {}),
    "classify": (GRAMMAR, {"label": "tense"}),
    "nli": (Corpus.of([with_second(sentence) for sentence in GRAMMAR]), {"label": "tense"}),
    "qa": (Corpus.of([with_second(sentence) for sentence in GRAMMAR]), {}),
}


def test_the_tasks_are_those_of_the_settings():
    assert sorted(TASKS) == sorted(TASK_NAMES) == sorted(CORPORA)
    assert all(task.name == name for name, task in TASKS.items())


@pytest.mark.parametrize("name", TASKS)
def test_a_real_network_learns_and_is_scored_beside_chance(name):
    task, (corpus, changes) = TASKS[name], CORPORA[name]
    settings = settings_for(
        name,
        layers=1,
        width=32,
        heads=2,
        feed_forward=32,
        length=16 if name == "translate" else 48,
        vocabulary_size=300,
        dropout=0.0,
        embedding_dropout=0.0,
        label_smoothing=0.0,
        batch=8,
        **changes,
    )
    labels = task.labels(corpus, settings)
    tokenizer = vocabulary_for(task.texts(corpus, settings), settings)
    network = build(settings, tokenizer, labels)
    training = task.examples(corpus, tokenizer, settings, labels, shuffled=True)
    held_out = task.examples(corpus, tokenizer, settings, labels, shuffled=False)
    assert training.sentences == 120
    assert all(tensor.dtype == torch.int64 for tensor in training.batch(1, 0).values())
    if training.fixed:
        shapes = {
            tuple((key, part.shape) for key, part in training.batch(1, s).items()) for s in range(training.steps())
        }
        assert len(shapes) == 1
    before = task.evaluate(network, held_out, "cpu", settings)
    optimiser = torch.optim.AdamW(network.parameters(), 3e-3)
    for step in range(20):
        optimiser.zero_grad()
        task.loss(network, training.batch(1, step % training.steps()), settings).backward()
        optimiser.step()
    after = task.evaluate(network, held_out, "cpu", settings)
    assert after["loss"] < before["loss"]
    assert after == task.evaluate(network, held_out, "cpu", settings)
    assert set(after) == set(task.chance(held_out, training, settings))
    assert next(iter(after)) == "loss"
    assert task.best in after
    assert task.larger_is_better == (task.best not in ("loss", "perplexity"))
