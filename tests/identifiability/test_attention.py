"""What attention leaves open over a corpus: against sums text by text, chance levels, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid import Batch, Corpus, Model, sweep
from pellucid.collect import freedom
from pellucid.collect.freedom import AttentionFreedom
from pellucid.collect.null_space import effective, in_sight, space
from pellucid.errors import ModelError, PellucidError
from pellucid.identifiability import attention
from pellucid.identifiability.notes import notes_of
from pellucid.results import Result, ResultError
from tests.tiny_models import network, opened, padded, word_tokenizer

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


def test_chance_is_that_of_random_values(model):
    """General position for what is free; effective attention with random values, text by text, for what it shows."""
    found = attention(model, Corpus.of(TEXTS))
    assert found.null is not None
    queries, free, shifted = 0, 0.0, []
    for text in TEXTS:
        batch = model.tokenize(text)
        run = model.run(batch, sites=["pattern.1", "value.1"])
        keep = ~batch.special[0]
        pattern, width = run["pattern.1"][0][:, keep].double(), run["value.1"].shape[-1]
        free += float((in_sight(pattern).sum(-1) - width).clamp(min=0).sum())
        queries += int(keep.sum())
        several = []
        for seed in range(40):
            drawn = torch.randn(run["value.1"][0].shape, generator=torch.Generator().manual_seed(seed))
            effect = effective(pattern, drawn).abs()
            several.append((pattern - effect / effect.sum(-1, keepdim=True)).abs().sum(-1) / 2)
        shifted.append(torch.stack(several).mean(0))
    null = dict(zip(found.axes["measure"], found.null[:, 1], strict=True))
    np.testing.assert_allclose(null["free"], free / queries)
    assert 0 < null["unique"].min() < 1
    expected = torch.cat(shifted, dim=1).mean(-1).numpy()
    np.testing.assert_allclose(null["shifted"], expected, atol=0.1)  # one draw a text beside forty
    assert null["shifted"].min() > 0
    assert (null["argmax"] <= 1).all()
    again = sweep(model, Corpus.of(TEXTS), AttentionFreedom(), shard_tokens=20, token_budget=24, progress=False)
    np.testing.assert_allclose(attention(again).null, found.null, atol=1e-6)  # draws belong to texts, not to batches


def test_lengths_have_intervals_where_several_documents_have_them(model):
    dice = np.random.default_rng(0)
    several = [" ".join(dice.permutation(TEXTS[0].split())[:size]) for size in [12, 5] * 8]
    found = attention(model, Corpus.of([*several, TEXTS[2]]))
    table, ends = found.table("lengths"), found.table("length intervals")
    groups = dict(zip(table.axes["keys in sight"], table.columns["groups"][:, 0, 0].tolist(), strict=True))
    assert {length for length, count in groups.items() if count > 1} == set(ends.axes["keys in sight"])
    assert groups["17–32"] == 1
    for place, length in enumerate(ends.axes["keys in sight"]):
        row = list(groups).index(length)
        for name in ("free", "moved", "shifted"):
            assert (ends.columns[f"{name} low"][place] <= table.columns[name][row] + 1e-12).all()
            assert (table.columns[name][row] <= ends.columns[f"{name} high"][place] + 1e-12).all()
    assert (ends.columns["moved high"] - ends.columns["moved low"]).max() > 1e-4


def test_a_layer_of_nan_is_named():
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    with torch.no_grad():
        model.hf.transformer.h[1].attn.c_attn.weight[:, -1] = torch.nan
    with pytest.raises(ModelError, match=r"Values of pattern\.1 are NaN or infinite in head 3"):
        attention(model, Corpus.of(TEXTS))


def test_what_padding_holds_is_not_read(bert_folder):
    """Padding whose queries, values and weights are NaN leaves the numbers of the text as they were."""
    model = Model.load(bert_folder)
    batch = model.tokenize(["the old dog sleeps near the keys"])
    run = model.run(batch, sites=["pattern.1", "value.1"])
    pattern, values = run["pattern.1"], run["value.1"]
    length = pattern.shape[-1]
    wide, long = (torch.full((1, each.shape[1], length + 3, size), torch.nan) for each, size in _sizes(pattern, values))
    wide[..., :length, :length], wide[..., :length, length:] = pattern, 0.0
    long[:, :, :length] = values
    queries = torch.ones(1, length + 3, dtype=torch.bool)
    queries[0, length:] = False
    plain = freedom._Real(queries[:, :length], queries[:, :length], np.zeros(1, int))
    padded = freedom._Real(queries, queries, np.zeros(1, int))
    sums = [
        freedom._sum_of(*given, real, "pattern.1", dtype=torch.float32)
        for given, real in (((pattern, values), plain), ((wide, long), padded))
    ]
    np.testing.assert_array_equal(*sums)


def _sizes(pattern: torch.Tensor, values: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
    return [(pattern, pattern.shape[-1] + 3), (values, values.shape[-1])]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_told(dtype, gpt2_folder):
    found = attention(Model.load(gpt2_folder, dtype=dtype), Corpus.of(TEXTS))
    assert any(line.startswith(f"Values were computed in {str(dtype)[6:]}") for line in notes_of(found))


def test_long_texts_are_cut_and_told(gpt2_folder):
    model = Model.load(gpt2_folder)
    assert model.limit is not None
    long = Corpus.of(["a cat", " ".join(["the old dog"] * model.limit)])
    found = attention(model, long)
    assert found.table("lengths").columns["queries"].sum(0).max() == 2 + model.limit
    assert any("1 sentences are cut at the model's limit" in line for line in notes_of(found))
    with pytest.raises(PellucidError, match="takes at most"):
        attention(model, long, long="refuse")


def test_compressed_values_give_the_head_output():
    """DeepSeek's values come out of a smaller vector; effective attention is of those that heads use."""
    model = opened("deepseek_v3", dtype=torch.float64)
    run = model.run(padded("deepseek_v3"), sites=["pattern.1", "value.1", "heads.1"])
    pattern, values = run["pattern.1"][0], run["value.1"][0]
    torch.testing.assert_close(effective(pattern, values) @ values, run["heads.1"][0], rtol=0, atol=1e-9)
    told = space(pattern, values)
    expected = [[int(torch.linalg.matrix_rank(values[head, : row + 1])) for row in range(11)] for head in range(4)]
    assert told.rank.tolist() == expected


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
