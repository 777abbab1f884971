"""Intervals of test scores: of a mean over groups of documents, perplexity by its loss, none where there is little."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from pellucid.corpus import Corpus, Sentence
from pellucid.train import train
from pellucid.train.intervals import in_groups, intervals
from pellucid.train.preparing import prepare
from pellucid.uncertainty import over_documents
from tests.train.test_loop import TEXT, tiny


@dataclass(frozen=True)
class Part:
    """A group of documents with scores of its own."""

    loss: float
    accuracy: float
    size: int

    @property
    def goals(self) -> torch.Tensor:
        return torch.zeros(self.size, dtype=torch.long)


class Asked:
    """A task that tells what each group has."""

    def evaluate(self, network: Any, part: Part, device: Any, settings: Any) -> dict[str, float]:
        return {"loss": part.loss, "perplexity": float(np.exp(part.loss)), "accuracy": part.accuracy}


def told(parts: list[Part], scores: dict[str, float]) -> tuple[dict[str, tuple[float, float]], str]:
    return intervals(Asked(), None, parts, scores, "cpu", None)  # pyright: ignore[reportArgumentType]


def test_groups_of_one_size_give_students_interval_of_their_mean() -> None:
    dice = np.random.default_rng(0)
    parts = [Part(float(2 + dice.normal()), float(dice.random()), 50) for _ in range(10)]
    losses, shares = np.array([each.loss for each in parts]), np.array([each.accuracy for each in parts])
    scores = {"loss": losses.mean(), "perplexity": float(np.exp(losses.mean())), "accuracy": shares.mean()}
    found, resampled = told(parts, scores)
    for name, values in (("loss", losses), ("accuracy", shares)):
        low, high = stats.t.interval(0.95, 9, values.mean(), stats.sem(values))
        assert found[name] == pytest.approx((low, high))
    assert found["perplexity"] == pytest.approx(tuple(np.exp(found["loss"])))
    assert list(found) == list(scores)
    assert resampled.startswith("10 document groups")


def test_the_score_itself_is_in_the_middle_and_large_groups_weigh_more() -> None:
    parts = [Part(1.0, 0.5, 1), Part(2.0, 0.9, 1), Part(1.5, 0.7, 1000)]
    found, _ = told(parts, {"loss": 3.0, "accuracy": 0.25})
    assert sum(found["loss"]) / 2 == pytest.approx(3.0)
    assert sum(found["accuracy"]) / 2 == pytest.approx(0.25)
    even, _ = told([Part(1.0, 0.5, 9), Part(2.0, 0.9, 9), Part(1.5, 0.7, 9)], {"loss": 3.0, "accuracy": 0.25})
    assert found["loss"][1] - found["loss"][0] < even["loss"][1] - even["loss"][0]


def test_unequal_groups_are_those_of_their_items() -> None:
    parts = [Part(1.0, 0.5, 5), Part(2.0, 0.9, 20), Part(1.5, 0.7, 60), Part(1.2, 0.1, 15)]
    items = np.repeat([each.accuracy for each in parts], [each.size for each in parts])
    documents = [str(number) for number, each in enumerate(parts) for _ in range(each.size)]
    mean, wanted = over_documents(items, documents)
    assert wanted.low is not None
    assert wanted.high is not None
    found, _ = told(parts, {"loss": 1.0, "accuracy": float(mean)})
    assert found["accuracy"] == pytest.approx((float(wanted.low), float(wanted.high)))


def test_one_group_has_no_interval() -> None:
    assert told([Part(1.0, 0.5, 3)], {"loss": 1.0})[0] == {}
    assert "too short" in told([], {"loss": 1.0})[1]


def test_groups_hold_every_sentence_of_the_text_once() -> None:
    test = TEXT.take(60)
    prepared = prepare(TEXT, TEXT.take(40), test, tiny("tagger", rows="sentences"))
    assert prepared.test is not None
    assert len(prepared.groups) == 10
    assert sum(each.sentences for each in prepared.groups) == 60
    assert sum(each.goals.numel() for each in prepared.groups) == prepared.test.goals.numel()


def test_a_document_lies_in_one_group() -> None:
    words = [("a", "b", "c"), ("b", "a", "c")]
    text = Corpus.of([Sentence.of_words(words[n % 2], id=str(n), document=str(n // 6)) for n in range(24)])
    prepared = prepare(TEXT, TEXT.take(40), None, tiny("lm", rows="sentences"))
    groups = in_groups(prepared.task, text, prepared.tokenizer, tiny("lm", rows="sentences"), None)
    assert [each.sentences for each in groups] == [6, 6, 6, 6]


def test_a_training_writes_the_intervals_of_its_test_scores(tmp_path: Path) -> None:
    run = train(TEXT, tiny("tagger", rows="sentences", epochs=1), tmp_path / "run", test=TEXT.take(80), watch=False)
    kept = json.loads((tmp_path / "run" / "test.json").read_text())
    assert run.test == kept
    assert kept["interval"].keys() == kept["scores"].keys() == {"loss", "accuracy", "f1"}
    for name, (low, high) in kept["interval"].items():
        assert low < kept["scores"][name] < high
    assert kept["resampled"].startswith("10 document groups")
