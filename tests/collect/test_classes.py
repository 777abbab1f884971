"""Class moments: counts, means and covariances by label against NumPy, values that differ between shards, limits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.collect.classes import ClassMoments
from pellucid.collect.collector import check_labels, collector_of
from pellucid.collect.state import load_states, save_states
from pellucid.errors import SweepError
from tests.collect.batches import batches_of, copy_of, facts_of, merged, setting_of, shard, with_pilot

SETTING = setting_of(facts_of({"resid.0": (4,), "neurons.0": (3,)}))
SITES = ("resid.0", "neurons.0")
COUNT = 160


def rows_of(seed: int = 0, *, whole: bool = False) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    if whole:
        return {"resid.0": draw.integers(-9, 9, (COUNT, 4)), "neurons.0": draw.integers(-9, 9, (COUNT, 3))}
    rows = {"resid.0": draw.normal([3000, 0, -5, 0], size=(COUNT, 4)), "neurons.0": draw.normal(size=(COUNT, 3))}
    return {key: value.astype(np.float32).astype(float) for key, value in rows.items()}


def tags(seed: int = 0) -> list[str | None]:
    """Labels in stretches, so that shards know different values; Ω sorts after all others."""
    draw = np.random.default_rng(seed)
    early, late = ["NOUN", "VERB", None], ["Ω", "NOUN", "ADJ", None]
    return [
        (early if place < COUNT // 2 else late)[draw.integers(3 if place < COUNT // 2 else 4)] for place in range(COUNT)
    ]


def swept(collector: ClassMoments, rows, labels, cuts=()):
    batches = batches_of(rows, cuts, labels=labels)
    setting = with_pilot(collector, SETTING, batches[0])
    return collector.view(shard(collector, setting, batches), setting)


@pytest.mark.parametrize("covariance", ["none", "diagonal", "full"])
def test_moments_of_every_value_are_those_of_its_rows(covariance):
    rows, labels = rows_of(), tags()
    view = swept(ClassMoments(SITES, label="tag", covariance=covariance), rows, labels, (30, 31, 100))
    assert view.values == ("ADJ", "NOUN", "VERB", "Ω")
    assert view.unlabelled == labels.count(None)
    marked = np.array([label is not None for label in labels])
    for number, value in enumerate(view.values):
        mine = np.array([label == value for label in labels])
        assert view.counts[number] == mine.sum()
        for key, all_rows in rows.items():
            own = all_rows[mine]
            np.testing.assert_allclose(view.mean(value, key), own.mean(0), rtol=1e-6, atol=1e-6)
            if covariance != "none":
                np.testing.assert_allclose(view.variance(value, key), own.var(0), rtol=1e-5)
                np.testing.assert_allclose(view.overall_variance(key), all_rows[marked].var(0), rtol=1e-5)
            if covariance == "full":
                expected = np.cov(own.T, bias=True)
                np.testing.assert_allclose(view.covariance(value, key), expected, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(view.overall(key), all_rows[marked].mean(0), rtol=1e-6, atol=1e-6)


def test_words_themselves_are_a_label():
    rows = rows_of()
    view = swept(ClassMoments("neurons.0", label="word"), rows, [None] * COUNT, (77,))
    assert view.values == ("w0", "w1", "w2", "w3", "w4")
    assert view.unlabelled == 0
    np.testing.assert_allclose(view.means("neurons.0")[3], rows["neurons.0"][3::5].mean(0), atol=1e-6)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_more_rows_and_values_than_fit_at_once(monkeypatch, covariance):
    monkeypatch.setattr("pellucid.collect.sums.BLOCK", 50)
    monkeypatch.setattr("pellucid.collect.classes.BLOCK", 50)
    monkeypatch.setattr("pellucid.collect.classes._AT_ONCE", 100)  # several parts, none of which ends with a value
    rows = rows_of(whole=True)
    labels = [f"v{place * place % 30 + 30 * (place // 40):03d}" for place in range(COUNT)]  # new ones to the end
    collector = ClassMoments(SITES, label="tag", covariance=covariance)
    view = collector.view(shard(collector, SETTING, batches_of(rows, (20, 120), labels=labels)), SETTING)
    for value in sorted(set(labels)):
        own = rows["resid.0"][[label == value for label in labels]]
        assert view.counts[view.values.index(value)] == len(own)
        np.testing.assert_allclose(view.mean(value, "resid.0"), own.mean(0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(view.variance(value, "resid.0"), own.var(0), rtol=1e-9, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.integers(1, COUNT - 1), max_size=6, unique=True).map(sorted),
    ends=st.sets(st.integers(1, 6), max_size=4),
    shape=st.lists(st.integers(0, 9), max_size=8),
    covariance=st.sampled_from(["none", "diagonal", "full"]),
)
def test_any_shards_in_any_tree_equal_one_pass(cuts, ends, shape, covariance):
    collector = ClassMoments(SITES, label="tag", covariance=covariance)
    batches = batches_of(rows_of(whole=True), cuts, labels=tags())
    edges = sorted({0, *(end for end in ends if end < len(batches)), len(batches)})
    states = [shard(collector, SETTING, batches[start:stop]) for start, stop in pairwise(edges)]
    states.append(shard(collector, SETTING, []))
    before = [copy_of(state) for state in states]
    found, whole = merged(collector, states, shape), shard(collector, SETTING, batches)
    assert all(state.same(other) for state, other in zip(states, before, strict=True))
    assert found.facts == whole.facts
    assert found.arrays.keys() == whole.arrays.keys()
    for name, array in whole.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("covariance", ["none", "diagonal", "full"])
def test_states_of_different_pilots_merge(covariance):
    rows, labels = rows_of(3), tags(3)
    collector = ClassMoments(SITES, label="tag", covariance=covariance)
    states = [
        shard(collector, with_pilot(collector, SETTING, batch), [batch])
        for batch in batches_of(rows, (70,), labels=labels)
    ]
    assert not np.array_equal(states[0].arrays["shift"], states[1].arrays["shift"])
    view = collector.view(collector.merge(*states), SETTING)
    own = rows["resid.0"][[label == "NOUN" for label in labels]]
    np.testing.assert_allclose(view.mean("NOUN", "resid.0"), own.mean(0), rtol=1e-6, atol=1e-6)
    if covariance != "none":
        np.testing.assert_allclose(view.variance("NOUN", "resid.0"), own.var(0), rtol=1e-4)
    if covariance == "full":
        np.testing.assert_allclose(view.covariance("NOUN", "resid.0"), np.cov(own.T, bias=True), rtol=1e-3, atol=1e-5)


def test_states_come_back_from_a_file(tmp_path):
    collector = ClassMoments(SITES, label="tag", covariance="full")
    state = shard(collector, SETTING, batches_of(rows_of(), (9,), labels=tags()))
    save_states(tmp_path / "states", {"classes": state})
    assert load_states(tmp_path / "states")["classes"].same(state)
    assert collector_of(collector.describe()) == collector


@pytest.mark.parametrize("covariance", ["none", "diagonal", "full"])
def test_memory_is_limited_beforehand_and_as_values_appear(covariance):
    labels = [f"v{place}" for place in range(COUNT)]
    batches = batches_of(rows_of(), (80,), labels=labels)
    roomy = ClassMoments(SITES, label="tag", covariance=covariance)
    usual = shard(roomy, SETTING, batches_of(rows_of(), (), labels=[f"v{place % 16}" for place in range(COUNT)]))
    assert roomy.memory(SETTING, 1) == usual.bytes  # as many values as labels usually have
    asked = ClassMoments(SITES, label="tag=x", covariance=covariance)
    two = shard(roomy, SETTING, batches_of(rows_of(), (), labels=[f"v{place % 2}" for place in range(COUNT)]))
    assert asked.memory(SETTING, 1) == two.bytes
    states = [shard(roomy, SETTING, [batch]) for batch in batches]
    limit = states[0].bytes + 100
    tight = ClassMoments(SITES, label="tag", covariance=covariance, memory_limit=limit)
    with pytest.raises(SweepError, match=rf"160 values of 'tag' need .* {limit:,}; take fewer"):
        shard(tight, SETTING, batches)
    shard(tight, SETTING, batches[:1])
    with pytest.raises(SweepError, match=r"160 values of 'tag'"):
        tight.merge(*states)
    with pytest.raises(SweepError, match=r"1 values of 'tag'"):
        ClassMoments(SITES, label="tag", covariance=covariance, memory_limit=50).memory(SETTING, 1)


def test_what_does_not_exist_is_refused():
    rows = rows_of()
    view = swept(ClassMoments(SITES, label="tag"), rows, tags())
    with pytest.raises(SweepError, match=r"'tag' never has the value 'PRON'; it has ADJ, NOUN, VERB, Ω"):
        view.mean("PRON", "resid.0")
    with pytest.raises(SweepError, match=r"No moments of 'resid.9'"):
        view.means("resid.9")
    with pytest.raises(SweepError, match=r"Variances were not gathered; .*'diagonal'"):
        view.variance("NOUN", "resid.0")
    with pytest.raises(SweepError, match=r"Covariances were not gathered; .*'full'"):
        view.covariance("NOUN", "resid.0")
    with pytest.raises(SweepError, match=r"no label 'xpos' in the corpus, which ClassMoments reads; it has word, tag"):
        check_labels([ClassMoments(SITES, label="xpos")], ["tag"])
    with pytest.raises(SweepError, match=r"covariance='some' means nothing"):
        ClassMoments(SITES, label="tag", covariance="some")
    nothing = swept(ClassMoments(SITES, label="tag"), rows, [None] * COUNT)
    assert nothing.values == ()
    assert nothing.unlabelled == COUNT
    with pytest.raises(SweepError, match=r"No row had a value of 'tag'"):
        nothing.overall("resid.0")
    rows["neurons.0"][5, 1] = np.nan
    with pytest.raises(SweepError, match=r"Unit 1 of 'neurons.0' is NaN"):
        shard(ClassMoments(SITES, label="word"), SETTING, batches_of(rows, ()))
