"""A second attention on one text: the same output, true weights, the head that is meant, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pellucid import Corpus, Edit, Model
from pellucid.collect import other_patterns
from pellucid.collect.null_space import effective, gaps, space, values_of_heads
from pellucid.collect.other_patterns import far_pattern, second_pattern
from pellucid.errors import ModelError, SiteError
from pellucid.identifiability import second_attention
from pellucid.identifiability.second_attention import text_beyond
from pellucid.results import Result
from pellucid.views import figure_svg
from tests.collect.test_null_space import HEADS, LENGTH, WIDTH, made, masks
from tests.tiny_models import TEXT, network, word_tokenizer


def model_of(family: str) -> Model:
    return Model.load(network(family), tokenizer=word_tokenizer())


@pytest.mark.parametrize("kind", masks())
def test_far_weights_are_true_ones_with_the_same_output_at_a_corner(kind):
    pattern, values, mask = made(kind)
    told, v = space(pattern, values), values_of_heads(values.double(), HEADS)
    for head in (0, HEADS - 1):
        other = far_pattern(pattern, values, head)
        torch.testing.assert_close(other @ v[head], pattern[head].double() @ v[head], rtol=0, atol=1e-9)
        torch.testing.assert_close(other.sum(-1), pattern[head].double().sum(-1), rtol=0, atol=1e-11)
        assert float(other.min()) >= 0
        assert not other[~mask].any()
        open_ = told.free_with_sum[head] > 0
        assert torch.equal((other - pattern[head]).abs().amax(-1) > 1e-9, open_)
        top = pattern[head].argmax(-1, keepdim=True)
        less = (pattern[head].double() - other).gather(-1, top)[:, 0]
        assert float(less.min()) > -0.01
        assert float(less[open_].mean()) > 0.05
        support = (other > 0).sum(-1)[open_]  # a corner: no more weights than values are wide, and one
        assert int(support.max()) <= WIDTH + 1


@pytest.mark.parametrize(
    ("family", "head"), [("bert", "1.2"), ("gpt2", "0.3"), ("llama", "1.3"), ("falcon", "0.2"), ("deepseek_v3", "1.3")]
)
def test_three_matrices_of_one_head_give_one_output(family, head):
    model = model_of(family)
    result = second_attention(model, TEXT, head)
    layer, number = (int(part) for part in head.split("."))
    run = model.run(model.tokenize([TEXT]), sites=[f"pattern.{layer}", f"value.{layer}"])
    pattern, values = run[f"pattern.{layer}"][0], run[f"value.{layer}"][0]
    np.testing.assert_allclose(result.measure("attention"), pattern[number].numpy(), atol=1e-7)
    np.testing.assert_allclose(result.measure("effective"), effective(pattern, values)[number].numpy(), atol=1e-6)
    own = values_of_heads(values.double(), len(pattern))[number].numpy()
    for matrix in ("second", "effective"):
        np.testing.assert_allclose(result.measure(matrix) @ own, pattern[number].double().numpy() @ own, atol=1e-6)
    told = result.table("queries").columns
    assert told["second output off"].max() < 1e-9
    assert told["effective output off"].max() < 1e-9
    assert not result.unique
    assert told["second moved"].max() > 0.01
    if model.size(f"key.{layer}")[-1] <= values.shape[-1]:
        assert (told["outside keys"][told["free with sum"] > 0] > 1e-3).all()  # no query of the head makes it
    facts = {name: column[0] for name, column in result.table("head").columns.items()}
    sharing = len(pattern) // len(values)
    assert facts == {
        "head": head,
        "width": values.shape[-1],
        "values of head": number // sharing,
        "heads with these values": sharing,
    }
    assert result.head == head
    assert result.axes["query"][0] == "0 the"


def test_the_whole_model_does_not_notice_the_second_weights():
    model = Model.load(network("gpt2", dtype=torch.float64), tokenizer=word_tokenizer())
    result = second_attention(model, TEXT, "1.2")
    batch = model.tokenize([TEXT])
    run = model.run(batch, sites=["pattern.1"])
    changed = run["pattern.1"].clone()
    changed[0, 2] = torch.tensor(result.measure("second"))
    assert float((changed - run["pattern.1"]).abs().max()) > 0.01
    other = model.run(batch, edits=[Edit.patch("pattern.1", changed)])
    torch.testing.assert_close(other.output.logits, run.output.logits, rtol=0, atol=1e-9)


def test_without_a_name_the_most_open_head_is_taken():
    model = model_of("gpt2")
    result = second_attention(model, TEXT, seed=5)
    assert not result.unique
    away: dict[str, float] = {}
    for layer in range(sum(site.kind == "pattern" for site in model.sites)):
        run = model.run(model.tokenize([TEXT]), sites=[f"pattern.{layer}", f"value.{layer}"])
        pattern = run[f"pattern.{layer}"][0].double()
        moved = (second_pattern(pattern, run[f"value.{layer}"][0], seed=5) - pattern).abs().sum(-1).mean(-1) / 2
        away |= {f"{layer}.{head}": float(each) for head, each in enumerate(moved)}
    assert len(away) > 4
    assert result.head == max(away, key=lambda name: away[name])
    assert min(away.values()) < 0.9 * max(away.values())
    np.testing.assert_array_equal(second_attention(model, TEXT, result.head).values, result.values)


@pytest.mark.parametrize("text", ["dog", "the old dog runs"])
def test_short_texts_have_one_attention(text, tmp_path):
    """Heads wider than the text, and a text of one token: identifiable, and so it is said."""
    result = second_attention(model_of("bert"), text, "0.1")
    assert result.unique
    np.testing.assert_allclose(result.measure("second"), result.measure("attention"), atol=1e-12)
    np.testing.assert_allclose(result.measure("effective"), result.measure("attention"), atol=1e-7)
    assert "is unique" in figure_svg(result.plot())
    result.save(tmp_path / "kept")
    assert Result.load(tmp_path / "kept").same(result)


def test_a_rank_at_the_cut_is_told_with_its_gap():
    pattern, values, _ = made("both ways", groups=1)
    near = values.double()
    near[..., 0] = near[..., 1] + 3e-6 * torch.randn(LENGTH, generator=torch.Generator().manual_seed(2)).double()
    assert bool((gaps(pattern, near, 1)["over"] < 100).all())
    assert bool((gaps(pattern, values, 1)["over"] > 1e6).all())
    nothing = gaps(pattern, torch.zeros(1, LENGTH, WIDTH), 1)
    assert bool((nothing["over"] == torch.inf).all())  # nothing counts
    assert bool((nothing["under"] == torch.inf).all())  # and nothing is near


def test_long_texts_go_to_a_corner_without_a_decomposition_for_every_step(monkeypatch):
    """Inverses are brought up to date as keys leave: about one decomposition a query, and yet the same output."""
    dice = torch.Generator().manual_seed(0)
    pattern = (2 * torch.randn(1, 120, 120, generator=dice)).softmax(-1)
    values = torch.randn(1, 120, 12, generator=dice)
    made: list[int] = []
    plain = other_patterns.inverse
    monkeypatch.setattr(other_patterns, "inverse", lambda grams, count: made.append(len(grams)) or plain(grams, count))
    found = far_pattern(pattern, values, 0)
    v = values[0].double()
    torch.testing.assert_close(found @ v, pattern[0].double() @ v, rtol=0, atol=1e-11)
    assert int((found > 0).sum(-1).max()) <= 14  # values are 12 wide; a last step may be too short to go
    assert int((found > 0).sum(-1).median()) == 13
    assert sum(made) < 3 * 120  # and not one for each of 107 steps


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_keys_have_no_more_rank_than_there_are(count):
    """Zeros of VᵀV beyond the number of keys are rounding, whatever the cut says."""
    for seed in range(20):
        dice = torch.Generator().manual_seed(seed)
        pattern = torch.randn(12, count, count, generator=dice).softmax(-1)
        values = 3 * torch.randn(12, count, 64, generator=dice) + 2
        told = space(pattern, values)
        assert bool((told.free == 0).all())
        assert bool((told.free_with_sum == 0).all())
        assert not bool(told.uncertain.any())
        torch.testing.assert_close(effective(pattern, values), pattern.double(), rtol=0, atol=1e-9)


def test_wrong_heads_and_broken_layers_are_told():
    model = model_of("gpt2")
    with pytest.raises(SiteError, match=r"There is no head '9\.9'"):
        second_attention(model, TEXT, "9.9")
    with torch.no_grad():
        model.hf.transformer.h[0].attn.c_attn.weight[:, -1] = torch.nan
    with pytest.raises(ModelError, match=r"Values of pattern\.0 are NaN or infinite in head 3"):
        second_attention(model, TEXT, "0.1")
    decoder = Model.load(network("t5"), tokenizer=word_tokenizer())
    with pytest.raises(SiteError, match=r"Head 'cross\.0\.1' is not one that reads the text by itself"):
        second_attention(decoder, TEXT, "cross.0.1")
    assert second_attention(decoder, TEXT, "encoder.0.1").head == "encoder.0.1"


def test_the_text_of_a_corpus_is_long_enough_to_be_open():
    model = model_of("gpt2")
    corpus = Corpus.of(["the old dog", "a cat runs", "the keys are red", "near the cabinet", "and a dog"] * 9)
    text = text_beyond(model, corpus)
    assert text.startswith("the old dog a cat runs the keys")
    assert 10 + 1 + 24 <= len(text.split()) <= 10 + 1 + 24 + 3
    assert text_beyond(model, corpus.take(1)) == "the old dog"
