"""Norms of the stream: known lengths, planted outlier dimensions, the random twin as chance."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.collect.moments import Moments
from pellucid.errors import PellucidError
from pellucid.model.sites import Site
from pellucid.overview.norms import norms, outlier_dimensions
from pellucid.results import ResultError
from tests.found_by_hand import facts, found_of, gathered, with_twin, word_batch

LAYERS, WIDTH, GROUPS = 3, 24, 10
MODEL = facts({Site("resid", layer): (WIDTH,) for layer in range(LAYERS)})
COLLECTOR = Moments("resid.*", pairs="units", groups=True)


def text(layer: int, *, seed: int = 0, scale: float = 1.0) -> list[np.ndarray]:
    """Rows of each document group; dimension 5 of layer 2 is an outlier by its mean, 7 by its sd."""
    rng = np.random.default_rng([seed, layer])
    rows = [scale * (layer + 1) * rng.normal(size=(20 + group, WIDTH)) for group in range(GROUPS)]
    if layer == 2 and seed == 0:
        for part in rows:
            part[:, 5] += 500
            part[:, 7] *= 30
    return [part.astype(np.float32) for part in rows]


def found(models=(MODEL,), collector: Moments = COLLECTOR, groups: int = GROUPS):
    several = len(models) > 1
    rows = {
        f"{number}:resid.{layer}" if several else f"resid.{layer}": text(layer, seed=number, scale=1 + number)
        for number in range(len(models))
        for layer in range(LAYERS)
    }
    batches = [word_batch({key: parts[group] for key, parts in rows.items()}, group=group) for group in range(groups)]
    return found_of(models, {collector: gathered(collector, models, batches)})


def expected(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float64)
    lengths = np.sqrt((rows**2).sum(1))
    variance = rows.var(0)
    return np.array([lengths.mean(), np.sqrt((lengths**2).mean()), variance.max() / variance.sum()])


def test_every_measure_of_every_layer():
    result = norms(found())
    assert result.axes == {"measure": ("mean norm", "RMS norm", "largest share"), "layer": (0, 1, 2)}
    for layer in range(LAYERS):
        assert np.allclose(result.values[:, layer], expected(np.concatenate(text(layer))), rtol=1e-6)
    assert result.null is None
    assert result.measure("largest share")[2] > 0.9


def test_of_several_moments_those_with_control_and_groups_are_read():
    """Other analyses of the same sweep may gather moments of the model alone, or without document groups."""
    models = with_twin(MODEL)
    others = (Moments("0:resid.*", groups=True), Moments("resid.*", pairs="diagonal"), COLLECTOR)
    parts = [found(models, each) for each in others]
    states = {each: part.states[f"0-{each.kind}"] for each, part in zip(others, parts, strict=True)}
    result = norms(found_of(models, states))
    assert result.same(norms(parts[-1]))
    assert result.null is not None
    assert result.low is not None


def test_the_interval_leaves_out_whole_groups():
    result = norms(found())
    parts = text(1)
    without = np.stack([expected(np.concatenate(parts[:g] + parts[g + 1 :])) for g in range(GROUPS)])
    spread = (GROUPS - 1) / GROUPS * ((without - without.mean(0)) ** 2).sum(0)  # groups are nearly equal
    reach = 2.2621572 * np.sqrt(spread)
    assert np.allclose(result.high[:, 1] - result.values[:, 1], reach, rtol=0.1)
    assert np.allclose(result.values[:, 1] - result.low[:, 1], reach, rtol=0.1)
    assert result.resampled == "10 document groups (jackknife, 95%)"


def test_without_groups_there_is_no_interval_and_it_says_why():
    result = norms(found(collector=Moments("resid.*", pairs="units")))
    assert result.low is None
    assert "not kept apart" in result.resampled


def test_the_twin_is_what_chance_gives():
    result = norms(found(with_twin(MODEL)))
    for layer in range(LAYERS):
        twin = np.concatenate(text(layer, seed=1, scale=2))
        assert np.allclose(result.null[:, layer], expected(twin), rtol=1e-6)
        assert np.allclose(result.values[:, layer], expected(np.concatenate(text(layer))), rtol=1e-6)


def test_a_second_trained_model_is_not_chance():
    other = facts({site: MODEL.sizes[str(site)] for site in MODEL.sites}, name="other")
    assert norms(found((MODEL, other))).null is None


def test_planted_dimensions_are_found_and_no_others():
    rows = norms(found(with_twin(MODEL))).outliers.to_frame()
    assert set(zip(rows["model"], rows["layer"], rows["dimension"], strict=True)) == {
        ("tiny", "2", 5),
        ("tiny", "2", 7),
    }
    by_mean = rows[rows["dimension"] == 5].iloc[0]
    assert by_mean["mean"] == pytest.approx(500, abs=1)
    assert by_mean["mean, robust sds away"] > 6 > by_mean["sd, robust sds away"]
    by_sd = rows[rows["dimension"] == 7].iloc[0]
    assert by_sd["sd, robust sds away"] > 6
    planted = np.concatenate(text(2))[:, 7].astype(np.float64)
    assert by_sd["sd"] == pytest.approx(planted.std(), rel=1e-6)


def test_the_outlier_rule():
    mean = np.array([1.0, 2, 3, 4, 5, 100, -90])
    sd = np.ones(7)
    sd[0] = 9
    numbers, by_mean, by_sd = outlier_dimensions(mean, sd)
    robust = 1.4826 * np.median(np.abs(mean - 3))
    assert numbers.tolist() == [5, 6]
    assert np.allclose(by_mean, [97 / robust, 93 / robust])
    assert by_sd.tolist() == [0, 0]
    assert outlier_dimensions(np.zeros(4), np.zeros(4))[0].tolist() == []
    assert outlier_dimensions(mean, np.ones(7), threshold=60)[0].tolist() == []


def test_a_silent_layer_has_no_largest_dimension():
    model = facts({Site("resid", 0): (4,)})
    state = gathered(Moments("resid.*", pairs="units"), [model], [word_batch({"resid.0": np.zeros((5, 4))})])
    assert norms(found_of([model], {Moments("resid.*", pairs="units"): state})).values.tolist() == [[0.0]] * 3


def test_one_of_several_moments_is_chosen_by_its_sites():
    model = facts({Site("resid", 0): (4,), Site("neurons", 0): (3,)})
    rows = word_batch({"resid.0": np.ones((5, 4)), "neurons.0": np.ones((5, 3))})
    kinds = [Moments("neurons.*", pairs="units"), Moments("resid.*", pairs="units")]
    result = norms(found_of([model], {kind: gathered(kind, [model], [rows]) for kind in kinds}))
    assert result.measure("mean norm").tolist() == [2.0]


def test_what_was_not_collected_is_named():
    model = facts({Site("resid", 0): (4,), Site("neurons", 0): (3,)})
    with pytest.raises(PellucidError, match="collected no Moments"):
        norms(found_of([model], {}))
    only = Moments("neurons.*", pairs="units")
    state = gathered(only, [model], [word_batch({"neurons.0": np.ones((5, 3))})])
    with pytest.raises(ResultError, match=r"have neurons.0, and no 'resid' .* sweep with Moments\(\"resid"):
        norms(found_of([model], {only: state}))


def test_stacks_are_named_where_there_are_several():
    model = facts({Site("resid", 0, "encoder"): (2,), Site("resid", 0, "decoder"): (2,)})
    kind = Moments("*.resid.*", pairs="units")
    rows = word_batch({"encoder.resid.0": np.ones((3, 2)), "decoder.resid.0": np.ones((3, 2))})
    assert norms(found_of([model], {kind: gathered(kind, [model], [rows])})).axes["layer"] == ("encoder.0", "decoder.0")
