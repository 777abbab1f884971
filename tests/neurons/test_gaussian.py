"""Gaussian selection: the picks of refitting at every step, the formula written out, planted neurons, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import entropy, multivariate_normal

import pellucid as pl
from pellucid import neurons
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.concepts import Concept
from pellucid.neurons.probing import class_gaussians as fitting
from pellucid.neurons.probing import gaussian_selection as selection
from pellucid.neurons.probing.class_gaussians import class_gaussians, class_variances
from pellucid.neurons.probing.gaussian_choosing import Choosing, chosen
from pellucid.neurons.probing.gaussian_selection import CRITERIA, alone, prefixes, select
from pellucid.neurons.probing.material import Reading, material
from pellucid.neurons.probing.rows import ArrayRows
from pellucid.results import ResultError
from tests.neurons import planted

D, CLASSES, N = 9, 3, 400


@pytest.fixture(scope="module")
def data():
    """Correlated neurons, one of which repeats another, with class means that overlap."""
    dice = np.random.default_rng(0)
    goals = dice.choice(CLASSES, p=[0.5, 0.3, 0.2], size=N)
    rows = dice.normal(size=(N, D)) @ (np.eye(D) + 0.4 * dice.normal(size=(D, D))) + 5.0
    rows[:, 2] += 1.5 * (goals == 0)
    rows[:, 5] -= 1.2 * (goals == 1)
    rows[:, 7] = rows[:, 2] + 0.3 * dice.normal(size=N)
    return rows, goals


@pytest.fixture(scope="module")
def made(data):
    rows, goals = data
    return class_gaussians(ArrayRows(rows), goals, np.arange(N) < 250, CLASSES)


def test_the_fit_is_the_formula_written_out(data, made):
    rows, goals = data
    for code in range(CLASSES):
        mine = rows[:250][goals[:250] == code]
        mean, scatter = mine.mean(0), (mine - mine.mean(0)).T @ (mine - mine.mean(0))
        prior = np.diag(np.diag(scatter / len(mine)))
        expected = (prior + scatter) / ((D + 2) + len(mine) + D + 2)
        assert made.means[code] == pytest.approx(mean, rel=1e-6)
        assert made.covariances[code] == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert np.exp(made.prior[code]) == pytest.approx((goals[:250] == code).mean())


def posterior(made, chosen, rows):
    logs = np.stack(
        [
            multivariate_normal(made.means[z][chosen], made.covariances[z][np.ix_(chosen, chosen)]).logpdf(
                rows[:, chosen]
            )
            + made.prior[z]
            for z in range(CLASSES)
        ]
    )
    return logs - np.logaddexp.reduce(logs, axis=0)


def refitted(made, rows, goals, count, by):
    """Each step tries every neuron with a Gaussian of its own."""
    picks, scores = [], []
    for _ in range(count):
        tried = {}
        for unit in range(D):
            if unit in picks:
                continue
            logs = posterior(made, [*picks, unit], rows)
            if by == "likelihood":
                tried[unit] = logs[goals, np.arange(len(goals))].mean()
            elif by == "accuracy":
                tried[unit] = (logs.argmax(0) == goals).mean()
            else:  # mutual information: the entropy of classes less the cross-entropy of the right ones
                tried[unit] = np.mean([logs[goal, row] for row, goal in enumerate(goals)]) + entropy(np.exp(made.prior))
        picks.append(max(tried, key=tried.get))
        scores.append(tried[picks[-1]])
    return picks, scores


@pytest.mark.parametrize("by", CRITERIA)
def test_the_picks_are_those_of_refitting(data, made, by):
    rows, goals = data[0][250:], data[1][250:]
    found = select(made, torch.from_numpy(rows), goals, 6, by=by)
    picks, scores = refitted(made, rows, goals, 6, by)
    assert found.picks.tolist() == picks
    assert found.scores == pytest.approx(scores, abs=1e-5)
    assert picks[0] in (2, 7)


def test_prefixes_are_scipys(data, made):
    rows = data[0][250:260]
    picks = np.array([4, 2, 0])
    found = prefixes(made, picks, torch.from_numpy(rows))
    for k in range(1, 4):
        assert found[k - 1] == pytest.approx(posterior(made, picks[:k].tolist(), rows), abs=1e-9)


def test_a_still_neuron_is_never_chosen(data):
    rows, goals = data[0].copy(), data[1]
    rows[:, 3] = 7.0
    rows[goals == 0, 4] = 1.0  # still in one class alone
    made = class_gaussians(ArrayRows(rows), goals, np.ones(N, bool), CLASSES)
    found = select(made, torch.from_numpy(rows).float(), goals, D - 1)
    assert sorted(found.picks.tolist()) == [unit for unit in range(D) if unit != 3]  # each once
    assert np.isfinite(found.scores).all()
    with pytest.raises(ResultError, match="8 neurons change"):
        select(made, torch.from_numpy(rows), goals, D)


def test_a_neuron_that_is_the_same_for_all_words_of_a_class_is_chosen_first(data):
    """Sums of squares in single precision may leave such a variance a little below 0."""
    rows, goals = data[0].copy(), data[1]
    rows[:, 4] = 3.0 * (goals != 1) + 0.1 * rows[:, 4] * (goals != 1)
    counts = np.bincount(goals).astype(float)
    means = np.stack([rows[goals == code].mean(0) for code in range(CLASSES)])
    covariances = np.stack([np.cov(rows[goals == code].T, bias=True) for code in range(CLASSES)])
    exact = selection.fitted(counts, means, covariances)
    covariances[1, 4] += 3e-7
    covariances[1, :, 4] += 3e-7
    covariances[1, 4, 4] = -1e-5
    found = selection.fitted(counts, means, covariances)
    np.testing.assert_allclose(found.covariances, exact.covariances, atol=1e-12)
    assert select(found, torch.from_numpy(rows), goals, 3).picks[0] == 4
    assert np.isfinite(prefixes(found, np.arange(D), torch.from_numpy(rows))).all()


def test_bad_input_is_one_sentence(data, made):
    rows, goals = data
    with pytest.raises(ResultError, match="cannot be selected by 'magic'"):
        select(made, torch.from_numpy(rows), goals, 2, by="magic")
    with pytest.raises(ResultError, match="no held-out words"):
        select(made, torch.from_numpy(rows[:0]), goals[:0], 2)
    with pytest.raises(ResultError, match="two or more words of every class"):
        class_gaussians(ArrayRows(rows), goals, goals < 2, CLASSES)
    spoilt = rows.copy()
    spoilt[3, 1] = np.inf
    with pytest.raises(ResultError, match="1 is not a number"):
        class_gaussians(ArrayRows(spoilt), goals, np.ones(N, bool), CLASSES)


@pytest.mark.parametrize("tag", ["NOUN", "VERB", planted.FLIPPED])
def test_planted_neurons_are_chosen_and_beat_random_ones(tag):
    found = neurons.gaussian(planted.model(), planted.corpus(), concept=f"upos={tag}", sites="neurons.*", count=3,
                             seeds=1)  # fmt: skip
    name = planted.names()[tag]
    assert found.picks[0] == name
    assert found.values[0, 0] > 0.95
    assert found.values[0, 0] > found.null[0, 0] + 0.1
    assert found.values[1, 0] > found.null[1, 0] + 0.1
    assert found.axes["neurons"] == (1, 2, 3)
    ranking = found.ranking()
    assert ranking.top(3) == found.picks
    assert ranking.scores()[ranking.place("neuron", found.picks[1])] == 0.5
    assert ranking.classes == (tag,)
    assert (ranking.values[0, ranking.place("neuron", name)] < 0) == (tag == planted.FLIPPED)
    assert ranking.null.sum() == pytest.approx(ranking.overall.columns["score"].sum())


def arrays(words: int = 600, width: int = 12, classes: str = "ab"):
    """Neuron 3 tells the first class from the others, neuron 7 a little; sentences of five words."""
    dice = np.random.default_rng(4)
    tags = dice.choice(list(classes), words)
    rows = dice.normal(size=(words, width))
    rows[tags == "a", 3] += 3
    rows[tags == "a", 7] += 1
    return rows, tags, (np.arange(words) // 5).tolist()


def stored(rows, tags, sentences, **options):
    return neurons.array_store(rows, tags, sentences=sentences, **options)


def test_documents_for_testing_do_not_change_what_is_chosen():
    rows, tags, sentences = arrays()
    first = neurons.gaussian(stored(rows, tags, sentences), concept="label", count=4)
    dealt = material(stored(rows, tags, sentences), Concept.parse("label"), Reading(), controlled=False).split
    other = rows.copy()
    other[dealt.test] = np.random.default_rng(1).normal(size=(dealt.test.sum(), 12))[:, ::-1] * 5
    second = neurons.gaussian(stored(other, tags, sentences), concept="label", count=4)
    assert first.picks == second.picks
    assert first.table("picks").columns["criterion"] == pytest.approx(second.table("picks").columns["criterion"])
    assert second.values[0, 0] < first.values[0, 0] - 0.2


def test_controls_stand_beside_the_accuracy():
    rows, tags, sentences = arrays()
    words = [f"w{place % 40}" for place in range(600)]
    found = neurons.gaussian(stored(rows, tags, sentences, words=words), concept="label", count=3)
    accuracy, _, control, selectivity = found.values
    assert found.axes["measure"] == ("accuracy", "information", "control task", "selectivity")
    assert selectivity == pytest.approx(accuracy - control)
    assert accuracy[0] > 0.85
    assert (control < 0.7).all(), "activations that know no word types cannot tell their labels"
    sure = max((tags == name).mean() for name in "ab")
    assert found.table("majority").columns["value"][0] == pytest.approx(sure, abs=0.06)


def test_information_is_the_entropy_of_the_classes_less_the_cross_entropy():
    """Of documents for testing, with the prior and Gaussians of those to learn from, by SciPy's densities."""
    rows, tags, sentences = arrays(classes="abbc")
    store = stored(rows, tags, sentences, words=["w"] * 600)
    found = neurons.gaussian(store, concept="label", count=2, seeds=1)
    split = material(store, Concept.parse("label"), Reading(), controlled=False).split
    goals, picks = np.searchsorted(["a", "b", "c"], tags), [int(name.rpartition(":")[2]) for name in found.picks]
    made = class_gaussians(ArrayRows(rows), goals, split.without(0), CLASSES)
    likely = posterior(made, picks, rows[split.test])[goals[split.test], np.arange(split.test.sum())]
    expected = entropy(np.exp(made.prior)) + likely.mean()
    assert found.values[1, 1] == pytest.approx(expected, abs=1e-4)
    assert 0.2 < expected < entropy(np.exp(made.prior))


def test_the_random_model_chooses_neurons_of_its_own(tmp_path):
    """Its accuracy, chance and interval are those that the random model has when it is the model."""
    text = planted.corpus().take(150)
    settings = {"concept": "upos=NOUN,VERB", "count": 4}
    twin = pl.Model.random_like(planted.model(), 0)
    own, alone, further = (
        pl.build_store(model, text, tmp_path / name, "neurons.0", dtype="float32", progress=False)
        for model, name in ((planted.model(), "own"), (twin, "twin"), (pl.Model.random_like(twin, 1), "further"))
    )
    read = neurons.gaussian(planted.model(), text, sites="neurons.0", **settings)
    beside = neurons.gaussian(own, random=alone, **settings)
    turned = neurons.gaussian(alone, random=further, **settings)
    with pytest.raises(ResultError, match="no randomly initialised twin of"):
        neurons.gaussian(alone, random=own, **settings)
    assert read.axes["measure"] == ("accuracy", "information", "random model", "control task", "selectivity")
    for found in (read, beside):
        at = found.place("measure", "random model")
        for name in ("values", "null", "low", "high"):
            assert getattr(found, name)[at].tolist() == getattr(turned, name)[0].tolist(), name
        assert found.values[0, 0] > found.values[at].max() + 0.1, "planted neurons were not there by chance"
        assert len(found.provenance.models) == 2
    assert read.picks == beside.picks != turned.picks
    for how in ({}, {"preset": "neurox"}):
        with pytest.raises(ResultError, match="no randomly initialised twin"):
            neurons.gaussian(own, **settings, **how)
        assert neurons.gaussian(own, random=alone, **settings, **how).values.shape == (5, 4)


@pytest.mark.parametrize("changing", [0, 1, 2])
def test_a_random_model_with_few_neurons_that_change(changing):
    """More than change cannot be chosen there, and tell no more; none tell as much as the most frequent class."""
    rows, tags, sentences = arrays()
    store, other = stored(rows, tags, sentences), np.ones_like(rows)
    other[:, :changing] = rows[:, 3 : 3 + changing]
    twin = stored(other, tags, sentences, name=f"{store.models[0].name} (random, seed 0)")
    twin.about["corpus"]["fingerprint"] = store.about["corpus"]["fingerprint"]
    found = neurons.gaussian(store, concept="label", count=3, random=twin)
    at = found.place("measure", "random model")
    assert found.values.shape == (5, 3)
    told = [found.table("majority").columns["value"][0], found.values[0, 0]][min(1, changing)]
    assert found.values[at, 0] == pytest.approx(told, abs=0.01)
    assert found.values[at, changing:] == pytest.approx(found.values[at, max(0, changing - 1)])


def test_seeds_leave_out_other_documents_and_every_place_is_told():
    rows, tags, sentences = arrays()
    one, three = (
        neurons.gaussian(stored(rows, tags, sentences), concept="label", count=3, seeds=seeds) for seeds in (1, 3)
    )
    assert one.picks == three.picks
    assert one.ranking().low is None
    ranking, folds = three.ranking(), three.table("folds").columns["neuron"]
    assert folds.shape == (3, 3)
    place = ranking.place("neuron", folds[0][1])
    places = [list(names).index(folds[0][1]) + 1 if folds[0][1] in names else np.inf for names in folds]
    assert ranking.overall.columns["score"][place] == pytest.approx(np.mean([1 / at for at in places]))
    assert ranking.low is ranking.high is None, "1 over a place lies in 0 to 1, and an interval of three leaves it"
    assert "low" not in ranking.overall.columns
    assert ranking.resampled == "no interval: places chosen without other documents, 3 times, are in the table 'places'"
    told = ranking.table("places")
    assert told.axes == {"seed": (0, 1, 2), "neuron": ranking.neurons}
    for own, names in zip(told.columns["place"], folds, strict=True):
        assert [ranking.neurons[at] for at in np.argsort(own, kind="stable") if own[at]] == names.tolist()
        assert sorted(own[own > 0]) == [1, 2, 3]
    assert one.ranking().table("places").columns["place"].shape == (1, len(ranking.neurons))
    with pytest.raises(ResultError, match="seeds=11"):
        neurons.gaussian(stored(rows, tags, sentences), concept="label", seeds=11)


def test_more_neurons_than_fit_are_those_that_tell_most_alone(monkeypatch):
    rows, tags, sentences = arrays(classes="abc")
    whole = neurons.gaussian(stored(rows, tags, sentences), concept="label", count=2)
    monkeypatch.setattr(fitting, "LIMIT", 8 * 3 * 5 * 5)
    assert fitting.most_neurons(3) == 5
    few = neurons.gaussian(stored(rows, tags, sentences), concept="label", count=2)
    assert whole.provenance.arguments["read"] == 12
    assert few.provenance.arguments["read"] == 5
    assert few.picks[0] == whole.picks[0] == "resid.0:3"
    assert few.table("means").axes["neuron"] == whole.table("means").axes["neuron"]
    assert few.table("means").columns["away"] == pytest.approx(whole.table("means").columns["away"], abs=1e-6)
    with pytest.raises(ResultError, match="fit in memory with 5 neurons, and 6 are to be chosen"):
        neurons.gaussian(stored(rows, tags, sentences), concept="label", count=6)


def test_the_prior_is_that_of_all_neurons_where_some_are_read(monkeypatch):
    """Covariances of the neurons that fit are a sub-block of those of all, and so is what they tell."""
    rows, tags, sentences = arrays(classes="abc")
    found = material(stored(rows, tags, sentences), Concept.parse("label"), Reading(), controlled=False)
    how = Choosing(2, "likelihood", None, 0, None)
    whole = chosen(found, found.rows, 0, how)
    monkeypatch.setattr(fitting, "LIMIT", 8 * 3 * 5 * 5)
    few = chosen(found, found.rows, 0, how)
    assert len(few.places) == 5
    block = np.ix_(range(3), few.places, few.places)
    assert few.made.covariances == pytest.approx(whole.made.covariances[block], abs=1e-6)
    assert few.picked == whole.picked
    assert few.scores == pytest.approx(whole.scores, abs=1e-5)


@pytest.mark.parametrize("by", ["likelihood", "accuracy"])
def test_words_that_do_not_fit_in_memory_are_worked_out_block_by_block(data, made, monkeypatch, by):
    """NeuroX lets all words decide: what is held is then not [classes, words, neurons]."""
    rows, goals, held = torch.from_numpy(data[0]), data[1], list[int]()
    plain = select(made, rows, goals, 6, by=by)
    real = selection._away

    def noted(part, means):
        held.append(len(part))
        return real(part, means)

    monkeypatch.setattr(selection, "_away", noted)
    monkeypatch.setattr(selection, "HELD", 1000)
    few = select(made, rows, goals, 6, by=by)
    assert few.picks.tolist() == plain.picks.tolist()
    assert few.scores == pytest.approx(plain.scores, abs=1e-9)
    assert held
    assert max(held) <= selection._ROWS < len(rows)


def test_no_more_neurons_are_chosen_than_change():
    rows, tags, sentences = arrays()
    rows[:, 8:] = 1.0
    store = stored(rows, tags, sentences)
    with pytest.warns(NeuronWarning, match="8 of 12 neurons change with the text, so 8 are chosen, and not 12"):
        found = neurons.gaussian(store, concept="label")
    assert len(found.picks) == found.provenance.arguments["count"] == 8
    for count in (9, 13):
        with pytest.raises(ResultError, match=f"8 neurons change with the text, so {count} cannot be selected"):
            neurons.gaussian(store, concept="label", count=count)
    whole = neurons.gaussian(stored(*arrays()), concept="label", seeds=1)
    assert whole.provenance.arguments["count"] == 12
    with pytest.raises(ResultError, match="12 neurons change with the text, so 13 cannot"):
        neurons.gaussian(stored(*arrays()), concept="label", count=13)


@pytest.mark.parametrize("count", [None, 3])
def test_rows_that_never_change_are_told_in_one_sentence(count):
    rows, tags, sentences = arrays()
    message = r"^No neuron changes with the text, so none can be selected; give other rows, or other sites\.$"
    with pytest.raises(ResultError, match=message):
        neurons.gaussian(stored(np.ones_like(rows), tags, sentences), concept="label", count=count)


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": -1}, {"held": 0}, {"held": -5}])
def test_a_number_of_nothing_is_refused(wrong):
    (name, number), *_ = wrong.items()
    with pytest.raises(ResultError, match=f"^{name}={number} chooses nothing; use 1 or more, or leave it out"):
        neurons.gaussian(stored(*arrays()), concept="label", **wrong)


def test_a_neuron_that_is_still_in_one_fold_shortens_all():
    """It changes in the documents that one seed leaves out alone, and cannot be chosen there."""
    rows, tags, sentences = arrays()
    fold = material(stored(rows, tags, sentences), Concept.parse("label"), Reading(), controlled=False).split.fold
    rows[:, 11] = np.where(fold == 1, rows[:, 11], 0.0)
    with pytest.warns(NeuronWarning, match="11 of 12 neurons change"):
        found = neurons.gaussian(stored(rows, tags, sentences), concept="label")
    assert found.table("folds").columns["neuron"].shape == (3, 11)
    assert found.values.shape[1] == len(found.picks) == 11


def test_a_ranking_by_gaussians_has_its_places_and_what_its_neurons_tell():
    rows, tags, sentences = arrays()
    store = stored(rows, tags, sentences)
    found = neurons.gaussian(store, concept="label", count=3)
    made = neurons.rank(store, concept="label", methods="gaussian", count=3)["gaussian"]
    assert made.low is None
    assert made.table("places").columns["place"].tolist() == found.ranking().table("places").columns["place"].tolist()
    assert made.values.tolist() == found.ranking().values.tolist()
    single = neurons.rank(store, concept="label", methods="gaussian", count=3, seeds=1)["gaussian"]
    assert "use seeds=2 or more" in single.resampled
    told = made.table("accuracy")
    assert told.axes["measure"] == ("accuracy", "control task", "selectivity")
    assert told.columns["value"] == pytest.approx(found.values[[0, 2, 3], -1])
    assert told.columns["majority"][:2] == pytest.approx(found.table("majority").columns["value"])
    theirs = neurons.gaussian(store, concept="label", count=3, preset="neurox")
    assert theirs.table("folds").columns["neuron"].shape == (1, 3)


def test_what_each_neuron_tells_alone_is_the_first_step_of_a_selection(data, made):
    rows, goals = data[0][250:], data[1][250:]
    found = alone(made, torch.from_numpy(rows), goals)
    for unit in range(D):
        assert found[unit] == pytest.approx(
            posterior(made, [unit], rows)[goals, np.arange(len(goals))].mean(), abs=1e-5
        )
    spread = class_variances(ArrayRows(data[0]), data[1], np.arange(N) < 250, CLASSES)
    assert spread.means == pytest.approx(made.means)
    mine = data[0][:250][data[1][:250] == 1]
    assert spread.covariances[1] == pytest.approx(mine.var(0), rel=1e-4)


def test_few_words_are_warned_of_with_both_numbers():
    rows, tags, sentences = arrays(words=200, width=150)
    with pytest.warns(
        NeuronWarning, match=r"2 of 2 classes have fewer words .* than there are neurons, 150 \('.' has \d+\)"
    ) as told:
        neurons.gaussian(stored(rows, tags, sentences, words=["w"] * 200), concept="label", count=2)
    assert len(told) == 1
