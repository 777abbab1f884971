"""Stores and sweeps of text that carries a concept's label already: the same rule is used, another is refused."""

from __future__ import annotations

import numpy as np
import pytest

import pellucid as pl
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import PellucidError
from pellucid.neurons import Concept, rank
from tests.tiny_models import network, word_tokenizer

READ = {"dtype": "float32", "progress": False}


@pytest.fixture(scope="module")
def model():
    return pl.Model.load(network("bert"), tokenizer=word_tokenizer())


def corpus(count: int = 8) -> Corpus:
    """Pairs whose `mood` the first words tell."""
    pairs = [("the old dog runs", "the dog"), ("red keys", "a cat sleeps"), ("old keys and a cat", "old keys are red")]
    return Corpus.of(
        [
            Sentence.of_words(
                one.split(), id=f"{turn}-{place}", second=Sentence.of_words(two.split(), id="b"), joint=True,
                facts={"mood": str(place)},
            )
            for turn in range(count) for place, (one, two) in enumerate(pairs)
        ]
    )  # fmt: skip


@pytest.mark.parametrize("concept", ["mood=1", "pair:overlap"])
def test_sentences_are_ranked_exactly_by_a_label_that_they_were_read_with(model, tmp_path, concept):
    options = {"concept": concept, "sites": "resid.2"}
    made = rank(model, corpus(), methods="iou", exact=True, pooling="sentence-mean", **options)["iou"]
    text = corpus().labelled(Concept.parse(concept))
    store = pl.build_store(model, text, tmp_path / "s", "resid.2", pooling="sentence-mean", long="truncate", **READ)
    again = rank(store, methods="iou", exact=True, **options)["iou"]
    np.testing.assert_allclose(again.values, made.values, rtol=1e-6)
    assert dict(zip(*_counts(again), strict=True)) == dict(zip(*_counts(made), strict=True))
    streamed = rank(store, methods=["iou", "probeless"], **options)
    assert streamed["probeless"].classes == made.classes
    near = streamed["iou"]
    assert (abs(abs(near.values) - abs(made.values)) <= near.table("error").columns["value"] + 1e-9).all()


def _counts(ranking):
    table = ranking.table("classes")
    return table.axes["class"], table.columns["words"].tolist()


def test_words_are_ranked_by_a_label_of_the_store_and_another_rule_is_refused(model, tmp_path):
    dogs, cats = Concept.words(["dog"], name="w"), Concept.words(["cat"], name="w")
    text = corpus().labelled(dogs)
    assert text.labelled(dogs) is text
    store = pl.build_store(model, text.take(20), tmp_path / "s", "resid.2", **READ)
    plain = pl.build_store(model, corpus().take(20), tmp_path / "plain", "resid.2", **READ)
    for exact in (False, True):
        found, wanted = (rank(each, concept=dogs, methods="iou", exact=exact)["iou"] for each in (store, plain))
        np.testing.assert_allclose(found.values, wanted.values)
        with pytest.raises(PellucidError, match=r"has a label called 'w' already, which does not come from this conc"):
            rank(store, concept=cats, methods="iou", exact=exact)
    assert rank(plain, concept=cats)["probeless"].classes == ("w",)
    with pytest.raises(PellucidError, match="already has a label called 'w'"):
        rank(model, text, concept=cats, sites="resid.2", progress=False)
    assert rank(model, text, concept=dogs, sites="resid.2", progress=False)["probeless"].classes == ("w",)


@pytest.mark.parametrize("method", ["iou", "precision"])
def test_a_store_that_is_not_built_to_its_end_is_not_ranked(model, tmp_path, method):
    folder = tmp_path / "s"
    half = pl.build_store(model, corpus(), folder, "resid.2", part=(0, 2), shard_tokens=64, **READ)
    assert half.missing
    said = f"is not complete: {len(half.missing)} shards are missing. Build it to the end first."
    for exact in (True, False):
        with pytest.raises(PellucidError, match=said):
            rank(half, concept="mood=1", methods=method, exact=exact)
    whole = pl.build_store(model, corpus(), folder, "resid.2", shard_tokens=64, **READ)
    assert rank(whole, concept="mood=1", methods=method, exact=True)[method].classes == ("1",)
