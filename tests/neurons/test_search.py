"""Search through several models, and NeuroX's arithmetic, on models and rows whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import pellucid as pl
from pellucid.neurons import precision, search
from pellucid.results import ResultError
from tests.neurons import planted


@pytest.fixture(scope="module")
def found():
    """The planted model beside one whose layer-0 neurons 5 and 6 have changed places, 7 is turned and others new."""
    import torch

    from pellucid.model import Model

    other = planted.network()
    with torch.no_grad():
        layer = other.transformer.h[0].mlp.c_fc
        order = torch.arange(layer.weight.shape[1])
        order[[5, 6]] = order[[6, 5]]
        layer.weight.copy_(layer.weight[:, order])
        new = torch.Generator().manual_seed(1)
        layer.weight[:, 40:] = 0.3 * torch.randn(layer.weight.shape[0], layer.weight.shape[1] - 40, generator=new)
        layer.bias[40:] = 0
    second = Model.load(other, tokenizer=planted.tokenizer())
    return pl.sweep(
        [planted.model(), second], planted.corpus().take(150), [pl.Moments("neurons.0", groups=True)], progress=False
    )


def test_neurons_that_the_other_model_has_are_first(found):
    ranked = search(found)
    values = dict(zip(ranked.neurons, ranked.values[0], strict=True))
    assert all(values[f"neurons.0:{unit}"] == pytest.approx(1, abs=1e-5) for unit in range(40))
    assert max(values[f"neurons.0:{unit}"] for unit in range(40, 64) if unit not in planted.neurons().values()) < 0.99
    assert set(ranked.top(40)) >= {f"neurons.0:{unit}" for unit in (5, 6, 11)}
    other = ranked.table("matches").columns["other unit"]
    assert (int(other[5]), int(other[6]), int(other[8])) == (6, 5, 8)
    assert ranked.title == "Neurons by their likes in other models (MaxCorr)"
    assert ranked.low is not None


def test_linreg_is_never_below_the_squared_correlation(found):
    corr, fit = search(found).values[0], search(found, score="linreg").values[0]
    assert (fit >= corr**2 - 1e-6).all()


def test_scores_stand_at_their_own_neurons():
    twin = pl.Model.random_like(planted.model(), 2)
    found = pl.sweep([planted.model(), twin], planted.corpus().take(60), [pl.Moments("neurons.*")], progress=False)
    ranked, matches = search(found, right="1:neurons.*"), pl.similarity.neuron_matches(found, right="1:neurons.*")
    for site, unit in ((0, 5), (1, 0), (1, 63)):
        at = ranked.place("neuron", f"neurons.{site}:{unit}")
        assert ranked.values[0, at] == matches.values[0, matches.place("site", f"neurons.{site}"), unit]


def test_unknown_scores_list_what_exists(found):
    with pytest.raises(ResultError, match="maxcorr, mincorr, linreg, svcca"):
        search(found, score="pwcca")


def test_svcca_ranks_directions_that_both_models_have():
    """Known answer: 3 shared directions under private noise, turned differently in the two models."""
    from pellucid.neurons.directions import chance, shared
    from pellucid.similarity import pair_of_rows

    dice = np.random.default_rng(0)
    common, one, other = dice.normal(size=(4000, 3)), dice.normal(size=(4000, 9)), dice.normal(size=(4000, 7))
    turn = [np.linalg.qr(dice.normal(size=(size, size)))[0] for size in (12, 10)]
    left, right = np.hstack([common, one]) @ turn[0], np.hstack([common, other]) @ turn[1]
    found = shared(pair_of_rows(left, right))
    assert found.rho[:3] == pytest.approx(1, abs=1e-6)
    assert found.rho[3:].max() < 0.1
    values = (left - left.mean(0)) @ found.weights
    assert values.std(0) == pytest.approx(1, abs=1e-6)
    explained = np.linalg.lstsq(common - common.mean(0), values[:, :3], rcond=None)[1]
    assert explained.max() < 1e-12, "the first directions are the common ones"
    apart = shared(pair_of_rows(dice.normal(size=(4000, 12)), dice.normal(size=(4000, 10))))
    assert apart.rho == pytest.approx(chance(4000, 12, 10, 0), abs=0.02)


def test_chance_of_directions_is_that_of_unrelated_rows_where_words_are_few():
    from pellucid.neurons.directions import chance, shared
    from pellucid.similarity import pair_of_rows

    dice = np.random.default_rng(3)
    sides = [(dice.normal(size=(200, 30)), dice.normal(size=(200, 40))) for _ in range(20)]
    drawn = [shared(pair_of_rows(*each), (30, 40)).rho for each in sides]
    told = [chance(200, 30, 40, seed) for seed in range(7)]
    assert np.mean(drawn, axis=0) == pytest.approx(np.mean(told, axis=0), abs=0.015)


def test_svcca_of_a_sweep_is_a_ranking(found):
    ranked = search(found, score="svcca")
    assert ranked.method == "svcca"
    assert ranked.neurons[0] == "neurons.0:direction 0"
    assert (np.diff(ranked.values[0]) <= 1e-12).all()
    assert ranked.values[0, :10] == pytest.approx(1, abs=1e-3)
    assert ranked.low is not None
    table = ranked.table("directions")
    assert table.columns["weight"].shape == (len(ranked.neurons), 64)
    assert set(ranked.table("matches").columns["other site"]) == {"neurons.0"}
    mean = pl.similarity.grid(found, "svcca", left="0:neurons.0", right="1:neurons.0").values.ravel()[0]
    assert ranked.values.mean() == pytest.approx(mean, abs=1e-6)
    with pytest.raises(ResultError, match="names no neuron"):
        pl.neurons.distribution(ranked, 3)


def test_neurox_preset_looks_at_the_upper_end_alone(tmp_path):
    pl.build_store(planted.model(), planted.corpus().take(80), tmp_path / "s", ("neurons.0",), dtype="float32")
    store = pl.Store.open(tmp_path / "s")
    rows, tags = store.layer("neurons.0").numpy().astype(float), store.words(["upos"])["upos"].to_numpy()
    for exact in (True, False):
        ranked = precision(store, concept="upos=ADJ", exact=exact, preset="neurox")
        expected = [average_precision_score(tags == "ADJ", rows[:, unit]) for unit in range(rows.shape[1])]
        off = 1e-9 if exact else ranked.table("error").columns["value"][0].max()
        assert ranked.values[0] == pytest.approx(np.array(expected), abs=off)
        assert ranked.order()[0] != planted.names()["ADJ"], "a neuron that is low for the class is not found this way"
    assert precision(store, concept="upos=ADJ", exact=True).order()[0] == planted.names()["ADJ"]
    with pytest.raises(ResultError, match="there is neurox"):
        precision(store, concept="upos", preset="other")
