"""What a saved model of the zoo is worth: its scores, those of guessing, and what it says to a few texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pellucid.corpus import Corpus, word_index
from pellucid.model import Model
from pellucid.train.intervals import in_groups, intervals
from pellucid.train.settings import Settings
from pellucid.train.tasks import TASKS, Examples
from pellucid.train.tasks.scores import bleu
from pellucid.train.tasks.translation import translated
from recipes.zoo_data import Splits

FIRST = 200  # sentences of the test text whose scores the card keeps as well, so that they can be checked in seconds
LONGEST = 60  # tokens of a translation that the card shows


def measure(model: Model, settings: Settings, splits: Splits) -> dict[str, Any]:
    """Scores of a model as it was saved, on the validation and test text and the others, each beside chance."""
    scorer = Scorer(model, settings)
    training = scorer.examples(splits.train, shuffled=True)
    corpora = {"valid": splits.valid, "test": splits.test, **splits.others}
    scores = {name: scorer.score(corpus) for name, corpus in corpora.items()}
    return {
        **scores,
        "chance": {name: scorer.chance(corpus, training) for name, corpus in corpora.items()},
        "interval": {"test": scorer.interval(splits.test, scores["test"])},
        "first_of_test": {"sentences": FIRST, **scorer.score(splits.test.take(FIRST))},
    }


def sizes(model: Model, settings: Settings, splits: Splits) -> dict[str, dict[str, int]]:
    """How many sentences and tokens each text has."""
    scorer = Scorer(model, settings)
    found = {
        "train": scorer.examples(splits.train, shuffled=True),
        "valid": scorer.examples(splits.valid),
        "test": scorer.examples(splits.test),
    }
    return {name: {"sentences": each.sentences, "tokens": each.tokens} for name, each in found.items()}


class Scorer:
    """Scores a model with the settings of its training."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self.model, self.settings, self.task = model, settings, TASKS[settings.task]
        config: Any = model.hf.config
        classes = settings.task in ("tagger", "classify", "nli")
        self.labels = tuple(config.id2label[number] for number in sorted(config.id2label)) if classes else None

    def examples(self, corpus: Corpus, *, shuffled: bool = False) -> Examples:
        return self.task.examples(corpus, self.model.tokenizer, self.settings, self.labels, shuffled=shuffled)

    def score(self, corpus: Corpus) -> dict[str, float]:
        hf: Any = self.model.hf
        examples = self.examples(corpus)
        scores = self.task.evaluate(hf, examples, hf.device, self.settings)
        if "bleu" in scores:  # the lab translates a part only
            found = translated(hf, examples, torch.arange(examples.sentences), hf.device, self.settings)
            scores.update(_bleu(found, corpus))
        return scores

    def interval(self, corpus: Corpus, scores: dict[str, float]) -> dict[str, list[float]]:
        """Both ends of the 95% interval of every score, over groups of documents."""
        hf: Any = self.model.hf
        groups = in_groups(self.task, corpus, self.model.tokenizer, self.settings, self.labels)
        found, _ = intervals(self.task, hf, groups, scores, hf.device, self.settings)
        return {name: list(ends) for name, ends in found.items()}

    def chance(self, corpus: Corpus, training: Examples) -> dict[str, float]:
        scores = self.task.chance(self.examples(corpus), training, self.settings)
        if "bleu" in scores:
            scores.update(_bleu([sentence.text for sentence in corpus], corpus))
        return scores


def _bleu(found: Sequence[str], corpus: Corpus) -> dict[str, float]:
    """BLEU of translations of all sentences of a corpus."""
    right = [sentence.second.text for sentence in corpus if sentence.second is not None]
    measured = bleu(found, right)
    assert measured is not None
    return {"bleu": measured}


def said(model: Model, task: str, texts: Sequence[str]) -> str:
    """What a model makes of one text, or of a pair, in a few words."""
    if task == "translate":
        return model.generate(texts[0], max_new_tokens=LONGEST).texts[0].strip()
    batch = model.tokenize(*texts)
    run = model.run(batch)
    if task == "qa":
        return _span(model, run, batch)
    chances = run.output["logits"][0].float().softmax(-1)
    if task == "mlm":
        place = int((batch.ids[0] == model.tokenizer.mask_token_id).nonzero()[0, 0])
        best = chances[place].topk(3)
        words = [model.tokenizer.decode([token]).strip() for token in best.indices.tolist()]
        return ", ".join(f"{word} ({share:.0%})" for word, share in zip(words, best.values.tolist(), strict=True))
    config: Any = model.hf.config
    if task == "tagger":
        return _tags(model, texts[0], chances)
    return f"{config.id2label[int(chances.argmax())]} ({float(chances.max()):.0%})"


def _tags(model: Model, text: str, chances: torch.Tensor) -> str:
    """Every word with its tag; a word's first token carries it, and what begins within a word is part of it."""
    config: Any = model.hf.config
    (sentence,) = Corpus.of([text])
    offsets = model.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    index = word_index(offsets, sentence.spans)
    tags = [config.id2label[int(chances[index.index(word)].argmax())] for word in range(len(sentence.words))]
    return " ".join(f"{word}/{tag}" for word, tag in zip(sentence.words, tags, strict=True))


def _span(model: Model, run: Any, batch: Any) -> str:
    """The best part of the second text, by the sum of the scores of its first and last token."""
    start, stop = (run.output[f"{name}_logits"][0].float() for name in ("start", "end"))
    ids = batch.ids[0]
    end = model.tokenizer.eos_token_id
    first = int((ids == end).nonzero()[0, 0]) + 1
    scores = start[:, None] + stop[None, :]
    allowed = torch.ones_like(scores).triu().bool()
    allowed[:first] = False
    allowed[:, len(ids) - 1 :] = False
    place = int(scores.masked_fill(~allowed, float("-inf")).argmax())
    begin, last = divmod(place, len(ids))
    return model.tokenizer.decode(ids[begin : last + 1].tolist()).strip()
