"""What keys leave open: against subspaces intersected one by one, known answers, whole models, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from pellucid import Corpus, Model
from pellucid.errors import ModelError
from pellucid.identifiability import reach, reachable, when_unique
from pellucid.identifiability.key_space import outside_keys
from pellucid.results import Result, ResultError
from tests.tiny_models import TEXT, network, opened, save, word_tokenizer


def made(count: int, key_width: int, width: int, *, causal: bool, heads: int = 2, seed: int = 0):
    """A pattern that its own queries and keys make, with values: [heads, n, n], [heads, n, d_v], keys and queries."""
    dice = torch.Generator().manual_seed(seed)
    keys, queries = (torch.randn(heads, count, key_width, generator=dice, dtype=torch.float64) for _ in range(2))
    values = torch.randn(heads, count, width, generator=dice, dtype=torch.float64)
    return weighed(queries, keys, causal), values, keys, queries


def weighed(queries: torch.Tensor, keys: torch.Tensor, causal: bool) -> torch.Tensor:
    scores = queries @ keys.mT / keys.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -torch.inf)
    return scores.softmax(-1)


def by_intersection(pattern: np.ndarray, values: np.ndarray, keys: np.ndarray) -> int:
    """Dimensions that moves of the weights by the query share with the left null space of the values, for one query."""
    moves = scipy.linalg.orth((np.diag(pattern) - np.outer(pattern, pattern)) @ keys, rcond=1e-9)
    null = scipy.linalg.null_space(values.T)
    both = np.concatenate([moves, null], axis=1)
    return both.shape[1] - (np.linalg.matrix_rank(both, tol=1e-7) if both.size else 0)


@pytest.mark.parametrize(("key_width", "width"), [(4, 4), (6, 3), (20, 3), (3, 6)])
@pytest.mark.parametrize("causal", [False, True])
def test_freedom_with_keys_is_the_intersection_of_two_spaces(key_width, width, causal):
    pattern, values, keys, _ = made(12, key_width, width, causal=causal)
    told = reach(pattern, values, keys)
    for head in range(2):
        for query in range(12):
            seen = slice(0, query + 1 if causal else 12)
            arrays = (each[head][seen].numpy() for each in (values, keys))
            assert int(told.free_with_keys[head, query]) == by_intersection(pattern[head, query, seen].numpy(), *arrays)
    assert bool((told.free_with_keys <= told.free).all())
    if key_width <= width:
        assert not bool(told.free_with_keys.any())
    if key_width >= 12:  # keys span all there is
        assert torch.equal(told.free_with_keys, told.free)
        assert torch.equal(told.reached, told.free > 0)
    else:
        assert not bool(told.reached[:, -1].any())


@pytest.mark.parametrize("causal", [False, True])
def test_weights_of_another_query_are_within_reach_and_drawn_ones_are_not(causal):
    pattern, _, keys, queries = made(14, 5, 3, causal=causal)
    other = 2 * weighed(queries.flip(-1), keys, causal) - pattern  # half-way lies what another query makes
    assert float(outside_keys(pattern, other, keys).max()) < 1e-9
    drawn = torch.rand(pattern.shape, generator=torch.Generator().manual_seed(1)).double() * (pattern > 0)
    away = outside_keys(pattern, drawn / drawn.sum(-1, keepdim=True), keys)[:, -1]
    assert float(away.min()) > 0.3


@pytest.mark.parametrize("causal", [False, True])
def test_weights_that_underflow_are_not_taken_for_within_reach(causal):
    """Keys in sight of weight 0 in one head: its second pattern still is another one, and out of reach of few keys."""
    pattern, values, keys, _ = made(14, 3, 3, causal=causal)
    pattern[0, 11:, 1:5] = 0.0
    pattern[0, 11:] /= pattern[0, 11:].sum(-1, keepdim=True)
    told = reach(pattern, values, keys)
    last = slice(12, 14)
    assert bool((told.free[:, last] > 0).all())
    assert bool(told.second[:, last].all())
    assert float(told.outside[:, last].min()) > 0.1
    assert not bool(told.reached[:, last].any())
    lone = torch.zeros_like(pattern)  # all weight on one key in one head: it cannot move, though it is free
    lone[0, :, 0], lone[1] = 1.0, pattern[1]
    told = reach(lone, values, keys)
    assert bool((told.free[0, last] > 0).all())
    assert not bool(told.second[0].any())
    assert not bool(told.reached[0].any())


@pytest.mark.parametrize("family", ["gpt2", "llama", "deepseek_v3", "falcon"])
def test_the_keys_of_models_span_the_logarithms_of_their_weights(family):
    """Keys as they are recorded (turned by position, grouped, of one head for all) are those that queries meet."""
    model = opened(family, dtype=torch.float64)
    ids = torch.arange(5, 21)[None] % 17 + 3
    runs = [model.run(_batch(each), sites=["pattern.1", "key.1", "query.1"]) for each in (ids,)]
    pattern, keys = runs[0]["pattern.1"][0], runs[0]["key.1"][0]
    even = torch.ones_like(pattern).tril()
    even = even / even.sum(-1, keepdim=True)
    assert float(outside_keys(even, 2 * pattern - even, keys).max()) < 1e-6  # from uniform weights to the model's own


def _batch(ids: torch.Tensor):
    from pellucid import Batch

    return Batch.of_ids(ids)


def corpus() -> Corpus:
    return Corpus.of([TEXT, " ".join(TEXT.split()[::-1]), "the old dog"] * 2)


def test_a_model_is_told_beside_general_position(tmp_path):
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    result = reachable(model, corpus(), queries=17)
    assert result.null is not None
    # texts of 17, 17 and 3 tokens, values 10 wide: 11 of 17 queries are unique, and all of 3
    assert result.measure("unique").tolist() == result.null[0].tolist()
    assert float(result.measure("unique").mean()) == pytest.approx((11 + 11 + 3) / 37)
    assert (result.measure("unique with keys") == 1).all()
    assert (result.measure("free with keys") == 0).all()
    assert (result.measure("second in reach") == 0).all()
    assert (result.measure("outside") > 0.2).all()
    widths = result.table("widths").columns
    assert set(widths["unique up to"].tolist()) == {11}
    assert widths["keys make all unique"].all()
    lengths = result.table("lengths")
    assert lengths.axes["keys in sight"] == ("1–8", "9–16", "17–32")
    layers, heads = result.values.shape[1:]
    assert lengths.columns["queries and heads"].tolist() == [count * layers * heads for count in (38, 32, 4)]
    np.testing.assert_allclose(lengths.columns["unique"], [1, 12 / 32, 0])
    assert result.low is not None
    result.save(tmp_path / "kept")
    assert Result.load(tmp_path / "kept").same(result)


def test_keys_wider_than_values_leave_more_open():
    """Compressed attention (12 numbers in keys, 6 in values): what is free by values is mostly free with keys too."""
    model = Model.load(network("deepseek_v3"), tokenizer=word_tokenizer())
    result = reachable(model, Corpus.of([TEXT]), queries=17)
    assert not result.table("widths").columns["keys make all unique"].any()
    assert 0 < result.measure("free with keys").mean() < result.measure("free").mean()
    assert result.null is not None
    np.testing.assert_allclose(result.measure("free with keys"), result.null[3], atol=0.2)
    assert (result.measure("second in reach") > 0.2).all()


def test_long_texts_are_cut_and_told(tmp_path):
    model = Model.load(save(tmp_path / "gpt2", "gpt2"))
    assert model.limit is not None
    long = " ".join([TEXT] * (model.limit // 17 + 2))
    result = reachable(model, Corpus.of([long, TEXT]), queries=3)
    assert result.table("notes").columns["note"].tolist() == ["1 of 2 texts are cut at the model's limit."]


@pytest.mark.parametrize(
    ("family", "why"), [("gemma2", "caps its attention scores"), ("xlnet", "also meet vectors of positions")]
)
def test_where_keys_do_not_span_it_is_said(family, why):
    model = Model.load(network(family), tokenizer=word_tokenizer())
    with pytest.raises(ResultError, match=rf"{why}.*ask attention\(\) instead"):
        reachable(model, corpus())


def test_bad_input_is_told():
    model = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    with pytest.raises(ModelError, match="sentences=0 and queries=16 leave nothing"):
        reachable(model, corpus(), sentences=0)
    broken = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    with torch.no_grad():
        broken.hf.transformer.h[1].attn.c_attn.weight[:, -1] = torch.nan
    with pytest.raises(ModelError, match=r"Values of pattern\.1 are NaN or infinite in head 3"):
        reachable(broken, corpus())


@pytest.mark.parametrize("causal", [False, True])
def test_when_attention_is_unique_by_length(causal):
    table = when_unique(32, causal=causal, limit=100)
    share = dict(zip(table.axes["tokens"], table.columns["unique"].tolist(), strict=True))
    assert share[8] == share[33] == 1
    assert share[64] == (33 / 64 if causal else 0)
    assert share[100] == (0.33 if causal else 0)
    assert table.columns["free at the last"].tolist()[-1] == 512 - 33
