"""What a head figure shows, against loops written out in plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pellucid.errors import PellucidError
from pellucid.views.interactive.figures import full_state
from pellucid.views.interactive.held import Held
from pellucid.views.interactive.shown import mass_cut, places_shown, shown, units
from tests.views.interactive.payload_by_hand import attention_view, token_list

TEXT = ["[CLS]", "un", "like", "ly", "dogs", "[SEP]", "bark", "ing", "[SEP]"]
FACTS = {
    "word": [-1, 0, 0, 0, 1, -1, 2, 2, -1],
    "special": [0, 5, 8],
    "sinks": [4],
    "segment": [0, 0, 0, 0, 0, 0, 1, 1, 1],
    "segments": ["first", "second"],
}
GROUPS = [[0], [1, 2, 3], [4], [5], [6, 7], [8]]
"""Tokens of each unit where words are shown."""


def seen(state=None, *, causal=False, seed=0):
    view, codes, dropped = attention_view(TEXT, layers=3, heads=4, causal=causal, changes=FACTS, seed=seed)
    view = view.with_state(**(state or {}))
    return shown(Held(view), full_state(view.header)), (codes / 255.0) ** 2, (dropped / 255.0) ** 2


def mean_matrix(weights, layers, heads):
    chosen = [weights[layer][head] for layer in layers for head in heads]
    total = len(chosen)
    rows, columns = len(chosen[0]), len(chosen[0][0])
    return [[sum(float(each[i][j]) for each in chosen) / total for j in range(columns)] for i in range(rows)]


def by_words(matrix, groups=GROUPS):
    """Sum over the keys of a word, mean over its queries."""
    return [[sum(matrix[i][j] for i in rows for j in keys) / len(rows) for keys in groups] for rows in groups]


def cut_by_hand(row, mass):
    """Largest first, the lower place first among equals, until the share of the total is reached."""
    if mass >= 1:
        return list(row)
    goal, reached, kept = mass * sum(row), 0.0, [0.0] * len(row)
    for place in sorted(range(len(row)), key=lambda place: (-row[place], place)):
        if reached >= goal or row[place] <= 0:
            break
        kept[place] = row[place]
        reached += row[place]
    return kept


def test_words_are_gathered_and_special_tokens_stand_alone():
    tokens = token_list(TEXT, **FACTS)
    found = units(tokens, "words")
    assert [list(range(unit.start, unit.end)) for unit in found] == GROUPS
    assert [unit.text for unit in found] == ["[CLS]", "unlikely", "dogs", "[SEP]", "barking", "[SEP]"]
    assert [unit.special for unit in found] == [True, False, False, True, False, True]
    assert [unit.sink for unit in found] == [False, False, True, False, False, False]
    assert [unit.segment for unit in found] == [0, 0, 0, 0, 1, 1]
    assert [unit.text for unit in units(tokens, "tokens")] == TEXT


def test_a_sink_inside_a_word_makes_the_word_one():
    tokens = token_list(TEXT, **{**FACTS, "sinks": [2]})
    assert [unit.sink for unit in units(tokens, "words")] == [False, True, False, False, False, False]


def test_places_are_taken_out_by_segment_and_kind():
    given = units(token_list(TEXT, **FACTS), "tokens")
    assert places_shown(given, 1, hide_special=False, hide_sinks=False).tolist() == [6, 7, 8]
    assert places_shown(given, 0, hide_special=True, hide_sinks=False).tolist() == [1, 2, 3, 4]
    assert places_shown(given, None, hide_special=True, hide_sinks=True).tolist() == [1, 2, 3, 6, 7]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("unit", ["tokens", "words"])
@pytest.mark.parametrize(("average", "heads"), [("none", [2]), ("heads", [0, 3]), ("layers", [1, 2])])
def test_means_and_words(average, heads, unit, causal):
    state = {"average": average, "heads": heads, "unit": unit, "layer": 1, "mass": 1.0}
    found, weights, _ = seen(state, causal=causal)
    matrix = mean_matrix(weights, range(3) if average == "layers" else [1], heads)
    expected = by_words(matrix) if unit == "words" else matrix
    assert len(found.series) == 1
    rows = found.rows(0, range(len(expected)))
    np.testing.assert_allclose(rows.values, expected, rtol=2e-6)
    assert np.array_equal(rows.kept, rows.values)


def test_each_chosen_head_is_a_series_of_its_own():
    found, weights, _ = seen({"heads": [3, 0], "layer": 2, "mass": 1.0})
    assert [(series.head, series.name) for series in found.series] == [(0, "head 0"), (3, "head 3")]
    for place, head in enumerate([0, 3]):
        np.testing.assert_allclose(found.rows(place, range(9)).values, weights[2][head], rtol=2e-6)


def test_hidden_units_are_taken_out_and_nothing_is_renormalised():
    state = {"heads": [1], "unit": "words", "hideSpecial": True, "hideSinks": True, "mass": 1.0}
    found, weights, _ = seen(state)
    whole = by_words(mean_matrix(weights, [0], [1]))
    kept = [1, 4]
    assert [unit.text for unit in found.queries] == [unit.text for unit in found.keys] == ["unlikely", "barking"]
    rows = found.rows(0, [0, 1])
    np.testing.assert_allclose(rows.values, [[whole[i][j] for j in kept] for i in kept], rtol=2e-6)
    hidden = [sum(whole[i][j] for j in range(6) if j not in kept) for i in kept]
    np.testing.assert_allclose(rows.hidden, hidden, rtol=1e-5)


def test_segments_choose_queries_and_keys_apart():
    found, weights, _ = seen({"heads": [0], "from": 1, "to": 0, "mass": 1.0})
    assert [unit.text for unit in found.queries] == TEXT[6:]
    assert [unit.text for unit in found.keys] == TEXT[:6]
    rows = found.rows(0, [0, 2])
    np.testing.assert_allclose(rows.values, weights[0][0][[6, 8], :6], rtol=2e-6)
    np.testing.assert_allclose(rows.hidden, weights[0][0][[6, 8], 6:].sum(1), rtol=1e-5)


@pytest.mark.parametrize("mass", [0.05, 0.5, 0.9, 0.95, 0.999, 1.0])
def test_the_cut_keeps_the_largest_until_the_share_is_reached(mass):
    draw = np.random.default_rng(3)
    rows = draw.integers(0, 6, (200, 9)).astype(np.float32) / 8  # many ties, exact sums
    kept, dropped = mass_cut(rows, mass)
    for row, got, lost in zip(rows, kept, dropped, strict=True):
        expected = cut_by_hand([float(value) for value in row], mass)
        assert got.tolist() == expected
        assert lost == pytest.approx(float(row.sum()) - sum(expected), abs=1e-12)


def test_the_cut_of_ties_takes_the_first_and_of_nothing_nothing():
    kept, dropped = mass_cut(np.array([[0.25, 0.25, 0.25, 0.25], [0, 0, 0, 0]], np.float32), 0.5)
    assert kept.tolist() == [[0.25, 0.25, 0, 0], [0, 0, 0, 0]]
    assert dropped.tolist() == [0.5, 0]


@pytest.mark.parametrize(
    ("unit", "special", "average", "mass"),
    list(itertools.product(["tokens", "words"], [True, False], ["none", "heads", "layers"], [0.3, 0.95])),
)
def test_kept_dropped_and_hidden_are_the_whole_row(unit, special, average, mass):
    state = {"unit": unit, "hideSpecial": special, "average": average, "mass": mass, "heads": [0, 2]}
    for seed in range(3):
        found, weights, _ = seen(state, seed=seed)
        layers = range(3) if average == "layers" else [0]
        for series, heads in enumerate([[0], [2]] if average == "none" else [[0, 2]]):
            matrix = mean_matrix(weights, layers, heads)
            rows = found.rows(series, range(len(found.queries)))
            for place, query in enumerate(found.queries):
                totals = [sum(matrix[i]) for i in range(query.start, query.end)]
                sums = rows.kept[place].sum(dtype=float) + rows.dropped[place] + rows.hidden[place]
                assert sums == pytest.approx(sum(totals) / len(totals), rel=1e-5)
                assert rows.kept[place].sum(dtype=float) >= mass * rows.values[place].sum(dtype=float) - 1e-6


def test_chosen_queries_are_summed_and_the_cut_is_made_on_the_sum():
    found, weights, dropped = seen({"heads": [1], "hideSpecial": True, "mass": 0.6, "left": [2, 4, 0]})
    assert found.left == [1, 3]  # places among the shown; the hidden one rests
    kept_keys = [1, 2, 3, 4, 6, 7]
    row = found.sum(0, found.left)
    expected = [float(weights[0][1][2][j] + weights[0][1][4][j]) for j in kept_keys]
    np.testing.assert_allclose(row.values[0], expected, rtol=2e-6)
    np.testing.assert_allclose(row.kept[0], cut_by_hand(expected, 0.6), rtol=2e-6)
    assert row.hidden[0] == pytest.approx(sum(weights[0][1][i][j] for i in (2, 4) for j in (0, 5, 8)), rel=1e-5)
    assert row.unkept[0] == pytest.approx(dropped[0][1][2] + dropped[0][1][4], rel=1e-5)


def test_chosen_keys_are_summed():
    found, weights, _ = seen({"heads": [1], "unit": "words", "right": [1, 4], "layer": 2})
    assert found.right == [1, 4]
    whole = by_words(mean_matrix(weights, [2], [1]))
    np.testing.assert_allclose(
        found.column(0, [1, 4], [0, 3, 5]), [whole[i][1] + whole[i][4] for i in (0, 3, 5)], rtol=2e-6
    )


def test_mass_that_the_file_does_not_keep_is_averaged_too():
    found, _, dropped = seen({"heads": [0, 1], "average": "layers", "unit": "words"})
    expected = [
        np.mean([[dropped[layer][head][i] for i in group] for layer in range(3) for head in (0, 1)]) for group in GROUPS
    ]
    np.testing.assert_allclose(found.rows(0, range(6)).unkept, expected, rtol=1e-5)


def test_a_head_that_a_layer_lacks_is_left_out_of_the_mean():
    view, codes, _ = attention_view(TEXT, layers=2, heads=3, block_changes={"heads": [3, 2]})
    state = {**full_state(view.header), "average": "layers", "heads": [0, 2], "mass": 1.0}
    found = shown(Held(view), state)
    weights = (codes / 255.0) ** 2
    expected = (weights[0][0] + weights[1][0] + weights[0][2]) / 3
    np.testing.assert_allclose(found.rows(0, range(9)).values, expected, rtol=2e-6)


def test_a_layer_that_is_not_there_is_refused():
    view, _, _ = attention_view(TEXT)
    with pytest.raises(PellucidError, match="no layer 7; it has 0, 1"):
        shown(Held(view), {**full_state(view.header), "layer": 7})
