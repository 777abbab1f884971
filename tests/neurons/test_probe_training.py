"""Training probes: scikit-learn's weights, tasks that do not disturb each other, rows read in blocks, bad numbers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from pellucid.collect.build import build_store
from pellucid.neurons.caution import NeuronWarning
from pellucid.neurons.probing.converging import _Descent, converge
from pellucid.neurons.probing.rows import ArrayRows, StoreRows
from pellucid.neurons.probing.training import Settings, Task, _State, fit, moments
from pellucid.results import ResultError
from tests.neurons import planted

N, D, C = 500, 10, 3


@pytest.fixture(scope="module")
def data():
    """Correlated neurons on very different scales, and classes that three of them decide in part."""
    dice = np.random.default_rng(0)
    rows = dice.normal(size=(N, D)) @ (np.eye(D) + 0.2 * dice.normal(size=(D, D)))
    goals = (rows[:, :C] + dice.gumbel(size=(N, C))).argmax(1)
    rows = rows * 10.0 ** np.arange(-3, D - 3) + 3.0
    return rows, goals


def every(value: bool = True) -> np.ndarray:
    return np.full(N, value)


def scaled(rows: np.ndarray) -> np.ndarray:
    return (rows - rows.mean(0)) / rows.std(0)


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.01), (0.005, 0.005)])
def test_converged_weights_are_scikit_learns(data, l1, l2):
    rows, goals = data
    source, settings = ArrayRows(rows), Settings(l1=l1, l2=l2, epochs=20)
    tasks = [Task(goals, every(), every(False))]
    found = converge(source, tasks, fit(source, tasks, C, settings), settings, passes=3000, change=1e-8)
    other = LogisticRegression(
        C=1 / (N * (l1 + l2)), l1_ratio=l1 / (l1 + l2), solver="saga" if l1 else "lbfgs", max_iter=50_000, tol=1e-10
    ).fit(scaled(rows), goals)
    assert found.weights[0] == pytest.approx(other.coef_, abs=2e-4)
    assert ((found.weights[0] == 0) == (other.coef_ == 0)).all()
    assert (found.guesses(torch.from_numpy(rows).float())[0] == other.predict(scaled(rows))).mean() >= 0.99


def test_an_optimum_that_was_not_reached_is_warned_of(data):
    rows, goals = data
    source, settings = ArrayRows(rows), Settings(l1=0.0, l2=0.01, epochs=2)
    tasks = [Task(goals, every(), every(False))]
    begun = fit(source, tasks, C, settings)
    with pytest.warns(NeuronWarning, match=r"^After 3 passes weights still move by \d\.\de-0\d a pass"):
        converge(source, tasks, begun, settings, passes=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        converge(source, tasks, begun, settings, passes=3000, change=1e-6)


def test_convergence_is_worked_out_where_probes_train(data):
    """Tensors of torch's "meta" device have no numbers, and cannot be mixed with those of another."""
    rows, goals = data
    source, tasks = ArrayRows(rows), [Task(goals, every(), every(False))]
    begun = fit(source, tasks, C, Settings(epochs=1))
    state = _Descent(source, tasks, begun, Settings(device="meta"))
    assert state.slope(state.start).device.type == "meta"


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.3), (0.05, 0.0)])
def test_training_alone_comes_near_the_optimum_of_strong_penalties(data, l1, l2):
    rows, goals = data
    source, settings = ArrayRows(rows), Settings(l1=l1, l2=l2, epochs=300, batch=N, tolerance=1e-7)
    tasks = [Task(goals, every(), every(False))]
    found = fit(source, tasks, C, settings)
    best = converge(source, tasks, found, settings, passes=3000, change=1e-8)
    largest = float(np.abs(best.weights).max())
    assert found.weights == pytest.approx(best.weights, abs=0.1 * largest)
    if l1:
        assert (best.weights == 0).any()
        assert ((found.weights == 0) == (best.weights == 0)).mean() > 0.9


def test_training_alone_is_nearly_as_accurate(data):
    rows, goals = data
    learned = np.arange(N) < 400
    found = fit(ArrayRows(rows), [Task(goals, learned, every(False))], C, Settings(l1=0.0, l2=0.001))
    other = LogisticRegression(C=1 / 0.4, max_iter=1000).fit(scaled(rows)[learned], goals[learned])
    mine = (found.guesses(torch.from_numpy(rows[~learned]).float())[0] == goals[~learned]).mean()
    assert mine >= other.score(scaled(rows)[~learned], goals[~learned]) - 0.02
    assert mine > 0.5


def test_tasks_trained_together_are_those_trained_alone(data):
    rows, goals = data
    source, settings = ArrayRows(rows), Settings(epochs=15, batch=64)
    fold = np.arange(N) % 10
    columns = np.arange(D) < 4
    tasks = [
        Task(goals, fold != 0, fold == 0),
        Task(goals, fold != 1, fold == 1, columns),
        Task(np.random.default_rng(1).permutation(goals), fold != 0, fold == 0),
    ]
    together = fit(source, tasks, C, settings)
    assert (together.weights[1][:, ~columns] == 0).all()
    assert (together.weights[1][:, columns] != 0).any()
    assert np.abs(together.weights[2]).sum() < 0.5 * np.abs(together.weights[0]).sum()
    swapped = fit(source, [tasks[0], tasks[1], tasks[1]], C, settings)
    assert swapped.weights[0] == pytest.approx(together.weights[0], abs=1e-5)
    assert swapped.weights[2] == pytest.approx(together.weights[1], abs=1e-5)


def test_rows_that_are_not_learned_from_change_nothing(data):
    rows, goals = data
    kept, held = np.arange(N) < 300, (np.arange(N) >= 300) & (np.arange(N) < 350)
    other = np.where(np.arange(N) >= 350, (goals + 1) % C, goals)
    spoilt = rows.copy()
    spoilt[350:] = 1e6
    one = fit(ArrayRows(rows), [Task(goals, kept, held)], C, Settings(epochs=10))
    two = fit(ArrayRows(spoilt), [Task(other, kept, held)], C, Settings(epochs=10))
    assert (one.weights == two.weights).all()
    assert (one.mean == two.mean).all()


def test_the_held_rows_decide_when_training_stops(data):
    rows, goals = data
    kept = np.arange(N) < 250
    hostile = np.where(kept, goals, (goals + 1) % C)  # held rows that training can only make worse
    found = fit(ArrayRows(rows), [Task(hostile, kept, ~kept), Task(goals, kept, ~kept)], C, Settings(epochs=40))
    assert found.epochs[0] == 0
    assert (found.weights[0] == 0).all()
    assert found.epochs[1] > 3


def noise(neurons: int = 3456, words: int = 900) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Many correlated neurons that say nothing of two classes, one four times as frequent; fold 10 is for tests."""
    dice = np.random.default_rng(0)
    rows = dice.normal(size=(words, 60)) @ dice.normal(size=(60, neurons)) + 0.5 * dice.normal(size=(words, neurons))
    place = np.arange(words)
    return rows, (dice.random(words) < 0.2).astype(np.int64), np.where(place < 0.8 * words, place % 10, 10)


@pytest.mark.parametrize("l1", [0.0, 1e-3])
def test_many_neurons_that_say_nothing_tell_the_most_frequent_class(l1):
    rows, goals, fold = noise()
    learned = (fold > 0) & (fold < 10)
    found = fit(ArrayRows(rows), [Task(goals, learned, fold == 0)], 2, Settings(l1=l1))
    asked = rows[fold == 10]
    assert (found.guesses(torch.from_numpy(asked).float())[0] == 0).all()
    assert found.epochs[0] == 0


def test_a_task_starts_at_the_shares_of_the_classes_that_it_learns_from():
    """Held words that training can only make worse keep the start; a class that is never seen has half a word."""
    goals, place = np.repeat([0, 1, 2, -1], [60, 30, 10, 5]), np.arange(105)
    tasks = [Task(goals, goals < 2, goals == 2), Task(goals, place % 2 > 0, goals == 5)]
    found = fit(ArrayRows(np.ones((105, 3))), tasks, 3, Settings(epochs=1))
    assert found.biases[0] == pytest.approx(np.log(np.array([60.5, 30.5, 0.5]) / 91.5), abs=1e-6)
    assert found.biases[1] == pytest.approx(np.log(np.array([30.5, 15.5, 5.5]) / 51.5), abs=0.03)
    assert found.epochs[0] == 0


@pytest.mark.parametrize("neurons", [4, 4000])
def test_biases_move_as_fast_among_many_neurons_as_among_few(neurons):
    """One batch: from shares with half a word more towards those of the words, and to held words of the first class."""
    learned = np.arange(250) < 200
    goals = np.where(learned, np.arange(250) % 4 == 3, 0).astype(np.int64)
    rows = np.where(learned[:, None], np.random.default_rng(0).normal(size=(250, neurons)), 0.0)
    found = fit(ArrayRows(rows), [Task(goals, learned, ~learned)], 2, Settings(epochs=1, batch=200))
    assert found.epochs[0] == 1
    start = np.log(np.array([150.5, 50.5]) / 201)
    assert found.biases[0] - start == pytest.approx(np.array([0.01, -0.01]), abs=1e-4)


def test_a_neuron_that_tells_a_rare_class_stands_out_before_training_has_converged():
    """Three words of sixty are the class: one neuron shows that, and two hundred a code of the word."""
    dice = np.random.default_rng(0)
    types = dice.integers(0, 60, 2000)
    goals, rows, fold = (types < 3).astype(np.int64), dice.normal(size=(60, 200))[types], np.arange(2000) % 10
    rows[:, 7] = goals
    found = fit(ArrayRows(rows), [Task(goals, fold > 0, fold == 0)], 2, Settings(l1=0.0, l2=0.0))
    size = np.abs(found.weights[0]).sum(0)
    assert size[7] > 2 * np.delete(size, 7).max()


@pytest.mark.parametrize(("memory", "most"), [(1 << 30, 4096), (2 * 3 * 4 * 500 * D, 500), (0, 256)])
def test_rows_that_stop_training_early_take_half_of_the_memory(memory, most):
    """Three folds, with the control task of each, which reads the same rows; a smaller fold is held whole."""
    dice = np.random.default_rng(0)
    rows, fold = ArrayRows(dice.normal(size=(15_000, D))), np.repeat([0, 1, 2, 3], [5000, 5000, 100, 4900])
    rows.memory, goals = memory, dice.integers(0, 2, (2, 15_000))
    tasks = [Task(own, fold != held, fold == held) for own in goals for held in range(3)]
    state = _State(rows, tasks, 2, Settings(), *moments(rows, fold < 4))
    assert state.held_weights.sum(0).tolist() == [most, most, 100] * 2
    assert state.held is not None
    assert len(state.held) == 2 * most + 100


def test_moments_are_numpys_and_a_still_neuron_has_no_weight(data):
    rows, goals = data
    rows = rows.copy()
    rows[:, 4] = 1e5 + 0.1
    wanted = np.arange(N) % 3 > 0
    mean, deviation = moments(ArrayRows(rows), wanted)
    still = np.arange(D) == 4
    assert mean == pytest.approx(rows[wanted].mean(0), rel=1e-5)
    assert deviation[~still] == pytest.approx(rows[wanted].std(0)[~still], rel=1e-4)
    assert deviation[4] == 0
    found = fit(ArrayRows(rows), [Task(goals, every(), every(False))], C, Settings(epochs=3))
    assert (found.weights[:, :, 4] == 0).all()
    assert np.isfinite(found.weights).all()


@pytest.mark.parametrize("scale", [1e-30, 1e-7, 1e7, 1e30])
def test_the_unit_of_activations_does_not_matter(data, scale):
    dice = np.random.default_rng(1)
    rows, goals = dice.normal(size=(N, D)) + 3.0, data[1]
    rows[:, 2] += 2.0 * goals
    one, two = (fit(ArrayRows(given.astype(np.float32)), [Task(goals, every(), every(False))], C, Settings(epochs=5))
                for given in (rows, rows * scale))  # fmt: skip
    assert two.deviation == pytest.approx(one.deviation * scale, rel=1e-5)
    assert two.weights == pytest.approx(one.weights, abs=1e-3)
    assert np.abs(one.weights[0, :, 2]).min() > 0.1


def test_a_number_that_is_none_is_named(data):
    rows, goals = data
    rows = rows.copy()
    rows[77, 6] = np.nan
    source = ArrayRows(rows, [f"resid.1:{unit}" for unit in range(D)])
    with pytest.raises(ResultError, match=r"resid\.1:6 is not a number"):
        fit(source, [Task(goals, every(), every(False))], C, Settings())
    with pytest.raises(ResultError, match="no rows to learn from"):
        fit(source, [Task(goals, every(False), every(False))], C, Settings())


def test_settings_that_mean_nothing_are_refused():
    for wrong in ({"l1": -1.0}, {"epochs": 0}, {"batch": 0}):
        with pytest.raises(ResultError):
            Settings(**wrong)
    with pytest.raises(ResultError, match="names for"):
        ArrayRows(np.zeros((3, 2)), ["one"])
    with pytest.raises(ResultError, match="shape"):
        ArrayRows(np.zeros(3))


def test_neurons_that_are_left_out_stand_at_their_mean(data):
    rows, goals = data
    found = fit(ArrayRows(rows), [Task(goals, every(), every(False))], C, Settings(epochs=10))
    without = np.arange(D) < 5
    at_mean = rows.copy()
    at_mean[:, without] = rows.mean(0)[without]
    given = torch.from_numpy(rows).float()
    assert (found.without(without).guesses(given) == found.guesses(torch.from_numpy(at_mean).float())).mean() > 0.99
    assert (found.without(~np.zeros(D, bool)).guesses(given)[0] == found.biases[0].argmax()).all()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "s"
    sites = ("neurons.0", "resid.1")
    text = planted.corpus().take(80)
    return build_store(planted.model(), text, folder, sites, dtype="float32", shard_tokens=64, progress=False)


def test_blocks_of_a_store_hold_every_wanted_row_once(store):
    assert len(store.entries) > 4
    keys = ("neurons.0", "resid.1")
    whole = torch.cat([store.layer(key) for key in keys], dim=1)
    wanted = np.arange(store.rows) % 4 != 1
    small = StoreRows(store, keys, memory=whole.shape[1] * 4 * 150)
    assert not small.fits
    orders = []
    for rows in (small, StoreRows(store, keys)):
        for dice in (None, np.random.default_rng(0), np.random.default_rng(1)):
            parts = list(rows.batches(wanted, 32, dice))
            numbers = np.concatenate([each for each, _ in parts])
            assert sorted(numbers) == np.flatnonzero(wanted).tolist()
            assert torch.equal(torch.cat([part for _, part in parts]), whole[torch.from_numpy(numbers)])
            assert max(len(each) for each, _ in parts) <= 32
            orders.append(numbers)
    for first, second in ((0, 1), (1, 2), (4, 5)):
        assert (orders[first] != orders[second]).any()
    assert (orders[0] == orders[3]).all()
    blocks = list(small._blocks(wanted, np.arange(len(store.entries))))
    assert sorted(shard for block in blocks for shard in block) == list(range(len(store.entries)))
    some = np.array([store.rows - 1, 3, 3, 40])
    assert torch.equal(small.take(some), whole[torch.from_numpy(some)])
    assert small.names[0] == "neurons.0:0"
    assert small.names[planted.INNER] == "resid.1:0"
