"""The survey of neurons: kinds and shares against counting by hand, planted units of every kind, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pellucid as pl
from pellucid.errors import PellucidError
from pellucid.model import Model
from pellucid.neurons import Concept, survey
from pellucid.neurons.survey import KINDS, _activity, survey_collectors
from tests.neurons import planted

DEAD, QUIET, LOUD, PLACED = 60, 61, 62, 63
"""Units of layer 1 that are made to never change, to change little, to change much, and to follow the place."""


@pytest.fixture(scope="module")
def model() -> Model:
    network = planted.network()
    with torch.no_grad():
        layer = network.transformer.h[1].mlp.c_fc
        layer.weight[:, DEAD] = 0.0
        layer.bias[DEAD] = 1.0
        layer.weight[:, QUIET] *= 0.01
        layer.bias[QUIET] = 5.0
        layer.weight[:, LOUD] *= 60.0
        network.transformer.wpe.weight[:, -2] = torch.linspace(0, 3, network.transformer.wpe.weight.shape[0])
        layer.weight[:, PLACED] = 0.0
        layer.weight[-2, PLACED] = 2.0
    return Model.load(network, tokenizer=planted.tokenizer())


@pytest.fixture(scope="module")
def result(model):
    return survey(model, planted.corpus().take(120), sites="neurons.*", progress=False)


@pytest.fixture(scope="module")
def rows(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("survey") / "store"
    store = pl.build_store(model, planted.corpus().take(120), folder, ("neurons.*",), dtype="float32", progress=False)
    frame = store.words(["word", "position"])
    return store.layer("neurons.1").numpy().astype(np.float64), frame["position"].to_numpy()


def test_planted_units_are_of_their_kind(result):
    assert result.of_kind("dead") == [f"neurons.1:{DEAD}"]
    assert f"neurons.1:{QUIET}" in result.of_kind("low variance")
    assert result.of_kind("high variance")[0] == f"neurons.1:{LOUD}"
    assert result.of_kind("position")[0] == f"neurons.1:{PLACED}"
    assert planted.names()["NOUN"] in result.of_kind("mostly silent")


def test_measures_are_those_of_the_rows(result, rows):
    values, position = rows
    own = [place for place, name in enumerate(result.neurons) if name.startswith("neurons.1:")]
    sd = values.std(0)
    assert result.values[0, own] == pytest.approx(sd / np.median(sd), rel=1e-4)
    edges = np.array([1, 2, 4, 8, 16, 32])
    band = np.searchsorted(edges, position + 1, side="right")
    centred = values - values.mean(0)
    between = sum((band == one).sum() * centred[band == one].mean(0) ** 2 for one in np.unique(band))
    total = (centred**2).sum(0)
    expected = np.where(sd > 1e-6, between / np.maximum(total, 1e-12), 0)
    assert result.values[1, own] == pytest.approx(expected, abs=1e-4)
    assert result.null[1, own[0]] == pytest.approx((len(np.unique(band)) - 1) / (len(values) - 1))
    columns = result.table("activity").columns
    assert columns["smallest"][own] == pytest.approx(values.min(0), rel=1e-5)
    assert columns["mean"][own] == pytest.approx(values.mean(0), rel=1e-4, abs=1e-6)
    alive = values.max(0) > values.min(0)
    silent = (np.abs(values) <= 0.01 * np.abs(values).max(0)).mean(0)
    assert columns["silent"][own][alive] == pytest.approx(silent[alive], abs=0.05)
    reach = 0.01 * (values.max(0) - values.min(0))
    ends = ((values >= values.max(0) - reach) | (values <= values.min(0) + reach)).mean(0)
    assert columns["saturated"][own][alive] == pytest.approx(ends[alive], abs=0.05)


def test_what_frequency_explains_is_that_of_the_rows(result, rows):
    """Σ_b n_b (μ_b − μ)² / Σ (x − μ)² over bands of the words' shares of the text."""
    values = rows[0]
    words = np.array([word.lower() for sentence in planted.corpus().take(120) for word in sentence.words])
    assert len(words) == len(values)
    place, counts = np.unique(words, return_inverse=True, return_counts=True)[1:]
    band = np.digitize(counts[place] / len(words), [1e-4, 1e-3, 1e-2])
    assert len(np.unique(band)) > 1
    centred = values - values.mean(0)
    between = sum((band == one).sum() * centred[band == one].mean(0) ** 2 for one in np.unique(band))
    alive = values.std(0) > 1e-6
    own = [at for at, name in enumerate(result.neurons) if name.startswith("neurons.1:")]
    found = result.values[result.place("measure", "frequency"), own]
    assert found[alive] == pytest.approx((between / np.maximum((centred**2).sum(0), 1e-12))[alive], abs=1e-4)
    assert found[~alive] == pytest.approx(0.0)
    assert result.null[2, own[0]] == pytest.approx((len(np.unique(band)) - 1) / (len(words) - 1))


class Even:
    """Words whose values lie evenly between −1 and 1 at every unit: none of them is silent or saturated."""

    def __init__(self, units: int) -> None:
        self._units = units

    def smallest(self, _: str) -> np.ndarray:
        return np.full(self._units, -1.0)

    def largest(self, _: str) -> np.ndarray:
        return np.full(self._units, 1.0)

    def histogram(self, _: str, unit: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full(200, 5), np.linspace(-1, 1, 201)


def test_kinds_begin_where_they_are_said_to():
    """Spread 3 and ⅓, and a tenth of the variance: each at the bound, and just on its other side."""
    cases = [
        ((3.0, 0.0, 0.0), "high variance"),
        ((2.99, 0.0, 0.0), "varies"),
        ((1 / 3, 0.0, 0.0), "low variance"),
        ((0.334, 0.0, 0.0), "varies"),
        ((1.0, 0.1, 0.0), "position"),
        ((1.0, 0.099, 0.0), "varies"),
        ((1.0, 0.0, 0.1), "frequency"),
        ((1.0, 0.0, 0.099), "varies"),
        ((4.0, 0.5, 0.5), "high variance, position, frequency"),
    ]
    values, some = np.array([each for each, _ in cases]).T, np.ones(len(cases))
    found = _activity(Even(len(cases)), ("neurons.0",), 0 * some, some, values)
    assert found["kind"].tolist() == [kind for _, kind in cases]
    assert found["silent"] == pytest.approx(0.01 * some), "2% of the range, which is twice the largest size"
    assert found["saturated"] == pytest.approx(0.02 * some), "1% of the range at each end"


def test_sites_count_the_kinds_beside_the_random_model(result):
    table = result.table("sites")
    assert table.axes["kind"] == tuple(KINDS)
    at = table.axes["site"].index("neurons.1"), table.axes["kind"].index("dead")
    assert (table.columns["neurons"][at], table.columns["random model"][at], table.columns["of"][at]) == (1, 0, 64)


def test_a_sweep_gives_the_same_and_refuses_what_is_missing(model, result):
    corpus = planted.corpus().take(120)
    for name in ("position", "frequency"):
        corpus = corpus.labelled(Concept.property(name))
    found = pl.sweep(model, corpus, survey_collectors(("neurons.*",)), progress=False)
    again = survey(found)
    assert again.values == pytest.approx(result.values, rel=1e-6, abs=1e-6)
    assert (again.table("sites").columns["random model"] == -1).all()
    part = pl.sweep(model, corpus, survey_collectors(("neurons.*",))[:2], progress=False)
    with pytest.raises(PellucidError, match="needs Quantiles"):
        survey(part)
    with pytest.raises(PellucidError, match="needs a corpus"):
        survey(model)
    with pytest.raises(PellucidError, match="no kind 'sleepy'"):
        result.of_kind("sleepy")
    with pytest.raises(PellucidError, match="The position of every word is 1, so nothing can follow it; give more"):
        survey(model, pl.Corpus.of(["a", "dog"]), sites="neurons.1", control=False)
