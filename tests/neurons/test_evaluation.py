"""Evaluation of rankings: planted neurons first make curves fall, random ones do not; layers; smallest sets."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid import Corpus, neurons
from pellucid.collect.build import build_store
from pellucid.heads import measured
from pellucid.model import Edit, Model
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.judging.ablating import EVERY
from pellucid.neurons.judging.evaluation import _sets, numbers
from pellucid.neurons.ranking import Ranking, by_site, overall_table
from pellucid.results import Provenance, ResultError, Table
from tests.neurons import planted


@pytest.fixture(scope="module")
def ranking():
    """A ranking that puts the planted neurons first."""
    names = tuple(f"neurons.{layer}:{unit}" for layer in range(2) for unit in range(planted.INNER))
    first = list(planted.names().values())
    score = np.array([2.0 - first.index(name) / 100 if name in first else 1 / (2 + place)
                      for place, name in enumerate(names)])  # fmt: skip
    origin = Provenance("neurons.ranking", {"method": "by hand", "concept": "upos"})
    return Ranking({"class": ("NOUN",), "neuron": names}, score[None], None, None, None, "no interval: by hand", origin,
                   {"overall": overall_table(names, score, null=np.zeros(len(names)))})  # fmt: skip


def test_the_model_loses_its_task_without_the_first_neurons(ranking):
    text = planted.corpus().take(40)
    found = neurons.ablated_in_model(
        planted.model(), text, ranking, label="upos", counts=(1, 7, 14), draws=2, progress=False
    )
    assert found.axes == {"measure": ("top", "bottom", "random"), "neurons": (1, 7, 14)}
    whole = found.table("whole").columns["value"]
    top, bottom, random = found.values
    assert bottom == pytest.approx(np.full(3, whole[0]), abs=1e-6)
    assert (np.diff(top) > 0).all()
    assert top[2] > whole[0] + 1
    assert (random < top).all()
    assert found.null == pytest.approx(np.tile(random, (3, 1)))
    measuring = measured(planted.model(), text, label="upos")
    gone = [int(name.split(":")[1]) for name in ranking.order()[:7]]
    plain, cut = (measuring.scores(edits) for edits in ((), Edit.zero("neurons.0", neurons=gone)))
    assert whole[0] == pytest.approx(plain["loss"], abs=1e-5)
    assert whole[1] == pytest.approx(plain["accuracy"])
    assert top[1] == pytest.approx(cut["loss"], abs=1e-5)
    assert found.table("scores").columns["accuracy"][0, 1] == pytest.approx(cut["accuracy"])
    assert "replaced in the model" in found.done
    mean = neurons.ablated_in_model(planted.model(), text, ranking, label="upos", counts=(14,), draws=1,
                                    replacement="mean", progress=False)  # fmt: skip
    gate = torch.ones(planted.INNER)
    gate[[int(name.split(":")[1]) for name in ranking.order()[:14]]] = 0.0
    rows = torch.cat([planted.model().run(sentence.text, ["neurons.0"])["neurons.0"][0] for sentence in text])
    edits = [
        Edit.gate("neurons.0", gate.view(1, 1, -1)),
        Edit.add("neurons.0", ((1 - gate) * rows.mean(0))[None, None]),
    ]
    assert mean.values[0, 0] == pytest.approx(measuring.scores(edits)["loss"], abs=1e-5)
    assert mean.values[0, 0] > whole[0]
    assert mean.values[0, 0] != pytest.approx(top[2], abs=1e-3)
    drawn = found.table("draws")
    assert drawn.axes == {"draw": (1, 2), "neurons": (1, 7, 14)}
    assert drawn.columns["loss"].mean(axis=0) == pytest.approx(random)
    for place, each in enumerate(_sets(ranking.order(seed=0), (14,), 2, 0)[2][0]):
        edits = [Edit.zero(site, neurons=units) for site, units in by_site(each).items()]
        alone = measuring.scores(edits)
        assert drawn.columns["loss"][place, 2] == pytest.approx(alone["loss"], abs=1e-5)
        assert drawn.columns["accuracy"][place, 2] == pytest.approx(alone["accuracy"])


def test_a_probe_loses_its_accuracy_without_the_first_neurons(both, ranking):
    found = neurons.ablated_in_probe(both, ranking, concept="upos", counts=(14, 64), epochs=30, seeds=1, penalty="l2")
    whole = found.table("whole").columns["value"][0]
    top, bottom, random = found.values
    assert whole > 0.95
    assert top[0] < whole - 0.2
    assert bottom[0] > whole - 0.05
    assert random[0] > top[0]
    sure, random, control, selectivity = found.table("controls").columns["value"]
    assert selectivity == pytest.approx(top - control)
    assert sure[0] == found.table("whole").columns["value"][1]
    assert found.table("whole").columns["value"][4] > 0.2
    assert (random < found.table("whole").columns["value"][2] + 0.05).all(), "a probe loses by neurons at their mean"
    kept = neurons.ablated_in_probe(both, ranking, concept="upos", counts=(14, 64), epochs=30, seeds=1, keep=True)
    assert kept.values[0, 0] > kept.values[1, 0] + 0.3
    assert kept.values[0, 0] > kept.values[2, 0] + 0.2
    assert "kept" in kept.done
    drawn = kept.table("draws").columns["accuracy"]
    assert drawn.shape == (3, 2)
    assert drawn.mean(axis=0) == pytest.approx(kept.values[2])
    assert len(set(drawn[:, 0])) == 3, "every draw is another"


def test_probes_trained_anew_need_only_the_planted_neurons(both, ranking):
    found = neurons.trained_anew(both, ranking, concept="upos", counts=(2, 14, 128), epochs=15, draws=1, seeds=1)
    whole = found.table("whole").columns["value"][0]
    top, bottom, random = found.values
    assert top[1] > whole - 0.03
    assert top[0] < top[1]
    assert top[1] > random[1] + 0.1
    assert random[1] > bottom[1] - 0.2
    assert top[2] == pytest.approx(bottom[2], abs=1e-6)
    controls = found.table("controls")
    assert controls.axes["measure"] == ("majority", "random model", "control task", "selectivity")
    sure, chance, control, selectivity = controls.columns["value"]
    assert len(set(sure.round(9))) == 1
    assert selectivity == pytest.approx(top - control)
    assert selectivity[1] > 0.3, "words' own tags are told, and random labels of words are not"
    assert (controls.columns["low"] <= controls.columns["value"]).all()
    assert found.table("whole").columns["value"][1:] == pytest.approx([sure[0], chance[2], control[2], selectivity[2]])
    assert top[1] > chance[1] + 0.3, "as few neurons of a model that learned nothing tell far less"


def test_the_random_model_stands_beside_every_probe_of_a_ranking(both, ranking, tmp_path):
    """All its neurons tell what a probe on it tells; without it, and with it in another store, as of every probe."""
    settings = {"concept": "upos", "epochs": 8, "seeds": 2}
    plain = neurons.probe(both, **settings, penalty="l2", progress=False)
    expected = plain.values[plain.place("measure", "random model"), 0]
    names = ("own", planted.model()), ("twin", Model.random_like(planted.model(), 4))
    own, twin = (build_store(model, planted.corpus(), tmp_path / name, "neurons.*", dtype="float32", progress=False)
                 for name, model in names)  # fmt: skip
    for judge in (neurons.ablated_in_probe, neurons.trained_anew):
        given = {**settings, "counts": (4,), "draws": 1, "penalty": "l2"}
        whole = judge(both, ranking, **given).table("whole")
        assert whole.axes["measure"] == ("accuracy", "majority", "random model", "control task", "selectivity")
        assert whole.columns["value"][2] == pytest.approx(expected, abs=0.02)
        assert whole.columns["value"][2] < whole.columns["value"][0] - 0.1
        with pytest.raises(ResultError, match="no randomly initialised twin"):
            judge(own, ranking, **given)
        beside = judge(own, ranking, random=twin, **given).table("whole")
        assert beside.columns["value"].tolist() == whole.columns["value"].tolist()
        with pytest.raises(ResultError, match="seeds=0"):
            judge(both, ranking, **{**given, "seeds": 0})


def test_probes_train_where_they_are_told_to(both, ranking, monkeypatch):
    from pellucid.neurons.judging import evaluation, smallest
    from pellucid.neurons.probing import per_layer, probes

    used = list[str]()

    def noted(rows, tasks, classes, settings, **rest):
        used.append(settings.device)
        return real(rows, tasks, classes, replace(settings, device="cpu"), **rest)

    real = evaluation.fit
    for module in (evaluation, smallest, per_layer, probes):
        monkeypatch.setattr(module, "fit", noted)
    given = {"concept": "upos=NOUN", "seeds": 1, "device": "far"}
    curve = {**given, "counts": (2,), "draws": 1, "epochs": 1}
    calls = [
        lambda: neurons.ablated_in_probe(both, ranking, **curve),
        lambda: neurons.trained_anew(both, ranking, **curve),
        lambda: neurons.per_layer(both, **given, epochs=1),
        lambda: neurons.rank(both, **given, methods=["probe-l1", "probeless"]),
    ]
    for call in calls:
        used.clear()
        call()
        assert len(used) >= 2
        assert set(used) == {"far"}


def test_arrays_are_judged_without_a_random_model():
    dice = np.random.default_rng(2)
    tags = dice.choice(["a", "b"], 400)
    rows = dice.normal(size=(400, 8))
    rows[tags == "a", 3] += 3
    store = neurons.array_store(rows, tags, sentences=(np.arange(400) // 4).tolist())
    part = neurons.training_part(store, concept="label")
    made = neurons.probeless(part, concept="label")
    for judge in (neurons.ablated_in_probe, neurons.trained_anew):
        found = judge(store, made, concept="label", counts=(1,), draws=1, epochs=5, seeds=1)
        assert found.table("controls").axes["measure"] == ("majority", "control task", "selectivity")


def test_the_smallest_set_is_found_between_the_numbers_given(both, ranking):
    found = neurons.trained_anew(both, ranking, concept="upos", counts=(2, 128), epochs=15, draws=1, seeds=1)
    without = neurons.trained_anew(both, ranking, concept="upos", counts=(2,), epochs=2, draws=1, seeds=1, within=None)
    assert "smallest" not in without.tables
    smallest = found.table("smallest")
    assert smallest.axes["within"] == pytest.approx((0.01, 0.02, 0.05))
    sizes, columns = smallest.columns["neurons"], smallest.columns
    assert (np.diff(sizes) <= 0).all()
    assert 8 <= sizes[2] <= 16, "14 neurons were planted, one for each tag; the rarest tags hardly count"
    assert (columns["low"] <= columns["accuracy"]).all()
    assert (columns["accuracy"] >= (1 - np.array(smallest.axes["within"]) - 0.02) * columns["all neurons"]).all()


def test_the_smallest_set_is_chosen_on_documents_to_learn_from(both, ranking):
    """Spoiling the classes of the documents for testing changes accuracies there, and not the number."""
    from pellucid.neurons.concepts import Concept
    from pellucid.neurons.judging import smallest
    from pellucid.neurons.probing.material import Reading, material
    from pellucid.neurons.probing.training import Settings

    found = material(both, Concept.parse("upos"), Reading(), controlled=False)
    spoilt = found.data.goals.copy()
    spoilt[found.split.test] = np.random.default_rng(0).permutation(spoilt[found.split.test])
    other = replace(found, data=replace(found.data, goals=spoilt))
    order, settings = ranking.order(), Settings(0.0, 1e-3, epochs=10)
    one, two = (smallest.smallest_sets(each, order, (4, 32), (0.02,), settings) for each in (found, other))
    assert one.columns["neurons"].tolist() == two.columns["neurons"].tolist()
    assert one.columns["accuracy"][0] > two.columns["accuracy"][0] + 0.3


def test_seeds_are_means_over_folds(both, ranking):
    one, three = (neurons.trained_anew(both, ranking, concept="upos", counts=(2,), epochs=5, draws=1, seeds=seeds)
                  for seeds in (1, 3))  # fmt: skip
    assert three.provenance.arguments["seeds"] == 3
    assert three.values[0] == pytest.approx(one.values[0], abs=0.1)
    assert not np.array_equal(one.values, three.values)


def test_a_ranking_of_the_same_documents_is_warned_of(both, ranking):
    settings = {"concept": "upos=NOUN", "counts": (2,), "epochs": 2, "draws": 1, "seeds": 1}
    seen = neurons.probeless(both, concept="upos=NOUN", sites="0:neurons.*")
    for judge in (neurons.trained_anew, neurons.ablated_in_probe):
        with pytest.warns(NeuronWarning, match="made of the documents that it is tested on"):
            judge(both, seen, **settings)
    streamed = neurons.probeless(planted.model(), planted.corpus(), concept="upos=NOUN", sites="neurons.*")
    with pytest.warns(NeuronWarning, match="training_part"):
        neurons.trained_anew(both, streamed, **settings)
    part = neurons.training_part(both, concept="upos=NOUN")
    apart = [
        neurons.probeless(part, concept="upos=NOUN", sites="0:neurons.*"),
        neurons.iou(part, concept="upos=NOUN", sites="0:neurons.*"),
        neurons.iou(part, concept="upos=NOUN", exact=True),
        neurons.forest(both, concept="upos=NOUN", trees=3, seeds=1),
        ranking,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        for each in apart:
            neurons.trained_anew(both, each, **settings)
    with pytest.warns(NeuronWarning, match="tested on"):
        neurons.trained_anew(both, apart[0], **settings, seed=1)  # other documents are for testing with another seed


def test_classes_that_the_ranking_or_the_text_lacks_are_warned_of(both, ranking):
    settings = {"concept": "upos=NOUN,VERB,NUM", "counts": (2,), "epochs": 2, "draws": 1, "seeds": 1}
    axes = {**ranking.axes, "class": ("NOUN", "ZED", "NUM")}
    values = np.tile(ranking.values, (3, 1))
    other = replace(ranking, axes=axes, values=values)
    for judge in (neurons.trained_anew, neurons.ablated_in_probe):
        with pytest.warns(NeuronWarning, match=r"only the ranking has ZED; only the text has VERB\), so") as told:
            judge(both, other, **settings)
        assert told[0].filename == __file__
        with pytest.warns(NeuronWarning, match="'ZED' is judged on text that has no word of it"):
            judge(both, other, **settings, cls="ZED")
    with pytest.warns(NeuronWarning, match=r"'NUM' is judged on text that has \d+ words of it, too few to learn"):
        neurons.trained_anew(both, other, **{**settings, "concept": "upos"}, cls="NUM", fewest=200)
    left = {"left out": Table({"class": ("VERB",)}, {"words": np.array([3])})}
    every = replace(ranking, axes={**ranking.axes, "class": (EVERY,)})
    some = replace(other, axes={**axes, "class": ("NOUN", "NUM")}, values=values[:2], tables={**other.tables, **left})
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        neurons.trained_anew(both, other, **settings, cls="NOUN")
        neurons.trained_anew(both, some, **settings)
        neurons.trained_anew(both, every, **settings)


def test_a_vote_is_warned_of_where_any_ranking_has_seen_the_documents(both):
    """Whichever comes first, and of whichever text the others are."""
    settings = {"concept": "upos=NOUN", "counts": (2,), "epochs": 2, "draws": 1, "seeds": 1, "within": None}
    ways = {"concept": "upos=NOUN", "sites": "0:neurons.*"}
    part, other = neurons.training_part(both, concept="upos=NOUN"), Corpus.grammar(40, seed=9)
    seen, held, also = neurons.probeless(both, **ways), neurons.probeless(part, **ways), neurons.iou(part, **ways)
    strange = neurons.probeless(planted.model(), other, concept="upos=NOUN", sites="neurons.*", control=False)
    for pair in ((held, seen), (seen, held), (strange, seen), (held, neurons.vote({"a": held, "b": seen}))):
        voted = neurons.vote(dict(zip("ab", pair, strict=True)))
        with pytest.warns(NeuronWarning, match="made of the documents that it is tested on"):
            neurons.trained_anew(both, voted, **settings)
    assert "held out" not in neurons.vote({"a": held, "b": seen}).provenance.corpus
    assert neurons.vote({"a": held, "b": also}).provenance.corpus == held.provenance.corpus
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        for pair in (
            (held, also),
            (strange, held),
            (held, neurons.forest(both, concept="upos=NOUN", trees=3, seeds=1)),
        ):
            neurons.trained_anew(both, neurons.vote(dict(zip("ab", pair, strict=True))), **settings)


def test_a_ranking_of_the_same_text_is_warned_of_in_the_model_too(both, ranking):
    model, text = planted.model(), planted.corpus()
    ways = {"label": "upos", "counts": (2,), "draws": 1, "progress": False}
    few = text.take(20)
    regrouped, plain, pattern = (
        neurons.probeless(model, few, concept=concept, sites="neurons.*", control=False)
        for concept in ("upos=NOUN", "upos", "pattern:[a-d].*")
    )
    lost = neurons.ablation(model, few, label="upos", neurons=["neurons.0:1", "neurons.0:2"], progress=False)
    voted = neurons.vote({"one": regrouped, "other": regrouped})
    for seen in (plain, regrouped, pattern, lost, voted):
        with pytest.warns(NeuronWarning, match="made of the text that it is tested on.*rank other documents") as told:
            neurons.ablated_in_model(model, few, seen, **ways)
        assert told[0].filename == __file__
    part = neurons.training_part(both, concept="upos=NOUN")
    held = neurons.probeless(part, concept="upos=NOUN", sites="0:neurons.*")
    with pytest.warns(NeuronWarning, match="tested on"):
        neurons.ablated_in_model(model, text, held, **ways)
    nameless = few.filter(lambda _: True)
    unknown = neurons.probeless(model, nameless, concept="upos", sites="neurons.*", control=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        neurons.ablated_in_model(model, text.shard(1, 40), plain, **ways)
        neurons.ablated_in_model(model, few, ranking, **ways)
        neurons.ablated_in_model(model, nameless, unknown, **ways)  # what has no name cannot be known again


def test_the_training_part_is_the_store_without_the_documents_for_testing(both):
    from pellucid.neurons.concepts import Concept
    from pellucid.neurons.probing.material import Reading, material

    found = material(both, Concept.parse("upos"), Reading(), controlled=False)
    part = neurons.training_part(both, concept="upos")
    kept = ~np.isin(found.data.units, found.data.units[found.split.test])
    assert part.rows == kept.sum() < both.rows
    assert np.array_equal(part.layer("0:neurons.0").numpy(), both.layer("0:neurons.0").numpy()[kept])
    words = part.words(["word", "upos"])
    assert words["word"].tolist() == both.words(["word"])["word"][kept].tolist()
    tags, rows = words["upos"].to_numpy(), part.layer("0:neurons.1").double().numpy()
    nouns = tags == "NOUN"
    ranked = neurons.probeless(part, concept="upos=NOUN", sites="0:neurons.1")
    others = np.array([tag is not None for tag in tags]) & ~nouns
    assert ranked.values[0] == pytest.approx(rows[nouns].mean(0) - rows[others].mean(0), abs=1e-5)
    assert part.unit("0:neurons.1", 5).tolist() == part.layer("0:neurons.1")[:, 5].tolist()
    assert np.array_equal(part.slice("0:neurons.1", 3, 9).numpy(), part.layer("0:neurons.1")[3:9].numpy())


def test_sets_are_the_first_the_last_and_draws():
    order = [f"n:{place}" for place in range(10)]
    top, bottom, random = _sets(order, (2, 5), 3, 0)
    assert top == [[order[:2]], [order[:5]]]
    assert bottom == [[order[8:]], [order[5:]]]
    assert [len(draw) for draw in random[1]] == [5, 5, 5]
    assert all(few == many[:2] for few, many in zip(random[0], random[1], strict=True))
    assert len({tuple(draw) for draw in random[1]}) == 3
    assert all(sorted(draw) == order for draw in _sets(order, (10,), 3, 0)[2][0]), "no neuron is drawn twice"
    assert numbers(None, 1000) == (10, 20, 50, 100, 200, 500)
    assert numbers((7, 3, 3), 10) == (3, 7)
    for wrong in ((0,), (11,), ()):
        with pytest.raises(ResultError, match="10 neurons"):
            numbers(wrong, 10)
    with pytest.raises(ResultError, match="draws=0"):
        _sets(order, (2,), 0, 0)


def test_a_ranking_of_other_neurons_is_refused(both, ranking):
    few = ranking.neurons[:5]
    other = replace(
        ranking,
        axes={"class": ("NOUN",), "neuron": few},
        values=ranking.values[:, :5],
        tables={"overall": overall_table(few, np.ones(5), null=np.zeros(5))},
    )
    with pytest.raises(ResultError, match="rank the same sites"):
        neurons.ablated_in_probe(both, other, concept="upos")
