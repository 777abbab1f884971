"""What attention leaves open over a corpus: against sums text by text, chance levels, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid import Batch, Corpus, Model, sweep
from pellucid.collect.freedom import AttentionFreedom
from pellucid.collect.null_space import effective, space
from pellucid.identifiability import attention
from pellucid.results import Result, ResultError
from tests.tiny_models import opened, word_tokenizer

TEXTS = [
    "the old red dog and the cat near the keys of the cabinet",
    "a cat sleeps",
    "the keys near the old cabinet are red and the dog runs to a cat in the cabinet of the dog",
    "old dog runs",
]


@pytest.fixture(scope="module", params=["gpt2_folder", "bert_folder"])
def model(request):
    return Model.load(request.getfixturevalue(request.param))


def test_means_are_those_of_every_query_of_every_text(model):
    found = attention(model, Corpus.of(TEXTS))
    rows: list[torch.Tensor] = []
    for text in TEXTS:
        batch = model.tokenize(text)
        run = model.run(batch, sites=["pattern.*", "value.*"])
        keep = ~batch.special[0]
        parts: list[torch.Tensor] = []
        for layer in range(len(found.axes["layer"])):
            pattern, values = run[f"pattern.{layer}"][0], run[f"value.{layer}"][0]
            told, weights, effect = space(pattern, values), pattern.double(), effective(pattern, values)
            size = effect.abs() / effect.abs().sum(-1, keepdim=True)
            columns = [
                told.free,
                told.free_with_sum,
                told.free_with_sum == 0,
                (weights - effect).norm(dim=-1) / weights.norm(dim=-1),
                (weights - size).abs().sum(-1) / 2,
                effect.argmax(-1) != weights.argmax(-1),
            ]
            parts.append(torch.stack([column.double() for column in columns])[..., keep])
        rows.append(torch.stack(parts, dim=1))  # [measure, layer, head, query]
    expected = torch.cat(rows, dim=-1).mean(-1).numpy()
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-6)  # batches are padded, passes float32
    assert 0 < found.measure("unique").mean() < 1
    table = found.table("lengths")
    counts = table.columns["queries"][:, 0, 0]
    for name in ("free", "moved", "argmax"):
        whole = (table.columns[name] * counts[:, None, None]).sum(0) / counts.sum()
        np.testing.assert_allclose(whole, found.measure(name), atol=1e-12)


def test_a_random_pattern_moves_as_chance_says():
    """With weights in a random direction, the part without effect is √(free / n) of it, on the mean."""
    dice = torch.Generator().manual_seed(0)
    pattern = torch.randn(400, 24, 24, generator=dice)
    values = torch.randn(400, 24, 10, generator=dice)
    moved = (pattern - effective(pattern, values)).norm(dim=-1) / pattern.double().norm(dim=-1)
    chance = (space(pattern, values).free / 24).sqrt()
    assert float(moved.mean()) == pytest.approx(float(chance.double().mean()), abs=0.01)


def test_shards_merge_to_the_same_numbers(model):
    corpus = Corpus.of(TEXTS * 6)
    whole = sweep(model, corpus, AttentionFreedom(), progress=False)
    parts = sweep(model, corpus, AttentionFreedom(), shard_tokens=40, token_budget=64, progress=False)
    np.testing.assert_allclose(attention(whole).values, attention(parts).values, atol=1e-6)
    assert attention(parts).low is not None


def test_a_result_is_saved_drawn_and_read_again(model, tmp_path):
    found = attention(model, Corpus.of(TEXTS * 3))
    found.save(tmp_path / "kept")
    assert Result.load(tmp_path / "kept").same(found)
    assert len(found.to_frame()) == found.values.size
    found.plot().savefig(tmp_path / "figure.png")


def test_special_tokens_are_keys_and_no_queries():
    model = Model.load(opened("bert").hf, tokenizer=word_tokenizer(closing=True))
    corpus = Corpus.of(["the old dog sleeps", "a cat runs"])
    found = attention(model, corpus)
    assert found.table("lengths").columns["queries"].sum(0).max() == 7  # words alone
    assert found.table("lengths").columns["sees"].max() == pytest.approx((4 * 6 + 3 * 5) / 7)  # with <s> and </s>


def test_one_token_has_nothing_to_leave_open():
    run = opened("gpt2").run(Batch.of_ids([[5]]), sites=["pattern.0", "value.0"])
    assert int(space(run["pattern.0"][0], run["value.0"][0]).free.max()) == 0


def test_a_sweep_without_values_or_a_model_without_text_is_refused(model):
    with pytest.raises(ResultError, match="alone shows nothing; give a corpus"):
        attention(model)
    with pytest.raises(ResultError, match="has its corpus already"):
        attention(sweep(model, Corpus.of(TEXTS), AttentionFreedom(), progress=False), Corpus.of(TEXTS))
