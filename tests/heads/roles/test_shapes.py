"""Shapes, alignment and clusters of heads: known answers from patterns made by hand and from planted heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import pellucid as pl
from pellucid.collect.divergence import HeadDivergence
from pellucid.collect.head_targets import HeadTargets
from pellucid.corpus import Corpus, Sentence
from pellucid.heads import alignment, clusters, head_collectors, shapes
from pellucid.heads.roles.clusters import joined, plane
from pellucid.heads.roles.shapes import classes_of
from pellucid.model.sites import Site
from pellucid.results import ResultError
from tests.collect.batches import words_of
from tests.found_by_hand import facts, found_of, setting
from tests.heads.built_models import PLANTED, grammar_corpus, planted

LENGTH = 12
HEADS = ("vertical", "diagonal", "vertical + diagonal", "block", "heterogeneous")
MODEL = facts({Site("pattern", 0): (len(HEADS), LENGTH)}, causal=False)


def patterns() -> np.ndarray:
    """One head of every class, [heads, T, T]: a special token, then five words and six of a second sentence."""
    place = np.arange(LENGTH)
    vertical = np.zeros((LENGTH, LENGTH))
    vertical[:, 0] = 1
    diagonal = np.eye(LENGTH)[np.maximum(place - 1, 0)]
    second = place >= 6
    block = (second[:, None] == second[None, :]).astype(float)
    block[:, 0] = 0
    block /= block.sum(1, keepdims=True)
    return np.stack([vertical, diagonal, (vertical + diagonal) / 2, block, np.full((LENGTH, LENGTH), 1 / LENGTH)])


def drawn(*, pair: bool = True, groups: int = 3):
    collector = HeadTargets()
    accumulator = collector.open(setting([MODEL]))
    names = [f"w{at}" for at in range(LENGTH - 1)]
    for group in range(groups):
        words = words_of([[-1, *range(LENGTH - 1)]], group=group)
        sentence = Sentence.of_words(names)
        if pair:
            second = Sentence.of_words(names[5:], id="2")
            sentence = Sentence.of_words(names[:5], second=second, joint=True)
        words = replace(words, sentences=(sentence,))
        accumulator.see("pattern.0", torch.tensor(patterns(), dtype=torch.float32)[None], words)
    return found_of([MODEL], {collector: accumulator.state()})


def test_every_class_by_its_rule():
    result = shapes(drawn())
    assert result.classes[0].tolist() == list(HEADS)
    assert result.axes["measure"] == ("vertical", "diagonal", "own sentence")
    assert result.measure("vertical")[0, 0] == pytest.approx(1)
    assert result.measure("diagonal")[0, 1] == pytest.approx(10 / 11)  # the first word looks at the special token
    assert result.measure("own sentence")[0, 3] == pytest.approx(1)
    assert result.values[:, 0, 4] == pytest.approx(result.null[:, 0, 4])
    assert result.null[0, 0, 0] == pytest.approx(1 / LENGTH)
    assert result.low is not None


def test_without_pairs_no_head_is_a_block():
    result = shapes(drawn(pair=False))
    assert result.axes["measure"] == ("vertical", "diagonal")
    assert result.classes[0].tolist() == [*HEADS[:3], "heterogeneous", "heterogeneous"]
    assert result.table("skipped").columns["class"].tolist() == ["block"]
    assert not len(shapes(drawn()).table("skipped").columns["class"])


def test_the_rule_at_its_edges():
    even = {"vertical": np.zeros((1, 4)), "diagonal": np.zeros((1, 4))}
    values = {"vertical": np.array([[0.4, 0.4, 0.3, 0.1]]), "diagonal": np.array([[0.2, 0.21, 0.19, 0.5]])}
    assert classes_of(values, even, 0.5, 2.0, 0.9)[0].tolist() == [
        "vertical",
        "vertical + diagonal",
        "heterogeneous",
        "diagonal",
    ]
    with pytest.raises(ResultError, match=r"times=0\.5 must be at least 1"):
        shapes(drawn(), times=0.5)


@pytest.fixture(scope="module")
def found():
    model = planted()
    return pl.sweep(model, grammar_corpus().take(120), [*head_collectors(model), HeadDivergence()], progress=False)


def test_the_previous_token_head_is_diagonal(found):
    assert shapes(found).classes[PLANTED["previous"]] == "diagonal"


def test_tags_share_out_all_attention_on_words(found):
    result = alignment(found)
    assert result.values.sum(0) == pytest.approx(np.ones((2, 4)), rel=1e-5)
    assert result.null.sum(0) == pytest.approx(np.ones((2, 4)))
    table = result.table("layers")
    assert table.columns["share"] == pytest.approx(result.values.mean(2))
    distance = result.table("distance").columns
    back = 1 - found.counts.sentences / found.counts.words  # 1 of the previous-token head, but for first words
    assert distance["smallest"][0] == pytest.approx(back, abs=1e-5)
    assert "VERB" in result.axes["target"]


def test_the_subject_head_attends_to_subjects(found):
    result = alignment(found, of="relations")
    at = result.place("target", "nsubj to dependent")
    assert result.values[at].argmax() == 1  # head 1 of layer 0
    assert PLANTED["subject"] == (0, 1)
    assert result.values[at][0, 1] > 2 * result.null[at][0, 1]
    assert result.table("peaks").columns["layer"][at] == "0"


def test_what_the_corpus_does_not_have_is_named():
    found = pl.sweep(planted(), Corpus.of(["the old dog", "she arrived"]), HeadTargets(), progress=False)
    with pytest.raises(ResultError, match="has the label 'upos'"):
        alignment(found)
    with pytest.raises(ResultError, match="no dependency relation"):
        alignment(found, of="relations")
    with pytest.raises(ResultError, match="no alignment of 'tag'"):
        alignment(found, of="tag")


def test_average_linkage_and_the_plane():
    places = np.array([0.0, 1.0, 1.5, 7.0, 7.2, 20.0])
    distances = np.abs(places[:, None] - places[None, :])
    assert joined(distances, count=3, within=0).tolist() == [1, 1, 1, 2, 2, 3]
    assert joined(distances, count=None, within=0.6).tolist() == [2 + 1, 1, 1, 2, 2, 4]
    assert joined(distances, count=None, within=6.7).tolist() == [1, 1, 1, 1, 1, 2]  # mean of 7, 6, 5.5, 7.2, 6.2, 5.7
    assert joined(distances, count=None, within=6.2).tolist() == [1, 1, 1, 2, 2, 3]
    x, y = plane(distances)
    assert np.abs(x[:, None] - x[None, :]) == pytest.approx(distances)
    assert y == pytest.approx(np.zeros(6), abs=1e-6)


def test_near_uniform_heads_are_one_cluster_and_planted_ones_stand_apart(found):
    result = clusters(found, within=0.4)
    own = dict(zip(result.axes["head"], result.table("places").columns["cluster"].tolist(), strict=True))
    assert own["0.3"] != own["0.0"] != own["0.2"]
    assert own["1.1"] == own["1.2"] == own["1.3"] == 1
    at = result.axes["head"].index("1.2")
    assert result.measure("inside")[at] < result.measure("outside")[at]
    assert max(clusters(found, count=3).table("places").columns["cluster"]) == 3
    with pytest.raises(ResultError, match="count=9 clusters cannot be made of 8 heads"):
        clusters(found, count=9)


def test_a_model_and_a_corpus_are_swept_for_clusters():
    result = clusters(planted(), grammar_corpus().take(10))
    assert sorted(name for heads in result.members.values() for name in heads) == sorted(result.axes["head"])
    assert len(result.members[1]) == max(map(len, result.members.values()))
    assert len(result.axes["head"]) == 8
