"""Head statistics: hand-made patterns with known answers, chance, intervals and the random twin."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

import pellucid as pl
from pellucid.collect.counts import HeadCounts
from pellucid.corpus import Corpus
from pellucid.heads import head_collectors, statistics
from pellucid.model import Model
from pellucid.model.sites import Site
from tests.collect.batches import words_of
from tests.found_by_hand import facts, found_of, setting, with_twin
from tests.heads.built_models import PLANTED, planted, repeated_corpus

LENGTH = 6  # tokens: one special, then five words
MODEL = facts({Site("pattern", layer): (3, LENGTH) for layer in range(2)}, causal=False)


def row(*weights: float) -> list[float]:
    return list(weights)


def previous() -> np.ndarray:
    """Every word looks at the one before; the first word and the special token at the special token."""
    pattern = np.zeros((LENGTH, LENGTH))
    for query in range(LENGTH):
        pattern[query, max(0, query - 1)] = 1
    return pattern


def uniform() -> np.ndarray:
    return np.full((LENGTH, LENGTH), 1 / LENGTH)


def drawn(seed: int) -> np.ndarray:
    weights = np.random.default_rng(seed).random((LENGTH, LENGTH)) ** 4
    return weights / weights.sum(1, keepdims=True)


def pattern(layer: int, group: int) -> np.ndarray:
    """Heads of a layer, [3, T, T]: 0 looks at the word before, 1 everywhere, 2 by chance."""
    return np.stack([previous(), uniform(), drawn(10 * layer + group)])


def found(models=(MODEL,), groups: int = 10, collector: HeadCounts | None = None):
    collector = collector or HeadCounts()
    accumulator = collector.open(setting(models))
    for group in range(groups):
        words = words_of([[-1, 0, 1, 2, 3, 4]], group=group)
        for number in range(len(models)):
            for layer in range(2):
                given = pattern(layer, group) if number == 0 else np.stack([uniform()] * 3)
                key = f"{number}:pattern.{layer}" if len(models) > 1 else f"pattern.{layer}"
                accumulator.see(key, torch.tensor(given, dtype=torch.float32)[None], words)
    return found_of(models, {collector: accumulator.state()})


def by_hand(weights: np.ndarray) -> dict[str, float]:
    """The measures of one head on one text, in plain loops."""
    queries = range(1, LENGTH)
    words = {i: {j: weights[i, j] for j in range(1, LENGTH)} for i in queries}
    entropies = [-sum(weight * np.log(weight) for weight in weights[i] if weight > 0) for i in queries]
    return {
        "confidence": np.mean([max(words[i].values()) for i in queries]),
        "entropy": np.mean(entropies),
        "distance": sum(w * abs(i - j) for i in queries for j, w in words[i].items())
        / sum(w for i in queries for w in words[i].values()),
        "first token": np.mean([weights[i, 0] for i in queries]),
        "first special": np.mean([weights[i, 0] for i in queries]),
        "other specials": 0.0,
        "self": np.mean([weights[i, i] for i in queries]),
        "previous": np.mean([words[i].get(i - 1, 0) for i in queries]),
        "next": np.mean([words[i].get(i + 1, 0) for i in queries]),
    }


def test_every_measure_of_a_drawn_head():
    result = statistics(found(groups=1))
    for layer in range(2):
        for name, value in by_hand(drawn(10 * layer)).items():
            assert result.measure(name)[layer, 2] == pytest.approx(value, rel=1e-6), (name, layer)
    assert result.axes["layer"] == (0, 1)
    assert result.axes["head"] == (0, 1, 2)


def test_the_head_that_looks_back():
    result = statistics(found())
    assert result.measure("previous")[:, 0].tolist() == pytest.approx([0.8, 0.8])  # the first word has none before it
    assert result.measure("confidence")[0, 0] == pytest.approx(0.8)
    assert result.measure("entropy")[0, 0] == pytest.approx(0)
    assert result.measure("distance")[0, 0] == pytest.approx(1)
    assert result.measure("first token")[0, 0] == pytest.approx(0.2)


def test_uniform_attention_scores_chance_in_every_measure():
    result = statistics(found())
    assert np.allclose(result.values[:, :, 1], result.null[:, :, 1], rtol=1e-6, atol=1e-9)
    assert result.null[result.place("measure", "entropy"), 0, 0] == pytest.approx(np.log(LENGTH))
    assert np.ptp(result.null, axis=2).max() == 0


def test_chance_of_a_causal_model_sees_only_what_is_before():
    causal = facts({Site("pattern", layer): (3, LENGTH) for layer in range(2)}, causal=True)
    result = statistics(found([causal]))
    assert result.null[result.place("measure", "next")].max() == 0
    expected = np.mean([np.log(seen) for seen in range(2, LENGTH + 1)])
    assert result.null[result.place("measure", "entropy"), 0, 0] == pytest.approx(expected)


def test_the_interval_is_the_jackknife_over_groups():
    result = statistics(found())
    for name in ("confidence", "distance"):
        each = np.array([by_hand(drawn(group))[name] for group in range(10)])
        if name == "confidence":  # a mean over equal groups: the classical interval
            reach = 2.2621572 * each.std(ddof=1) / np.sqrt(10)
            assert result.high[0, 0, 2] - result.values[0, 0, 2] == pytest.approx(reach, rel=1e-5)
        at = result.place("measure", name)
        assert result.low[at, 0, 2] < result.values[at, 0, 2] < result.high[at, 0, 2]
    assert np.allclose(result.high[:, :, 1], result.low[:, :, 1], atol=1e-7)  # the same in every group
    assert result.resampled == "10 document groups (jackknife, 95%)"


@pytest.mark.parametrize(
    ("given", "reason"),
    [({"groups": 1}, "one document group"), ({"collector": HeadCounts(groups=False)}, "not kept apart")],
)
def test_no_groups_no_interval(given, reason):
    result = statistics(found(**given))
    assert result.low is None
    assert reason in result.resampled


def test_offsets_of_the_largest_weight():
    table = statistics(found()).offsets
    assert table.axes["offset"] == ("< -8", *range(-8, 9), "> 8")
    share = table.columns["share"]
    back = table.axes["offset"].index(-1)
    assert share[back, 0, 0] == pytest.approx(0.8)
    assert share[:, 0, 0].sum() == pytest.approx(0.8)  # the first word's weight is on no word
    assert "chance" not in table.columns
    queries, weights = range(1, LENGTH), drawn(0)
    mine = [int(np.argmax(weights[i, 1:])) + 1 - i for i in queries]
    alone = statistics(found(groups=1)).offsets
    for offset in set(mine):
        assert alone.columns["share"][alone.axes["offset"].index(offset), 0, 2] == pytest.approx(mine.count(offset) / 5)


def test_the_random_twin_stands_beside():
    result = statistics(found(with_twin(MODEL)))
    assert result.measure("previous")[0, 0] == pytest.approx(0.8)
    twin = result.table("random model")
    assert twin.axes == result.axes
    assert np.allclose(twin.columns["value"], result.null, rtol=1e-6, atol=1e-9)  # the twin was made uniform
    assert result.offsets.columns["chance"].shape == result.offsets.columns["share"].shape
    assert not np.array_equal(result.offsets.columns["chance"], result.offsets.columns["share"])


def test_a_layer_with_fewer_heads_has_empty_places():
    model = facts({Site("pattern", 0): (3, LENGTH), Site("pattern", 1): (2, LENGTH)}, causal=False)
    collector = HeadCounts()
    accumulator = collector.open(setting([model]))
    words = words_of([[-1, 0, 1, 2, 3, 4]])
    for layer, heads in ((0, 3), (1, 2)):
        accumulator.see(
            f"pattern.{layer}", torch.tensor(np.stack([uniform()] * heads), dtype=torch.float32)[None], words
        )
    result = statistics(found_of([model], {collector: accumulator.state()}))
    assert np.isnan(result.values).tolist() == [[[False] * 3, [False, False, True]]] * len(result.axes["measure"])
    assert result.null[:, 1] == pytest.approx(np.repeat(result.null[:, 1, :1], 3, axis=1))
    assert result.offsets.columns["share"][:, 1, 2].tolist() == [0] * 19
    assert result.offsets.columns["share"].sum(0)[:, :2] == pytest.approx(1)


def test_attention_on_rare_and_repeated_words_is_that_of_plain_loops():
    """Every word of the model is one token, so that weights between words are those of the pattern."""
    model, corpus = planted(), repeated_corpus(12, length=5)
    found = pl.sweep([model, Model.random_like(model)], corpus, head_collectors(model), progress=False)
    result = statistics(found)
    counts = Counter(word.lower() for sentence in corpus for word in sentence.words)
    wanted = {name: [] for name in ("rare words", "same word", "followed before")}
    chance = {name: [] for name in wanted}
    for sentence in corpus:
        words = [word.lower() for word in sentence.words]
        run = model.run(sentence.text, "pattern.*")
        weights = np.stack([run[f"pattern.{layer}"][0].numpy() for layer in range(2)])  # [layer, head, T, T]
        for query in range(1, len(words)):
            seen = range(query + 1)
            least = min(counts[words[key]] for key in seen)
            keys = {
                "rare words": [key for key in seen if counts[words[key]] == least],
                "same word": [key for key in range(query) if words[key] == words[query]],
                "followed before": [key for key in range(1, query + 1) if words[key - 1] == words[query]],
            }
            for name, own in keys.items():
                if own:
                    wanted[name].append(weights[:, :, query, own].sum(-1))
                    chance[name].append(len(own) / len(seen))
    for name, rows in wanted.items():
        assert np.allclose(result.measure(name), np.mean(rows, axis=0), atol=1e-5), name
        at = result.place("measure", name)
        assert result.null[at] == pytest.approx(np.mean(chance[name])), name
        assert (result.low[at] <= result.values[at]).all()
        assert (result.low[at] < result.high[at]).any()
        assert name in result.measures
    assert result.measure("followed before")[PLANTED["induction"]] > 0.9
    assert result.table("random model").columns["value"].shape == result.values.shape
    assert not len(result.table("skipped").columns["why"])


def test_what_the_text_or_the_sweep_cannot_tell_is_named():
    model = planted()
    corpus = Corpus.of(["the old dog runs", "she arrived", "my neighbour sleeps"] * 4)
    alone = statistics(pl.sweep(model, corpus, pl.HeadCounts(), progress=False))
    assert set(alone.table("skipped").columns["why"]) == {"the sweep has no HeadTargets() of the same heads"}
    assert "rare words" not in alone.axes["measure"]
    both = statistics(pl.sweep(model, corpus, head_collectors(model), progress=False))
    assert both.table("skipped").columns["measure"].tolist() == ["same word", "followed before"]
    assert "rare words" in both.axes["measure"]
