"""Surprise: nats computed by hand from planted logits, positions, chance, intervals and words in context."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid.collect.surprise import Surprise
from pellucid.corpus import Sentence
from pellucid.model.sites import Site
from pellucid.overview import surprise
from pellucid.overview.surprise import joined
from tests.collect.batches import words_of
from tests.found_by_hand import facts, found_of, setting, with_twin

VOCABULARY, LENGTH, GROUPS = 11, 7, 10  # tokens: one special, then six pieces of five words
INDEX = [-1, 0, 1, 1, 2, 3, 4]
MODEL = facts({Site("logits"): (VOCABULARY,)})
SENTENCES = [
    Sentence.of_words(["One", "two$x$", "three", "four", "five"], id=f"s{number}", document=f"d{number}")
    for number in range(GROUPS)
]


def text(group: int, model: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and logits of one text; the second model's logits are flat."""
    rng = np.random.default_rng(group)
    ids, logits = rng.integers(0, VOCABULARY, LENGTH), rng.normal(size=(LENGTH, VOCABULARY)) * 3
    return ids, logits.astype(np.float32) if model == 0 else np.zeros((LENGTH, VOCABULARY), np.float32)


def found(models=(MODEL,), groups: int = GROUPS, collector: Surprise | None = None):
    collector = collector or Surprise(k=4)
    accumulator = collector.open(setting(models))
    for group in range(groups):
        for number in range(len(models)):
            ids, logits = text(group, number)
            words = words_of([INDEX], ids=[ids.tolist()], group=group, first_sentence=group)
            key = f"{number}:logits" if len(models) > 1 else "logits"
            accumulator.see(key, torch.tensor(logits)[None], words)
    return found_of(models, {collector: accumulator.state()}, sentences=SENTENCES)


def nats_by_hand(group: int) -> list[float]:
    """Nats of the five words, in float64 and plain loops."""
    ids, logits = text(group)
    nats = [0.0] * 5
    for place in range(1, LENGTH):
        scores = logits[place - 1].astype(np.float64)
        nats[INDEX[place]] += float(np.log(np.exp(scores).sum()) - scores[ids[place]])
    return nats


def test_nats_per_token_word_and_position():
    result = surprise(found())
    nats = np.array([nats_by_hand(group) for group in range(GROUPS)])  # [text, word]
    assert result.axes["unit"] == ("token", "word", "word 1", "word 2", "words 3–4", "words 5–8")
    expected = [
        nats.sum() / 60,
        nats.mean(),
        nats[:, 0].mean(),
        nats[:, 1].mean(),
        nats[:, 2:4].mean(),
        nats[:, 4].mean(),
    ]
    assert result.measure("nats").tolist() == pytest.approx(expected, rel=1e-6)
    assert result.measure("perplexity").tolist() == pytest.approx(np.exp(expected).tolist(), rel=1e-5)


def test_chance_is_the_vocabulary_and_a_flat_model_scores_it():
    result = surprise(found(with_twin(MODEL)))
    chance = result.null[result.place("measure", "nats")]
    assert chance[0] == pytest.approx(np.log(VOCABULARY))
    assert chance[1:].tolist() == pytest.approx([np.log(VOCABULARY) * 6 / 5] * 5)
    flat = result.table("random model").columns["value"]
    assert flat[0, :2].tolist() == pytest.approx(chance[:2].tolist(), rel=1e-6)
    assert not np.allclose(result.values[0, :2], chance[:2])


def test_the_interval_is_the_jackknife_over_groups():
    result = surprise(found())
    means = np.array([np.mean(nats_by_hand(group)) for group in range(GROUPS)])
    reach = 2.2621572 * means.std(ddof=1) / np.sqrt(GROUPS)
    word = result.place("unit", "word")
    assert result.high[0, word] - result.values[0, word] == pytest.approx(reach, rel=1e-5)
    assert result.high[1].tolist() == pytest.approx(np.exp(result.high[0]).tolist())
    assert (result.low[1] > 0).all()


@pytest.mark.parametrize(
    ("given", "reason"),
    [({"groups": 1}, "one document group"), ({"collector": Surprise(k=4, groups=False)}, "not kept apart")],
)
def test_no_groups_no_interval(given, reason):
    result = surprise(found(**given))
    assert result.low is None
    assert reason in result.resampled
    assert len(result.axes["unit"]) == 6


def test_extreme_words_stand_in_their_sentences():
    table = surprise(found()).words.to_frame()
    every = sorted(
        ((nats, group, word) for group in range(GROUPS) for word, nats in enumerate(nats_by_hand(group))), reverse=True
    )
    most = table[table["surprising"] == "most"]
    least = table[table["surprising"] == "least"]
    assert most["nats"].tolist() == pytest.approx([nats for nats, _, _ in every[:4]], rel=1e-5)
    assert least["nats"].tolist() == pytest.approx([nats for nats, _, _ in every[::-1][:4]], rel=1e-4, abs=1e-6)
    for row, (_, group, word) in zip(most.itertuples(), every, strict=False):
        assert row.document == f"d{group}"
        assert row.word == SENTENCES[group].words[word]
        assert row.left + row.word + row.right == SENTENCES[group].text


def test_positions_of_one_group_join_their_neighbours():
    counts = np.array([[0, 3, 1, 0, 0, 2, 0], [0, 2, 0, 4, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]])
    assert joined(counts) == [(1, 2), (2, 4), (4, 7)]
    assert joined(counts[:1]) == [(1, 2), (2, 3), (3, 6)]
    assert joined(np.array([[5, 0, 1], [5, 0, 0]])) == [(0, 3)]
    assert joined(np.array([[1, 0], [0, 0]])) == [(0, 1)]
