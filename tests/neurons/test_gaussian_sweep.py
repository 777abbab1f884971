"""Gaussians of a sweep's class covariances: the order of neurons, what is refused, and the Gaussians of its rows."""

from __future__ import annotations

import numpy as np
import pytest

import pellucid as pl
from pellucid import neurons
from pellucid.neurons.concepts import Concept
from pellucid.neurons.probing import class_gaussians as fitting
from pellucid.neurons.probing.class_gaussians import class_gaussians
from pellucid.neurons.probing.rows import ArrayRows
from pellucid.results import ResultError
from tests.neurons import planted


def test_a_sweep_of_class_covariances_gives_the_order():
    text, site = planted.corpus(), "neurons.0"
    full = pl.ClassMoments(site, label="upos", covariance="full")
    found = pl.sweep(planted.model(), text, [full, pl.ClassMoments("neurons.*", label="upos")], progress=False)
    ranking = neurons.rank(found, concept="upos=NOUN", methods="gaussian")["gaussian"]
    assert ranking.top(1) == [planted.names()["NOUN"]]
    assert ranking.values[0, ranking.place("neuron", planted.names()["NOUN"])] > 0
    assert ranking.provenance.arguments["selected on"] == "words drawn from the Gaussians"
    flipped = neurons.rank(found, concept=f"upos={planted.FLIPPED}", methods="gaussian")["gaussian"]
    assert flipped.values[0, flipped.place("neuron", planted.names()[planted.FLIPPED])] < 0
    with pytest.raises(ResultError, match="for accuracies give a store"):
        neurons.gaussian(found, concept="upos=NOUN")
    for option in ({"seeds": 2}, {"test": 0.3}):
        with pytest.raises(ResultError, match=f"have no use for {next(iter(option))}: leave it out, or give a store"):
            neurons.rank(found, concept="upos=NOUN", methods="gaussian", **option)
    both = pl.sweep(
        planted.model(), text.take(40), [pl.ClassMoments("neurons.*", label="upos", covariance="full")], progress=False
    )
    with pytest.raises(ResultError, match=r"not between neurons\.0 and neurons\.1"):
        neurons.rank(both, concept="upos=NOUN", methods="gaussian")
    lone = pl.sweep(planted.model(), text.take(40), [pl.ClassMoments(site, label="upos")], progress=False)
    with pytest.raises(ResultError, match="covariance='full'"):
        neurons.rank(lone, concept="upos=NOUN", methods="gaussian")


def test_gaussians_of_a_sweep_are_those_of_its_rows(tmp_path):
    """`upos=NOUN` puts several tags together: their covariance is that of all their words."""
    store = pl.build_store(planted.model(), planted.corpus().take(60), tmp_path / "s", "neurons.0", dtype="float32",
                           progress=False)  # fmt: skip
    found = pl.replay(store, [pl.ClassMoments("neurons.0", label="upos", covariance="full")], progress=False)
    made = fitting.gaussians_of_sweep(found, Concept.parse("upos=NOUN"), None, fewest=20)
    goals = (store.words(["upos"])["upos"] != "NOUN").to_numpy().astype(int)
    own = class_gaussians(ArrayRows(store.layer("neurons.0")), goals, np.ones(len(goals), bool), 2)
    assert made.classes == ("NOUN", "other")
    assert made.gaussians.means == pytest.approx(own.means, abs=1e-6)
    assert made.gaussians.covariances == pytest.approx(own.covariances, abs=1e-6)
    assert made.gaussians.prior == pytest.approx(own.prior)
    rows, drawn = fitting.drawn(own, 20_000, np.random.default_rng(0))
    for code in (0, 1):
        assert np.cov(rows[drawn == code].numpy().T) == pytest.approx(own.covariances[code], abs=0.15)
