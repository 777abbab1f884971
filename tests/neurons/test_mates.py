"""Mates of neurons and effects of single neurons: twins that were planted, clusters against an oracle, real effects."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import pellucid as pl
from pellucid.errors import PellucidError
from pellucid.heads.roles.clusters import joined
from pellucid.model import Model
from pellucid.neurons import effects, read
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.mates import clusters, mates, site_correlations
from tests.neurons import planted
from tests.tiny_models import network, word_tokenizer

NOUN = planted.names()["NOUN"]
TWIN, NEGATED = 60, 61
"""Neurons of layer 0 that do what that of nouns does, and what it does with the other sign."""


@pytest.fixture(scope="module")
def model() -> Model:
    network = planted.network()
    own = planted.neurons()["NOUN"]
    with torch.no_grad():
        layer = network.transformer.h[0].mlp.c_fc
        for unit, sign in ((TWIN, 1.0), (NEGATED, -1.0)):
            layer.weight[:, unit] = sign * layer.weight[:, own]
            layer.bias[unit] = sign * layer.bias[own]
    return Model.load(network, tokenizer=planted.tokenizer())


def test_twins_are_found_whatever_their_sign(model):
    reading = read(model, planted.corpus().take(80), neurons=[NOUN, "neurons.1:5"], cut=0.2, progress=False)
    own = {row["mate"]: row["correlation"] for row in reading.rows_of("mates", NOUN)}
    assert set(own) == {f"neurons.0:{TWIN}", f"neurons.0:{NEGATED}"}
    assert own[f"neurons.0:{TWIN}"] == pytest.approx(1, abs=1e-5)
    assert own[f"neurons.0:{NEGATED}"] < -0.9
    assert {row["size"] for row in reading.rows_of("mates", NOUN)} == {3}
    (alone,) = reading.rows_of("mates", "neurons.1:5")
    assert alone["size"] == 1
    assert abs(alone["correlation"]) < 0.99


def test_correlations_are_those_of_the_rows(model, tmp_path):
    corpus = planted.corpus().take(60)
    rows = pl.build_store(model, corpus, tmp_path / "s", ("neurons.1",), dtype="float32", progress=False)
    found = pl.sweep(model, corpus, [pl.Moments("neurons.1", pairs="diagonal")], progress=False)
    expected = np.corrcoef(rows.layer("neurons.1").numpy().astype(float).T)
    assert site_correlations(found, "neurons.1") == pytest.approx(expected, abs=1e-4)
    with pytest.raises(PellucidError, match="need Moments"):
        mates(found, ["neurons.0:1"])


def test_clusters_are_those_of_average_linkage_by_hand():
    dice = np.random.default_rng(4)
    strength = np.abs(np.corrcoef(dice.normal(size=(14, 30)) + 2 * dice.normal(size=(4, 30))[dice.integers(0, 4, 14)]))
    for cut in (0.3, 0.6):
        mine, other = clusters(strength, cut=cut), joined(1 - strength, count=None, within=cut)
        assert ((mine[:, None] == mine) == (other[:, None] == other)).all()
    assert clusters(np.ones((1, 1))).tolist() == [1]
    with pytest.raises(PellucidError, match="between 0 and 1"):
        clusters(strength, cut=1.5)


def test_effects_stand_beside_random_neurons():
    table = effects(planted.model(), planted.corpus().take(40), [NOUN, "neurons.1:5"], draws=6).columns
    noun, idle = (table["neuron"] == NOUN), (table["neuron"] == "neurons.1:5")
    assert table["replacement"][noun].tolist() == ["zero", "mean"]
    assert (table["lost"][noun] > 0.05).all()
    assert table["flipped"][noun][1] > 0.05, "at its mean, other classes win"
    assert (table["loss"][noun] > 0.05).all()
    assert (table["larger"][noun] < 0.5).all()
    assert np.abs(table["lost"][idle]).max() < 1e-6, "neurons of layer 1 write nothing"
    assert (table["larger"][idle] == 1).all()
    assert (table["low"] <= table["lost"]).all()
    alone = effects(planted.model(), planted.corpus().take(1), [NOUN], draws=2).columns
    assert "low" not in alone, "one document has no interval"
    expected = pl.neurons.ablation(planted.model(), planted.corpus().take(40), neurons=[NOUN], progress=False)
    assert table["lost"][noun][0] == pytest.approx(float(expected.overall.columns["score"][0]))


def test_without_any_other_neuron_nothing_stands_beside():
    """Shares of no neurons are not 0, which would say that none matters as much."""
    every = [f"neurons.0:{unit}" for unit in range(planted.INNER)]
    with pytest.warns(NeuronWarning, match=r"No random neuron of neurons\.0 can stand beside those asked for"):
        table = effects(planted.model(), planted.corpus().take(4), every).columns
    assert not {"random", "random loss", "larger"} & set(table)
    assert (table["lost"][: planted.INNER] > 0.01).sum() > 3
    with pytest.warns(NeuronWarning, match=r"\(draws=0\), so the table has none"):
        assert "larger" not in effects(planted.model(), planted.corpus().take(4), [NOUN], draws=0).columns


def test_random_neurons_are_others_each_once():
    """Where more are drawn than there are, they are all neurons of the site but the one that is asked for."""
    corpus = planted.corpus().take(8)
    table = effects(planted.model(), corpus, [NOUN], draws=1000).columns
    every = pl.neurons.ablation(planted.model(), corpus, sites="neurons.0", progress=False)
    lost = np.abs(every.overall.columns["score"])
    at = every.place("neuron", NOUN)
    assert table["random"][0] == pytest.approx(np.delete(lost, at).mean(), rel=1e-5)
    assert table["larger"][0] == (np.delete(lost, at) >= lost[at]).mean()


def test_random_neurons_count_by_the_size_of_what_they_do():
    """In a random reader about as many neurons help as do harm; their effects must not cancel."""
    reader = Model.load(network("gpt2"), tokenizer=word_tokenizer())
    text = pl.Corpus.of(["the cat sleeps in the cabinet", "a red dog runs", "the keys near the cabinet are old"])
    table = effects(reader, text, ["neurons.1:0"], draws=1000).columns
    for place, replacement in enumerate(("zero", "mean")):
        every = pl.neurons.ablation(reader, text, sites="neurons.1", replacement=replacement, progress=False)
        scores, losses = every.overall.columns["score"], every.table("changes").columns["loss"]
        assert table["random"][place] == pytest.approx(np.abs(scores[1:]).mean(), rel=1e-5)
        assert table["random"][place] > 1.5 * abs(scores[1:].mean())
        assert table["random loss"][place] == pytest.approx(np.abs(losses[1:]).mean(), rel=1e-5)
        assert table["random loss"][place] > 1.5 * abs(losses[1:].mean())
        assert table["larger"][place] == pytest.approx((np.abs(scores[1:]) >= abs(scores[0])).mean())


def test_a_page_without_random_neurons_has_no_column_for_them(tmp_path):
    from pellucid.report.neurons import show_neuron
    from pellucid.report.sheet import Sheet

    text = planted.corpus().take(20)
    reading = read(planted.model(), text, neurons=[NOUN], contexts=2, words=2, texts=1)
    for draws, shown in ((0, False), (3, True)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NeuronWarning)
            table = effects(planted.model(), text, [NOUN], draws=draws)
        folder = tmp_path / str(draws)
        (folder / "tables").mkdir(parents=True)
        sheet = Sheet(folder)
        show_neuron(sheet, replace(reading, tables={**reading.tables, "effects": table}), NOUN, {}, histogram=False)
        page = "".join(map(str, sheet.parts))
        assert ("of these lose more" in page) is shown
        assert "changed" in page
