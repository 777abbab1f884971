"""Null spaces of attention: against a singular value decomposition query by query, and through whole models."""

from __future__ import annotations

import pytest
import torch

from pellucid import Edit, Model
from pellucid.collect.null_space import effective, in_sight, projected, space, values_of_heads
from pellucid.collect.other_patterns import second_pattern
from tests.tiny_models import opened, padded

HEADS, LENGTH, WIDTH = 4, 30, 6


def masks() -> dict[str, torch.Tensor]:
    place = torch.arange(LENGTH)
    causal = place[:, None] >= place
    return {
        "both ways": torch.ones(LENGTH, LENGTH, dtype=torch.bool),
        "causal": causal,
        "padded left": causal & (place >= 3),
        "padded right": (place < LENGTH - 4).expand(LENGTH, LENGTH),
        "a window": causal & (place[:, None] - place < 9),
    }


def made(kind: str, *, groups: int = 2, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A pattern, values of grouped heads with a repeated and an empty row, and the mask."""
    dice = torch.Generator().manual_seed(seed)
    mask = masks()[kind]
    scores = 2 * torch.randn(HEADS, LENGTH, LENGTH, generator=dice)
    pattern = scores.masked_fill(~mask, -1e30).softmax(-1).masked_fill(~mask, 0.0)
    values = torch.randn(groups, LENGTH, WIDTH, generator=dice) + 3
    values[:, 8] = values[:, 7]
    values[0, 5] = 0
    return pattern, values, mask


def by_svd(pattern: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Effective attention and ranks, query by query, from the left singular vectors of the values in sight."""
    weights, v = pattern.double(), values_of_heads(values.double(), len(pattern))
    found, ranks = torch.zeros_like(weights), torch.zeros(weights.shape[:2], dtype=torch.long)
    for head in range(len(weights)):
        for query in range(LENGTH):
            keys = mask[query].nonzero()[:, 0]
            if len(keys):
                left, sizes, _ = torch.linalg.svd(v[head, keys])
                rank = int((sizes > 1e-6 * sizes[0]).sum())
                basis = left[:, :rank]
                found[head, query, keys] = weights[head, query, keys] @ basis @ basis.T
                ranks[head, query] = rank
    return found, ranks


@pytest.mark.parametrize("kind", masks())
def test_effective_attention_is_the_projection_off_the_null_space(kind):
    pattern, values, mask = made(kind)
    found, (expected, ranks) = effective(pattern, values), by_svd(pattern, values, mask)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)
    assert not found[:, ~mask].any()  # nothing on what a query cannot see
    v = values_of_heads(values.double(), HEADS)
    torch.testing.assert_close(found @ v, pattern.double() @ v, rtol=0, atol=1e-11)
    told = space(pattern, values)
    assert torch.equal(told.rank, ranks)
    assert torch.equal(told.sees, mask.sum(-1).expand(HEADS, -1))
    assert torch.equal(told.free, mask.sum(-1) - ranks)


def test_rows_that_are_identifiable_stay_as_they_are():
    pattern, values, _ = made("causal", seed=1)
    values = values[:, torch.randperm(LENGTH, generator=torch.Generator().manual_seed(5))]  # doubles far apart
    found = effective(pattern, values)
    told = space(pattern, values)
    same = told.free == 0
    assert same[:, :3].all()
    assert not same[:, WIDTH + 2 :].any()
    torch.testing.assert_close(found[same], pattern.double()[same], rtol=0, atol=1e-12)
    assert bool(((found - pattern).abs().amax(-1)[~same] > 1e-6).any())


def test_the_condition_on_row_sums_takes_one_dimension_unless_ones_are_spanned():
    pattern, values, _ = made("both ways")
    told = space(pattern, values)
    assert bool((told.rank_with_sum == WIDTH + 1).all())
    assert bool((told.free_with_sum == told.free - 1).all())
    spanned = values.clone()
    spanned[..., 0] = 1.0
    told = space(pattern, spanned)
    assert bool((told.rank_with_sum == told.rank).all())


@pytest.mark.parametrize("kind", masks())
def test_a_second_pattern_is_a_true_one_with_the_same_output(kind):
    pattern, values, mask = made(kind)
    other, v = second_pattern(pattern, values, seed=3), values_of_heads(values.double(), HEADS)
    torch.testing.assert_close(other @ v, pattern.double() @ v, rtol=0, atol=1e-10)
    torch.testing.assert_close(other.sum(-1), pattern.double().sum(-1), rtol=0, atol=1e-12)
    assert float(other.min()) >= 0
    assert not other[:, ~mask].any()
    open_ = space(pattern, values).free_with_sum > 0
    moved = (other - pattern.double()).abs().amax(-1)
    assert bool((moved[open_] > 1e-7).all())
    assert not bool((moved[~open_] > 1e-12).any())
    tight = other.masked_fill(~mask, 1.0).amin(-1)[open_]  # as far as weights of 0 or more allow
    assert float(tight.max()) < 1e-9


def test_grouped_heads_share_values_in_runs():
    """As transformers repeats them: the first heads read the first values."""
    values = torch.arange(2.0)[:, None, None].expand(2, LENGTH, WIDTH)
    assert values_of_heads(values, 4)[:, 0, 0].tolist() == [0, 0, 1, 1]
    model = opened("llama", dtype=torch.float64)
    run = model.run(padded("llama"), sites=["pattern.1", "value.1", "heads.1"])
    v = values_of_heads(run["value.1"][0], run["pattern.1"].shape[1])
    assert v.shape[0] > run["value.1"].shape[1]
    torch.testing.assert_close(run["pattern.1"][0] @ v, run["heads.1"][0])


def test_an_eigenvalue_at_the_cut_is_told():
    pattern, values, _ = made("both ways", groups=1)
    near = values.double()
    dice = torch.Generator().manual_seed(2)
    near[..., 0] = near[..., 1] + 3e-6 * torch.randn(LENGTH, dtype=torch.float64, generator=dice)
    assert not bool(space(pattern, values).uncertain.any())
    assert bool(space(pattern, near).uncertain.all())


def test_an_underflow_in_one_head_does_not_hide_a_key():
    pattern, _values, mask = made("causal")
    pattern[0, 20, 4] = 0.0
    assert torch.equal(in_sight(pattern), mask)


@pytest.mark.parametrize("kind", ["both ways", "causal"])
def test_a_second_pattern_moves_in_spite_of_underflows(kind):
    """Keys in sight whose weight is 0 in one head: with two of them, no step either way would leave 0 or more."""
    pattern, values, mask = made(kind)
    pattern[0, 14:, 1:13:2] = 0.0
    other, v = second_pattern(pattern, values, seed=3), values_of_heads(values.double(), HEADS)
    torch.testing.assert_close(other @ v, pattern.double() @ v, rtol=0, atol=1e-10)
    assert float(other.min()) >= 0
    assert not other[:, ~mask].any()
    assert bool(((other - pattern)[0].abs().amax(-1)[22:] > 1e-7).all())


@pytest.mark.parametrize("with_sum", [False, True])
def test_both_sides_of_the_cut_are_told_for_both_ranks(with_sum):
    """A column that nearly is another (or a constant): just over the cut, just under it, and exactly the same."""
    pattern, values, _ = made("both ways", groups=1)
    noise = torch.randn(LENGTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    end = "_with_sum" if with_sum else ""
    found = {}
    for off in (3e-6, 4e-7, 0.0):
        near = values.double()
        near[..., 0] = (3.0 if with_sum else near[..., 1]) + off * noise
        found[off] = space(pattern, near)
    most = WIDTH + with_sum
    assert [int(getattr(each, f"rank{end}")[0, 0]) for each in found.values()] == [most, most - 1, most - 1]
    over, under, exact = found.values()
    assert 1 < float(getattr(over, f"over{end}").min()) < 100
    assert 1 < float(getattr(under, f"under{end}").min()) < 100
    assert [bool(each.uncertain.all()) for each in (over, under)] == [True, True]
    assert not bool(exact.uncertain.any())
    if with_sum:  # by the values alone, nothing is near the cut
        assert bool((over.under == torch.inf).all())
        assert float(over.over.min()) > 1e4


@pytest.mark.parametrize("kind", masks())
def test_repeated_values_are_no_matter_of_the_cut(kind):
    """Doubles and zeros lie exactly in what others span, for queries that see few and many keys."""
    pattern, values, _ = made(kind)
    told = space(pattern, values.double())
    assert bool((told.rank < told.sees.clamp(max=WIDTH)).any()) == (kind not in ("both ways", "padded right"))
    assert not bool(told.uncertain.any())


def test_without_any_value_the_sum_still_is_one_condition():
    pattern, values, mask = made("causal")
    told = space(pattern, torch.zeros_like(values))
    assert torch.equal(told.free[0], mask.sum(-1))
    assert torch.equal(told.free_with_sum[0], mask.sum(-1) - 1)
    other = second_pattern(pattern, torch.zeros_like(values))
    torch.testing.assert_close(other.sum(-1), pattern.double().sum(-1), rtol=0, atol=1e-12)
    assert bool(((other - pattern).abs().amax(-1)[:, 1:] > 1e-6).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_ranks_that_rounding_to_half_precision_makes_are_uncertain(dtype):
    """Values of rank 3 in exact numbers: rounded, they have full rank, which is not to be believed."""
    dice = torch.Generator().manual_seed(0)
    pattern = torch.randn(2, LENGTH, LENGTH, generator=dice).softmax(-1)
    exact = torch.randn(2, LENGTH, 3, dtype=torch.float64, generator=dice)
    exact = exact @ torch.randn(2, 3, WIDTH, dtype=torch.float64, generator=dice)
    assert int(space(pattern, exact).rank.max()) == 3
    assert not bool(space(pattern, exact).uncertain.any())
    told = space(pattern, exact.to(dtype))
    assert int(told.rank.min()) == WIDTH
    assert bool(told.uncertain.all())
    assert bool(space(pattern, exact.to(dtype).double(), dtype=dtype).uncertain.all())
    plain = torch.randn(2, LENGTH, WIDTH, dtype=torch.float64, generator=dice).to(dtype)
    assert not bool(space(pattern, plain).uncertain.any())  # of full rank by far


def test_heads_that_see_other_keys_are_projected_each_by_its_own():
    pattern, values, mask = made("causal")
    v = values_of_heads(values.double(), HEADS)
    sight = mask.expand(HEADS, -1, -1).clone()
    sight[2, :, 4] = False
    found = projected(pattern.double(), v, sight)
    torch.testing.assert_close(found[:2], effective(pattern, values)[:2], rtol=0, atol=1e-11)
    without = pattern[2:3].clone()
    without[..., 4] = 0
    torch.testing.assert_close(found[2:3], effective(without, v[2:3]), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["gpt2_folder", "bert_folder"])
def test_a_second_pattern_leaves_the_whole_model_as_it_was(name, request):
    model = Model.load(request.getfixturevalue(name), attention="eager", dtype=torch.float64)
    batch = model.tokenize("the cat sat on the mat and the dog ran to the house while it was in the red car")
    run = model.run(batch, sites=["pattern.1", "value.1"])
    pattern, values = run["pattern.1"][0], run["value.1"][0]
    assert bool((space(pattern, values).free_with_sum > 0).any())
    for other, far in ((second_pattern(pattern, values), 1e-3), (effective(pattern, values), 1e-6)):
        changed = model.run(batch, sites=["pattern.1"], edits=[Edit.patch("pattern.1", other[None])])
        assert float((changed["pattern.1"] - run["pattern.1"]).abs().max()) > far
        outputs = [each.output.logits if hasattr(each.output, "logits") else each.output[0] for each in (run, changed)]
        torch.testing.assert_close(*outputs, rtol=0, atol=1e-9)
