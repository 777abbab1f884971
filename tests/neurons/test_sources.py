"""Sources of rankings: what a sweep or store was read with, which of its statistics count, and what is refused."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import pellucid as pl
from pellucid import neurons
from pellucid.collect.build import build_store
from pellucid.collect.traces import Traces
from pellucid.model import Model
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.probing.labels import labelled
from pellucid.neurons.store_rows import row_classes
from pellucid.neurons.survey import survey_collectors
from pellucid.results import ResultError
from tests.neurons import planted

TEXT = planted.corpus().take(40)
NOUN = {"concept": "upos=NOUN"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Rows of the planted model and of its random twin, each the first sub-word's."""
    models = [planted.model(), Model.random_like(planted.model(), 0)]
    place = tmp_path_factory.mktemp("rows") / "store"
    return build_store(models, TEXT, place, "neurons.0", dtype="float32", pooling="first", progress=False)


@pytest.fixture(scope="module")
def found():
    gathered = pl.ClassMoments("neurons.0", label="upos", covariance="diagonal", groups=True)
    return pl.sweep(planted.model(), TEXT, gathered, progress=False)


WAYS = {
    "rank": neurons.rank,
    "probeless": neurons.probeless,
    "selectivity": neurons.selectivity,
    "iou": neurons.iou,
    "precision": neurons.precision,
    "probe": neurons.probe,
    "gaussian": neurons.gaussian,
    "forest": neurons.forest,
    "layers": neurons.per_layer,
    "stability": neurons.resampled_stability,
}


@pytest.mark.parametrize("way", WAYS)
def test_another_pooling_than_that_of_a_store_is_refused(store, way):
    for pooling in ("last", "nonsense"):
        with pytest.raises(ResultError) as raised:
            WAYS[way](store, pooling=pooling, **NOUN)
        assert str(raised.value) == (
            f"The text of this store was read with pooling='first', not with '{pooling}'; leave pooling out, or read "
            "the text again."
        )


def test_the_pooling_of_a_store_or_sweep_may_be_named(store, found):
    for pooling in (None, "first"):
        made = neurons.rank(store, methods=["probeless", "forest"], pooling=pooling, trees=2, **NOUN)
        assert made["probeless"].top(1) == [planted.names()["NOUN"]]
    assert neurons.probeless(found, pooling="mean", **NOUN).top(1) == [planted.names()["NOUN"]]
    with pytest.raises(ResultError, match="this sweep was read with pooling='mean', not with 'first'; leave pooling"):
        neurons.probeless(found, pooling="first", **NOUN)
    with pytest.raises(pl.PellucidError, match="pooling='nonsense'"):
        neurons.probeless(planted.model(), TEXT, pooling="nonsense", **NOUN)


def test_words_of_the_training_part_are_as_frequent_as_in_the_whole_store(store):
    concept = neurons.Concept.property("frequency")
    part = neurons.training_part(store, concept=concept)
    whole, some = row_classes(store, concept), row_classes(part, concept)
    classes = {
        (number, place): whole.classes[code]
        for (number, place), code in zip(_places(store), whole.codes.tolist(), strict=True)
    }
    assert 0 < part.rows < store.rows
    assert [some.classes[code] for code in some.codes.tolist()] == [classes[place] for place in _places(part)]
    told = labelled(part, concept, fewest=1)
    assert [told.classes[goal] for goal in told.goals.tolist()] == [classes[place] for place in _places(part)]
    table = neurons.probeless(part, concept=concept, sites="0:neurons.0").table("classes")
    counts = Counter(classes[place] for place in _places(part))
    assert dict(zip(table.axes["class"], table.columns["words"].tolist(), strict=True)) == counts


def _places(store):
    frame = store.words(["sentence", "position"])
    return list(zip(frame["sentence"].tolist(), frame["position"].tolist(), strict=True))


def test_a_label_of_sentences_on_rows_of_words_warns_once(tmp_path):
    text = pl.Corpus.of([replace(each, facts={"half": "ab"[place % 2]}) for place, each in enumerate(TEXT)])
    said = (
        "All words of a sentence have the same 'half=a', and chance deals labels out among single words, so neurons "
        "without a link look better than chance; rank whole sentences: pooling='sentence-mean'."
    )
    model, methods = planted.model(), ["probeless", "selectivity", "iou", "precision"]
    options = {"concept": "half=a", "sites": "neurons.0"}
    store = build_store(model, text, tmp_path / "s", "neurons.0", progress=False)
    gathered = pl.ClassMoments("neurons.0", label="half", covariance="diagonal")
    for source, corpus, more in (
        (model, text, {"control": False, "methods": methods}),
        (store, None, {"methods": methods}),
        (store, None, {"methods": methods[2:], "exact": True}),
        (pl.sweep(model, text, gathered, progress=False), None, {}),
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("default")
            neurons.rank(source, corpus, **options, **more)
        assert [str(each.message) for each in told] == [said]
        assert issubclass(told[0].category, NeuronWarning)
    for way, exact in ((neurons.selectivity, {}), (neurons.iou, {}), (neurons.iou, {"exact": True})):
        with pytest.warns(NeuronWarning, match="All words of a sentence") as told:
            way(store, **options, **exact)
        assert [each.filename for each in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        neurons.rank(model, text, pooling="sentence-mean", methods=methods, control=False, **options)
        neurons.rank(store, methods=methods, **NOUN)


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_statistics_those_with_variances_are_read(order):
    poor, rich, few = (
        pl.ClassMoments("neurons.*", label="upos", covariance="none", groups=True),
        pl.ClassMoments("neurons.*", label="upos", covariance="diagonal"),
        pl.ClassMoments("neurons.0", label="upos", covariance="diagonal", groups=True),
    )
    found = pl.sweep(planted.model(), TEXT, [poor, rich, few][::order], progress=False)
    ranking = neurons.selectivity(found, **NOUN)
    assert {name.partition(":")[0] for name in ranking.neurons} == {"neurons.0", "neurons.1"}
    assert neurons.probeless(found, **NOUN).null is not None
    assert neurons.probeless(found, sites="neurons.0", **NOUN).low is not None, "groups too, where there are both"


def test_a_sweep_does_not_answer_for_another_concept_of_the_same_name():
    one, other = (neurons.Concept.words([word], name="w") for word in ("the", "a"))
    for gathered in (
        pl.ClassMoments("neurons.0", label="w", covariance="diagonal"),
        pl.ClassHistograms("neurons.0", label="w"),
    ):
        found = pl.sweep(planted.model(), TEXT.labelled(one), gathered, progress=False)
        way = neurons.probeless if isinstance(gathered, pl.ClassMoments) else neurons.iou
        assert way(found, concept=one).classes == ("w",)
        with pytest.raises(ResultError) as raised:
            way(found, concept=other)
        assert str(raised.value) == (
            "The label 'w' of this sweep does not come from the concept of that name that was asked for; sweep "
            "Corpus.labelled(concept), under another name if both are needed."
        )


def test_a_saved_sweep_tells_the_rules_of_its_labels(tmp_path):
    concept = neurons.Concept.property("frequency")
    gathered = pl.ClassMoments("neurons.0", label="frequency", covariance="diagonal")
    text = TEXT.labelled(concept).take(30)
    pl.sweep(planted.model(), text, gathered, folder=tmp_path / "f", progress=False)
    found = pl.Found.load(tmp_path / "f")
    assert found.about["rules"] == {"frequency": concept.rule}
    assert len(neurons.probeless(found, concept=concept).classes) > 1
    native = pl.Corpus.of(list(text))
    with pytest.raises(ResultError, match="'frequency' of this sweep does not come from the concept"):
        neurons.probeless(pl.sweep(planted.model(), native, gathered, progress=False), concept=concept)
    older = replace(found, about={key: value for key, value in found.about.items() if key != "rules"})
    assert len(neurons.probeless(older, concept=concept).classes) > 1


def test_what_a_sweep_or_store_has_no_use_for_is_refused(store, found):
    traced = pl.sweep(planted.model(), TEXT, Traces(("neurons.0:3",)), progress=False)
    text, options = (
        "A {} has its text already; give a corpus with a model only.",
        "A Found was read already and has no ",
    )
    for call, message in (
        (lambda: neurons.read(traced, TEXT), text.format("Found")),
        (lambda: neurons.read(traced, pooling="first", nonsense=5), f"{options}use for pooling, nonsense; give these"),
        (lambda: neurons.survey(found, TEXT), text.format("Found")),
        (lambda: neurons.survey(found, anything=1), f"{options}use for anything; give these with a model."),
        (lambda: neurons.iou(store, TEXT, exact=True, **NOUN), text.format(r"\w*Store")),
        (lambda: neurons.precision(store, TEXT, exact=True, **NOUN), text.format(r"\w*Store")),
        (lambda: neurons.iou(store, exact=True, pooling="last", **NOUN), "read with pooling='first', not with 'last'"),
        (lambda: neurons.iou(planted.model(), TEXT, exact=True, **NOUN), "exact=True reads activations from disk"),
    ):
        with pytest.raises(ResultError, match=message):
            call()
    assert neurons.read(traced).neurons == ("neurons.0:3",)


def test_the_random_model_of_a_store_or_sweep_can_be_left_out(store):
    both = [planted.model(), Model.random_like(planted.model(), 0)]
    text = TEXT
    for name in ("position", "frequency"):
        text = text.labelled(neurons.Concept.property(name))
    gathered = [*survey_collectors(("neurons.0",)), pl.ClassMoments("neurons.0", label="upos", covariance="diagonal")]
    swept = pl.sweep(both, text, gathered, progress=False)
    for source in (store, swept):
        for way in (neurons.probeless, lambda *rest, **more: neurons.rank(*rest, **more)["probeless"]):
            assert "random model" in way(source, sites="neurons.0", **NOUN).tables
            assert "random model" not in way(source, sites="neurons.0", control=False, **NOUN).tables
    assert "random model" not in neurons.iou(store, control=False, **NOUN).tables
    assert (neurons.survey(swept).table("sites").columns["random model"] >= 0).all()
    assert (neurons.survey(swept, control=False).table("sites").columns["random model"] == -1).all()


def test_the_random_model_beside_a_ranking_is_its_twin_ranked_by_itself(store):
    """Of a store and of a model that reads, for every method that streams."""
    twin, methods = Model.random_like(planted.model(), 0), ["probeless", "selectivity", "iou", "precision"]
    options = {"concept": "upos=NOUN,VERB", "sites": "neurons.0", "methods": methods}
    alone = neurons.rank(twin, TEXT, control=False, progress=False, **options)
    for made in (neurons.rank(planted.model(), TEXT, progress=False, **options), neurons.rank(store, **options)):
        for name, ranking in made.items():
            beside = ranking.table("random model")
            assert beside.axes == {"class": alone[name].axes["class"], "neuron": alone[name].axes["neuron"]}
            np.testing.assert_allclose(beside.columns["value"], alone[name].values, rtol=1e-3, atol=1e-5)


def test_words_of_a_translation_are_looked_for_in_the_decoder():
    model = Model.load("zoo:translate")
    text = pl.Corpus.of([replace(each, id=str(place), second=each) for place, each in enumerate(TEXT.take(25))])
    options = {"concept": "upos=NOUN", "progress": False}
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        made = neurons.rank(model, text, methods=["probeless", "iou"], side=side, control=False, **options)
        exact = neurons.rank(model, text, methods="iou", exact=True, side=side, **options)
        surveyed = neurons.survey(model, text, side=side, control=False, progress=False)
        for names in (made["probeless"].neurons, exact["iou"].neurons, surveyed.neurons):
            assert {name.rpartition(".")[0] for name in names} == {f"{stack}.resid", f"{stack}.neurons"}
