"""Units of several models: planted likes are found, scores equal those of the rows, and chance is what draws give."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from pellucid.collect.found import Found
from pellucid.collect.moments import Moments
from pellucid.errors import PellucidError
from pellucid.model.sites import Site
from pellucid.similarity import neuron_matches, pair_of_rows
from pellucid.similarity.caution import SimilarityWarning
from pellucid.similarity.units import (
    chance_correlation,
    chance_explained,
    chance_matching,
    correlations,
    explained,
    matched,
)
from pellucid.uncertainty import jackknife
from tests.found_by_hand import facts, found_of, gathered, with_twin, word_batch

Array = np.ndarray[Any, Any]
GROUPS, WORDS = 10, 30
ONE = facts({Site("neurons", layer): (5,) for layer in range(2)}, name="one")
TWO = facts({Site("neurons", layer): (7,) for layer in range(2)}, name="two")
THREE = facts({Site("neurons", 0): (4,)}, name="three")
MOMENTS = Moments("neurons.*", groups=True, precision="float64")
PLANTED = {(0, 0, 1): (1, 1, 6, -1.0), (0, 0, 3): (1, 0, 2, 0.6), (0, 1, 2): (2, 0, 0, 0.8)}
"""(model, layer, unit) of a unit, and that of its like in another model, with how it is mixed with noise."""


def rows_of(models: Any = (ONE, TWO, THREE), *, seed: int = 0) -> dict[str, Array]:
    """Rows of noise with means, some planted likes, and constant units: the last one of every site."""
    generator = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for number, model in enumerate(models):
        for site in model.sites:
            width = model.sizes[str(site)][0]
            found[f"{number}:{site}"] = generator.normal(size=(GROUPS * WORDS, width)) * 2 + generator.normal(
                size=width
            )
    for (model, layer, unit), (other, floor, like, share) in PLANTED.items():
        if f"{other}:neurons.{floor}" in found and "random" not in models[other].name:
            source = found[f"{model}:neurons.{layer}"][:, unit]
            mixed = share * (source - source.mean()) + np.sqrt(1 - share**2) * 2 * generator.normal(size=len(source))
            found[f"{other}:neurons.{floor}"][:, like] = mixed + 4
    for key in found:
        found[key][:, 4 if key != "2:neurons.0" else 3] = 0.3  # exactly constant
    return {key: rows.astype(np.float32).astype(np.float64) for key, rows in found.items()}


def found(models: Any = (ONE, TWO, THREE), collector: Moments = MOMENTS, rows: dict[str, Array] | None = None) -> Found:
    rows = rows_of(models) if rows is None else rows
    if len(models) == 1:
        rows = {key.partition(":")[2]: value for key, value in rows.items()}
    batches = [
        word_batch({key: value[g * WORDS : (g + 1) * WORDS] for key, value in rows.items()}, group=g, start=g * WORDS)
        for g in range(GROUPS)
    ]
    return found_of(models, {collector: gathered(collector, models, batches)}, words=GROUPS * WORDS)


def r_of(x: Array, y: Array) -> Array:
    """Correlations by NumPy's own, 0 where a column is constant."""
    with np.errstate(all="ignore"):
        whole = np.corrcoef(np.concatenate([x, y], axis=1), rowvar=False)[: x.shape[1], x.shape[1] :]
    constant = np.ptp(x, axis=0)[:, None] * np.ptp(y, axis=0) == 0
    return np.where(constant, 0, whole)


def r2_of(x: Array, y: Array) -> Array:
    """R² of every column of x from all of y, by least squares."""
    xc, yc = x - x.mean(0), y - y.mean(0)
    rest = xc - yc @ np.linalg.lstsq(yc, xc, rcond=None)[0]
    whole = (xc**2).sum(0)
    return np.where(whole > 1e-9, 1 - (rest**2).sum(0) / np.maximum(whole, 1e-9), 0)


# -- of arrays -------------------------------------------------------------------------------------------------------


def test_correlations_and_linear_maps_equal_those_of_the_rows() -> None:
    rows = rows_of()
    x, y = rows["0:neurons.0"], rows["1:neurons.0"]
    pair = pair_of_rows(x, y)
    np.testing.assert_allclose(
        correlations(pair)[:4, [0, 1, 2, 3, 5, 6]], r_of(x, y)[:4, [0, 1, 2, 3, 5, 6]], atol=1e-12
    )
    np.testing.assert_allclose(explained(pair)[:4], r2_of(x, y)[:4], atol=1e-12)
    assert explained(pair_of_rows(x[:, :2], np.zeros((300, 3)))).tolist() == [0, 0]
    assert not correlations(pair_of_rows(x, np.zeros((300, 3)))).any()


def test_matching_is_the_best_of_all_matchings() -> None:
    generator = np.random.default_rng(1)
    for shape in ((4, 6), (6, 4), (5, 5)):
        strength = generator.random(shape)
        partner = matched(strength)
        small = strength if shape[0] <= shape[1] else strength.T
        best = max(
            sum(small[place, chosen] for place, chosen in enumerate(order))
            for order in permutations(range(small.shape[1]), len(small))
        )
        kept = partner >= 0
        assert strength[kept, partner[kept]].sum() == pytest.approx(best)
        assert len(set(partner[kept].tolist())) == kept.sum() == min(shape)
    assert matched(np.array([[0.0, 0.0], [0.2, 0.9]])).tolist() == [-1, 1]


@pytest.mark.parametrize(("n", "units"), [(12, (3,)), (60, (40,)), (200, (25, 5))])
def test_chance_of_correlations_is_what_draws_give(n: int, units: tuple[int, ...]) -> None:
    generator = np.random.default_rng(2)
    largest, least = [], []
    for _ in range(1500):
        x = generator.normal(size=(n, 1))
        by_model = [np.abs(r_of(x, generator.normal(size=(n, count)))).max() for count in units]
        largest.append(max(by_model))
        least.append(min(by_model))
    assert chance_correlation(n, units) == pytest.approx(np.mean(largest), rel=0.02)
    assert chance_correlation(n, units, least=True) == pytest.approx(np.mean(least), rel=0.02)


def test_chance_of_linear_maps_is_what_draws_give() -> None:
    generator = np.random.default_rng(3)
    drawn = [[float(r2_of(generator.normal(size=(40, 1)), generator.normal(size=(40, p)))[0]) for p in (6, 10)]
             for _ in range(1500)]  # fmt: skip
    one, both = np.mean(drawn, axis=0), np.max(drawn, axis=1).mean()
    assert chance_explained(40, (6,)) == pytest.approx(6 / 39)
    assert chance_explained(40, (6,)) == pytest.approx(one[0], rel=0.03)
    assert chance_explained(40, (6, 10)) == pytest.approx(both, rel=0.03)
    assert chance_explained(10, (9,)) == 1
    assert chance_explained(10, (0,)) == 0


def test_chance_of_matching_is_what_draws_give() -> None:
    generator = np.random.default_rng(4)
    drawn = []
    for _ in range(60):
        strength = np.abs(r_of(generator.normal(size=(50, 30)), generator.normal(size=(50, 20))))
        partner = matched(strength)
        drawn.append(strength[partner >= 0, partner[partner >= 0]].sum() / 30)
    assert chance_matching(50, 30, 20) == pytest.approx(np.mean(drawn), rel=0.05)
    assert chance_matching(50, 0, 20) == 0


# -- of a sweep ------------------------------------------------------------------------------------------------------


def test_every_score_of_three_models() -> None:
    rows = rows_of()
    for layer in range(2):
        x = rows[f"0:neurons.{layer}"]
        two = np.concatenate([np.abs(r_of(x, rows[f"1:neurons.{other}"])) for other in range(2)], axis=1).max(1)
        three = np.abs(r_of(x, rows["2:neurons.0"])).max(1)
        r2 = np.max([r2_of(x, rows[key]) for key in rows if key[0] != "0"], axis=0)
        for score, expected in (
            ("maxcorr", np.maximum(two, three)),
            ("mincorr", np.minimum(two, three)),
            ("linreg", r2),
        ):
            result = neuron_matches(found(), score=score, interval=False)
            assert result.axes == {"measure": (score,), "site": ("neurons.0", "neurons.1"), "unit": tuple(range(5))}
            np.testing.assert_allclose(result.values[0, layer], expected, atol=1e-7, err_msg=score)
            assert result.values[0, layer, 4] == 0  # constant


def test_planted_likes_are_named() -> None:
    result = neuron_matches(found(), interval=False)
    columns = {name: cells[0] for name, cells in result.table("matches").columns.items()}
    rows = rows_of()
    for (_, layer, unit), (other, floor, like, share) in PLANTED.items():
        at = layer, unit
        assert columns["other model"][at] == ("one", "two", "three")[other]
        assert columns["other site"][at] == f"neurons.{floor}"
        assert columns["other unit"][at] == like
        r = r_of(rows[f"0:neurons.{layer}"], rows[f"{other}:neurons.{floor}"])[unit, like]
        assert columns["correlation"][at] == pytest.approx(r)
        assert np.sign(r) == np.sign(share)
    assert columns["other unit"][0, 4] == -1
    assert columns["correlation"][0, 4] == 0
    top = result.top(2).columns
    assert top["site"].tolist() == ["neurons.0", "neurons.1"]
    assert top["unit"].tolist() == [1, 2]
    assert top["other unit"].tolist() == [6, 0]
    assert top["value"][0] == pytest.approx(1)
    with pytest.raises(PellucidError, match=r"top\(0\) shows no unit"):
        result.top(0)


def test_matching_of_two_sites_and_the_interval_of_its_pairs() -> None:
    rows = rows_of()
    result = neuron_matches(found(), score="matching", left="0:neurons.0", right="1:neurons.1")
    r = r_of(rows["0:neurons.0"], rows["1:neurons.1"])
    partner = matched(np.abs(r))
    assert result.table("matches").columns["other unit"][0, 0].tolist() == partner.tolist()
    assert partner[4] == -1
    np.testing.assert_allclose(result.values[0, 0, :4], np.abs(r[np.arange(4), partner[:4]]), atol=1e-9)
    assert result.null is not None
    assert result.null[0, 0].tolist() == [chance_matching(300, 4, 6)] * 4 + [0]
    groups = np.repeat(np.arange(GROUPS), WORDS)
    without = []
    for group in range(GROUPS):
        rest = [rows[key][groups != group] for key in ("0:neurons.0", "1:neurons.1")]
        without.append(np.abs(r_of(*rest)[np.arange(4), partner[:4]]))
    ends = jackknife(result.values[0, 0, :4], without, [WORDS] * GROUPS).within(0, 1)
    assert result.low is not None
    np.testing.assert_allclose(result.low[0, 0, :4], ends.low, atol=1e-7)


def test_interval_leaves_out_each_group() -> None:
    rows = rows_of((ONE, TWO))
    groups = np.repeat(np.arange(GROUPS), WORDS)
    for score in ("maxcorr", "linreg"):
        result = neuron_matches(found((ONE, TWO)), score=score, site="neurons.0")

        def scored(kept: Array, score: str = score) -> Array:
            x, y = rows["0:neurons.0"][kept], rows["1:neurons.0"][kept]
            return np.abs(r_of(x, y)).max(1) if score == "maxcorr" else r2_of(x, y)

        without = [scored(groups != group) for group in range(GROUPS)]
        ends = jackknife(scored(groups >= 0), without, [WORDS] * GROUPS).within(0, 1)  # sizes of correlations, shares
        assert result.low is not None
        assert result.high is not None
        np.testing.assert_allclose(result.low[0, 0], ends.low, atol=1e-7)
        np.testing.assert_allclose(result.high[0, 0], ends.high, atol=1e-7)
        assert result.resampled == "10 document groups (jackknife, 95%)"
    none = neuron_matches(found((ONE, TWO), Moments("neurons.*")))
    assert none.low is None
    assert "groups=True" in none.resampled


def test_chance_counts_the_units_that_move() -> None:
    result = neuron_matches(found(), interval=False)
    assert result.null is not None
    assert result.null[0, 0, 0] == chance_correlation(300, (12, 3))  # two sites of 6, one of 3
    assert result.null[0, :, 4].tolist() == [0, 0]
    least = neuron_matches(found(), score="mincorr", interval=False)
    assert least.null is not None
    assert least.null[0, 0, 0] == chance_correlation(300, (12, 3), least=True)
    maps = neuron_matches(found(), score="linreg", site="neurons.1", interval=False)
    assert maps.null is not None
    assert maps.null[0, 0, 0] == pytest.approx(6 / 299)
    noise = [(0, 0), (0, 2), (1, 0), (1, 1), (1, 3)]
    assert np.mean([result.values[0][at] for at in noise]) == pytest.approx(result.null[0, 0, 0], rel=0.25)


def test_constant_units_in_float32_moments_are_0_not_noise() -> None:
    rows = rows_of((ONE, TWO))
    for key in rows:
        rows[key][:, 4] = 12.3  # about a shift of 0: its squares are large, and their rounding too
    for score in ("maxcorr", "mincorr", "linreg"):
        result = neuron_matches(found((ONE, TWO), Moments("neurons.*", groups=True), rows), score=score)
        assert (result.values[0, :, 4] == 0).all()
        assert (result.table("matches").columns["other unit"] != 4).all()
        assert result.low is not None
        assert (result.low[0, :, 4] == 0).all()
        assert result.values.max() <= 1


def test_random_models_stand_beside() -> None:
    models = (ONE, TWO, *with_twin(TWO)[1:])
    rows = rows_of(models)
    result = neuron_matches(found(models), interval=False)
    assert set(result.table("matches").columns["other model"].ravel()) == {"two"}
    x = rows["0:neurons.1"]
    expected = np.concatenate([np.abs(r_of(x, rows[f"2:neurons.{layer}"])) for layer in range(2)], axis=1).max(1)
    np.testing.assert_allclose(result.table("random model").columns["value"][0, 1], expected, atol=1e-7)
    assert "random model" not in neuron_matches(found((ONE, TWO)), interval=False).tables


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(PellucidError, match="no score of units 'corr'; there are maxcorr, mincorr, linreg, matching"):
        neuron_matches(found(), score="corr")
    with pytest.raises(PellucidError, match="'one' have no other trained model"):
        neuron_matches(found((ONE,)))
    with pytest.raises(PellucidError, match=r"'0:neurons.1' is on both sides"):
        neuron_matches(found(), left="0:neurons.*", right="0:neurons.1,1:neurons.1")
    with pytest.raises(PellucidError, match="sites of 3 models; units of one model"):
        neuron_matches(found(), left="neurons.0", right="1:neurons.1")
    with pytest.raises(PellucidError, match="pairs two sites one to one, and 2 and 3 were chosen"):
        neuron_matches(found(), score="matching")
    with pytest.raises(PellucidError, match=r"no moments of 'neurons.1'; it has those of 0:neurons.0, 1:neurons.0"):
        neuron_matches(found((ONE, TWO), Moments("neurons.0")), site="neurons.1")
    with pytest.raises(PellucidError, match="were not gathered"):
        neuron_matches(found((ONE, TWO), Moments("neurons.*", pairs="diagonal")))
    with pytest.raises(PellucidError, match="read Moments, which this sweep did not collect"):
        neuron_matches(found((ONE, TWO), Moments("neurons.*", pairs="units")))
    wide = facts({Site("neurons", 0): (200,), Site("neurons", 1): (8,)}, name="wide")
    with pytest.raises(PellucidError, match=r"have \[8, 200\] units"):
        neuron_matches(found((wide, TWO)))
    with pytest.warns(SimilarityWarning, match=r"300 words are few .* 200 units: chance alone explains 67%"):
        neuron_matches(found((ONE, wide)), score="linreg", interval=False)


def test_the_figure_sorts_the_units_of_each_site_beside_chance():
    """One panel per site, a line that only falls, and chance in grey: not one strip of a heat map."""
    result = neuron_matches(found((*with_twin(ONE), *with_twin(TWO))), left="0:neurons.*", right="2:neurons.*")
    result = replace(result, null=np.linspace(0.01, 0.1, result.values.size).reshape(result.values.shape))
    panels = [axes for axes in result.plot().axes if axes.axison]
    assert [axes.get_title().partition(":")[0] for axes in panels] == ["neurons.0", "neurons.1"]
    for site, axes in enumerate(panels):
        lines = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines}
        assert set(lines) == {"measured", "random", "chance"}
        np.testing.assert_array_equal(lines["measured"], sorted(result.values[0, site], reverse=True))
        random = result.table("random model").columns["value"][0, site]
        np.testing.assert_array_equal(lines["random"], sorted(random, reverse=True))
        assert result.null is not None
        order = np.argsort(-result.values[0, site], kind="stable")
        np.testing.assert_array_equal(lines["chance"], result.null[0, site][order])
        assert f"median {np.median(result.values[0, site]):.2f}" in axes.get_title()
