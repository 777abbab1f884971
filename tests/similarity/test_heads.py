"""Heads that are alike: patterns with known answers, outputs against their rows, chance, intervals, random models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pellucid import sweep
from pellucid.collect.collector import collector_of
from pellucid.collect.divergence import HeadDivergence
from pellucid.collect.found import Found
from pellucid.collect.head_moments import HeadMoments
from pellucid.collect.moments import Moments
from pellucid.errors import PellucidError
from pellucid.model.sites import Site
from pellucid.similarity import head_outputs, head_patterns, metrics, pair_of_rows
from pellucid.similarity.heads import HeadPairs
from pellucid.uncertainty import jackknife
from tests.collect.batches import merged, words_of
from tests.collect.sweeping import Rows, in_order, reader, stories
from tests.found_by_hand import facts, found_of, gathered, setting, with_twin, word_batch
from tests.similarity.test_scores import scored

Array = np.ndarray[Any, Any]
GROUPS, WORDS = 10, 24
SIZES = {"pattern": (2,), "heads": (2, 3)}
MODEL = facts({Site(kind, layer): SIZES[kind] for kind in SIZES for layer in range(2)}, name="one", causal=False)
OUTPUTS = HeadMoments(groups=True, precision="float64")


# -- patterns --------------------------------------------------------------------------------------------------------


def patterns(layer: int, group: int) -> Array:
    """Heads of a layer, [2, 4, 4]: head 1 of layer 0 and head 0 of layer 1 are the same, and drawn for each group."""
    drawn = np.random.default_rng(group).dirichlet(np.full(4, 0.3), size=4)
    first, last = np.eye(4)[[0] * 4], np.eye(4)[[3] * 4]
    return np.stack([first, drawn] if layer == 0 else [drawn, last])


def looked(models: Any = (MODEL,), *, groups: int = GROUPS, **options: Any) -> Found:
    collector = HeadDivergence(**options)
    accumulator = collector.open(setting(models))
    for group in range(groups):
        words = words_of([[0, 1, 2, 3]], group=group, first_sentence=group)
        for number in range(len(models)):
            for layer in range(2):
                given = patterns(layer, group) if number == 0 else np.full((2, 4, 4), 0.25)
                key = f"{number}:pattern.{layer}" if len(models) > 1 else f"pattern.{layer}"
                accumulator.see(key, torch.tensor(given, dtype=torch.float32)[None], words)
    return found_of(models, {collector: accumulator.state()}, words=4 * groups)


def js(p: Array, q: Array) -> Array:
    """Jensen–Shannon divergence of rows."""
    middle = (p + q) / 2
    terms = [np.where(side > 0, side * np.log(np.where(side > 0, side, 1) / middle.clip(1e-300)), 0) for side in (p, q)]
    return (terms[0] + terms[1]).sum(-1) / 2


def test_heads_that_look_alike_and_heads_that_share_nothing() -> None:
    result = head_patterns(looked())
    assert result.axes == {"measure": ("pattern",), "left": (names := ("0.0", "0.1", "1.0", "1.1")), "right": names}
    value = result.measure("pattern")
    assert np.diagonal(value) == pytest.approx([1] * 4)
    assert value[1, 2] == pytest.approx(1, abs=1e-6)
    assert value[0, 3] == pytest.approx(0, abs=1e-6)
    np.testing.assert_array_equal(value, value.T)
    drawn = [js(np.eye(4)[[0] * 4], patterns(1, group)[0]).mean() for group in range(GROUPS)]
    assert value[0, 2] == pytest.approx(1 - np.mean(drawn) / np.log(2), abs=1e-6)
    uniform = result.table("uniform").columns["value"]
    assert uniform[0] == pytest.approx(1 - js(np.eye(4)[0], np.full(4, 0.25)) / np.log(2), abs=1e-6)


def test_chance_of_patterns_is_dealt_out_and_the_random_model_stands_beside() -> None:
    result = head_patterns(looked(with_twin(MODEL), groups=300))
    assert result.null is not None
    assert result.null[0, 0, 3] == pytest.approx(0.25, abs=0.04)  # each at one of four: alike once in four times
    assert result.null[0, 1, 2] < 0.8 < result.values[0, 1, 2]
    np.testing.assert_allclose(result.table("random model").columns["value"], 1, atol=1e-6)
    assert "random model" not in head_patterns(looked()).tables


def test_interval_of_patterns_leaves_out_each_group() -> None:
    result = head_patterns(looked())
    assert result.low is not None
    assert result.high is not None
    each = np.array([1 - js(np.eye(4)[[0] * 4], patterns(1, group)[0]).mean() / np.log(2) for group in range(GROUPS)])
    reach = 2.2621572 * each.std(ddof=1) / np.sqrt(GROUPS)  # a mean over equal groups: the classical interval
    assert result.high[0, 0, 2] - result.values[0, 0, 2] == pytest.approx(reach, rel=1e-4)
    assert head_patterns(looked(groups=1)).low is None


# -- outputs ---------------------------------------------------------------------------------------------------------


def rows_of(models: Any = (MODEL,)) -> dict[str, Array]:
    """Rows of both layers, two heads of three features side by side, with means; head 0.1 is head 1.0 turned round."""
    generator = np.random.default_rng(0)
    found: dict[str, Array] = {}
    for number in range(len(models)):
        both = generator.normal(size=(2, GROUPS * WORDS, 6)) * np.array([1, 2, 0.5, 3, 1, 1]) + generator.normal(size=6)
        if number == 0:
            both[0][:, 3] += 2 * both[1][:, 3]
            both[1][:, :3] = 3 * both[0][:, 3:] @ np.linalg.qr(generator.normal(size=(3, 3)))[0] + 7
        for layer in range(2):
            found[f"{number}:heads.{layer}" if len(models) > 1 else f"heads.{layer}"] = both[layer].astype(np.float32)
    return found


def put_out(models: Any = (MODEL,), collector: Any = OUTPUTS) -> Found:
    rows = rows_of(models)
    batches = [
        word_batch({key: value[g * WORDS : (g + 1) * WORDS] for key, value in rows.items()}, group=g, start=g * WORDS)
        for g in range(GROUPS)
    ]
    return found_of(models, {collector: gathered(collector, models, batches)}, words=GROUPS * WORDS)


def slices(rows: dict[str, Array], number: str = "") -> list[Array]:
    return [rows[f"{number}heads.{layer}"][:, 3 * head : 3 * head + 3] for layer in range(2) for head in range(2)]


@pytest.mark.filterwarnings("ignore::pellucid.similarity.SimilarityWarning")  # published variants say what is wrong
@pytest.mark.parametrize("name", [name for name, metric in metrics().items() if metric.needs == "moments"])
def test_every_score_of_moments_equals_that_of_the_heads_rows(name: str) -> None:
    result = head_outputs(put_out(), score=name)
    heads = slices(rows_of())
    for i, one in enumerate(heads):
        for j, other in enumerate(heads):
            assert result.values[0, i, j] == pytest.approx(scored(name, one, other), abs=1e-8), (i, j)
    assert result.axes["left"] == ("0.0", "0.1", "1.0", "1.1")


def test_pairs_of_heads_are_those_of_their_rows_in_both_orders() -> None:
    pairs, heads = HeadPairs(put_out()[HeadMoments], "float64"), slices(rows_of())
    keys = [f"heads.{layer}.{head}" for layer in range(2) for head in range(2)]
    for one, x in zip(keys, heads, strict=True):
        for other, y in zip(keys, heads, strict=True):
            mine, meant = pairs.pair(one, other), pair_of_rows(x, y)
            np.testing.assert_allclose(mine.cross, meant.cross, atol=1e-8)
            assert mine.norm_products == pytest.approx(meant.norm_products)
            assert mine.right.norm_sum == pytest.approx(meant.right.norm_sum)
            assert mine.left.norm_squares == pytest.approx(meant.left.norm_squares)


def test_a_head_turned_round_is_the_same_and_others_are_not() -> None:
    value = head_outputs(put_out()).measure("cka")
    assert value[1, 2] == pytest.approx(1, abs=1e-6)
    assert value[0, 1] < 0.1
    assert value[1, 3] > 0.2


def test_chance_interval_and_random_model_of_outputs() -> None:
    models = with_twin(MODEL)
    result = head_outputs(put_out(models), score="cka-biased")
    rows = rows_of(models)
    heads, twin = slices(rows, "0:"), slices(rows, "1:")
    n = GROUPS * WORDS
    spectra = [np.linalg.eigvalsh(np.cov(head.T)) for head in heads]
    ratio = [values.sum() ** 2 / (values**2).sum() for values in spectra]
    assert result.null is not None
    assert result.null[0, 0, 3] == pytest.approx(np.sqrt(ratio[0] * ratio[3]) / (n - 1))
    chance = result.table("chance").columns
    np.testing.assert_allclose(chance["z"], (result.values - result.null) / chance["sd"])
    assert result.table("random model").columns["value"][0, 0, 3] == pytest.approx(
        scored("cka-biased", twin[0], twin[3])
    )
    groups = np.repeat(np.arange(GROUPS), WORDS)
    without = [np.array(scored("cka-biased", heads[0][groups != g], heads[3][groups != g])) for g in range(GROUPS)]
    ends = jackknife(np.array(scored("cka-biased", heads[0], heads[3])), without, [WORDS] * GROUPS)
    assert result.low is not None
    assert result.low[0, 0, 3] == pytest.approx(float(ends.low), abs=1e-9)  # pyright: ignore[reportArgumentType]


def test_intervals_on_request_and_none_without_groups() -> None:
    assert "interval=True" in head_outputs(put_out(), score="svcca").resampled
    assert head_outputs(put_out(), score="svcca", interval=True).low is not None
    assert "HeadMoments(groups=True)" in head_outputs(put_out(collector=HeadMoments())).resampled


def test_heads_of_a_swept_model() -> None:
    model = reader("gpt2")
    found = sweep(model, stories(12), [HeadMoments(), Rows(("heads.*",))], token_budget=128)
    rows = in_order(found)
    result = head_outputs(found)
    parts = [rows[f"heads.{layer}"][:, 10 * head : 10 * head + 10] for layer in range(3) for head in range(4)]
    for i, j in ((0, 0), (0, 5), (7, 2), (11, 3)):
        assert result.values[0, i, j] == pytest.approx(scored("cka", parts[i], parts[j]), abs=1e-4)
    assert result.axes["left"][5] == "1.1"


def test_head_moments_merge_come_back_and_refuse() -> None:
    rows = rows_of()
    made = [word_batch({key: value[start : start + 60] for key, value in rows.items()}, start=start, group=start // 60)
            for start in range(0, 240, 60)]  # fmt: skip
    parts = [gathered(OUTPUTS, (MODEL,), made[:1]), gathered(OUTPUTS, (MODEL,), made[1:])]
    whole = gathered(OUTPUTS, (MODEL,), made)
    for name, array in merged(OUTPUTS, parts, []).arrays.items():
        np.testing.assert_allclose(array, whole.arrays[name], rtol=1e-12, atol=1e-9)
    assert collector_of(OUTPUTS.describe()) == OUTPUTS
    assert OUTPUTS.memory(setting((MODEL,)), 4) == whole.bytes
    with pytest.raises(PellucidError, match="precision='half' is not known"):
        HeadMoments(precision="half")
    with pytest.raises(PellucidError, match=r"reads outputs of heads, and 'pattern.0' is something else"):
        HeadMoments("pattern.*").open(setting((MODEL,)))
    with pytest.raises(PellucidError, match="memory_limit is 10"):
        HeadMoments(memory_limit=10).memory(setting((MODEL,)), 1)


def test_what_was_not_collected_is_asked_for() -> None:
    with pytest.raises(PellucidError, match="no HeadDivergence"):
        head_patterns(put_out())
    with pytest.raises(PellucidError, match=r"read HeadMoments\(\), which this sweep did not collect"):
        head_outputs(put_out(collector=Moments("heads.*")))
    with pytest.raises(PellucidError, match="'cka,svcca' names 2 scores, and one is worked out at a time"):
        head_outputs(put_out(), score="cka,svcca")
    with pytest.raises(PellucidError, match="'mutual-knn' reads single words"):
        head_outputs(put_out(), score="mutual-knn")
    with pytest.raises(PellucidError, match=r"HeadMoments.*has none of the first model"):
        head_outputs(put_out(with_twin(MODEL), HeadMoments("1:heads.*")))
