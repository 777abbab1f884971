"""Small random models for every task, and corpora that fit them: what heads are measured by in tests."""

from __future__ import annotations

from functools import cache

import torch

from pellucid.corpus import Corpus, Sentence
from pellucid.model import Model
from pellucid.train.architectures import build
from pellucid.train.settings import settings_for
from pellucid.train.tasks import TASKS
from pellucid.train.vocabulary import vocabulary_for

GRAMMAR = Corpus.grammar(40)


def with_second(sentence, *, joint=True):
    """A short question with a sentence of the grammar as the second one, and its third word as the answer."""
    start, stop = sentence.spans[2]
    facts = {"tense": sentence.facts["tense"], "answer": sentence.text[start:stop], "answer_start": str(start)}
    second = Sentence.of_text(sentence.text)
    words = " ".join(sentence.words[:2])
    return Sentence.of_text(words, id=sentence.id, document=sentence.document, facts=facts, second=second, joint=joint)


CORPORA = {
    "lm": (GRAMMAR, {}),
    "mlm": (GRAMMAR, {}),
    "tagger": (GRAMMAR, {"label": "upos"}),
    "translate": (Corpus.of([with_second(sentence, joint=False) for sentence in GRAMMAR]), {}),
    "classify": (GRAMMAR, {"label": "tense"}),
    "nli": (Corpus.of([with_second(sentence) for sentence in GRAMMAR]), {"label": "tense"}),
    "qa": (Corpus.of([with_second(sentence) for sentence in GRAMMAR]), {}),
}


@cache
def model_for(task: str, *, layers: int = 2, heads: int = 3, seed: int = 0) -> Model:
    """A random network for a task, with weights large enough that every head matters."""
    corpus, changes = CORPORA[task]
    settings = settings_for(
        task,
        layers=layers,
        width=8 * heads,
        heads=heads,
        feed_forward=24,
        length=32,
        vocabulary_size=300,
        **changes,
    )
    tokenizer = vocabulary_for(TASKS[task].texts(corpus, settings), settings)
    torch.manual_seed(seed)
    network = build(settings, tokenizer, TASKS[task].labels(corpus, settings)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    return Model.load(network, tokenizer=tokenizer)
