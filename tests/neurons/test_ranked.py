"""Ranking by several methods: options reach the methods that have them, text is read once, sites are the same."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

import pellucid.collect.build
from pellucid import neurons
from pellucid.collect.build import build_store
from pellucid.model import Model
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.methods import RANKINGS
from pellucid.neurons.ranked import own_options
from pellucid.results import ResultError
from tests.neurons import planted


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Rows of the planted model and of its random twin."""
    models = [planted.model(), Model.random_like(planted.model(), 0)]
    place = tmp_path_factory.mktemp("rows") / "store"
    return build_store(models, planted.corpus().take(40), place, ("neurons.*",), dtype="float32", progress=False)


def same(one, other) -> None:
    assert one.axes == other.axes
    np.testing.assert_allclose(one.values, other.values, rtol=1e-5, atol=1e-7)


def test_an_option_reaches_every_method_that_has_it(store):
    made = neurons.rank(store, concept="upos=NOUN", methods=["iou", "probeless", "precision"], quantile=0.8,
                        standardise=True, ends="upper")  # fmt: skip
    same(made["iou"], neurons.iou(store, concept="upos=NOUN", quantile=0.8, ends="upper"))
    same(made["probeless"], neurons.probeless(store, concept="upos=NOUN", standardise=True))
    same(made["precision"], neurons.precision(store, concept="upos=NOUN", ends="upper"))
    usual = neurons.rank(store, concept="upos=NOUN", methods=["iou", "probeless"])
    assert not np.allclose(usual["iou"].values, made["iou"].values)
    assert not np.allclose(usual["probeless"].values, made["probeless"].values)


@pytest.mark.parametrize(
    ("methods", "options", "said"),
    [
        ("probeless", {"quantil": 0.9}, "no use for quantil; the options are standardise"),
        ("probeless", {"quantile": 0.9}, "by probeless has no use for quantile"),
        (["forest", "iou"], {"tree": 5}, "no use for tree"),
        ("probe-l2", {"penalty": "l1"}, "no use for penalty"),
        ("probe-l2", {"l1": 0.1}, "no use for l1"),
        (["probe-l1", "probeless"], {"l2": 0.1}, "no use for l2"),
        ("probeless", {"long": "window"}, "no use for long"),
        ("probe-l1", {"control": False}, "always have their controls"),
        (["forest", "gaussian"], {"control": False}, "always have their controls"),
        ("probeless", {"preset": "neurox", "standardise": True}, "standardise would not be used"),
    ],
)
def test_what_nothing_would_use_is_refused_by_name(store, methods, options, said):
    with pytest.raises(ResultError, match=said):
        neurons.rank(store, concept="upos=NOUN", methods=methods, **options)


def test_reading_options_are_of_a_model_that_is_read():
    with pytest.raises(ResultError, match="by ablation has no use for long"):
        neurons.rank(planted.model(), planted.corpus().take(5), concept="upos", methods="ablation", long="window")
    made = neurons.rank(planted.model(), planted.corpus().take(20), concept="upos=NOUN", sites="neurons.0",
                        control=False, long="window", progress=False)  # fmt: skip
    assert made["probeless"].top(1) == [planted.names()["NOUN"]]


def test_every_setting_of_a_probe_reaches_its_ranking(store):
    settings = {"l2": 0.03, "epochs": 4, "batch": 50, "test": 0.3, "fewest": 5, "seeds": 2}
    made = neurons.rank(store, concept="upos=NOUN", methods="probe-l2", **settings)["probe-l2"]
    alone = neurons.probe(store, concept="upos=NOUN", penalty="l2", **settings, progress=False)
    same(made, alone.ranking())
    assert {name: made.provenance.arguments[name] for name in settings} == settings
    further = neurons.rank(store, concept="upos=NOUN", methods="probe-l2", **settings, converge=True)["probe-l2"]
    assert not np.allclose(made.values, further.values)


def test_the_fewest_words_of_a_class_are_the_same_for_all_methods():
    """Nine words of a class: left out by default, and there with fewest=5 in probe, forest and Gaussians."""
    dice = np.random.default_rng(0)
    labels = np.where(np.arange(400) % 45 == 3, "rare", dice.choice(["a", "b"], 400))
    rows, words = dice.normal(size=(400, 5)), [f"w{place % 20}" for place in range(400)]
    methods = ["probe-l1", "probe-l2", "probe-elastic", "forest", "gaussian"]
    options = {"methods": methods, "words": words, "sentences": (np.arange(400) // 2).tolist(), "seeds": 1}
    for name, made in neurons.rank(rows, labels, **options).items():
        assert made.classes == ("a", "b"), name
    for name, made in neurons.rank(rows, labels, **options, fewest=5, test=0.3).items():
        assert made.classes == ("a", "b", "rare"), name
        assert (made.provenance.arguments["test"], made.provenance.arguments["fewest"]) == (0.3, 5)


def test_settings_reach_probes_of_arrays():
    dice = np.random.default_rng(0)
    labels = dice.choice(["a", "b"], 300)
    rows = dice.normal(size=(300, 5)) + 1.0 * (labels == "a")[:, None]
    usual = {"methods": "probe-elastic", "words": ["w"] * 300, "seeds": 1}
    plain = neurons.rank(rows, labels, **usual)["probe-elastic"].values
    for option in ({"l1": 0.05}, {"l2": 0.5}, {"epochs": 1}, {"batch": 7}, {"test": 0.4}, {"converge": True}):
        made = neurons.rank(rows, labels, **usual, **option)["probe-elastic"]
        assert not np.allclose(made.values, plain), option


def test_every_option_that_is_offered_is_one_of_the_methods_own():
    offered = {name: own_options(name) for name in RANKINGS}
    assert set(offered["iou"]) == {"quantile", "threshold", "ends", "exact"}
    assert "penalty" not in offered["probe-l1"]
    assert all({"concept", "sites", "seed", "pooling"}.isdisjoint(mine) for mine in offered.values())


def test_methods_that_read_rows_share_one_store(monkeypatch):
    built: list[int] = []
    real = pellucid.collect.build.build_store

    def counted(models, *rest, **options):
        built.append(len(models))
        return real(models, *rest, **options)

    monkeypatch.setattr(pellucid.collect.build, "build_store", counted)
    text = planted.corpus().take(60)
    made = neurons.rank(planted.model(), text, concept="upos=NOUN", methods=["probe-l2", "forest", "gaussian"],
                        sites="neurons.0", trees=10)  # fmt: skip
    assert built == [2]  # the model and its random twin, once
    alone = neurons.forest(planted.model(), text, concept="upos=NOUN", sites="neurons.0", trees=10)
    same(made["forest"], alone)
    assert built == [2, 2]
    neurons.rank(planted.model(), text, concept="upos=NOUN", methods="gaussian", sites="neurons.0", count=2)
    assert built == [2, 2, 2]
    assert made["forest"].provenance.arguments["trees"] == 10


def test_exact_scores_of_a_store_with_a_twin_are_those_of_the_model(store, tmp_path):
    alone = build_store(planted.model(), planted.corpus().take(40), tmp_path / "alone", ("neurons.*",),
                        dtype="float32", progress=False)  # fmt: skip
    for way in (neurons.iou, neurons.precision):
        for sites in (None, "neurons.0,neurons.1"):
            found, wanted = (way(each, concept="upos=NOUN", sites=sites, exact=True) for each in (store, alone))
            same(found, wanted)
            assert found.provenance.models == wanted.provenance.models
            assert found.neurons[0] == "neurons.0:0"
    read = neurons.rank(planted.model(), planted.corpus().take(40), concept="upos=NOUN", methods="iou", exact=True,
                        sites="neurons.*", control=False)  # fmt: skip
    same(read["iou"], neurons.iou(alone, concept="upos=NOUN", exact=True))


def test_ablation_and_others_rank_the_sites_that_they_have_in_common():
    text = planted.corpus().take(12)
    with pytest.warns(NeuronWarning, match=r"all methods rank neurons\.\* alone"):
        made = neurons.rank(planted.model(), text, concept="upos", methods=["ablation", "probeless"], control=False)
    assert made["ablation"].neurons == made["probeless"].neurons
    neurons.agreement(made, k=5)
    neurons.vote(made)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*all methods rank", NeuronWarning)
        one = neurons.rank(planted.model(), text, concept="upos", control=False)["probeless"]
    assert "resid.0:0" in one.neurons


def test_units_of_heads_are_named_head_by_head():
    model, text = planted.model(), planted.corpus().take(15)
    made = neurons.rank(model, text, concept="upos=NOUN", methods=["probeless", "selectivity"], sites="heads.0",
                        control=False)  # fmt: skip
    rows, nouns = [], []
    for sentence in text:
        ran = model.run(sentence.text, sites=["heads.0"])["heads.0"][0].double()  # [heads, tokens, width]
        rows.append(ran.transpose(0, 1).numpy())
        nouns += [tag == "NOUN" for tag in sentence.label("upos")]
    values, mine = np.concatenate(rows), np.array(nouns)
    assert len(values) == len(mine)
    away = values[mine].mean(0) - values[~mine].mean(0)  # [heads, width]
    width = values.shape[2]
    assert len(made["probeless"].neurons) == planted.HEADS * width
    for head in range(planted.HEADS):
        for unit in (0, 3, width - 1):
            place = made["probeless"].place("neuron", f"heads.0:{head * width + unit}")
            assert made["probeless"].values[0, place] == pytest.approx(away[head, unit], abs=1e-5)


def test_a_model_that_is_read_into_a_store_says_so_where_someone_looks(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    text = planted.corpus().take(60)
    neurons.rank(planted.model(), text, concept="upos=NOUN", methods="probe-l2", sites="neurons.0", seeds=1)
    told = capfd.readouterr().err
    assert "Building the store" in told
    assert "epochs" in told
