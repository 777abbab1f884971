"""Heads whose function changes under effective attention: a known answer, chance between halves, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import pellucid as pl
from pellucid.collect.head_targets import HeadTargets
from pellucid.collect.state import State
from pellucid.heads import clusters, functions, shapes, statistics
from pellucid.identifiability import functions_changed
from pellucid.model.sites import Site
from pellucid.results import Result, ResultError
from tests.collect.batches import words_of
from tests.found_by_hand import facts, found_of, setting
from tests.heads.built_models import PLANTED, grammar_corpus, planted, random_model

WORDS, WIDTH, GROUPS = 8, 12, 6
MODEL = facts({Site("pattern", 0): (3, WORDS + 1), Site("value", 0): (3, WIDTH)}, causal=False)


def layer() -> tuple[torch.Tensor, torch.Tensor]:
    """Three heads, [1, 3, T, T], and values [1, 3, T, d].

    Heads 0 and 1 give 0.9 to the first token, and the rest to a word at another offset for every query. In head 0 the
    first token's value is nothing, in head 1 it is as long as others. Head 2 looks at itself or at the first token.
    """
    place = torch.arange(WORDS + 1)
    pattern = torch.zeros(3, WORDS + 1, WORDS + 1)
    pattern[:2, :, 0] = 0.9
    pattern[:2, place, torch.tensor([1, 3, 8, 1, 6, 2, 7, 4, 5])] += 0.1
    pattern[2, :, 0] = 0.3
    pattern[2, place, place] += 0.7
    values = torch.randn(3, WORDS + 1, WIDTH, generator=torch.Generator().manual_seed(1))
    values[0, 0] = 0
    return pattern[None], values[None]


def found(groups: int = GROUPS, *, weights: tuple[str, ...] = ("raw", "effective")):
    pattern, values = layer()
    states = {}
    for name in weights:
        collector = HeadTargets(weights=name)
        accumulator = collector.open(replace(setting([MODEL]), pilot=State({}, {"frequent": {}})))
        for number in range(4 * groups):
            words = words_of([[-1, *range(WORDS)]], group=number % groups, first_sentence=number)
            accumulator.see("pattern.0", pattern, words)
            if name == "effective":
                accumulator.see("value.0", values, words)
        states[collector] = accumulator.state()
    return found_of([MODEL], states)


def test_a_sink_without_a_value_is_none_by_effective_attention():
    result = functions_changed(found(), halvings=4)
    heads = {name: column[0].tolist() for name, column in result.table("heads").columns.items()}
    assert heads["raw function"] == ["sink", "sink", "positional"]
    assert heads["effective function"] == ["none", "sink", "positional"]
    assert heads["scored"] == ["sink", "sink", "positional"]
    assert heads["raw score"] == pytest.approx([0.9, 0.9, 1.0])
    assert heads["effective score"][0] == pytest.approx(0.0, abs=1e-6)  # all that is left stands on words
    assert heads["effective score"][1] == pytest.approx(heads["raw score"][1])  # its values are independent
    np.testing.assert_array_equal(result.values[:, 0], [[1, 0, 0], [1, 0, 0], [0, 0, 0]])
    assert result.null is not None
    assert not result.null.any()
    shares = result.table("shares").columns
    np.testing.assert_allclose(shares["share"], [1 / 3, 1 / 3, 0])
    np.testing.assert_array_equal(shares["low"], shares["share"])
    table = result.table("functions")
    columns = [table.columns[each].tolist() for each in ("raw", "effective", "both")]
    counts = dict(zip(table.axes["function"], zip(*columns, strict=True), strict=True))
    assert counts["sink"] == (2, 1, 1)
    assert counts["positional"] == (1, 1, 1)


def test_chance_is_what_halves_of_the_text_say_otherwise():
    """In every second document group the head looks at the word itself: a half may have more of them or fewer."""
    pattern, _ = layer()
    other = pattern.clone()
    other[0, 0] = torch.eye(WORDS + 1)
    states = {}
    for name in ("raw", "effective"):
        collector = HeadTargets(weights=name)
        accumulator = collector.open(replace(setting([MODEL]), pilot=State({}, {"frequent": {}})))
        for number in range(24):
            words = words_of([[-1, *range(WORDS)]], group=number % 6, first_sentence=number)
            accumulator.see("pattern.0", other if number % 6 < 3 else pattern, words)
            if name == "effective":
                accumulator.see("value.0", torch.randn(1, 3, WORDS + 1, 40), words)  # wide: nothing changes
        states[collector] = accumulator.state()
    result = functions_changed(found_of([MODEL], states), halvings=20, seed=1)
    assert not result.values.any()
    assert result.null is not None
    assert 0.2 < result.null[0, 0, 0] <= 1  # 3 against 3 groups, of which half differ
    assert not result.null[:, 0, 1:].any()
    again = functions_changed(found_of([MODEL], states), halvings=20, seed=1)
    assert again.same(result)


def test_one_group_has_no_chance_level():
    result = functions_changed(found(1))
    assert result.null is None
    assert result.low is None
    assert "chance" not in result.table("shares").columns


def test_what_does_not_stand_in_the_sweep_is_asked_for():
    with pytest.raises(ResultError, match=r"hold raw weights of heads, and 'effective' ones were asked for"):
        functions_changed(found(weights=("raw",)))
    with pytest.raises(ResultError, match=r"hold effective weights of heads, and 'raw' ones"):
        functions(found(weights=("effective",)))
    with pytest.raises(ResultError, match="halvings=0"):
        functions_changed(found(), halvings=0)
    with pytest.raises(ResultError, match=r"no 'sharp' weights of heads; there are raw, effective"):
        functions(planted(), grammar_corpus().take(5), weights="sharp")


def test_each_analysis_reads_the_weights_asked_for_and_says_so():
    sweep = found()
    raw, effective = functions(sweep), functions(sweep, weights="effective")
    assert raw.measure("sink")[0, 0] == pytest.approx(0.9)
    assert effective.measure("sink")[0, 0] < 1e-6
    assert raw.provenance.arguments["weights"] == "raw"
    assert effective.provenance.arguments["weights"] == "effective"
    assert "signed" in effective.measures["positional"]
    assert "absolute" in effective.measures["sink"]
    assert "effective" not in "".join(raw.measures.values())
    assert shapes(sweep).classes[0, 0] == "vertical"
    assert shapes(sweep, weights="effective").classes[0, 0] == "heterogeneous"
    assert "absolute" in shapes(sweep, weights="effective").measures["vertical"]


def test_a_planted_head_that_passes_nothing_on_has_no_function_by_effective_attention(tmp_path):
    """The subject head finds subjects, but its values are nothing; the previous-token head copies words."""
    model, corpus = planted(), grammar_corpus().take(40)
    result = functions_changed(model, corpus)
    heads = result.table("heads").columns
    at, copies = PLANTED["subject"], PLANTED["previous"]
    assert (heads["raw function"][at], heads["effective function"][at]) == ("syntactic", "none")
    assert (heads["raw function"][copies], heads["effective function"][copies]) == ("positional", "positional")
    assert result.values[0].sum() == 1
    assert result.values[0][at] == 1
    result.save(tmp_path / "kept")
    assert Result.load(tmp_path / "kept").same(result)


def test_where_no_text_is_longer_than_values_are_wide_all_analyses_say_the_same():
    model, corpus = random_model(3), grammar_corpus().take(12)
    kinds = [kind(weights=weights) for kind in (pl.HeadCounts, pl.HeadDivergence) for weights in ("raw", "effective")]
    sweep = pl.sweep(model, corpus, kinds, progress=False)
    for analysis in (statistics, clusters):
        one, other = analysis(sweep), analysis(sweep, weights="effective")
        np.testing.assert_allclose(one.values, other.values, atol=1e-3)
        measure = str(one.axes["measure"][0])
        assert "absolute" in other.measures[measure]
        assert "absolute" not in one.measures[measure]
        assert other.provenance.arguments["weights"] == "effective"
    one, other = (functions(model, corpus, weights=weights) for weights in ("raw", "effective"))
    assert one.labels == other.labels
    np.testing.assert_allclose(one.values, other.values, atol=1e-5)
    fresh = clusters(model, corpus, weights="effective")
    np.testing.assert_allclose(fresh.values, clusters(sweep, weights="effective").values)
