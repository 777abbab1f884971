"""Layers with different numbers of heads, as a pruned model has them: the heads that are left tell what they told."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pellucid as pl
from pellucid.heads import alignment, clusters, functions, head_collectors, shapes, smaller, statistics
from pellucid.heads.roles.chance import holm
from pellucid.heads.roles.layers import stacked
from pellucid.report.heads import write_heads
from pellucid.results import Result, ResultError
from tests.heads.built_models import grammar_corpus, planted

KEPT = [0, 2]
"""Heads of layer 0 that are left, the previous-token head and the rare-word head; layer 1 keeps all four."""


@pytest.fixture(scope="module")
def swept():
    """The whole model's sweep and that of the model without two heads of layer 0, over the same text."""
    corpus = grammar_corpus().take(150)
    less = smaller(planted(), ["0.1", "0.3"])
    return [pl.sweep(model, corpus, head_collectors(model), progress=False) for model in (planted(), less)]


def test_stacked_by_hand():
    whole = stacked([np.array([[1, 2], [3, 4]]), np.array([[5], [6]])], axis=1)
    assert whole.tolist()[0][0] == [1, 2]
    assert whole.tolist()[1][1][0] == 6
    assert np.isnan(whole).tolist() == [[[False, False], [False, True]]] * 2
    assert stacked([np.array([1, 2])]).tolist() == [[1, 2]]


@pytest.mark.parametrize("analysis", [statistics, functions, shapes, alignment])
def test_heads_that_are_left_have_the_numbers_they_had(swept, analysis, tmp_path):
    whole, less = (analysis(found) for found in swept)
    assert less.axes["head"] == (0, 1, 2, 3)
    missing = np.isnan(less.values)
    assert missing[:, 0, 2:].all()
    assert missing.sum() == 2 * len(less.values)
    assert less.values[:, 0, :2] == pytest.approx(whole.values[:, 0, KEPT], abs=1e-6)
    assert less.low[:, 0, :2] == pytest.approx(whole.low[:, 0, KEPT], abs=1e-6)
    assert Result.load(less.save(tmp_path / "result")).same(less)
    told = json.loads(json.dumps(less.to_json(), allow_nan=False))
    assert told["value"][0][0][2:] == [None, None]
    assert less.plot() is not None


def test_functions_and_shapes_name_the_heads_by_their_new_numbers(swept):
    less = functions(swept[1])
    assert less.heads("rare words") == ["0.1"]
    assert less.heads("positional") == ["0.0"]
    assert less.heads("induction") == ["1.0"]
    assert less.present.tolist() == [[True, True, False, False], [True] * 4]
    assert set(less.labels) == {"0.0", "0.1", "1.0"}
    tests = less.table("tests").columns
    assert (tests["n"][:, 0, 2:] == 0).all()
    assert (tests["p"][:, 0, 2:] == 1).all()
    assert not tests["holds"][:, 0, 2:].any()
    assert (shapes(swept[1]).classes[0, 2:] == "no such head").all()
    assert (shapes(swept[1]).classes[0, :2] == shapes(swept[0]).classes[0, KEPT]).all()


def test_means_of_a_layer_are_over_the_heads_it_has(swept):
    less = alignment(swept[1])
    told = less.table("layers").columns
    assert told["share"][:, 0] == pytest.approx(less.values[:, 0, :2].mean(1))
    assert (told["head"][:, 0] < 2).all()
    distance = less.table("distance").columns
    own = statistics(swept[1]).measure("distance")[0, :2]
    assert (distance["smallest"][0], distance["largest"][0]) == (own.min(), own.max())


def test_clusters_hold_the_heads_there_are(swept):
    found = clusters(smaller(planted(), ["0.1", "0.3"]), grammar_corpus().take(8))
    assert found.axes["head"] == ("0.0", "0.1", "1.0", "1.1", "1.2", "1.3")


def test_what_is_no_test_is_not_corrected_for():
    given = np.array([[0.01, np.nan], [0.03, 0.005]])
    assert holm(given)[~np.isnan(given)] == pytest.approx([0.02, 0.03, 0.015])
    assert np.isnan(holm(given)[0, 1])


def test_a_page_of_a_pruned_model_says_why_places_are_empty(swept, tmp_path):
    result = functions(swept[1])
    less = smaller(planted(), ["0.1", "0.3"])
    page = write_heads(
        tmp_path / "out", result, shapes(swept[1]), [("tags", "tags", alignment(swept[1]))], model=less, found=[],
        command="test",
    )  # fmt: skip
    text = page.read_text(encoding="utf-8")
    assert "3 of 6 heads have a function" in text
    assert "differ in how many heads" in text
    assert "no such head" not in text


def test_one_number_that_is_missing_alone_is_still_refused(swept):
    result = statistics(swept[1])
    broken = np.array(result.values)
    broken[2, 1, 1] = np.nan
    with pytest.raises(ResultError, match="not a number in 1 of"):
        type(result)(result.axes, broken, result.null, None, None, "no interval", result.provenance)
