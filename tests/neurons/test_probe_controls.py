"""Controls of probes: they know nothing of documents for testing, and every seed has folds and labels of its own."""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pellucid import ClassMoments, neurons, replay
from pellucid.collect.build import build_store
from pellucid.collect.store import Store
from pellucid.model import Model
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.concepts import Concept
from pellucid.neurons.judging import smallest
from pellucid.neurons.probing import intervals, probes
from pellucid.neurons.probing.controls import control_goals
from pellucid.neurons.probing.material import Material, Reading, material
from pellucid.neurons.probing.probes import control_tasks, real_tasks
from pellucid.neurons.probing.training import Settings, fit
from pellucid.neurons.ranking import Ranking, overall_table
from pellucid.results import Provenance
from pellucid.uncertainty import Interval
from tests.neurons import planted

CONCEPT = "upos=NOUN,VERB,DET"


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Material:
    models = [planted.model(), Model.random_like(planted.model(), 4)]
    folder = tmp_path_factory.mktemp("stores") / "both"
    store = build_store(models, planted.corpus().take(150), folder, "neurons.0", dtype="float32", progress=False)
    return material(store, Concept.parse(CONCEPT), Reading())


def with_goals(found: Material, goals: np.ndarray) -> Material:
    return replace(found, data=replace(found.data, goals=goals))


@pytest.fixture
def turned(found, monkeypatch) -> Material:
    """The first class is the most frequent one to learn from, the second in documents for testing."""
    known, dice = found.data.goals >= 0, np.random.default_rng(0)
    drawn = np.where(found.split.test, *(dice.choice(3, len(known), p=p) for p in ([0.2, 0.7, 0.1], [0.7, 0.2, 0.1])))
    made = with_goals(found, np.where(known, drawn, -1))

    @contextmanager
    def opened(*_arguments, **_options):
        yield made

    for home in ("probing.probes", "probing.per_layer", "judging.evaluation"):
        monkeypatch.setattr(f"pellucid.neurons.{home}.opened", opened)
    return made


def test_the_majority_is_that_of_the_documents_to_learn_from(turned):
    """Guessing is right for a fifth of the words tested, and not for the seven tenths of their own majority."""
    expected = (turned.data.goals[turned.split.test] == 0).mean()
    assert expected < 0.3
    probed = neurons.probe(turned.store, concept=CONCEPT, epochs=1, seeds=1, progress=False)
    assert probed.null[0, 0] == pytest.approx(expected)
    layers = neurons.per_layer(turned.store, concept=CONCEPT, epochs=1, seeds=1)
    assert layers.null[0] == pytest.approx([expected])
    names, score = turned.rows.names, np.arange(len(turned.rows.names), 0.0, -1.0)
    overall = {"overall": overall_table(names, score, null=np.zeros(len(names)))}
    order = Ranking({"class": ("NOUN",), "neuron": names}, score[None], None, None, None, "no interval: by hand",
                    Provenance("neurons.ranking", {"method": "by hand", "concept": CONCEPT}), overall)  # fmt: skip
    curves = neurons.ablated_in_probe(turned.store, order, concept=CONCEPT, counts=(2,), draws=1, epochs=1, seeds=1)
    assert curves.table("whole").columns["value"][1] == pytest.approx(expected)
    assert curves.table("controls").columns["value"][0] == pytest.approx([expected])


def test_chance_of_a_control_task_is_its_own_most_frequent_label(found):
    """Of the labels of word types that are learned from, and not of the classes: seed by seed, and for arrays too."""
    data, split = found.data, found.split
    shares = []
    for seed in range(3):
        labels = control_goals(data.goals, data.types, split.training, len(data.classes), seed=1000 * seed)
        (most, _), *_ = Counter(labels[split.training].tolist()).most_common()
        shares.append((labels[split.test] == most).mean())
    real = Counter(data.goals[split.training].tolist()).most_common(1)[0][0]
    sure, chance = (data.goals[split.test] == real).mean(), np.mean(shares)
    assert abs(sure - chance) > 0.02, "the two can be told apart"
    probed = neurons.probe(found.store, concept=CONCEPT, epochs=1, progress=False)
    assert probed.null[:, 0] == pytest.approx([sure, sure, chance, sure - chance])
    layers = neurons.per_layer(found.store, concept=CONCEPT, epochs=1)
    assert layers.null[:, 0] == pytest.approx(probed.null[:, 0])


def test_every_seed_leaves_out_another_fold_and_has_labels_of_its_own(found):
    real, control = real_tasks(found, 3), control_tasks(found, 3, 0)
    for fold, (one, other) in enumerate(zip(real, control, strict=True)):
        for task in (one, other):
            assert np.array_equal(task.held, found.split.fold == fold)
            assert np.array_equal(task.learned, found.split.training & (found.split.fold != fold))
            assert not (task.learned & found.split.test).any()
        assert np.array_equal(one.goals, found.data.goals)
    pairs = [(control[one].goals != control[other].goals).mean() for one, other in ((0, 1), (0, 2), (1, 2))]
    assert min(pairs) > 0.1


def test_hits_are_counted_in_documents_for_testing_alone(found):
    classes, tasks = len(found.data.classes), [*real_tasks(found, 1), *control_tasks(found, 1, 0)]
    fitted = fit(found.rows, tasks, classes, Settings(0.0, 1e-3, epochs=2))
    rows, counts = np.flatnonzero(found.split.test), probes.tested_counts(found)
    place = found.split.group[rows], found.data.goals[rows]
    hits = probes.tested(found.rows, fitted, tasks, found)
    for own, task, guesses in zip(hits, tasks, fitted.guesses(found.rows.take(rows)), strict=True):
        expected = np.zeros_like(counts)
        np.add.at(expected, place, guesses == task.goals[rows])
        assert np.array_equal(own, expected)
    assert counts.sum() == len(rows)
    assert (hits <= counts).all()


def test_the_fold_that_chooses_the_smallest_set_is_not_learned_from(found, monkeypatch):
    """Spoiling its classes changes what is reached there, and nothing of what probes tell of other documents."""
    fold, spoilt, learned = found.split.fold, found.data.goals.copy(), list[np.ndarray]()
    spoilt[fold == 1] = np.random.default_rng(0).permutation(spoilt[fold == 1])

    def noted(rows, tasks, *rest):
        learned.extend(task.learned | task.held for task in tasks)
        return fit(rows, tasks, *rest)

    monkeypatch.setattr(smallest, "fit", noted)
    monkeypatch.setattr(smallest, "_TURNS", 1)
    order, settings = list(found.rows.names), Settings(0.0, 1e-3, epochs=4)
    one, two = (smallest._Search(with_goals(found, goals), order, settings) for goals in (found.data.goals, spoilt))
    for search in (one, two):
        search.try_all([len(order)])
    assert one.reached[len(order)] > 0.9
    assert two.reached[len(order)] < 0.7
    assert np.array_equal(one.hits[len(order)], two.hits[len(order)])
    assert len(learned) == 2
    assert not any((rows & ((fold == 1) | found.split.test)).any() for rows in learned)


def test_three_folds_choose_the_smallest_set_each_by_a_probe_that_has_not_seen_it(found, monkeypatch):
    """What is reached is the share of right words of three folds, each told by the probe that learned without it."""
    made = list[tuple[list, object]]()

    def noted(rows, tasks, *rest):
        made.append((tasks, fit(rows, tasks, *rest)))
        return made[-1][1]

    monkeypatch.setattr(smallest, "fit", noted)
    order, fold, goals = list(found.rows.names), found.split.fold, found.data.goals
    search = smallest._Search(found, order, Settings(0.0, 1e-3, epochs=2))
    search.try_all([2, len(order)])
    tasks, fitted = made[0]
    right = {2: 0, len(order): 0}
    for number, task in enumerate(tasks):
        deciding = np.flatnonzero(fold == number % 3 + 1)
        assert len(deciding)
        assert not (task.learned | task.held)[deciding].any()
        guesses = fitted.guesses(found.rows.take(deciding))[number]
        right[int(task.columns.sum())] += int((guesses == goals[deciding]).sum())
    words = int(np.isin(fold, (1, 2, 3)).sum())
    assert search.reached == pytest.approx({size: hits / words for size, hits in right.items()})


def test_a_number_that_was_lucky_is_not_the_smallest_set(found):
    search = smallest._Search(found, [], Settings(0.0, 1e-3))
    search._total, search.reached = 16, {1: 0.97, 2: 0.6, 4: 0.93, 8: 0.96, 16: 1.0}
    assert [search.enough(share) for share in (0.01, 0.05, 0.1, 0.5)] == [16, 8, 4, 1]


def test_the_training_part_has_no_word_of_a_document_for_testing(found):
    """Words without a class count too: a concept of classes that are rare leaves most words without one."""
    part = neurons.training_part(found.store, concept="upos", fewest=100)
    rare = material(found.store, Concept.parse("upos"), Reading(fewest=100), controlled=False)
    tested = rare.data.units[rare.split.test]
    assert (np.isin(rare.data.units, tested) & ~rare.split.test).any(), "some of their words have no class"
    assert part.rows == (~np.isin(rare.data.units, tested)).sum()


def test_accuracy_less_each_control_has_an_interval_of_its_own(found):
    made = neurons.probe(found.store, concept=CONCEPT, epochs=2, seeds=2, progress=False)
    table = made.table("margins")
    assert table.axes["control"] == ("majority", "random model", "control task")
    accuracy, random, control, _ = made.values[:, 0]
    assert table.columns["value"] == pytest.approx(accuracy - np.array([made.null[0, 0], random, control]))
    place = made.place("measure", "selectivity")
    assert table.columns["low"][2] == pytest.approx(made.low[place, 0])
    assert table.columns["high"][2] == pytest.approx(made.high[place, 0])


def test_a_margin_is_surer_than_two_accuracies_that_rise_and_fall_together():
    """Groups of documents differ widely, and the probe is better by about a tenth in each of them."""
    right, more = np.array([20.0, 50.0, 80.0, 40.0]), np.array([11, 9, 10, 10])
    hits = np.stack([right + more, right, right - 5, np.full(4, 10.0)])[:, None, :, None]
    found = probes._margins(hits, np.full((4, 1), 100.0)).columns
    assert found["value"] == pytest.approx([0.475, 0.15, 0.10])
    ends = stats.t.interval(0.95, 3, loc=0.1, scale=stats.sem(more / 100))
    assert (found["low"][2], found["high"][2]) == pytest.approx(ends)
    assert found["high"][0] - found["low"][0] > 20 * (found["high"][2] - found["low"][2])


def small_arrays(words: int | None, apart: float = 3) -> Store:
    """Two classes in sentences of five rows, of so many word types, or each of its own."""
    dice = np.random.default_rng(0)
    goals = dice.choice(["a", "b"], 300)
    rows = dice.normal(size=(300, 6))
    rows[goals == "a", 3] += apart
    names = None if words is None else [f"w{place % words}" for place in range(300)]
    return neurons.array_store(rows, goals, words=names, sentences=(np.arange(300) // 5).tolist())


@pytest.mark.parametrize("way", [neurons.probe, neurons.per_layer, neurons.gaussian])
def test_intervals_of_accuracies_stay_in_their_range(way):
    """Nearly all words are told, so t of ten groups reaches beyond 1; what is no share is not cut off."""
    made = way(small_arrays(30, 4.2), concept="label")
    place = made.place("measure", "accuracy")
    assert 0.9 < made.values[place].max() < 1
    assert made.high[place].max() == 1.0
    shares = [made.place("measure", name) for name in ("accuracy", "control task")]
    assert (made.low[shares] >= 0).all()
    assert (made.high[shares] <= 1).all()
    assert ((made.low <= made.values) & (made.values <= made.high)).all()


def test_differences_are_not_cut_off():
    ends = intervals.in_range(
        Interval(np.array([-0.1, -0.3]), np.array([1.1, 1.2]), "told"), ("accuracy", "selectivity")
    )
    assert (ends.low.tolist(), ends.high.tolist(), ends.resampled) == ([0.0, -0.3], [1.0, 1.2], "told")
    none = Interval(None, None, "no interval")
    assert intervals.in_range(none, ("accuracy",)) == none


@pytest.mark.parametrize("method", ["probe-l2", "forest", "gaussian"])
def test_a_control_task_that_cannot_be_learned_is_warned_of(method):
    """Without words every row is of its own type: nothing of the control task is known in documents for testing."""
    with pytest.warns(NeuronWarning, match=r"^0% of the rows for testing have a word type .*: give the words"):
        found = neurons.rank(small_arrays(None), methods=method, seeds=1)[method]
    assert found.provenance.arguments["word types seen"] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        known = neurons.rank(small_arrays(20), methods=method, seeds=1)[method]
    assert known.provenance.arguments["word types seen"] == 1


def with_a_rare_class() -> Store:
    """Three classes, one of six words."""
    dice = np.random.default_rng(0)
    goals = np.where(np.arange(300) % 50 == 7, "rare", dice.choice(["a", "b"], 300))
    rows = dice.normal(size=(300, 6))
    words = [f"w{place % 20}" for place in range(300)]
    return neurons.array_store(rows, goals, words=words, sentences=(np.arange(300) // 5).tolist())


@pytest.mark.parametrize("way", ["probe-l2", "forest", "gaussian", "in probe", "anew", "sweep"])
def test_a_rare_class_that_the_concept_names_is_told_and_left_out(way):
    store, options = with_a_rare_class(), {"counts": (2,), "draws": 1, "epochs": 2, "seeds": 1}
    ranking = neurons.probeless(store, concept="label=a,b")
    moments = [ClassMoments("resid.0", label="label", covariance="full")]
    ways = {
        "in probe": lambda concept: neurons.ablated_in_probe(store, ranking, concept=concept, **options),
        "anew": lambda concept: neurons.trained_anew(store, ranking, concept=concept, **options, within=None),
        "sweep": lambda concept: neurons.rank(replay(store, moments, progress=False), concept=concept,
                                              methods="gaussian")["gaussian"],
    }  # fmt: skip
    made = ways.get(way, lambda concept: neurons.rank(store, concept=concept, methods=way, seeds=1)[way])
    message = r"^'label=a,b,rare' names classes with fewer than 20 words, which are left out: rare \(6\); give more"
    with pytest.warns(NeuronWarning, match=message):
        found = made("label=a,b,rare")
    assert found.provenance.arguments["left out"] == {"rare": 6}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*names classes", NeuronWarning)
        assert made("label").provenance.arguments["left out"] == {"rare": 6}


def test_the_share_of_word_types_seen_is_that_of_rows_for_testing(found):
    learned = set(found.data.types[found.split.training].tolist())
    share = np.mean([word in learned for word in found.data.types[found.split.test].tolist()])
    assert 0.5 < share < 1
    assert found.types_seen == pytest.approx(share)
