"""Statistics of heads against loops written out, and the rule for sinks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pellucid.views import head_view
from pellucid.views.interactive import statistics
from pellucid.views.interactive.comparison import divergence
from tests.views.interactive.decoding import TEXT, block, model
from tests.views.interactive.decoding import statistics as decoded
from tests.views.interactive.decoding import tokens as token_list


def by_loops(weights: np.ndarray, ids: list[int], special: list[int], sinks: list[int], *, causal: bool) -> dict:
    """Every statistic of one head [T, T], one number at a time."""
    count = len(ids)
    queries = [place for place in range(count) if place not in special]
    sums = dict.fromkeys(statistics.MEASURES, 0.0)
    far = near = 0.0
    copied = []
    for i in queries:
        row = weights[i]
        sums["confidence"] += max(row[j] for j in queries)
        sums["entropy"] -= sum(w * math.log(w) for w in row if w > 0)
        far += sum(row[j] * abs(i - j) for j in queries)
        near += sum(row[j] for j in queries)
        sums["first token"] += row[0]
        sums["sinks"] += sum(row[j] for j in sinks)
        sums["special tokens"] += sum(row[j] for j in special)
        others = [j for j in range(count) if j != i and ids[j] == ids[i] and (j < i or not causal)]
        if others:
            copied.append(sum(row[j] for j in others))
    found = {name: value / len(queries) for name, value in sums.items()}
    found["distance"] = far / near if near else 0.0
    before = [weights[i, i - 1] for i in queries if i > 0]
    found["previous token"] = sum(before) / len(before)
    found["same token"] = sum(copied) / len(copied) if copied else 0.0
    return found


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
def test_statistics_are_those_of_loops(name):
    opened = model(name)
    view = head_view(opened, TEXT)
    run = opened.run(TEXT, "pattern.*")
    about = token_list(view)
    found = decoded(view)
    assert list(found) == list(statistics.MEASURES)
    ids = run.batch.ids[0].tolist()
    assert len(set(ids)) < len(ids)
    for layer in range(3):
        for head in range(4):
            weights = run[f"pattern.{layer}"][0, head].double().numpy()
            loops = by_loops(weights, ids, about["special"], about["sinks"], causal=opened.causal)
            for measure, value in loops.items():
                assert found[measure][layer, head] == pytest.approx(value, rel=1e-5, abs=1e-6), (measure, layer, head)


def test_cross_attention_has_only_what_makes_sense_between_two_texts():
    opened = model("t5")
    view = head_view(opened, TEXT, target="a dog runs")
    assert tuple(block(view, "cross")["statistics"]) == statistics.ACROSS
    assert tuple(block(view, "decoder")["statistics"]) == tuple(statistics.MEASURES)
    run = opened.run(opened.tokenize(TEXT, target="a dog runs"), "cross.pattern.*")
    found = decoded(view, "cross")
    source, target = token_list(view, "source"), token_list(view, "target")
    queries = [place for place in range(len(target["text"])) if place not in target["special"]]
    weights = run["cross.pattern.2"][0, 1].double().numpy()[queries]
    ordinary = [place for place in range(len(source["text"])) if place not in source["special"]]
    assert found["confidence"][2, 1] == pytest.approx(weights[:, ordinary].max(1).mean(), rel=1e-5)
    assert found["special tokens"][2, 1] == pytest.approx(weights[:, source["special"]].sum(1).mean(), rel=1e-5)
    assert found["first token"][2, 1] == pytest.approx(weights[:, 0].mean(), rel=1e-5)


def test_a_text_of_one_token_has_statistics():
    view = head_view(model("gpt2"), "dog")
    found = decoded(view)
    for name, value in {"confidence": 1, "entropy": 0, "distance": 0, "previous token": 0, "first token": 1}.items():
        assert np.allclose(found[name], value), name


def test_uniform_shares_of_keys():
    assert statistics.uniform(3, 4, causal=False).tolist() == [0.25] * 4
    expected = [(1 + 1 / 2 + 1 / 3) / 3, (1 / 2 + 1 / 3) / 3, (1 / 3) / 3]
    assert np.allclose(statistics.uniform(3, 3, causal=True), expected)


def test_sinks_get_a_twentieth_of_all_attention_and_twice_the_uniform_share():
    chance = np.full(40, 1 / 40)  # twice this is 0.05 too
    share = np.full(40, 0.02)
    share[[3, 7]] = [0.051, 0.049]
    assert statistics.sinks([share], chance) == [3]
    assert statistics.sinks([share, share * 0], chance) == []  # the mean over layers counts
    assert statistics.sinks([np.array([0.55, 0.45])], np.array([0.5, 0.5])) == []  # a short text: nothing stands out
    assert statistics.sinks([np.array([0.9, 0.1])], np.array([0.4, 0.6])) == [0]


def test_attention_that_goes_to_one_token_makes_it_a_sink():
    from pellucid.views.interactive.tokens import TokenList

    count = 12
    places = tuple(range(count))
    tokens = TokenList(places, ("x",) * count, "0" * count, places, (), (0,) * count, ("t",), False)
    weights = torch.zeros(2, count, count)
    weights[:, :, 4] = 0.8
    weights[:, range(count), range(count)] += 0.2
    facts = statistics.Gauge(tokens, tokens, causal=False).measure(weights)
    sunk = statistics.sinks([facts.received], statistics.uniform(count, count, causal=False))
    assert sunk == [4]
    table = statistics.table([facts], tokens, sunk, own=True)
    place = list(statistics.MEASURES).index("sinks")
    assert np.allclose(table[place, 0], 0.8 + 0.2 / count)


def test_divergence_of_heads():
    same = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    assert divergence(same, same) == 0
    assert divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])) == pytest.approx(1)
    p, q = [0.9, 0.1], [0.4, 0.6]
    m = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    loops = sum(a * math.log(a / c) + b * math.log(b / c) for a, b, c in zip(p, q, m, strict=True)) / 2 / math.log(2)
    found = divergence(torch.tensor([p, p], dtype=torch.float64), torch.tensor([q, p], dtype=torch.float64))
    assert found == pytest.approx(loops / 2)  # the mean over rows, the second of which agrees
    assert divergence(torch.tensor([[0.45, 0.05]]), torch.tensor([[0.4, 0.6]])) == pytest.approx(loops, rel=1e-5)
